"""Which other users can have a path lead elsewhere, or change what is in a folder: seen from modes, owners and groups.

This user, root and the owner of ``/`` count as safe. In a user namespace that does not map root, its files have the
owner that the system gives all users whom it does not know (user_namespaces(7)); that one is safe there, too.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import secrets
import stat
from collections.abc import Iterator

from nbdata.acls import names_others

__all__ = ["changeable_by_others", "exchangeable_by_others", "is_own_group"]

# Others may make, rename and remove files in such a folder; with the sticky bit, each only their own.
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_ENTER = stat.S_IXGRP | stat.S_IXOTH
# The most links on the way to a path, as on Linux (path_resolution(7)).
_LINKS = 40


def changeable_by_others(folder: str) -> str | None:
    """Return the first folder or link by which another user can change what is found in a folder; None if none can.

    It is the folder itself if others may make files in it, else as `exchangeable_by_others`.
    """
    if (exchangeable := exchangeable_by_others(folder)) is not None:
        return exchangeable
    real = os.path.realpath(folder)
    status = os.stat(real)
    safe = status.st_uid in _safe_users() and not _others_may_write(real, status)
    return None if safe or _makes_all_alike(real, status) else real


def exchangeable_by_others(path: str, *, home: str = "", any_owner: bool = False) -> str | None:
    """Return the first folder or link with which another user can have a path lead elsewhere; None if none can.

    Links are followed, and the folders on the way to what they lead to count, too. The way ends at what is missing.

    - A folder on the way is safe if a safe user owns it, and others may not write in it, or it has a sticky bit. A
      group that may write counts only if somebody else is in it: the home folders of many images belong to a group.
    - It is also safe if others cannot reach it, below a closed folder of a safe user; and if it is the root of a disk
      of root's, as the volumes of containers are, which are open to all.
    - A disk may give all files one owner and mode: a folder is safe, too, if what is made in it now is like it.
    - A link is safe if a safe user has made it.

    Parameters
    ----------
    path : str
        An absolute path without ``..``.
    home : str
        The home folder, if the path is below it. The way begins there: whoever can change things there can act as this
        user anyway. So folders may have the owner and the openness of that.
    any_owner : bool
        Whether the owners of all folders are safe, and their own groups, but not those of links: for root, over the
        disk of a user.

    Raises
    ------
    OSError
        If the way cannot be followed.
    """
    safe, around = _safe_users(), os.stat(home) if home else None
    owners = safe | ({around.st_uid} if around else set())
    begin = os.path.realpath(home or "/")
    closed = [f"{begin}/"] if around and _is_closed(around, safe) else []
    for folder, here, following in _way(begin, path[len(home) :]):
        makers = safe
        if not (home and folder == begin) and not any(f"{folder}/".startswith(one) for one in closed):
            status = os.stat(folder)
            owned = any_owner or status.st_uid in owners
            sticky = status.st_mode & stat.S_ISVTX
            open_to_all = not sticky and _others_may_write(folder, status, around)
            if not owned or (open_to_all and not _is_volume(folder, status)):
                if not _makes_all_alike(folder, status):
                    return folder
                makers = safe | {status.st_uid}
        if following is None:
            break
        if stat.S_ISLNK(following.st_mode):
            if following.st_uid not in makers:
                return here
        elif _is_closed(following, safe):
            closed.append(f"{here}/")
    return None


def _way(begin: str, path: str) -> Iterator[tuple[str, str, os.stat_result | None]]:
    """Yield each step of a path below `begin`: the real folder, what is next in it, and the status of that.

    A link is a step, and then followed. The status of what is missing is None, and that ends the way.
    """
    at, names, links = begin, path.split("/")[::-1], 0
    while names:
        if (name := names.pop()) in ("", ".", ".."):  # the two latter are from links
            at = os.path.dirname(at) if name == ".." else at
            continue
        here, status = os.path.join(at, name), None
        with contextlib.suppress(FileNotFoundError):
            status = os.lstat(here)
        yield at, here, status
        if status is None:
            return
        if not stat.S_ISLNK(status.st_mode):
            at = here
            continue
        if (links := links + 1) > _LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), here)
        target = os.readlink(here)
        at = "/" if target.startswith("/") else at
        names += target.split("/")[::-1]


def _is_closed(status: os.stat_result, safe: set[int]) -> bool:
    """True if only its owner, a safe user, can enter a folder."""
    return status.st_uid in safe and not status.st_mode & _OTHERS_ENTER


def _is_volume(folder: str, status: os.stat_result) -> bool:
    """True if a folder is the root of a disk of root's: a container's volume is open to all, for its one user."""
    return status.st_uid == 0 and os.path.ismount(folder)


def _safe_users() -> set[int]:
    return {os.geteuid(), 0, os.stat("/").st_uid} | _unmapped()


def _unmapped() -> set[int]:
    """Return the number that unknown users have here, if this user namespace does not map all users; else nothing."""
    try:
        with open("/proc/self/uid_map") as file, open("/proc/sys/kernel/overflowuid") as unknown:
            mapped = sum(int(line.split()[2]) for line in file)
            return set() if mapped >= 0xFFFFFFFF else {int(unknown.read())}
    except (OSError, ValueError):  # not Linux
        return set()


def _others_may_write(folder: str, status: os.stat_result, around: os.stat_result | None = None) -> bool:
    """True if somebody else may write in a folder, and not also in the folder `around` it."""
    writers = status.st_mode & _OTHERS_WRITE
    if writers and names_others(folder):
        return True
    if around is not None:
        same = _OTHERS_WRITE if status.st_gid == around.st_gid else stat.S_IWOTH
        writers &= ~(around.st_mode & same)
    if writers == stat.S_IWGRP:
        own = status.st_uid in _safe_users()
        return not (is_own_group(status.st_gid) if own else _has_only(status.st_gid, status.st_uid))
    return bool(writers)


def is_own_group(group: int) -> bool:
    """True if this user is in a group, and as far as is known nobody else but root.

    It must be the primary or the effective one, or one that the database does not know: a container gets one for its
    disks. Of other groups, the databases of many machines do not tell all members.
    """
    own = os.geteuid()
    mine = {os.getegid()}
    with contextlib.suppress(KeyError):
        mine.add(pwd.getpwuid(own).pw_gid)
    try:
        grp.getgrgid(group)
    except KeyError:
        mine.update(os.getgroups())
    return group in mine and _has_only(group, own)


def _has_only(group: int, user: int) -> bool:
    """True if the user database names nobody in a group but a user and root."""
    members = {one.pw_uid for one in pwd.getpwall() if one.pw_gid == group}
    with contextlib.suppress(KeyError):  # the database does not know the group
        for name in grp.getgrgid(group).gr_mem:
            try:
                members.add(pwd.getpwnam(name).pw_uid)
            except KeyError:
                return False
    return members <= {user, 0}


def _makes_all_alike(folder: str, status: os.stat_result) -> bool:
    """True if a new file gets the owner of its folder, and others may write it as they may write in the folder.

    So it is on disks with one owner and mode for everything, and with a umask that lets a group write. Where the owner
    is nobody real, as of squashed users on NFS, the mode does not matter: whoever comes is that owner.
    """
    probe = os.path.join(folder, secrets.token_hex(12))
    try:
        # Not a folder: somebody could exchange one before it is looked at.
        fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except OSError:
        return False
    try:
        made = os.fstat(fd)
        as_open = not status.st_mode & ~made.st_mode & _OTHERS_WRITE
        return made.st_uid == status.st_uid and (as_open or status.st_uid not in _safe_users())
    finally:
        os.close(fd)
        with contextlib.suppress(OSError):
            os.unlink(probe)
