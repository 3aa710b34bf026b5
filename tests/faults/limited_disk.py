"""A disk that can do less than others: a file system (FUSE) that passes calls on to a folder, and refuses some.

Network disks, disks of containers and FAT give all files one owner and mode, or refuse permissions, times, links, locks
and the syncing of folders. `limited_disk` mounts one; this module is also the program that serves it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["CALLS", "limited_disk", "why_no_fuse"]

#: The calls that a disk may refuse, each with the error that known disks give: FAT and CIFS (chmod, utimens, link),
#: NFS without its lock daemon (flock), CIFS and some of FUSE (fsyncdir), anything without attributes (xattr).
CALLS: dict[str, tuple[str, ...]] = {
    "chmod": ("EPERM", "EOPNOTSUPP", "EACCES"),
    "chown": ("EPERM",),
    "utimens": ("EPERM", "ENOSYS"),
    "fsyncdir": ("EINVAL", "EOPNOTSUPP"),
    "link": ("EPERM", "EOPNOTSUPP", "EMLINK"),
    "flock": ("ENOLCK", "EOPNOTSUPP", "ENOSYS"),
    "xattr": ("EOPNOTSUPP", "EPERM"),
}


def why_no_fuse() -> str:
    """Return why no such disk can be mounted here; '' if one can."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse is missing, or not for this user"
    found = subprocess.run([sys.executable, "-c", "import mfusepy"], capture_output=True, text=True)
    return found.stderr.strip().splitlines()[-1] if found.returncode else ""


@contextlib.contextmanager
def limited_disk(
    refused: Mapping[str, str],
    *,
    owner: int | None = None,
    mode: int | None = None,
    folder: Path | None = None,
) -> Iterator[Path]:
    """Mount a disk that refuses these calls, each with the name of an error; yield its folder.

    Parameters
    ----------
    refused : mapping of str to str
        From calls, as in `CALLS`, to errors.
    owner : int, optional
        The owner and group of all files. None: who made them.
    mode : int, optional
        The permissions of all files and folders. None: those that they were made with.
    folder : Path, optional
        An empty folder for it. None: a temporary one, which only this user may enter.
    """
    with tempfile.TemporaryDirectory() as temporary:
        place = folder or Path(temporary)
        below, above = place / "below", place / "above"
        below.mkdir()
        above.mkdir()
        order = {"below": str(below), "refused": dict(refused), "owner": owner, "mode": mode}
        server = subprocess.Popen(
            [sys.executable, __file__, str(above), json.dumps(order)], stdout=subprocess.PIPE, text=True
        )
        try:
            assert server.stdout is not None
            if server.stdout.readline() != "mounted\n":
                raise OSError(f"the limited disk could not be mounted (exit {server.wait()})")
            yield above
        finally:
            server.terminate()  # it unmounts the disk
            server.wait()
            subprocess.run(["umount", "-l", str(above)], check=False, capture_output=True)  # had it crashed
            if server.stdout is not None:
                server.stdout.close()


