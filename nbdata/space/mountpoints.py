"""The folders at which nbdata mounts; ends the mounts there, and never another one in their place.

The owner of a folder above may rename it, and put a link or another folder in its place. So the folder that a mount is
in is opened once, through no link. The system lets nobody rename or remove the folder of a mount itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import subprocess

from nbdata.errors import NbdataError
from nbdata.guarded_folders import open_straight

__all__ = ["KIND", "Mountpoint", "call_libc"]

#: How the system's table of mounts calls the kind of a mount of nbdata.
KIND = "fuse.nbdata"
# umount2(2): also if it is in use, and not what a link leads to.
_DETACH, _NOFOLLOW = 2, 8
# What umount2(2) says where it is not for this process. A program may be allowed more.
_NOT_ALLOWED = (errno.EPERM, errno.ENOSYS)


class Mountpoint:
    """A folder at which something is, or is to be, mounted. A context manager; holds the folder that it is in.

    Parameters
    ----------
    path : str
        Absolute and without links.

    Raises
    ------
    NbdataError
        If the folder that it is in cannot be opened, or there is a link on the way to it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        above, self._name = os.path.split(path)
        try:
            self._above = open_straight(above)
        except OSError as error:
            raise NbdataError(_why(error), path=path) from error

    def __enter__(self) -> Mountpoint:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._above)

    def opened(self) -> int:
        """Return a descriptor of what is there, which asks a mounted file system nothing.

        Raises
        ------
        NbdataError
            If it is a link, or is gone.
        """
        try:
            flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            return os.open(self._name, flags, dir_fd=self._above)
        except OSError as error:
            raise NbdataError(_why(error), path=self.path) from error

    @property
    def device(self) -> int:
        """The number of the device that is mounted there, which the mount is asked for."""
        return os.stat(self._name, dir_fd=self._above, follow_symlinks=False).st_dev

    @property
    def is_mounted(self) -> bool:
        """Whether a mount of nbdata is there."""
        try:
            fd = self.opened()
        except NbdataError:
            return False
        try:
            return _kind_of(fd) == KIND
        finally:
            os.close(fd)

    def unmount(self, *, lazy: bool = False) -> str:
        """End the mount of nbdata that is there; return what failed, an empty text if nothing.

        Root does it by the descriptor. For other users a program does, which ends only what they have mounted.

        Parameters
        ----------
        lazy : bool
            Also if files in it are open.
        """
        if not self.is_mounted:
            return "no mount of nbdata is there"
        if os.geteuid() == 0:
            place = f"/proc/self/fd/{self._above}/{self._name}"
            failed = call_libc("umount2", place, _NOFOLLOW | (_DETACH if lazy else 0))
            if failed not in _NOT_ALLOWED:
                return os.strerror(failed) if failed else ""
        return _run_unmount(self.path, lazy)


def call_libc(name: str, *words: str | int | ctypes.c_ulong) -> int:
    """Call a function of the C library; return the `errno` of what failed, 0 if nothing."""
    library = ctypes.CDLL(None, use_errno=True)
    converted = [os.fsencode(word) if isinstance(word, str) else word for word in words]
    return ctypes.get_errno() if getattr(library, name)(*converted) else 0


def _why(error: OSError) -> str:
    if error.errno in (errno.ENOTDIR, errno.ELOOP):
        return "there is a link on the way to it now"
    return error.strerror or type(error).__name__


def _kind_of(fd: int) -> str:
    """Return the type of the file system on which an open folder is, as the table of mounts calls it; '' if unknown."""
    with contextlib.suppress(OSError):
        with open(f"/proc/self/fdinfo/{fd}", "rb") as lines:
            number = next((line.split()[1] for line in lines if line.startswith(b"mnt_id:")), None)
        with open("/proc/self/mountinfo", "rb") as lines:
            for line in lines:
                if line.split(b" ", 1)[0] == number:
                    return os.fsdecode(line.partition(b" - ")[2].split(b" ", 1)[0])
    return ""


def _run_unmount(folder: str, lazy: bool) -> str:
    """Run the system's program that unmounts; return what it says if that fails."""
    fuser = shutil.which("fusermount3") or shutil.which("fusermount")
    words = [fuser, "-u"] if fuser else ["umount"]
    words += [*(["-z" if fuser else "-l"] if lazy else []), "--", folder]
    try:
        ran = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        return f"{words[0]} cannot be run ({error.strerror})"
    return "" if ran.returncode == 0 else (ran.stderr.strip() or f"{words[0]} ended with {ran.returncode}")
