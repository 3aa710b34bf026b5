"""The runtime folder, build ids and socket names that a user's nbdata processes share.

Client and agent both use this, so it lies below both. The runtime folder belongs to the user, not to an environment:
all agents share one ledger and one table of locks there.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import secrets
import stat
import sys
from dataclasses import dataclass

from nbdata.errors import AccessDenied, BadOption
from nbdata.other_users import exchangeable_by_others
from nbdata.paths import is_inside

__all__ = [
    "LOG_BYTES",
    "Endpoint",
    "agent_id",
    "build_id",
    "endpoint",
    "endpoints",
    "package_folder",
    "runtime_folder",
    "state_folder",
    "was_upgraded",
]

# The system's folder for running things, and its list of users whose things outlive their sessions (loginctl(1)).
_RUN, _LINGERING = "/run", "/var/lib/systemd/linger"
# The names that nbdata gives in the runtime folder and the state folder, which may be one; and that of a deleted file
# on NFS.
_NAMES = re.compile(
    r"caches|index|jobs|lists|locks|mounts|samples|services|state|key(-\d+)?(\.[0-9a-f]{16})?|limits\w{8}|"
    r"connections\.json|(ledger|limits)\.json(\.new)?|"
    r"(connections|history|ledger|limits|uploads)\.lock|uploads\.claim|(jobs|uploads)\.log(\.new)?|holder-[0-9a-f]{16}|"
    r"[0-9a-f]{8}-[0-9a-f]{16}\.(alive|log|sock|start)|[0-9a-f]{24}|\.nfs[0-9a-f]+"
)
#: Size in bytes beyond which an agent's log starts afresh.
LOG_BYTES = 5 << 20


def runtime_folder() -> str:
    """Return the user's private folder for sockets, locks and the ledger; made if missing.

    ``NBDATA_RUNTIME_DIR``, else ``/run/user/UID/nbdata`` where that outlives the user's sessions, else
    ``/tmp/nbdata-UID``. Never below ``$TMPDIR``, which differs between a kernel, a terminal and a batch job.

    Raises
    ------
    AccessDenied
        If it is a link, not ours, or open to others: another user may have put it there. If ``NBDATA_RUNTIME_DIR``
        names a folder that another user can exchange.
    BadOption
        If that names a folder with anything else in it.
    """
    uid = os.getuid()
    folder = chosen = os.environ.get("NBDATA_RUNTIME_DIR")
    if not folder:
        base = f"{_RUN}/user/{uid}"
        usable = os.path.isdir(base) and os.stat(base).st_uid == uid and os.access(base, os.W_OK)
        usable = usable and not _ends_with_sessions(uid)
        folder = f"{base}/nbdata" if usable else f"/tmp/nbdata-{uid}"  # noqa: S108  checked below
    folder = os.path.abspath(folder)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    status = os.lstat(folder)
    if not _is_private(status, {uid}, 0o077):
        raise _not_private("runtime", folder, status, f"a folder of user {uid} with mode 0700", "chmod 700")
    if chosen:
        _refuse_exchangeable(folder)
        _refuse_shared("runtime", folder)
    return folder


@functools.lru_cache(64)
def _refuse_exchangeable(folder: str) -> None:
    """Raise AccessDenied if another user can exchange the runtime folder.

    It is enough to look once: if nobody else can exchange it, nobody else can change that.
    """
    if (through := _exchangeable_through(folder)) is not None:
        raise _exchangeable("runtime", folder, through)


def _exchangeable_through(folder: str, *, any_owner: bool = False) -> str | None:
    """Return what `exchangeable_by_others` returns; a home folder that the folder lies in is trusted."""
    home = os.path.normpath(os.path.expanduser("~"))
    known = is_inside(folder, home) and os.path.isdir(home)
    return exchangeable_by_others(folder, home=home if known else "", any_owner=any_owner)


@functools.lru_cache(64)
def _refuse_shared(kind: str, folder: str) -> None:
    """Raise BadOption if there is anything in a named folder that is not nbdata's: files could have the same names."""
    others = sorted(name for name in os.listdir(folder) if not _NAMES.fullmatch(name))
    if others:
        more = f" and {len(others) - 1:,} more" if others[1:] else ""
        raise BadOption(
            f"NBDATA_{kind.upper()}_DIR names a folder with other things in it",
            path=folder,
            expected="a folder for nbdata alone",
            got=f"{others[0]}{more}",
            remedy=f"Name {os.path.join(folder, 'nbdata')}",
        )


