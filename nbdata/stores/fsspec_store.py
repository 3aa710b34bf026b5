"""Use any fsspec file system as a store: for other protocols, and for file systems passed with ``fs=``.

Uses only methods that every file system has: ``find``, ``ls``, ``info``, ``open``, ``rm_file``, ``mv``. Reads go
through ``open``, which bounds memory, unlike ``cat_file``. In an object store, ``open`` creates the object when the
file is closed. Other file systems get the bytes under a temporary name, which is then renamed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import math
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from nbdata.bounded import size_in
from nbdata.disk import PARTIAL
from nbdata.errors import AccessDenied, BadOption, NbdataError, NotFound, SourceChanged, StoreUnavailable
from nbdata.redaction import redacted
from nbdata.stores.base import Body, ObjectInfo, Source, Store
from nbdata.stores.filling import fill
from nbdata.stores.http.servers import server_of_files
from nbdata.stores.local import LocalStore

__all__ = ["FsspecStore"]

# Bytes that a buffered fsspec file fetches or sends at a time.
_BLOCK = 8 << 20
# Bounds on a listing of folders below each other, which fsspec collects: their depth, and bytes of memory, of which an
# entry takes some hundred beside its path.
_DEPTH, _LISTED, _ENTRY = 256, 4 << 30, 1000
# Protocols that create an object when its file is closed, and none when the file is discarded.
_WHOLE = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss", "obs", "oci"}
# Errors of botocore and aiohttp that are no OSError, by the name of a class in their hierarchy.
_UNREACHED = {
    *("EndpointConnectionError", "ConnectTimeoutError", "ProxyConnectionError", "ClientConnectorError"),
}
# Protocols whose keys are whole URLs.
_BY_URL = ("http://", "https://")
_BROKEN = {
    "HTTPClientError",
    "ClientConnectionError",
    "ClientPayloadError",
    "ResponseParserError",
    "SSHException",
    "EOFError",
}


class FsspecStore(Store):
    """A store over an fsspec file system object.

    Where keys are URLs (http), they leave out user, password and query, because a query may be a signature. Keys appear
    in plans, reports and file names.

    Parameters
    ----------
    fs : fsspec.AbstractFileSystem
    place : str
        The URL that the store is opened for. Its user, password and query go with each request below it.
    umask : int, optional
        The umask of the user who owns files that are written to the local disk. None: the process's.
    """

    refuses_first = False

    def __init__(self, fs: Any, place: str = "", *, umask: int | None = None) -> None:
        self._fs = fs
        self._opened = urlsplit(place) if place.startswith(_BY_URL) else None
        self._queries: dict[str, str] = {}  # queries of listed URLs that have their own
        protocol = fs.protocol
        self.name = protocol if isinstance(protocol, str) else protocol[0]
        # Paths begin with a slash in some file systems (memory, sftp) and without one in others (s3).
        rooted = str(getattr(fs, "root_marker", "")) == "/" or str(fs._strip_protocol(place)).startswith("/")
        self._slash = "/" if rooted else ""
        self._whole = self.below_objects = self.name in _WHOLE
        named = _on_disk(fs, place)
        self._disk = None if named is None else LocalStore(umask=umask, named=os.path.normpath(named))

    @property
    def server(self) -> str:
        return server_of_files(self._fs, by_environment=self._whole)

    def _path(self, key: str) -> str:
        return self._url(key) if key.startswith(_BY_URL) else self._slash + key

    def _url(self, key: str) -> str:
        """The URL to request for a key, with its user, password and query."""
        parts, opened = urlsplit(key), self._opened
        query = self._queries.get(key, parts.query)
        if opened is None or parts.netloc != opened.netloc.rpartition("@")[2]:
            return urlunsplit(parts._replace(query=query))
        return urlunsplit(parts._replace(netloc=opened.netloc, query=query or opened.query))

    def _key_on_disk(self, key: str) -> str:
        """The key in `self._disk`."""
        return os.path.normpath(_on_disk(self._fs, self._path(key)) or "").lstrip("/")

    def key_of(self, url: str) -> str:
        """A URL without parts that may be secret."""
        parts = urlsplit(url)
        key = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))
        if parts.query and (self._opened is None or parts.query != self._opened.query):
            self._queries[key] = parts.query
        return key

    def _info(self, path: str, described: dict[str, Any]) -> ObjectInfo:
        if path.startswith(_BY_URL):
            path = self.key_of(path)
        etag = described.get("ETag") or described.get("etag") or described.get("md5Hash") or ""
        crc = described.get("CRC")  # of a zip member, whose time has no time zone
        if not etag and isinstance(crc, int):
            etag = f"crc32-{crc:08x}"
        time = (
            described.get("LastModified")
            or described.get("mtime")
            or described.get("modified")
            or described.get("created")
        )
        return ObjectInfo(
            path[len(self._slash) :] if path.startswith(self._slash) else path,
            size_in(described.get("size")),
            etag=str(etag),
            modified=_seconds(time),
            version=str(described.get("VersionId") or described.get("generation") or ""),
        )

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        folder = prefix.rpartition("/")[0]
        try:
            self._fs.invalidate_cache()
            found = _find(self._fs, self._path(folder))
        except Exception as error:
            known = self._error(error, folder)
            if isinstance(known, NotFound) and not known.details.get("bucket"):
                return
            raise known from error
        for path in sorted(found):
            info = self._info(path, found[path])
            if info.key > after and info.key.startswith(prefix) and _is_object(info.key, found[path]):
                yield info
            elif found[path].get("type") == "link" and info.key > after and info.key.startswith(prefix):
                with contextlib.suppress(NotFound):  # the link leads to a folder or nowhere
                    yield self.head(info.key)

    def list_folder(self, prefix: str) -> Iterator[ObjectInfo]:
        folder = prefix.rpartition("/")[0]
        try:
            self._fs.invalidate_cache()
            entries = {entry["name"]: entry for entry in self._fs.ls(self._path(folder), detail=True)}
        except Exception as error:
            known = self._error(error, folder)
            if isinstance(known, NotFound) and not known.details.get("bucket"):
                return
            raise known from error
        folders = {path for path, entry in entries.items() if entry.get("type") == "directory"}
        for path in sorted(path.rstrip("/") + "/" if path in folders else path for path in entries):
            info = (
                ObjectInfo(self._info(path, {}).key, -1)
                if path.endswith("/")
                else self._info(path, entries[path])
            )
            if not info.key.startswith(prefix):
                continue
            if path.endswith("/") or _is_object(info.key, entries[path]):
                yield info
            elif entries[path].get("type") == "link":
                with contextlib.suppress(NotFound):  # the link leads to a folder or nowhere
                    yield self.head(info.key)

    def head(self, key: str) -> ObjectInfo:
        with self._errors(key):
            self._fs.invalidate_cache()
            described = self._fs.info(self._path(key))
        if described.get("type", "file") != "file":
            raise NotFound("not an object", path=self._said(key))
        return self._info(self._path(key), described)

    def same_objects(self, other: Store) -> bool:
        return isinstance(other, FsspecStore) and bool(self._fs == other._fs)

    def make_folder(self, key: str) -> None:
        with self._errors(key):
            self._fs.makedirs(self._path(key.rstrip("/")), exist_ok=True)

    def remove_folder(self, key: str) -> None:
        with self._errors(key), contextlib.suppress(FileNotFoundError):
            self._fs.rmdir(self._path(key.rstrip("/")))

    def is_folder(self, key: str) -> bool:
        with self._errors(key):
            return bool(self._fs.isdir(self._path(key.rstrip("/"))))

    @contextlib.contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        """Turn errors of the file system into errors of nbdata."""
        try:
            yield
        except Exception as error:
            raise self._error(error, key) from error

    def read(
        self, key: str, start: int = 0, end: int | None = None, *, match: ObjectInfo | None = None
    ) -> Body:
        info = self.head(key)
        if match is not None and _differs(info, match):
            raise SourceChanged("the object changed while it was read", path=self._said(key))
        with self._errors(key):
            file = self._fs.open(self._path(key), "rb", block_size=_BLOCK)
            if isinstance(file, io.BytesIO):  # memory:// shares one file position between all readers
                file = io.BytesIO(file.getvalue())
            if start:
                file.seek(start)
        return _FsspecBody(self, file, info, start, end)

    def write(
        self,
        key: str,
        source: Source,
        size: int,
        *,
        headers: Mapping[str, str] | None = None,
        md5: str = "",
    ) -> ObjectInfo:
        if self._disk is not None:
            self._disk.write(self._key_on_disk(key), source, size)
            return self.head(key)
        path = self._path(key)
        parent = path.rpartition("/")[0]
        temporary = (
            path
            if self._whole
            else f"{parent}/.{secrets.token_hex(8)}{PARTIAL}".lstrip("" if self._slash else "/")
        )
        with self._errors(key):
            if parent and not self._whole:  # in an object store this would create a bucket
                self._fs.makedirs(parent, exist_ok=True)
            file = self._fs.open(temporary, "wb", block_size=_BLOCK)
            try:
                for piece in fill(source, size, self._said(key)):
                    file.write(piece)
                file.close()
                if temporary != path:
                    self._move(temporary, path)
            except BaseException:
                self._give_up(file, temporary)
                raise
        return self.head(key)

    def _give_up(self, file: Any, temporary: str) -> None:
        """Remove the remains of a file that was not written completely."""
        if self._whole and hasattr(file, "discard"):
            file.closed = True  # an abandoned upload must not be completed by the destructor
            with contextlib.suppress(Exception):
                file.discard()
            return
        with contextlib.suppress(Exception):
            file.close()
        with contextlib.suppress(Exception):
            self._fs.rm_file(temporary)

    def _move(self, old: str, new: str) -> None:
        from fsspec import AbstractFileSystem

        if type(self._fs).mv is not AbstractFileSystem.mv:
            self._fs.mv(old, new)
            return
        self._fs.cp_file(old, new)  # fsspec's generic mv treats names as patterns
        self._fs.rm_file(old)

    def delete(self, keys: Iterable[str]) -> None:
        if self._disk is not None:
            self._disk.delete(map(self._key_on_disk, keys))
            return
        for key in keys:
            try:
                self._fs.rm_file(self._path(key))
            except Exception as error:
                known = self._error(error, key)
                if not isinstance(known, NotFound):
                    raise known from error

    def _said(self, key: str) -> str:
        """A key as users may see it. An http key is a URL, which may hold a password or a signature."""
        return redacted(key if "://" in key else f"{self.name}://{key}")

    def _error(self, error: Exception, key: str) -> NbdataError:
        if isinstance(error, NbdataError):
            return error
        path = self._said(key)
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if _code(error) == "NoSuchBucket":
            bucket = self._said(key.partition("/")[0])
            return NotFound(
                "there is no such bucket",
                path=bucket,
                remedy="Check the name and the endpoint",
                details={"bucket": True},
            )
        if isinstance(error, (FileNotFoundError, KeyError, IsADirectoryError, NotADirectoryError)):
            return NotFound("no such object or folder", path=path, remedy="Check the spelling")
        if isinstance(error, PermissionError):
            remedy = f"Check the credentials that the {self.name} file system was made with"
            return AccessDenied("the store denies access", path=path, remedy=remedy)
        status = getattr(error, "status", None)
        if status in (401, 403, 407):
            return AccessDenied(
                "the server denies access",
                path=path,
                got=f"status {status}",
                remedy="Check user and password; a signed URL may have expired",
            )
        if status in (404, 410):
            return NotFound("no such object or folder", path=path, remedy="Check the spelling")
        if isinstance(status, int) and (status in (408, 429) or status >= 500):
            return StoreUnavailable(
                f"the server is busy or broken (status {status})",
                path=path,
                details={"retry": True, "status": status},
            )
        if kinds & _UNREACHED:
            details = {"retry": True, "unreached": True}
            return StoreUnavailable(
                "no answer from the store",
                path=path,
                remedy="Check the endpoint and the network",
                details=details,
            )
        if isinstance(error, (OSError, TimeoutError, asyncio.TimeoutError)) or kinds & _BROKEN:
            lasting = isinstance(error, OSError) and error.errno in (
                errno.EINVAL,
                errno.ENOTSUP,
                errno.EROFS,
                errno.ENAMETOOLONG,
            )
            return StoreUnavailable(
                f"the store failed ({type(error).__name__})",
                path=path,
                details={} if lasting else {"retry": True},
            )
        # A foreign error's text may hold a signed URL or a key; its type is safe.
        return NbdataError(f"{self.name} failed ({type(error).__name__})", path=path)


def _find(fs: Any, path: str) -> dict[str, dict[str, Any]]:
    """List everything below a folder. Raises the error of a folder that cannot be listed.

    fsspec's own ``find`` leaves such a folder out, as if it were empty. Those of other packages raise by themselves.
    """
    if not _finds_as_fsspec(fs):
        return dict(fs.find(path, detail=True))
    top = fs._strip_protocol(path)
    found, pending = dict[str, dict[str, Any]](), [top]
    held = 0
    while pending:
        folder = pending.pop()
        try:
            entries = fs.ls(folder, detail=True)
        except (FileNotFoundError, NotADirectoryError):  # deleted meanwhile
            continue
        except OSError:
            if folder == top and fs.isfile(top):
                return {}
            raise
        for entry in entries:
            name = entry["name"].rstrip("/")
            held += len(name) + _ENTRY
            if entry["type"] == "directory" and name != folder:
                pending.append(name)
            else:
                found[entry["name"]] = entry
        if held > _LISTED or folder.count("/") - top.count("/") > _DEPTH:
            raise BadOption(
                "the folders have no end",
                path=folder[:200],
                expected=f"at most {_DEPTH} below each other, and {_LISTED // (_ENTRY + 100):,} entries in all",
                remedy="Name what is wanted with --files-from FILE",
            )
    return found


def _finds_as_fsspec(fs: Any) -> bool:
    """Whether the file system's ``find`` is fsspec's, for any file system."""
    from fsspec import AbstractFileSystem
    from fsspec.asyn import AsyncFileSystem
    from fsspec.implementations.dirfs import DirFileSystem

    while isinstance(fs, DirFileSystem):
        fs = fs.fs
    if isinstance(fs, AsyncFileSystem):
        return bool(type(fs)._find is AsyncFileSystem._find)
    return getattr(fs.find, "__func__", None) is AbstractFileSystem.find


def _on_disk(fs: Any, path: str) -> str | None:
    """Return the path on the local disk to which a path of this file system leads; None for any other storage."""
    from fsspec.implementations.cached import CachingFileSystem
    from fsspec.implementations.dirfs import DirFileSystem
    from fsspec.implementations.local import LocalFileSystem

    path = fs._strip_protocol(path)
    while not isinstance(fs, LocalFileSystem):
        if isinstance(fs, DirFileSystem):
            path, fs = fs._join(path), fs.fs
        elif isinstance(fs, CachingFileSystem):
            fs = fs.fs
        else:
            inner = getattr(fs, "sync_fs", None)  # of a wrapper that makes a file system asynchronous
            if inner is None:
                return None
            fs = inner
    return str(LocalFileSystem._strip_protocol(path))


def _seconds(time: object) -> float | None:
    """Convert a time of a file system to seconds since the epoch; None if that is not possible."""
    try:
        if isinstance(time, datetime):
            return time.timestamp()
        return float(time) if isinstance(time, (int, float)) and math.isfinite(time) else None
    except (ValueError, OverflowError, OSError):
        return None


def _is_object(key: str, described: dict[str, Any]) -> bool:
    return bool(described.get("type", "file") == "file") and not key.endswith(PARTIAL)


def _code(error: BaseException) -> str:
    """S3's error code, from the botocore error that s3fs wrapped."""
    response = getattr(error.__cause__ or error, "response", None)
    error_of_s3 = response.get("Error") if isinstance(response, dict) else None
    return str(error_of_s3.get("Code", "")) if isinstance(error_of_s3, dict) else ""


