"""Where a service listens, and the file that says so: only its user can read that, and it has the keys.

``services/NAME.json`` in the runtime folder is that file; the socket of ``ipc`` lies beside it. TCP is always encrypted
and authenticated (CURVE), with keys that are made at each start: who has no copy of the file is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import zmq

from nbdata.disk import write_file
from nbdata.errors import AccessDenied, BadOption, NotFound
from nbdata.loaders.service.batches import FRAME_MOST, PIECE
from nbdata.lock_files import file_lock
from nbdata.own_files import small_file
from nbdata.redaction import remember
from nbdata.runtime import runtime_folder
from nbdata.services import KIND

__all__ = ["OVER_TCP", "SEALED", "Address", "Place", "endpoint_of", "is_tcp", "reached"]

# The endings of the files of a service; a killed one may leave each of them alone.
_KINDS = ("json", "sock", KIND)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
_LISTEN = re.compile(r"tcp://(?P<host>[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>\d{1,5})")
#: The most bytes of a consumer's message over TCP.
OVER_TCP = 256 << 10
#: Bytes that the encryption adds to a message at most.
SEALED = 64
# Milliseconds within which a connection over TCP must show its keys.
_HANDSHAKE = 2_000
# The most bytes of the file, and the longest path of a Unix socket.
_MOST, _PATH = 4096, 100
# Seconds that a new service waits for a port that the workers of a killed one may hold, and for a lock.
_PATIENCE, _LOOK = 10.0, 0.5


@dataclass(frozen=True)
class Address:
    """What a client needs to reach a service.

    Attributes
    ----------
    endpoint : str
        ``ipc://PATH`` or ``tcp://HOST:PORT``.
    service : str
        The service's public key; empty for ``ipc``.
    public, secret : str
        The keys of its clients.
    """

    endpoint: str
    service: str = ""
    public: str = ""
    secret: str = field(default="", repr=False)

    @classmethod
    def read(cls, path: str) -> Address:
        """Return what a file says, which only this user may read.

        Raises
        ------
        NotFound
            If it is not there: the service does not run.
        AccessDenied
            If it is another user's, or others may read or write it.
        """
        try:
            with small_file(path, _MOST) as fd:
                status, text = os.fstat(fd), os.read(fd, _MOST)
        except FileNotFoundError:
            raise NotFound(
                "no loader service has this address file",
                path=path,
                remedy="Start the service, and give Client the path that it prints",
            ) from None
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise AccessDenied(
                "the address file of a loader service is not private",
                path=path,
                expected=f"a file of user {os.geteuid()} with mode 0600",
                got=f"owner {status.st_uid}, mode {stat.filemode(status.st_mode)}",
                remedy="If you copied it here: chmod 600",
            )
        try:
            told: dict[str, Any] = json.loads(text)
            address = cls(**{name: str(told[name]) for name in ("endpoint", "service", "public", "secret")})
        except (ValueError, KeyError, TypeError):
            raise BadOption("this is no address file of a loader service", path=path) from None
        encrypted = is_tcp(address.endpoint) and address.secret
        if not encrypted and not address.endpoint.startswith("ipc:///"):
            raise BadOption("this is no address file of a loader service", path=path)
        if address.secret:
            remember(address.secret)
        return address


class Place:
    """The files of a service that runs. A context manager: one service at a time has a name.

    Parameters
    ----------
    name : str
        Stays the same over restarts, so that clients find the service again.
    listen : str
        ``ipc``, or ``tcp://HOST:PORT``; port 0 takes a free one.
    state : str, optional
        The file of the state, which one service at a time writes.

    Attributes
    ----------
    path, status : str
        The address file, and the file that tells what the service does.
    name : str
    where : str
        ``ipc``, or ``tcp://HOST:PORT``.
    server_secret : str
    piece : int
        The most bytes of a frame that is sent.
    """

    def __init__(self, name: str, listen: str, state: str | None = None) -> None:
        if not _NAME.fullmatch(name):
            raise BadOption(
                f"name: {name!r} is no name of a loader service", expected="letters, digits, -, _ and ."
            )
        self._tcp = _LISTEN.fullmatch(listen)
        if listen != "ipc" and (self._tcp is None or int(self._tcp["port"]) >= 1 << 16):
            raise BadOption(f"listen: {listen!r} is no place to listen at", expected="ipc or tcp://HOST:PORT")
        if self._tcp is not None and not zmq.has("curve"):
            raise BadOption("listen: this ZeroMQ has no encryption (CURVE)", remedy="Listen at ipc")
        self.name, self.where, self._listen = name, "ipc", listen
        self.piece = FRAME_MOST if self._tcp is None else PIECE
        self.server_secret = ""
        self.path = self.status = ""
        self._state = state
        self._locks = contextlib.ExitStack()

    def __enter__(self) -> Place:
        self._folder = os.path.join(runtime_folder(), "services")
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._folder, 0o700)
        _refuse_open(self._folder)
        self.path = os.path.join(self._folder, f"{self.name}.json")
        self.status = os.path.join(self._folder, f"{self.name}.{KIND}")
        lock, end = file_lock(os.path.join(self._folder, f"{self.name}.lock")), time.monotonic() + _LOOK
        while not lock.acquire(wait=False):
            if time.monotonic() > end:  # else it may only be the sweep of another service
                raise BadOption(
                    f"a loader service with the name {self.name} runs already",
                    path=self.path,
                    remedy="Give this one another name, or end that one",
                )
            time.sleep(0.02)
        self._locks.callback(lock.release)
        try:
            if self._state is not None:
                self._lock_state(self._state)
            self._sweep()
        except BaseException:
            self._locks.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove(self.name)
        self._locks.close()

    def _lock_state(self, state: str) -> None:
        """Keep services of other names from the file of the state: each would undo what the other records."""
        digest = hashlib.blake2b(os.fsencode(os.path.realpath(state)), digest_size=8).hexdigest()
        path = os.path.join(self._folder, f".{digest}.lock")
        lock = file_lock(path)
        while True:
            if not lock.acquire(wait=False):
                raise BadOption(
                    "state: a loader service that runs has this file", path=state, expected="one for each"
                )
            if lock.stands():
                break
            lock.release()  # its last holder has removed it
        self._locks.callback(lock.release)
        self._locks.callback(os.unlink, path)

    def bind(self, socket: zmq.Socket[bytes]) -> None:
        """Bind the service's socket, and write the address file."""
        if self._tcp is None:
            path = os.path.join(self._folder, f"{self.name}.sock")
            with reached(f"ipc://{path}") as endpoint:
                socket.bind(endpoint)
            address = Address(f"ipc://{path}")
        else:
            public, secret = (key.decode() for key in zmq.curve_keypair())
            service, self.server_secret = (key.decode() for key in zmq.curve_keypair())
            remember(secret, self.server_secret)
            socket.curve_server = True
            socket.curve_secretkey = self.server_secret.encode()
            socket.zap_domain = b"service"
            # Strangers may send as much as a message before they show their keys, each of them.
            socket.setsockopt(zmq.MAXMSGSIZE, OVER_TCP + SEALED)
            socket.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE)
            socket.setsockopt(zmq.IPV6, int("[" in self._listen))
            self._bind_tcp(socket)
            port = endpoint_of(socket).rpartition(":")[2]
            self.where = f"tcp://{self._tcp['host']}:{port}"
            address = Address(self.where, service, public, secret)
        self.client_key = address.public
        write_file(self.path, [json.dumps(asdict(address)).encode()], umask=0o077)

    def _bind_tcp(self, socket: zmq.Socket[bytes]) -> None:
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                socket.bind(self._listen)
                return
            except zmq.ZMQError as error:
                if error.errno != zmq.EADDRINUSE or time.monotonic() > end:
                    raise BadOption(
                        f"listen: {self._listen} cannot be listened at ({error.strerror})"
                    ) from None
            time.sleep(0.05)

    def _sweep(self) -> None:
        """Remove what killed services of other names left."""
        for entry in os.listdir(self._folder):
            name, _, kind = entry.rpartition(".")
            lock = file_lock(os.path.join(self._folder, f"{name}.lock"))
            if kind in _KINDS and _NAME.fullmatch(name) and name != self.name and lock.acquire(wait=False):
                self._remove(name)
                lock.release()

    def _remove(self, name: str) -> None:
        for kind in (*_KINDS, f"{KIND}.new"):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._folder, f"{name}.{kind}"))