def _is_private(status: os.stat_result, owners: set[int], shut: int) -> bool:
    """True for a folder of one of these users that gives others no right of `shut`."""
    return stat.S_ISDIR(status.st_mode) and status.st_uid in owners and not status.st_mode & shut


def _not_private(kind: str, folder: str, status: os.stat_result, expected: str, close: str) -> AccessDenied:
    yours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    remedy = f"Close it to others with {close}, or " if yours else "Remove it, or "
    return AccessDenied(
        f"the {kind} folder is not private",
        path=folder,
        expected=expected,
        got=f"owner {status.st_uid}, mode {stat.filemode(status.st_mode)}",
        remedy=f"{remedy}name another one in NBDATA_{kind.upper()}_DIR",
    )


def _exchangeable(kind: str, folder: str, through: str) -> AccessDenied:
    """Return the error for a folder that others can exchange through a folder, or a link, on the way to it."""
    status = os.lstat(through)
    yours = status.st_uid == os.geteuid() and not stat.S_ISLNK(status.st_mode)
    close = f"Close {through} to others with chmod go-w, or name" if yours else "Name"
    return AccessDenied(
        f"another user could exchange the {kind} folder",
        path=folder,
        expected=f"a way that only user {os.geteuid()} and root can change",
        got=f"{through} of user {status.st_uid} with mode {stat.filemode(status.st_mode)}",
        remedy=f"{close} a folder elsewhere in NBDATA_{kind.upper()}_DIR",
    )


def _ends_with_sessions(uid: int) -> bool:
    """True if systemd removes the user's folder after the last session, while our agents continue (logind.conf(5))."""
    if not os.path.isdir(f"{_RUN}/systemd/system"):
        return False
    import pwd

    try:
        return not os.path.exists(os.path.join(_LINGERING, pwd.getpwuid(uid).pw_name))
    except KeyError:
        return True


def state_folder() -> str:
    """Return the folder of the index and lasting limits: ``NBDATA_STATE_DIR``, else the platform's folder.

    It is made if missing. Where that fails, or this user has no home folder or cannot write in it, it is ``state`` in
    the runtime folder. It is looked at once in each process, and returned without links: whoever owns a folder on the
    way could change it.

    Raises
    ------
    BadOption
        If ``NBDATA_STATE_DIR`` is relative, or names a folder with anything else in it.
    AccessDenied
        If this user can write in it and so can others, or it is another user's, or others could exchange it: files
        there decide what is replaced.
    """
    chosen = os.environ.get("NBDATA_STATE_DIR")
    if chosen and not os.path.isabs(chosen):
        raise BadOption(
            "NBDATA_STATE_DIR is relative, so each working folder would have another one",
            expected="an absolute path",
            got=chosen,
            remedy=f"Perhaps {os.path.abspath(chosen)} is meant",
        )
    folder = os.path.normpath(chosen) if chosen else _platform_folder()
    usable = None if folder is None else _usable_state(folder, named=bool(chosen))
    return usable or os.path.join(runtime_folder(), "state")


def _platform_folder() -> str | None:
    """Return the platform's folder for a user's state; None if the user has no home folder, as in some containers."""
    import platformdirs

    try:
        folder = platformdirs.user_state_dir("nbdata")
    except (KeyError, OSError, RuntimeError):
        return None
    # Otherwise a working folder with a folder called ~ would have the state.
    return folder if os.path.isabs(folder) else None


@functools.lru_cache(64)
def _usable_state(folder: str, *, named: bool) -> str | None:
    """Return the state folder without links, made if missing; None if this user cannot write in it.

    AccessDenied if others could exchange it or change what is in it, BadOption if a named one is not for nbdata alone.
    """
    owners = {os.geteuid()}
    over_users = 0 in owners  # root in a container over the disk of a user
    try:
        through = _exchangeable_through(folder, any_owner=over_users)
        if through is None and not os.path.lexists(folder):
            from nbdata.disk import make_folders

            make_folders(folder, 0o700)
            through = _exchangeable_through(folder, any_owner=over_users)
        if not named and over_users:
            owners.add(os.stat(os.path.expanduser("~")).st_uid)
        real = os.path.realpath(folder)
        while through is not None and not os.path.lexists(real):  # it was not made
            real = os.path.dirname(real)
        fd = os.open(real, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=fd):
            return None
    finally:
        os.close(fd)
    if through is not None:
        raise _exchangeable("state", folder, through)
    if not _is_private(status, owners, 0o022) and not _gives_all_files_one_owner(real, status):
        expected = f"a folder of user {os.geteuid()} in which nobody else may write"
        raise _not_private("state", folder, status, expected, "chmod go-w")
    if named:
        _refuse_shared("state", real)
    return real


