"""Where running things of one user meet: the runtime folder, build ids, socket names.

Shared by client and agent, so it lies below both. The runtime folder belongs to the user, not to an
environment: all agents share one ledger and one table of locks there.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import sys
import weakref
from dataclasses import dataclass

from nbdata.errors import AccessDenied

__all__ = [
    "LOG_BYTES",
    "Endpoint",
    "LockFile",
    "build_id",
    "endpoint",
    "endpoints",
    "file_lock",
    "held",
    "package_folder",
    "runtime_folder",
    "state_folder",
    "was_upgraded",
]

# Where running things are, and whose are kept without a session (loginctl(1)).
_RUN, _LINGERING = "/run", "/var/lib/systemd/linger"
#: An agent's log is begun anew beyond this many bytes.
LOG_BYTES = 5 << 20


def runtime_folder() -> str:
    """The user's private folder for sockets, locks and the ledger; made if missing.

    ``NBDATA_RUNTIME_DIR``, else ``/run/user/UID/nbdata`` where that outlives the user's sessions, else
    ``/tmp/nbdata-UID``. Never below ``$TMPDIR``, which differs between a kernel, a terminal and a batch job.

    Raises
    ------
    AccessDenied
        If it is a link, not ours, or open to others: somebody else may have put it there.
    """
    uid = os.getuid()
    folder = os.environ.get("NBDATA_RUNTIME_DIR")
    if not folder:
        base = f"{_RUN}/user/{uid}"
        usable = os.path.isdir(base) and os.stat(base).st_uid == uid and os.access(base, os.W_OK)
        usable = usable and not _ends_with_sessions(uid)
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


def _ends_with_sessions(uid: int) -> bool:
    """Whether systemd removes the user's folder when the last session ends, while our agents go on (logind.conf(5))."""
    if not os.path.isdir(f"{_RUN}/systemd/system"):
        return False
    import pwd

    try:
        return not os.path.exists(os.path.join(_LINGERING, pwd.getpwuid(uid).pw_name))
    except KeyError:
        return True


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


def was_upgraded() -> bool:
    """Whether the source files of this package are others by now than those that this process works with."""
    return build_id.__wrapped__() != build_id()


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


class LockFile:
    """An open file to flock, of which no child of a fork keeps a copy: a lock would outlive its owner in it.

    The lock goes with the process, however it ends; that is why it is a sign of life and a pid is not.

    Attributes
    ----------
    fd : int
        The descriptor; -1 while it is closed.
    """

    fd = -1

    def open(self, path: str, flags: int = 0) -> None:
        """Open `path` for reading and writing, and what else `flags` say."""
        # A child that is forked before the descriptor is noted finds its copy by the path.
        _opening.append(path)
        try:
            self.fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
            _open.add(self)
        finally:
            _opening.remove(path)

    def lock(self, *, wait: bool = True) -> bool:
        """Take the exclusive flock; without `wait`, False if somebody else holds it."""
        import fcntl

        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Give the lock back; harmless if it is closed already."""
        import fcntl

        if self.fd >= 0:
            # Not by closing alone: a child that is just being forked has a copy.
            fcntl.flock(self.fd, fcntl.LOCK_UN)
        self.close_copy()
        _open.discard(self)

    def close_copy(self) -> None:
        """In a child of a fork: the lock is the parent's."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


class file_lock:  # noqa: N801  reads as a verb where it is used: with file_lock(path):
    """An exclusive flock on a file, held as a context manager or until `release`.

    The file itself stays: removing it would let two processes hold "the" lock on two inodes. Where it may be removed
    after all, by who holds it, who takes the lock asks whether it still `stands`.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = LockFile()

    def acquire(self, *, wait: bool = True) -> bool:
        """Take the lock; without `wait`, False if somebody else holds it."""
        self._file.open(self.path, os.O_CREAT)
        taken = False
        try:
            taken = self._file.lock(wait=wait)
        finally:
            if not taken:
                self._file.close()
        return taken

    def stands(self) -> bool:
        """Whether the file that is locked still has its name."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._file.fd))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Give the lock back; harmless if it is not held."""
        self._file.close()

    def __enter__(self) -> file_lock:
        self.acquire()
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


_open: weakref.WeakSet[LockFile] = weakref.WeakSet()
# Paths that some thread opens just now.
_opening: list[str] = []


def _after_fork() -> None:
    for file in list(_open):
        file.close_copy()
    _open.clear()
    for path in _opening:
        _close_all_of(path)
    _opening.clear()


def _close_all_of(path: str) -> None:
    """Close whatever descriptors of a file this process has."""
    with contextlib.suppress(OSError):
        wanted = os.stat(path, follow_symlinks=False)
        for name in os.listdir("/dev/fd"):
            with contextlib.suppress(OSError):  # that of the listing itself is closed by now
                if os.path.samestat(os.fstat(int(name)), wanted):
                    os.close(int(name))


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
