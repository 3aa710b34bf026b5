"""An embedded S3 server on loopback: `EmbeddedServer`.

::

    with EmbeddedServer.start("demo-data/server") as server:
        server.create_bucket("demo")
        os.environ.update(server.environment())

The server runs in its own session, so Ctrl-C in a terminal or notebook does not reach it. A small supervisor
(`nbdata.demo.supervisor`) ends it when the process that started it ends, even by SIGKILL. Several processes can share
the server: `EmbeddedServer.start` on a folder with a running server attaches to it, like `EmbeddedServer.attach`. The
server ends with the process that started it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from nbdata.demo import certificates, programs, serverstate
from nbdata.errors import BadOption, StoreUnavailable
from nbdata.own_files import through_no_link

__all__ = ["EmbeddedServer"]

REGION = "us-east-1"
_TRIES = 5
_CLASH = ("already in use", "in use by another program", "not available", "bind:")


class EmbeddedServer:
    """A running S3 server on 127.0.0.1; created by `start` or `attach`, ended by `stop`.

    Attributes
    ----------
    url : str
        The endpoint, for example ``http://127.0.0.1:14711``.
    kind : str
        ``seaweedfs`` or ``moto``.
    why : str
        One sentence that names the server and the reason for its choice.
    access_key, secret_key : str
        The keys that the server accepts; not shown by ``repr``.
    pid : int
        Process id of the server.
    owned : bool
        Whether this object started the server; if so, `stop` ends it.
    """

    def __init__(self, folder: Path, state: dict[str, Any], keys: tuple[str, str]) -> None:
        self.folder = folder
        self.url: str = state["url"]
        self.kind: str = state["kind"]
        self.why: str = state["why"]
        self.pid: int = state["pid"]
        self.access_key, self.secret_key = keys
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()

    def __repr__(self) -> str:
        return f"EmbeddedServer({self.kind} at {self.url}, folder={str(self.folder)!r})"

    @property
    def owned(self) -> bool:
        """True if this process started the server through this object."""
        return self._supervisor is not None and self._owner == os.getpid()

    # -- starting and finding -----------------------------------------------------------------------

    @classmethod
    def start(
        cls,
        folder: str | os.PathLike[str],
        *,
        kind: str = "auto",
        access_key: str | None = None,
        secret_key: str | None = None,
        wait: float = 60.0,
        private: bool = True,
    ) -> EmbeddedServer:
        """Start a server that keeps its state in ``folder``, or attach to one that already runs there.

        Returns after the server has answered a signed request. A folder that was used before keeps its objects
        (SeaweedFS), its keys and, if it is free, its port.

        Parameters
        ----------
        folder : path
            Created with mode 0700 if missing.
        kind : {'auto', 'seaweedfs', 'moto'}
            ``auto`` is SeaweedFS if it is installed and starts, else moto.
        access_key, secret_key : str, optional
            Give both or neither. None: the keys of ``credentials.json``, which are random at first.
        wait : float
            Seconds within which the server must answer.
        private : bool
            Close the ports of SeaweedFS beside S3 to other users of this machine. Its parts then speak TLS with each
            other, which takes some CPU; measurements do without. moto's only port is open to all.

        Raises
        ------
        BadOption
            If an option is invalid, or the folder's running server has another kind or key.
        AccessDenied
            If the folder cannot be used, or other users could read or change its content.
        UnsafeMember
            If it is a link, or has files and no keys with this user's seal.
        NotFound
            If no server is installed.
        StoreUnavailable
            If the server did not start; includes the last lines of its log.
        """
        if (access_key is None) != (secret_key is None) or access_key == "" or secret_key == "":
            raise BadOption("access_key and secret_key belong together", remedy="Give both or none")
        where = serverstate.private_folder(folder)
        choices = programs.choose(kind)
        deadline = time.monotonic() + wait
        while (lock := serverstate.try_lock(where)) is None:
            running = cls.attach(where)
            if running is not None:
                given = (access_key, secret_key)
                if kind not in ("auto", running.kind):
                    raise BadOption(f"kind: {running.kind} runs here now", path=str(where), got=kind)
                if access_key is not None and given != (running.access_key, running.secret_key):
                    raise BadOption("a server with other keys runs here now", path=str(where))
                return running
            if time.monotonic() > deadline:
                raise StoreUnavailable("another process starts a server here, without end", path=str(where))
            time.sleep(0.1)
        with lock:
            keys = serverstate.make_credentials(where, access_key, secret_key)
            if len(choices) > 1:
                with contextlib.suppress(StoreUnavailable):
                    return cls._launch(
                        where, *choices[0], keys=keys, lock=lock, deadline=deadline, private=private
                    )
                deadline = time.monotonic() + wait
            return cls._launch(where, *choices[-1], keys=keys, lock=lock, deadline=deadline, private=private)

    @classmethod
    def attach(cls, folder: str | os.PathLike[str]) -> EmbeddedServer | None:
        """Return the server that another process runs in ``folder``, or None if none answers there yet.

        Its `stop` only detaches: the server ends with the process that started it.
        """
        where = Path(os.path.abspath(folder))
        if not serverstate.is_locked(where):
            return None
        try:
            return cls(where, serverstate.read(where / "server.json"), serverstate.read_credentials(where))
        except (FileNotFoundError, KeyError, ValueError):
            return None  # about to start

    @classmethod
    def _launch(
        cls,
        where: Path,
        kind: str,
        why: str,
        *,
        keys: tuple[str, str],
        lock: IO[bytes],
        deadline: float,
        private: bool,
    ) -> EmbeddedServer:
        wish = serverstate.forget_state(where, kind)
        for left in reversed(range(_TRIES)):
            ports = programs.free_ports(kind, wish=wish)
            url = f"http://127.0.0.1:{ports['s3']}"
            state = {"url": url, "kind": kind, "why": why, "ports": ports, "pid": 0}
            server = cls(where, state, keys)
            try:
                serverstate.prepare(where)
                if private and kind == "seaweedfs":
                    certificates.close_ports(where)
                else:
                    certificates.open_ports(where)
                server._run(programs.command(kind, ports), programs.leftovers(kind, ports), lock)
                server._wait_ready(ports, deadline)
            except BaseException as exc:
                server.stop()
                clash = isinstance(exc, StoreUnavailable) and any(word in str(exc) for word in _CLASH)
                if clash and left and time.monotonic() < deadline:
                    wish = None
                    continue
                raise
            serverstate.write(where / "server.json", {**state, "pid": server.pid})
            return server
        raise AssertionError("unreachable")

    def _run(self, command: list[str], leftovers: list[str], lock: IO[bytes]) -> None:
        scratch = self.folder / "tmp"
        task: dict[str, Any] = {"command": command, "leftovers": leftovers, "folder": str(self.folder)}
        task |= {"owner": os.getpid(), "lock": lock.fileno()}
        script = Path(__file__).with_name("supervisor.py")
        foreign = ("AWS_", "S3_", "WEED_", "MOTO_")
        env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        env["TMPDIR"] = str(scratch)
        env.update(AWS_ACCESS_KEY_ID=self.access_key, AWS_SECRET_ACCESS_KEY=self.secret_key)
        with serverstate.fresh_file(self.folder / "server.log") as log:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", str(script), json.dumps(task)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=scratch,
                env=env,
                pass_fds=(lock.fileno(),),
                start_new_session=True,
            )
        atexit.register(self.stop)
        assert self._supervisor.stdout is not None
        with self._supervisor.stdout as pipe:
            self.pid = int(pipe.readline() or b"0")

    def _wait_ready(self, ports: dict[str, int], deadline: float) -> None:
        began = time.monotonic()
        client = self._client(attempts=1, patience=2.0)
        trusted = certificates.trusted(self.folder)
        try:
            while True:
                error: Exception
                try:
                    client.list_buckets()
                    ready = programs.data_ready(self.kind, ports, self.folder / "data", trusted)
                    if ready and self.is_alive():  # not another program that took the port
                        return
                    error = ConnectionError("no volume server yet")
                except Exception as exc:  # any error of botocore means: not ready yet
                    error = exc
                if not self.is_alive() or time.monotonic() > deadline:
                    ended = "ended" if not self.is_alive() else "did not answer"
                    log = self.folder / "server.log"
                    raise StoreUnavailable(
                        f"the embedded {self.kind} server {ended} after {time.monotonic() - began:.1f} s",
                        path=str(log),
                        got=type(error).__name__,
                        remedy=f"Its last words: {serverstate.tail(log)}",
                    )
                time.sleep(0.05)
        finally:
            client.close()

    # -- using it -----------------------------------------------------------------------------------

    def environment(self) -> dict[str, str]:
        """Return the environment variables by which AWS tools and libraries find this server."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
        }

    def storage_options(self) -> dict[str, Any]:
        """Return the same settings as options of s3fs."""
        return {"key": self.access_key, "secret": self.secret_key, "endpoint_url": self.url}

    def create_bucket(self, name: str) -> None:
        """Create a bucket if it does not exist.

        Raises
        ------
        BadOption
            If the server rejects the name.
        StoreUnavailable
            If the bucket cannot be created.
        """
        from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

        client = self._client(attempts=4, patience=20.0)
        try:
            client.create_bucket(Bucket=name)
        except (ClientError, ParamValidationError) as exc:
            code = exc.response["Error"]["Code"] if isinstance(exc, ClientError) else "InvalidBucketName"
            if code in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
                return
            if code == "InvalidBucketName":
                raise BadOption(f"{name!r} is not a bucket name", expected="3 to 63 of a-z 0-9 . -") from exc
            raise StoreUnavailable(f"bucket {name} was not made", path=self.url, got=code) from exc
        except BotoCoreError as exc:
            raise StoreUnavailable(f"bucket {name} was not made: {exc}", path=self.url) from exc
        finally:
            client.close()

    def put(self, bucket: str, key: str, file: Path) -> None:
        """Upload a file as an object.

        Raises
        ------
        StoreUnavailable
            If the object cannot be created.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        client = self._client(attempts=4, patience=20.0)
        try:
            with open(file, "rb", opener=through_no_link) as body:
                client.put_object(Bucket=bucket, Key=key, Body=body)
        except (BotoCoreError, ClientError) as exc:
            raise StoreUnavailable(f"{bucket}/{key} was not made: {exc}", path=self.url) from exc
        finally:
            client.close()

    def remove_at_end(self) -> None:
        """Mark the server's folder for removal when the server ends, however its owner ends."""
        (self.folder / "temporary").touch(mode=0o600)

    def is_alive(self) -> bool:
        """True if the server's process runs."""
        if self.owned:
            assert self._supervisor is not None
            return self._supervisor.poll() is None
        if self._supervisor is not None and not serverstate.is_locked(self.folder):
            return False  # called in a forked child of the owner
        with contextlib.suppress(OSError, ValueError):
            return serverstate.is_locked(self.folder) and bool(
                serverstate.read(self.folder / "server.json").get("pid") == self.pid
            )
        return False

    def stop(self) -> None:
        """End the server and wait for its end; for another process's server, only detach.

        Its own supervisor sends it SIGTERM and, if it does not end, SIGKILL.
        """
        atexit.unregister(self.stop)
        if not self.owned:
            return
        process = self._supervisor
        assert process is not None
        assert process.stdin is not None
        if not process.stdin.closed:
            with contextlib.suppress(OSError):  # not only a close: forked children may hold the pipe open
                process.stdin.write(b"stop\n")
                process.stdin.flush()
            with contextlib.suppress(OSError):
                process.stdin.close()
        try:
            process.wait(25)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> EmbeddedServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _client(self, *, attempts: int, patience: float) -> Any:
        """Create a botocore client for this server, independent of the user's profile, proxy and endpoint."""
        from botocore.config import Config

        config = Config(
            connect_timeout=patience,
            read_timeout=patience,
            retries={"total_max_attempts": attempts},
            proxies={},
            s3={"addressing_style": "path"},
        )
        return _session().create_client(
            "s3",
            region_name=REGION,
            endpoint_url=self.url,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=config,
        )


@functools.lru_cache(maxsize=1)
def _session() -> Any:
    """Return a botocore session that reads no settings; shared, because each session loads its models again."""
    from botocore.session import Session

    nowhere = (None, None, os.devnull, None)
    return Session({"profile": (None, None, None, None), "config_file": nowhere, "credentials_file": nowhere})