def _refuse_open(folder: str) -> None:
    status = os.lstat(folder)
    if (
        not stat.S_ISDIR(status.st_mode)
        or status.st_uid != os.geteuid()
        or stat.S_IMODE(status.st_mode) & 0o077
    ):
        raise AccessDenied(
            "the folder of loader services is not private",
            path=folder,
            expected=f"a folder of user {os.geteuid()} with mode 0700",
            got=f"owner {status.st_uid}, mode {stat.filemode(status.st_mode)}",
            remedy="Remove it, or close it with chmod 700",
        )


def is_tcp(endpoint: str) -> bool:
    """True for ``tcp://HOST:PORT``."""
    return _LISTEN.fullmatch(endpoint) is not None


def endpoint_of(socket: zmq.Socket[bytes]) -> str:
    """Return the endpoint that a socket is bound to."""
    last = socket.getsockopt(zmq.LAST_ENDPOINT)
    assert isinstance(last, bytes)
    return last.decode().rstrip("\0")


@contextlib.contextmanager
def reached(endpoint: str) -> Iterator[str]:
    """Yield an endpoint for ZeroMQ: of a path that is too long for a socket, one that begins at its open folder.

    The folder stays open until the block ends, so a client stays in it while it is connected.
    """
    path = endpoint.removeprefix("ipc://")
    if path == endpoint:
        yield endpoint
        return
    folder, name = os.path.split(path)
    try:
        _refuse_open(folder)
    except FileNotFoundError:
        raise NotFound("the folder of this loader service is gone", path=folder) from None
    if len(os.fsencode(path)) <= _PATH:
        yield endpoint
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield f"ipc:///proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)
