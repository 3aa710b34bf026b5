"""Answers the kernel's calls for a mount. Importing this needs mfusepy and libfuse."""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import mfusepy

from nbdata.errors import AccessDenied, NbdataError, NotFound
from nbdata.files.mounted.folders import Folders
from nbdata.files.mounted.open_files import Failures, OpenFiles
from nbdata.files.read_memory import MEMORY
from nbdata.sizes import format_duration, format_size

__all__ = ["ABOUT", "Calls"]

#: A text file at the top of each mount that says what is mounted, and how it goes.
ABOUT = ".nbdata-mount"
_FILE, _FOLDER = stat.S_IFREG | 0o444, stat.S_IFDIR | 0o555
_BLOCK = 4096
# Numbers of open texts about the mount begin here.
_TEXTS = 1 << 40


class Calls(mfusepy.Operations):  # type: ignore[misc]  # it has no types
    """Each method is the call of its name, see ``fuse_operations`` of libfuse 3.

    Parameters
    ----------
    url : str
        What is mounted, without secrets.
    folders : Folders
    files : OpenFiles
    mounted : callable
        Called once the kernel has the mount.
    say : callable
        Writes a line to the log.
    """

    use_ns = True

    def __init__(
        self,
        url: str,
        folders: Folders,
        files: OpenFiles,
        mounted: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._url, self._folders, self._files = url, folders, files
        self._mounted, self._say = mounted, say
        self._failures = Failures()
        self._began = time.time_ns()
        self._owner = os.getuid(), os.getgid()
        self._texts: dict[int, bytes] = {}
        self._versions: dict[str, tuple[str, int]] = {}  # of the files whose bytes the kernel may hold
        self._lock = threading.Lock()

    def init_with_config(self, conn_info: Any, config_3: Any) -> None:
        self._mounted()

    # -- looking ---------------------------------------------------------------------------------

    def getattr(self, path: str, fh: Any = None) -> dict[str, int]:
        path = path[1:]
        if path == ABOUT:
            return self._status(path, _FILE, len(self._about()), time.time_ns())
        with self._told(path):
            info = self._folders.find(path)
        if info is None:
            return self._status(path, _FOLDER, 0, self._began)
        size, modified = info.size, info.modified
        if size < 0:
            with self._told(path):
                size = self._folders.size_of(path)
        return self._status(path, _FILE, size, self._began if modified is None else int(modified * 1e9))

    def _status(self, path: str, mode: int, size: int, moment: int) -> dict[str, int]:
        return {
            "st_mode": mode,
            "st_ino": self._folders.inode(path),
            "st_nlink": 2 if mode == _FOLDER else 1,
            "st_size": size,
            "st_uid": self._owner[0],
            "st_gid": self._owner[1],
            "st_blocks": -(-size // 512),
            "st_blksize": 1 << 20,
            **{f"st_{name}": moment for name in ("atime", "mtime", "ctime")},
        }

    def readdir(self, path: str, fh: Any) -> Iterator[tuple[str, dict[str, int], int]]:
        path = path[1:]
        with self._told(path):
            names = self._folders.names(path)
        begin = f"{path}/" if path else ""
        found = [(".", _FOLDER), ("..", _FOLDER)]
        found += [(name, _FOLDER if info is None else _FILE) for name, info in names.items()]
        if not path:
            found.append((ABOUT, _FILE))
        return iter(
            [
                (name, {"st_mode": mode, "st_ino": self._folders.inode(begin + name)}, 0)
                for name, mode in found
            ]
        )

    def statfs(self, path: str) -> dict[str, int]:
        return {"f_bsize": _BLOCK, "f_frsize": _BLOCK, "f_namemax": 255}

    # -- reading ---------------------------------------------------------------------------------

    def open(self, path: str, fi: Any) -> int:
        path = path[1:]
        if fi.flags & (os.O_WRONLY | os.O_RDWR | os.O_TRUNC):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        if path == ABOUT:
            with self._lock:
                fi.fh = _TEXTS + len(self._texts)
                while fi.fh in self._texts:
                    fi.fh += 1
                self._texts[fi.fh] = self._about()
            fi.direct_io = 1  # its length changes
            return 0
        with self._told(path):
            info = self._folders.find(path)
            if info is None:
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
            number, same = self._files.open(path, info)
        fi.fh = number
        if not same:
            fi.direct_io = 1  # the kernel may believe in another length
        else:
            version = (info.etag, info.size)
            fi.keep_cache = int(bool(info.etag) and self._versions.get(path) == version)
            with self._lock:
                self._versions[path] = version
                while len(self._versions) > _VERSIONS:
                    del self._versions[next(iter(self._versions))]
        return 0

    def read(self, path: str, size: int, offset: int, fi: Any) -> bytes:
        if fi.fh >= _TEXTS:
            return self._texts.get(fi.fh, b"")[offset : offset + size]
        with self._told(path[1:]):
            try:
                return self._files.read(fi.fh, size, offset)
            except NbdataError:
                with self._lock:  # what the kernel holds of it may be wrong
                    self._versions.pop(path[1:], None)
                raise

    def release(self, path: str, fi: Any) -> int:
        if self._texts.pop(fi.fh, None) is None:
            self._files.close(fi.fh)
        return 0

    def destroy(self, path: str) -> None:
        self._files.ahead.close()

    # -- what is told ----------------------------------------------------------------------------

    def _told(self, path: str) -> _Told:
        return _Told(path, self._failures, self._say)

    def _about(self) -> bytes:
        failures, odd = self._failures, self._folders.odd
        lines = [
            f"source: {self._url}",
            f"oldest listing: {format_duration(self._folders.oldest)} ago",
            f"listings: {self._folders.listings:,}",
            f"open files: {len(self._files):,}",
            f"memory for reading: {format_size(MEMORY.used)}",
            f"small files fetched ahead: {self._files.ahead.used:,} used, {self._files.ahead.held:,} waiting",
            f"errors: {failures.count:,}" + (f"; the latest: {failures.latest}" if failures.latest else ""),
            f"keys that are no names of files, and do not show: {odd.count:,}",
            *(f"  {key!r}" for key in odd.some),
        ]
        return ("\n".join(lines) + "\n").encode(errors="backslashreplace")


# Files whose version is remembered, so that what the kernel holds of them stays valid.
_VERSIONS = 100_000


class _Told:
    """Converts errors to those of the operating system, and tells all but *there is no such file*."""

    __slots__ = ("_failures", "_path", "_say")

    def __init__(self, path: str, failures: Failures, say: Callable[[str], None]) -> None:
        self._path, self._failures, self._say = path, failures, say

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, NotFound):
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT)) from error
        if isinstance(error, NbdataError):
            self._failures.add(self._path, error)
            self._say(f"{self._path}: {type(error).__name__}: {error}")
            number = errno.EACCES if isinstance(error, AccessDenied) else errno.EIO
            raise OSError(number, os.strerror(number)) from error
