"""Secrets in every place where a user can put one, and a search in every place where one could leak."""

from __future__ import annotations

import base64
import contextlib
import io
import secrets
import socket
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple
from urllib.parse import quote

from nbdata.demo.server import EmbeddedServer
from tests.stores.servers import read_head, serving

FORBIDDEN = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Line(NamedTuple):
    """A user's command, with ``{names}`` of the scene, and whether it succeeds."""

    words: str
    good: bool


BAD = "--option key=env:BAD_KEY --option secret=env:BAD_SECRET --option token=env:BAD_TOKEN"
OURS = "--option key=env:OUR_KEY --option secret=env:OUR_SECRET"

# Each verb, succeeding and failing, with secrets in options, variables, a profile, and passwords and signatures of
# URLs.
LINES = [
    Line(f"pull {{bucket}}/d/ a {OURS}", True),
    Line("pull {bucket}/d/ b", True),
    Line("pull {bucket}/d/ b --option profile=ours -n", True),
    Line(f"pull {{bucket}}/d/ c {BAD}", False),
    Line("pull {bucket}/d/ c --option profile=canary", False),
    Line("pull {bucket}/d/ c --option secret=env:BAD_SECRET", False),
    Line("pull {bucket}/d/ c --option sekret=env:BAD_SECRET", False),
    Line("pull {with_keys}/d/ c", False),
    Line("pull {with_odd_keys}/d/ c", False),
    Line("pull {odd_password} h/", False),
    Line("pull {signed} e/", True),
    Line("pull {signed}", True),
    Line("pull {signed_refused} f/", False),
    Line("pull {password} g/", True),
    Line("pull {password_refused} h/", False),
    Line("pull {password_gone} h/", False),
    Line("pull {sftp_gone} h/", False),
    Line("pull {bucket}/d/ {signed}", False),
    Line("push tree {bucket}/p/ --delete-source", True),
    Line(f"push tree2 {{bucket}}/p/ {BAD}", False),
    Line("push {password} {bucket}/p/", False),
    Line("copy {bucket}/d/ {bucket}/c/", True),
    Line("copy {password} {bucket}/w/ --on-error report", True),
    Line("copy {signed_refused} {bucket}/w/", False),
    Line(f"copy {{bucket}}/d/ {{bucket}}/c/ {BAD.replace('--option', '--target-option')}", False),
    Line("md5check a --against {bucket}/d/", True),
    Line("md5check {signed} --against {password_refused}", False),
    Line("md5check {signed}", False),
    Line("untar_volumes {signed} t", True),
    Line("untar_volumes {password_refused} t", False),
    Line("untar_volumes {bucket}/d/ t2", False),
    Line("pack {bucket}/d/ {bucket}/k/ --by file", True),
    Line(f"pack {{bucket}}/d/ {{bucket}}/k/ --by file {BAD}", False),
    Line("pack {signed_refused} {bucket}/k/ --by file", False),
    Line("shards verify {bucket}/none-*.tar", False),
    Line("quota {password}", False),
    Line("quota .", True),
    Line("cleanup {signed}", True),
    Line("cleanup a --all", True),
    Line(f"cleanup {{bucket}}/p/ {BAD}", False),
    Line("transfers --all", True),
    Line("transfers zzzz --wait", False),
]
STREAMS = [
    Line("cache_stream {bucket}/d/ --by file --cache-dir s --max-size 1MB", True),
    Line(f"cache_stream {{bucket}}/d/ --by file --cache-dir s {BAD}", False),
    Line("cache_stream {signed_refused} --by file --cache-dir s", False),
]