def _serve(mount: str, order: str) -> None:
    import mfusepy

    told = json.loads(order)
    below: str = told["below"]
    owner: int | None = told["owner"]
    mode: int | None = told["mode"]
    refused: dict[str, int] = {call: getattr(errno, name) for call, name in told["refused"].items()}

    def at(path: str) -> str:
        return below + path

    def status(found: os.stat_result) -> dict[str, int]:
        mine = {
            name: getattr(found, name)
            for name in ("st_mode", "st_nlink", "st_size", "st_ino", "st_uid", "st_gid", "st_blocks")
        }
        if owner is not None:
            mine["st_uid"] = mine["st_gid"] = owner
        if mode is not None and not stat.S_ISLNK(found.st_mode):
            mine["st_mode"] = stat.S_IFMT(found.st_mode) | mode
        times = {f"st_{name}": getattr(found, f"st_{name}_ns") for name in ("atime", "mtime", "ctime")}
        return mine | times

    def refuse(call: str) -> None:
        if call in refused:
            raise OSError(refused[call], os.strerror(refused[call]))

    class Limited(mfusepy.Operations):  # type: ignore[misc, name-defined, unused-ignore]
        """Each method is the call of its name, on the folder below."""

        use_ns = True

        def init(self, path: str) -> None:
            print("mounted", flush=True)

        def access(self, path: str, amode: int) -> int:
            return 0

        def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
            return status(os.lstat(at(path)) if fh is None else os.fstat(fh))

        def readdir(self, path: str, fh: int) -> list[tuple[str, dict[str, int], int]]:
            with os.scandir(at(path)) as entries:
                return [(entry.name, status(entry.stat(follow_symlinks=False)), 0) for entry in entries]

        def mkdir(self, path: str, mode: int) -> int:
            os.mkdir(at(path), mode)
            return 0

        def rmdir(self, path: str) -> int:
            os.rmdir(at(path))
            return 0

        def unlink(self, path: str) -> int:
            os.unlink(at(path))
            return 0

        def rename(self, old: str, new: str) -> int:
            os.rename(at(old), at(new))
            return 0

        def readlink(self, path: str) -> str:
            return os.readlink(at(path))

        def symlink(self, target: str, source: str) -> int:
            refuse("symlink")
            os.symlink(source, at(target))
            return 0

        def link(self, target: str, source: str) -> int:
            refuse("link")
            os.link(at(source), at(target))
            return 0

        def chmod(self, path: str, mode: int) -> int:
            refuse("chmod")
            os.chmod(at(path), mode)
            return 0

        def chown(self, path: str, uid: int, gid: int) -> int:
            refuse("chown")
            os.chown(at(path), uid, gid, follow_symlinks=False)
            return 0

        def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
            refuse("utimens")
            os.utime(at(path), ns=times, follow_symlinks=False) if times else os.utime(at(path))
            return 0

        def truncate(self, path: str, length: int, fh: int | None = None) -> int:
            os.truncate(at(path) if fh is None else fh, length)
            return 0

        def create(self, path: str, mode: int, fi: object = None) -> int:
            return os.open(at(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)

        def open(self, path: str, flags: int) -> int:
            return os.open(at(path), (flags | os.O_CLOEXEC) & ~os.O_NOFOLLOW & ~os.O_APPEND)

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            return os.pread(fh, size, offset)

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            return os.pwrite(fh, data, offset)

        def release(self, path: str, fh: int) -> int:
            os.close(fh)
            return 0

        def fsync(self, path: str, datasync: int, fh: int) -> int:
            refuse("fsync")
            os.fsync(fh)
            return 0

        def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
            refuse("fsyncdir")
            return 0

        def statfs(self, path: str) -> dict[str, int]:
            found = os.statvfs(at(path))
            names = ("bavail", "bfree", "blocks", "bsize", "favail", "ffree", "files", "frsize", "namemax")
            return {f"f_{name}": getattr(found, f"f_{name}") for name in names}

        def getxattr(self, path: str, name: str, position: int = 0) -> bytes:
            refuse("xattr")
            return os.getxattr(at(path), name, follow_symlinks=False)

        def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> int:
            refuse("xattr")
            os.setxattr(at(path), name, value, options, follow_symlinks=False)
            return 0

        def listxattr(self, path: str) -> list[str]:
            refuse("xattr")
            return os.listxattr(at(path), follow_symlinks=False)

        def removexattr(self, path: str, name: str) -> int:
            refuse("xattr")
            os.removexattr(at(path), name, follow_symlinks=False)
            return 0

        if "flock" in refused:  # without the method, the kernel keeps such locks itself

            def flock(self, path: str, fh: int, operation: int) -> int:
                refuse("flock")
                return 0

    options = {"foreground": True, "nothreads": True, "allow_other": True, "default_permissions": True}
    with contextlib.suppress(RuntimeError):  # a signal has ended it
        # Nothing is remembered of a file, so that a change shows at once.
        mfusepy.FUSE(Limited(), mount, attr_timeout=0, entry_timeout=0, use_ino=True, **options)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
