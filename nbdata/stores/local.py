"""The local disk as a store: keys are absolute paths without their leading slash."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping

from nbdata.disk import PARTIAL, disk_error, special_kind, write_file
from nbdata.errors import (
    BadOption,
    NbdataError,
    NotFound,
    SourceChanged,
)
from nbdata.guarded_folders import GuardedFolders, NamedFolders
from nbdata.paths import is_own_name
from nbdata.stores.base import ObjectInfo, Source, Store
from nbdata.stores.filling import fill

__all__ = [
    "MAY_HOLD",
    "LocalStore",
    "Noticed",
    "info_of",
    "stat_tag",
]

#: A callback for entries of a listing that are no files. Takes the key, the kind, and an error if the entry cannot be
#: read. Kinds are those of `special_kind`, "link to a folder", "broken link", "loop of links", "empty folder" and
#: "unreadable".
Noticed = Callable[[str, str, "NbdataError | None"], None]

#: Kinds that may have files below them.
MAY_HOLD = ("link to a folder", "unreadable")
# In the class, `list` means the method.
_Names = list[str]


def stat_tag(status: os.stat_result) -> str:
    """A validator of a local file, used as its ETag. It changes when size, time or inode do."""
    return f"{status.st_size:x}-{status.st_mtime_ns:x}-{status.st_ctime_ns:x}-{status.st_ino:x}"


class LocalStore(Store):
    """Files below ``/``. nbdata's own files (``.nbdata`` folders, unfinished files) are never listed.

    A link to a file is listed as that file. A link to a folder is not followed, so a listing cannot loop.

    Parameters
    ----------
    noticed : callable, optional
        Called for each entry that a listing leaves out. Without it, an unreadable entry ends the listing.
    umask : int, optional
        The umask of the user who owns the written files. None: the process's.
    named : str
        The path that the user named. No link below it leads a file that is written or deleted out of it.
    opened : NamedFolders, optional
        The folders that the job has opened.
    """

    name = "local disk"
    refuses_first = False

    def __init__(
        self,
        noticed: Noticed | None = None,
        *,
        umask: int | None = None,
        named: str = "/",
        opened: NamedFolders | None = None,
    ) -> None:
        self._noticed, self.umask = noticed, umask
        self._folders = GuardedFolders(named, umask=umask, opened=opened)

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        folder, _, start = prefix.rpartition("/")
        for info in self._walk(folder + "/" if folder else "", start):
            if info.key > after:
                yield info

    def list_folder(self, prefix: str) -> Iterator[ObjectInfo]:
        folder, slash, start = prefix.rpartition("/")
        folder += slash
        for name in self._names(folder, start):
            key = folder + name
            if name.endswith("/"):
                yield ObjectInfo(key, -1, modified=_time_of(key))
            elif (info := self._stat(key)) is not None and not name.endswith(PARTIAL):
                yield info_of(key, info)

    def _walk(self, folder: str, start: str) -> Iterator[ObjectInfo]:
        """Yield all files below a folder, of any depth. In the top folder, only names that begin with `start`."""
        levels = [(folder, iter(self._names(folder, start)))]
        while levels:
            folder, names = levels[-1]
            for name in names:
                if name.endswith("/"):
                    levels.append((folder + name, iter(self._names(folder + name, ""))))
                    break
                if (info := self._stat(folder + name)) is not None and not name.endswith(PARTIAL):
                    yield info_of(folder + name, info)
            else:
                levels.pop()

    def _names(self, folder: str, start: str) -> _Names:
        """List the names in a folder, sorted. A folder gets a slash, so that keys sort as in an object store."""
        path = "/" + folder.rstrip("/")
        try:
            with os.scandir(path) as entries:
                names = [
                    f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name
                    for entry in entries
                    if entry.name.startswith(start) and not (entry.name[0] == "." and is_own_name(entry.name))
                ]
        except (FileNotFoundError, NotADirectoryError):  # the folder does not exist, so it is empty
            return []
        except OSError as error:
            self._notice(folder.rstrip("/"), "unreadable", disk_error(error, path))
            return []
        if not names and not start:
            self._notice(folder.rstrip("/"), "empty folder")
        names.sort()
        return names

    def _stat(self, key: str) -> os.stat_result | None:
        """Return the status of a regular file; None for anything else."""
        path = "/" + key
        try:
            info = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            if os.path.islink(path):
                self._notice(key, "broken link")
            return None  # otherwise it vanished meanwhile
        except OSError as error:
            if error.errno == errno.ELOOP:
                self._notice(key, "loop of links")
            else:
                self._notice(key, "unreadable", disk_error(error, path))
            return None
        if stat.S_ISREG(info.st_mode):
            return info
        self._notice(key, special_kind(info.st_mode) or "link to a folder")
        return None

    def _notice(self, key: str, kind: str, error: NbdataError | None = None) -> None:
        if self._noticed is not None:
            self._noticed(key, kind, error)
        elif error is not None:
            raise error

    def head(self, key: str) -> ObjectInfo:
        try:
            status = os.stat("/" + key)
        except OSError as error:
            raise disk_error(error, "/" + key) from error
        if not stat.S_ISREG(status.st_mode):
            raise NotFound("not a file", path="/" + key)
        return info_of(key, status)

    def content(self, key: str, etag: str, buffer: bytearray) -> memoryview:
        """Read a small file whole into `buffer`, which must be larger, if the file is still the listed version.

        Raises NbdataError in any other case.
        """
        try:
            fd = os.open("/" + key, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                status = os.fstat(fd)
                count = os.readv(fd, [buffer])
            finally:
                os.close(fd)
        except OSError as error:
            raise disk_error(error, "/" + key) from error
        if not stat.S_ISREG(status.st_mode) or stat_tag(status) != etag or count != status.st_size:
            raise SourceChanged("the file changed since it was listed", path="/" + key)
        return memoryview(buffer)[:count]

    def read(
        self, key: str, start: int = 0, end: int | None = None, *, match: ObjectInfo | None = None
    ) -> _FileBody:
        try:
            # Without O_NONBLOCK, opening a named pipe would wait for its writer.
            fd = os.open("/" + key, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise disk_error(error, "/" + key) from error
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise NotFound("not a file", path="/" + key)
            info = info_of(key, status)
            if match is not None and match.etag and match.etag != info.etag:
                raise SourceChanged("the file changed since it was listed", path="/" + key)
            known = status.st_size, status.st_mtime_ns
            return _FileBody(fd, info, known, start, info.size if end is None else min(end, info.size))
        except BaseException:
            os.close(fd)
            raise

    def write(
        self,
        key: str,
        source: Source,
        size: int,
        *,
        headers: Mapping[str, str] | None = None,
        md5: str = "",
    ) -> ObjectInfo:
        path = "/" + key
        if kind := self.special(key):
            raise BadOption(
                f"the target is a {kind}, which is never replaced",
                path=path,
                remedy="Name a file or a folder",
            )
        folder = self.open_folder(key)
        try:
            return info_of(key, write_file(path, fill(source, size, path), umask=self.umask, folder=folder))
        finally:
            os.close(folder)

    def open_folder(self, key: str, *, make: bool = True) -> int:
        """Open the folder of a file that is to be written; makes it if missing. The caller closes it."""
        try:
            return self._folders.open_to_write("/" + key.rpartition("/")[0], make=make)
        except OSError as error:
            if isinstance(error, NbdataError):
                raise
            raise disk_error(error, "/" + key) from error

    def same_objects(self, other: Store) -> bool:
        return isinstance(other, LocalStore)

    def is_folder(self, key: str) -> bool:
        return os.path.isdir("/" + key)

    def make_folder(self, key: str) -> None:
        os.close(self.open_folder(key))

    def remove_folder(self, key: str) -> None:
        try:
            os.rmdir(f"/{key}")
        except OSError as error:
            raise disk_error(error, f"/{key}") from error

    def special(self, key: str) -> str:
        """The kind of a special file (see `special_kind`), also behind a link; '' for a file, a folder or nothing."""
        try:
            return special_kind(os.stat("/" + key.rstrip("/")).st_mode)
        except OSError:
            return ""

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            try:
                self._folders.unlink("/" + key)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise disk_error(error, "/" + key) from error


class _FileBody:
    """A range of an open file of the `known` size and time of change."""

    def __init__(self, fd: int, info: ObjectInfo, known: tuple[int, int], start: int, end: int) -> None:
        self.info, self._known = info, known
        self.start = start
        self.length = max(0, end - start)
        self._fd, self._at, self._end = fd, start, end

    def readinto(self, buffer: memoryview, /) -> int:
        want = min(len(buffer), self._end - self._at)
        if want <= 0:
            return 0
        try:
            count = os.preadv(self._fd, [buffer[:want]], self._at)
            now = os.fstat(self._fd) if self._at + count == self._end else None
        except OSError as error:
            raise disk_error(error, "/" + self.info.key) from error
        if not count:
            raise SourceChanged("the file became shorter while it was read", path="/" + self.info.key)
        if now is not None and (now.st_size, now.st_mtime_ns) != self._known:
            raise SourceChanged("the file changed while it was read", path="/" + self.info.key)
        self._at += count
        return count

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _time_of(key: str) -> float | None:
    """The time when a folder was changed; None if it is gone or cannot be read."""
    try:
        return os.stat("/" + key).st_mtime
    except OSError:
        return None


def info_of(key: str, status: os.stat_result) -> ObjectInfo:
    """Return the description of a local file with this status."""
    return ObjectInfo(key, status.st_size, etag=stat_tag(status), modified=status.st_mtime)