class Scene:
    """The secrets, and servers that accept them; a context manager.

    Attributes
    ----------
    names : dict
        Replacements for ``{name}`` in a command.
    variables : dict
        The user's environment variables.
    """

    def __init__(self, folder: Path, server: EmbeddedServer, bucket: str) -> None:
        self._folder, self._stack = folder, contextlib.ExitStack()
        self._cores = {"key": server.access_key, "secret": server.secret_key}
        self.names = {"bucket": f"s3://{bucket}"}
        self.variables = {
            **server.environment(),
            "OUR_KEY": server.access_key,
            "OUR_SECRET": server.secret_key,
        }

    def new(self, name: str) -> str:
        """Return a new secret with characters that URLs encode."""
        self._cores[name] = core = secrets.token_hex(12)
        return f"{core}/+{name}="

    def __enter__(self) -> Scene:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            tar.addfile(tarfile.TarInfo("member.txt"), io.BytesIO())
        good = f"127.0.0.1:{self._stack.enter_context(serving(giving(archive.getvalue())))}"
        bad = f"127.0.0.1:{self._stack.enter_context(serving(giving(None)))}"
        word, sign, token = (quote(self.new(name), safe="") for name in ("password", "signature", "session"))
        self._basic = base64.b64encode(f"user:{self._cores['password']}/+password=".encode()).decode()
        query = f"X-Amz-Credential={sign}&X-Amz-Security-Token={token}&X-Amz-Signature={sign}"
        self.names |= {
            "signed": f"http://{good}/set/archive.tar?{query}",
            "signed_refused": f"http://{bad}/set/archive.tar?{query}",
            "password": f"http://user:{word}@{good}/set/archive.tar",
            "password_refused": f"http://user:{word}@{bad}/set/archive.tar",
            "password_gone": f"http://user:{word}@127.0.0.1:9/set/archive.tar",
            "sftp_gone": f"sftp://user:{word}@127.0.0.1:9/set/x",
            "with_keys": f"s3://user:{word}@bucket",
            # not escaped, as people write them: with a slash
            "with_odd_keys": f"s3://user:{self.new('odd_key')}@bucket",
            "odd_password": f"http://user:{self.new('odd_password')}@127.0.0.1:9/set/x",
        }
        for name in ("BAD_KEY", "BAD_SECRET", "BAD_TOKEN"):
            self.variables[name] = self.new(name)
        profiles = self._folder.parent / "profiles"
        profiles.write_text(
            f"[canary]\naws_access_key_id = {self.new('profile_key')}\n"
            f"aws_secret_access_key = {self.new('profile_secret')}\n"
            f"[ours]\naws_access_key_id = {self.variables['OUR_KEY']}\n"
            f"aws_secret_access_key = {self.variables['OUR_SECRET']}\n"
        )
        self.variables["AWS_SHARED_CREDENTIALS_FILE"] = str(profiles)
        # Also a proxy with a password, which nothing here uses.
        proxy = quote(self.new("proxy"), safe="")
        self.variables |= {"https_proxy": f"http://user:{proxy}@127.0.0.1:9", "no_proxy": "127.0.0.1"}
        for name in ("tree", "tree2"):
            (self._folder / name).mkdir()
            (self._folder / name / "x").write_text(name)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def found_in(self, data: str | bytes) -> list[str]:
        """Return the names of the secrets in some data, raw or encoded as in a header."""
        raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
        found = [name for name, core in self._cores.items() if core.encode() in raw]
        return [*found, "basic"] if self._basic.encode() in raw else found

    def found_below(self, *folders: str | Path) -> list[tuple[str, list[str]]]:
        """Return files with a secret in their name or content, and the names of the secrets."""
        found = []
        for path in (path for folder in folders for path in Path(folder).rglob("*")):
            with contextlib.suppress(OSError):  # sockets, and files that vanish meanwhile
                shown = self.found_in(str(path)) + (
                    self.found_in(path.read_bytes()) if path.is_file() else []
                )
                if shown:
                    found.append((str(path), shown))
        return found


def giving(body: bytes | None) -> object:
    """A server that returns one file under every name; with None, it refuses everything."""

    def handle(connection: socket.socket) -> None:
        head = read_head(connection)
        if body is None or not head:
            connection.sendall(FORBIDDEN)
            return
        answer = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
        connection.sendall(answer + (b"" if head.startswith(b"HEAD") else body))

    return handle


class ProcessList:
    """Records continuously what any user of the machine can see of processes; a context manager."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._over = scene, threading.Event()
        self.seen: set[str] = set()
        self.looks = 0

    def __enter__(self) -> ProcessList:
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.is_set():
            for process in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    words = process.read_bytes()
                    if self._scene.found_in(words):
                        self.seen.add(words.replace(b"\0", b" ").decode(errors="replace"))
            self.looks += 1
            self._over.wait(0.02)


def agents(runtime: str) -> Iterator[Path]:
    """Yield the processes of agents."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (
                b"bootstrap.py" in (process / "cmdline").read_bytes()
                and f"NBDATA_RUNTIME_DIR={runtime}".encode() in (process / "environ").read_bytes()
            ):
                yield process