def _differs(info: ObjectInfo, match: ObjectInfo) -> bool:
    """Whether an object differs from the listed one, in the attributes that both have."""
    if match.etag and info.etag:
        other = info.etag != match.etag
    else:
        other = None not in (info.modified, match.modified) and info.modified != match.modified
    other = other or (match.size >= 0 and info.size != match.size)
    return other or (match.version != "" and info.version != match.version)


class _FsspecBody:
    """An open fsspec file, read up to an end."""

    def __init__(self, store: FsspecStore, file: Any, info: ObjectInfo, start: int, end: int | None) -> None:
        self._store, self._file = store, file
        self.info, self.start = info, start
        if end is None or info.size >= 0:
            end = info.size if end is None else min(end, info.size)
        self._left = self.length = max(0, end - start) if end >= 0 else -1
        # Reading in several requests may mix versions, since fsspec's file systems request no particular one.
        self._pieces = start > 0 or not 0 <= self._left <= _BLOCK

    def readinto(self, buffer: memoryview, /) -> int:
        want = len(buffer) if self._left < 0 else min(len(buffer), self._left)
        if not want:
            return 0
        try:
            data = self._file.read(want)
        except Exception as error:
            raise self._store._error(error, self.info.key) from error
        count = len(data)
        if not count and self._left > 0:
            raise StoreUnavailable(
                "the object ended early", path=self._store._said(self.info.key), details={"retry": True}
            )
        buffer[:count] = data
        if self._left > 0:
            self._left -= count
        if self._pieces and (self._left == 0 or not count):
            self._still_the_same()
        return count

    def _still_the_same(self) -> None:
        """Raise SourceChanged if the object changed after it was opened."""
        key = self.info.key
        try:
            same = not _differs(self._store.head(key), self.info)
        except NotFound:
            same = False
        if not same:
            raise SourceChanged(
                "the object changed while it was read",
                path=self._store._said(key),
                remedy="Run the command again: it takes the new version",
            )

    def close(self) -> None:
        self._file.close()
