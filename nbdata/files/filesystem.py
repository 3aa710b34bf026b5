"""The file system: fsspec's interface over nbdata's stores, for every library that opens files through fsspec."""

from __future__ import annotations

import errno
import itertools
import os
import secrets
from typing import Any

from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.config import conf

from nbdata.disk import PARTIAL
from nbdata.errors import BadOption, NotFound
from nbdata.files.browsing import Browsing
from nbdata.files.connections import Place, named_server
from nbdata.files.reading import ReadFile
from nbdata.files.writing import WriteFile
from nbdata.optional_calls import fsync
from nbdata.redaction import secret_options
from nbdata.transfer.retry import retrying

__all__ = ["FileSystem"]

# Keys that one request deletes at most.
_DELETED = 1000
# Bytes of the largest object that a store copies in one request (S3).
_COPIED_AT_ONCE = 5 << 30
# Bytes that are read at a time to write them elsewhere.
_COPIED = 8 << 20


class FileSystem(Browsing):
    """Files in any store that nbdata knows, as fsspec's interface wants them; see the documentation of fsspec.

    Paths are written as for the file system of the store: ``bucket/folder/file`` or ``s3://bucket/folder/file`` on s3,
    gs and az, whole URLs on http. One object may be used by many threads, and in the children of a fork.

    Parameters
    ----------
    target_protocol : str
        The store: ``s3``, ``obs``, ``gs``, ``az``, ``ais``, ``http``, ``https``, ``file``, or any other of fsspec.
    target_options : dict, optional
        Storage options by their fsspec names, as for `nbdata.pull`. A value ``env:NAME`` is read from the environment.
    fo : str, optional
        The path of a chained URL such as ``nbdata::s3://bucket/file``; meant by the empty path.
    verify : str, default "auto"
        How files that are read or written as a whole are compared with the checksum in the store: ``"auto"``,
        ``"none"``, ``"md5"``, ``"sha256"`` or ``"crc32c"``.
    cache : int or str, optional
        Read files that are opened through a cache on the disk, of at most this size, such as ``"5GB"``. A file comes to
        it as a whole, is compared with its checksum there, and stays for all processes that use the cache. A file of
        more than half the size is read without it. None: no cache.
    cache_dir : str, default "."
        Local folder for the cache, which lies in its subfolder .nbdata until ``nbdata cleanup --caches`` removes it.
    use_listings_cache : bool, default False
        Whether listings are remembered, for `listings_expiry_time` seconds or until `invalidate_cache`. Other programs
        may change the store meanwhile.
    origin : str, optional
        The web server or account that the options are for, such as ``https://server``. A URL names it by itself, in
        `nbdata.filesystem` and in fsspec. Files of other servers are read without the options, as anybody.
    **options
        More storage options.

    Raises
    ------
    NotFound
        A FileNotFoundError: there is no such file, folder or bucket.
    AccessDenied
        A PermissionError: the store refuses.
    StoreUnavailable
        A ConnectionError: the store does not answer, after retries.
    SourceChanged
        If an object is replaced while it is read.
    ChecksumMismatch
        If the bytes are not those that the store has a checksum of, after retries.
    """

    def place(self, path: str) -> Place:
        """Return the store and the key of a path or URL."""
        return self._at(path)

    # -- writing ---------------------------------------------------------------------------------

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        """Write bytes to a file; with the mode ``create`` it must not be there."""
        with self.open(path, "xb" if mode == "create" else "wb") as file:
            file.write(value)

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        """Make an empty file; without `truncate`, one that is there stays as it is."""
        if truncate or not self.exists(path):
            self.pipe_file(path, b"")

    def put_file(
        self, lpath: Any, rpath: str, callback: Any = DEFAULT_CALLBACK, mode: str = "overwrite", **kwargs: Any
    ) -> None:
        """Copy a local file to the store."""
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        with open(lpath, "rb") as source:
            callback.set_size(os.fstat(source.fileno()).st_size)
            with self._open(self._strip_protocol(rpath), "xb" if mode == "create" else "wb") as target:
                while data := source.read(_COPIED):
                    target.write(data)
                    callback.relative_update(len(data))

    def get_file(
        self,
        rpath: str,
        lpath: Any = None,
        callback: Any = DEFAULT_CALLBACK,
        outfile: Any = None,
        **kwargs: Any,
    ) -> None:
        """Copy a file of the store to the disk, under its name only once it is whole and verified."""
        rpath = self._strip_protocol(rpath)
        if outfile is None and hasattr(lpath, "write"):
            outfile = lpath
        try:
            file = self._open(rpath, "rb")
        except (NotFound, IsADirectoryError):
            if outfile is None and self.isdir(rpath):
                os.makedirs(lpath, exist_ok=True)
                return
            raise
        assert isinstance(file, ReadFile)
        with file:
            callback.set_size(file.size)
            if outfile is None and _leads_out(rpath, lpath):
                raise BadOption(
                    "the name leads out of the folder that it is copied to",
                    path=rpath,
                    remedy="Name the file that it becomes",
                )
            if outfile is None and os.path.exists(lpath) and not os.path.isfile(lpath):  # such as /dev/null
                with open(lpath, "wb") as special:
                    _copy(file, special, callback)
                return
            if outfile is not None:
                _copy(file, outfile, callback)
                return
            above = os.path.dirname(os.path.abspath(lpath))
            os.makedirs(above, exist_ok=True)
            partial = os.path.join(above, f".{secrets.token_hex(8)}{PARTIAL}")
            try:
                with open(partial, "xb") as target:
                    _copy(file, target, callback)
                    target.flush()
                    fsync(target.fileno())  # after a machine failure the name must not mean an empty file
                os.replace(partial, lpath)
            except BaseException:
                if os.path.lexists(partial):
                    os.unlink(partial)
                raise

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copy a file within the store: by the store itself if it can, else through this process."""
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        source, target = self._at(path1), self._at(path2)
        try:
            info = self._head(source)
        except (NotFound, IsADirectoryError):
            if self.isdir(path1):
                self.makedirs(path2, exist_ok=True)
                return
            raise
        if target.store.can_copy(source.store) and info.size <= _COPIED_AT_ONCE:
            retrying(target.control, lambda: target.store.copy(source.store, info, target.key))
        else:
            verify = self._connections.verify
            with ReadFile(source, path1, verify) as file, WriteFile(self._connections, target, path2) as copy:
                _copy(file, copy, DEFAULT_CALLBACK)
        self.invalidate_cache(path2)

    def mv(self, path1: Any, path2: Any, recursive: bool = False, **kwargs: Any) -> None:
        """Copy, and then delete what was copied; does nothing if both names mean the same."""
        if self._strip_protocol(path1) != self._strip_protocol(path2):
            super().mv(path1, path2, recursive=recursive, **kwargs)

    # -- deleting, and folders -------------------------------------------------------------------

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Delete files, and with `recursive` folders with all that is below them.

        Raises
        ------
        NotFound
            If there is no such file or folder.
        """
        paths = self.expand_path(path, recursive=recursive, maxdepth=maxdepth)
        folders = [one for one in paths if recursive and self.isdir(one)]
        gone = set(folders)
        for places in self._by_store(one for one in paths if one not in gone):
            _delete(next(iter(places.values())), [place.key for place in places.values()])
        for folder in sorted(folders, reverse=True):  # those inside come first
            place = self._at(folder)
            retrying(place.control, lambda place=place: place.store.remove_folder(place.prefix))  # type: ignore[misc]
        for one in paths:
            self.invalidate_cache(one)

    def _rm(self, path: str) -> None:
        place = self._at(path)
        _delete(place, [place.key])
        self.invalidate_cache(path)

    rm_file = _rm

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Make a folder, where the store has folders; object stores only have those in the names of objects."""
        self.makedirs(path, exist_ok=True)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a folder and those above it, where the store has folders: see `mkdir`."""
        place = self._at(path)
        if not exist_ok and not place.store.flat and place.store.is_folder(place.prefix):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        place.store.make_folder(place.prefix)

    def rmdir(self, path: str) -> None:
        """Remove an empty folder.

        Raises
        ------
        OSError
            If it is not empty.
        """
        place = self._at(path)
        if self.ls(path, detail=False, refresh=True):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        place.store.remove_folder(place.prefix)

    # -- what is handed on -----------------------------------------------------------------------

    @classmethod
    def _get_kwargs_from_urls(cls, path: str) -> dict[str, Any]:
        """Return the server in a URL, which the options that come with it are for."""
        server = named_server(path)
        return {"origin": server} if server else {}

    def to_dict(self, *, include_password: bool = False) -> dict[str, Any]:
        """Describe the file system for `from_dict` and `from_json`; options that hold secrets are left out.

        Who makes a file system of it needs the credentials in the environment.
        """
        described = dict(super().to_dict(include_password=False))
        for name in ("target_options", None):
            options = described if name is None else described.get(name) or {}
            for secret in secret_options(options):
                options.pop(secret, None)
        return described

    def to_json(self, *, include_password: bool = False) -> str:
        """Return `to_dict` as JSON."""
        import json

        return json.dumps(self.to_dict())

    def __reduce__(self) -> Any:
        make, (cls, args, given) = super().__reduce__()
        configured = conf.get(self.protocol) or {}  # fsspec adds this in the other process, too
        given = {name: value for name, value in given.items() if configured.get(name, ...) != value}
        named = dict(zip(("target_protocol", "target_options", "fo"), args, strict=False)) | given
        if held := secret_options({**named, **(named.get("target_options") or {})}):
            raise BadOption(
                f"a file system with {' and '.join(held)} among its options is not handed to other processes",
                remedy="Give them as env:NAME, or name a profile; the other process finds them in its environment",
            )
        return make, (cls, args, given)

    def sign(self, path: str, expiration: int = 100, **kwargs: Any) -> str:
        """Refuse: nbdata makes no signed URLs."""
        raise NotImplementedError("nbdata makes no signed URLs")


def _leads_out(rpath: str, lpath: Any) -> bool:
    """Whether ``..`` is a part of the name that a file keeps on the disk: of what is the same at both ends."""
    pairs = zip(reversed(rpath.split("/")), reversed(os.fspath(lpath).split("/")), strict=False)
    return ".." in [mine for mine, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)]


def _delete(place: Place, keys: list[str]) -> None:
    for start in range(0, len(keys), _DELETED):
        some = keys[start : start + _DELETED]
        retrying(place.control, lambda some=some: place.store.delete(some))  # type: ignore[misc]


def _copy(source: Any, target: Any, callback: Any) -> None:
    while data := source.read(_COPIED):
        target.write(data)
        callback.relative_update(len(data))
