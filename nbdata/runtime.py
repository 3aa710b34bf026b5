"""Where running things of one user meet: the runtime folder, build ids, socket names.

Shared by client and agent, so it lies below both. The runtime folder belongs to the user, not to an
environment: all agents share one ledger and one table of locks there.
"""

from __future__ import annotations

import functools
import hashlib
import os
import stat
import sys
import weakref
from dataclasses import dataclass
from typing import Protocol

from nbdata.errors import AccessDenied

__all__ = [
    "LOG_BYTES",
    "Endpoint",
    "build_id",
    "endpoint",
    "endpoints",
    "file_lock",
    "held",
    "let_go_after_fork",
    "package_folder",
    "runtime_folder",
    "state_folder",
]

#: An agent's log is begun anew beyond this many bytes.
LOG_BYTES = 5 << 20


def runtime_folder() -> str:
    """The user's private folder for sockets, locks and the ledger; made if missing.

    ``NBDATA_RUNTIME_DIR``, else ``/run/user/UID/nbdata``, else ``/tmp/nbdata-UID``. Never below
    ``$TMPDIR``, which differs between a kernel, a terminal and a batch job.

    Raises
    ------
    AccessDenied
        If it is a link, not ours, or open to others: somebody else may have put it there.
    """
    uid = os.getuid()
    folder = os.environ.get("NBDATA_RUNTIME_DIR")
    if not folder:
        base = f"/run/user/{uid}"
        usable = os.path.isdir(base) and os.stat(base).st_uid == uid and os.access(base, os.W_OK)
        folder = f"{base}/nbdata" if usable else f"/tmp/nbdata-{uid}"  # noqa: S108  checked below
    folder = os.path.abspath(folder)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid or found.st_mode & 0o077:
        raise AccessDenied(
            "the runtime folder is not private",
            path=folder,
            expected=f"a folder of user {uid} with mode 0700",
            got=f"owner {found.st_uid}, mode {stat.filemode(found.st_mode)}",
            remedy="Remove it, or name another one in NBDATA_RUNTIME_DIR",
        )
    return folder


def state_folder() -> str:
    """Where the index and lasting limits are kept: ``NBDATA_STATE_DIR``, else the platform's folder."""
    chosen = os.environ.get("NBDATA_STATE_DIR")
    if chosen:
        return os.path.abspath(chosen)
    import platformdirs

    return platformdirs.user_state_dir("nbdata")


def package_folder() -> str:
    """Where this package lies."""
    return os.path.dirname(os.path.realpath(__file__))


@functools.lru_cache(maxsize=1)
def build_id() -> str:
    """A hash of version, place, and size and time of every source file of this package.

    Editable installs and upgrades would otherwise mix the code of two builds in one conversation.
    """
    package = package_folder()
    digest = hashlib.sha256(package.encode())
    for folder, folders, files in os.walk(package):
        folders[:] = sorted(f for f in folders if f not in ("__pycache__", "labextension"))
        for name in sorted(files):
            if name.endswith(".py"):
                found = os.stat(os.path.join(folder, name))
                digest.update(f"{folder}/{name} {found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Endpoint:
    """One agent's files: a socket, the lock whose flock is its sign of life, and its log."""

    folder: str
    name: str

    @property
    def socket(self) -> str:
        """Path of the Unix socket."""
        return f"{self.folder}/{self.name}.sock"

    @property
    def alive(self) -> str:
        """Path of the file on which a living agent holds a flock."""
        return f"{self.folder}/{self.name}.alive"

    @property
    def start(self) -> str:
        """Path of the file whose flock serialises starting, and accepting against exiting."""
        return f"{self.folder}/{self.name}.start"

    @property
    def log(self) -> str:
        """Path of the agent's log."""
        return f"{self.folder}/{self.name}.log"


def endpoint() -> Endpoint:
    """The endpoint of this environment and build."""
    environment = hashlib.sha256(os.path.realpath(sys.prefix).encode()).hexdigest()[:8]
    return Endpoint(runtime_folder(), f"{environment}-{build_id()}")


def endpoints() -> list[Endpoint]:
    """All endpoints with a socket, of every environment and build, this one's first."""
    folder = runtime_folder()
    own = endpoint()
    names = sorted(n[:-5] for n in os.listdir(folder) if n.endswith(".sock"))
    return sorted((Endpoint(folder, n) for n in names), key=lambda e: (e.name != own.name, e.name))


class file_lock:  # noqa: N801  reads as a verb where it is used: with file_lock(path):
    """An exclusive flock on a file, held as a context manager or until `release`.

    The lock goes with the process, however it ends; that is why it is a sign of life and a pid is not.
    The file itself stays: removing it would let two processes hold "the" lock on two inodes.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1

    def acquire(self, *, wait: bool = True) -> bool:
        """Take the lock; without `wait`, False if somebody else holds it."""
        import fcntl

        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        # Before it is locked: a child that is forked in between must close its copy too.
        self._fd = fd
        _inherited.add(self)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BaseException as error:
            self._fd = -1
            _inherited.discard(self)
            os.close(fd)
            if isinstance(error, BlockingIOError):
                return False
            raise
        return True

    def release(self) -> None:
        """Give the lock back; harmless if it is not held."""
        import fcntl

        if self._fd >= 0:
            # Not by closing alone: a child that is just being forked has a copy.
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        fd, self._fd = self._fd, -1
        _inherited.discard(self)
        if fd >= 0:
            os.close(fd)

    def close_copy(self) -> None:
        """In a child of a fork: close the copy, which leaves the lock with the parent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> file_lock:
        self.acquire()
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


class _Inherited(Protocol):
    def close_copy(self) -> None: ...


#: What a child of a fork must let go of, or a lock would outlive its owner.
_inherited: weakref.WeakSet[_Inherited] = weakref.WeakSet()


def let_go_after_fork(owner: _Inherited) -> None:
    """Call ``owner.close_copy()`` in every child of a fork while `owner` lives."""
    _inherited.add(owner)


def _after_fork() -> None:
    for owner in list(_inherited):
        owner.close_copy()
    _inherited.clear()


os.register_at_fork(after_in_child=_after_fork)


def held(path: str) -> bool:
    """Whether some process holds the flock on `path`."""
    if not os.path.exists(path):
        return False
    lock = file_lock(path)
    if lock.acquire(wait=False):
        lock.release()
        return False
    return True