def _gives_all_files_one_owner(folder: str, status: os.stat_result) -> bool:
    """True if the disk of a folder gives each file the owner of the folder, and its mode, as FAT and some NFS do."""
    probe = os.path.join(folder, secrets.token_hex(12))
    try:
        # Not a folder: somebody could exchange one before it is looked at.
        fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return False
    try:
        made = os.fstat(fd)
        return made.st_uid == status.st_uid and not status.st_mode & ~made.st_mode & 0o022
    finally:
        os.close(fd)
        with contextlib.suppress(OSError):
            os.unlink(probe)


def package_folder() -> str:
    """Return the folder of this package."""
    return os.path.dirname(os.path.realpath(__file__))


@functools.lru_cache(maxsize=1)
def build_id() -> str:
    """Return a hash of the version, the place, and the size and time of every source file of this package.

    Without it, editable installs and upgrades would mix the code of two builds in one conversation.
    """
    package = package_folder()
    digest = hashlib.sha256(package.encode())
    for folder, folders, files in os.walk(package):
        folders[:] = sorted(f for f in folders if f not in ("__pycache__", "labextension"))
        for name in sorted(files):
            if name.endswith(".py"):
                status = os.stat(os.path.join(folder, name))
                digest.update(f"{folder}/{name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def was_upgraded() -> bool:
    """True if the source files of this package have changed since this process loaded them."""
    return build_id.__wrapped__() != build_id()


@dataclass(frozen=True)
class Endpoint:
    """The files of one agent: a socket, a lock whose flock shows that it is alive, and its log."""

    folder: str
    name: str

    @property
    def socket(self) -> str:
        """Path of the Unix socket."""
        return f"{self.folder}/{self.name}.sock"

    @property
    def alive(self) -> str:
        """Path of the file on which a running agent holds a flock."""
        return f"{self.folder}/{self.name}.alive"

    @property
    def start(self) -> str:
        """Path of the file whose flock serialises starting, and accepting against exiting."""
        return f"{self.folder}/{self.name}.start"

    @property
    def log(self) -> str:
        """Path of the agent's log."""
        return f"{self.folder}/{self.name}.log"


def agent_id() -> str:
    """Return a hash of the build, and of what a process has in common with the agent that it starts.

    An agent sees the disks and the hosts of its own namespaces, and makes files with its own groups. So a command in
    another container, or after newgrp(1), has an agent of its own. It is computed anew each time: a process, and a
    single thread, may change all of these.
    """
    root = os.stat("/")  # another one after chroot(2)
    circumstances = (
        build_id(),
        (root.st_dev, root.st_ino),
        _namespace("mnt"),
        _namespace("net"),
        os.getegid(),
        sorted(set(os.getgroups())),
    )
    return hashlib.sha256(repr(circumstances).encode()).hexdigest()[:16]


def _namespace(kind: str) -> int:
    """Return the number of a namespace of this thread, which no other one has while a process lives in it."""
    try:
        return os.stat(f"/proc/thread-self/ns/{kind}").st_ino
    except OSError:  # not Linux
        return 0


def endpoint() -> Endpoint:
    """Return the endpoint of this environment, and of the agents that can do what this process asks for."""
    environment = hashlib.sha256(os.path.realpath(sys.prefix).encode()).hexdigest()[:8]
    return Endpoint(runtime_folder(), f"{environment}-{agent_id()}")


def endpoints() -> list[Endpoint]:
    """Return all endpoints with a socket, of every environment, build and container, this one's first."""
    folder = runtime_folder()
    own = endpoint()
    names = sorted(n[:-5] for n in os.listdir(folder) if n.endswith(".sock"))
    return sorted((Endpoint(folder, n) for n in names), key=lambda e: (e.name != own.name, e.name))
