"""Listing and reading: the half of the file system that changes nothing."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar
from urllib.parse import quote

from fsspec.compression import compr
from fsspec.core import get_compression

from nbdata.errors import BadOption, NbdataError, NotFound
from nbdata.files.cached import FileCache
from nbdata.files.connections import Connections, Place
from nbdata.files.entries import Entry, file_entry, folder_entry
from nbdata.files.fetching import FIRST, compared, fetch, first_bytes
from nbdata.files.names import Folders, path_of, url_of
from nbdata.files.ranges import Range, clipped, merged
from nbdata.files.reading import ReadFile
from nbdata.files.text import CompressedFile, TextFile
from nbdata.files.writing import WriteFile
from nbdata.reading.pieces import Content, Piece
from nbdata.stores.base import ObjectInfo
from nbdata.stores.resolve import is_account
from nbdata.transfer.retry import listing, listing_of_folder

try:
    from fsspec.implementations.chained import ChainedFileSystem
except ModuleNotFoundError:  # before fsspec 2025.10, where every file system could be in a chain
    from fsspec import AbstractFileSystem as ChainedFileSystem

__all__ = ["Browsing"]

# Bytes that are read at a time to write them elsewhere.
_COPIED = 8 << 20
# Options of fsspec itself, which mean nothing to a store.
_OF_FSSPEC = (
    *("use_listings_cache", "listings_expiry_time", "max_paths", "asynchronous", "loop", "batch_size"),
    *("target_protocol", "target_options", "fo"),
)


class Browsing(ChainedFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The half of `nbdata.files.FileSystem` that lists and reads; it opens files for writing, too."""

    protocol: ClassVar[str] = "nbdata"
    root_marker = ""
    sep = "/"

    def __init__(
        self,
        target_protocol: str | None = None,
        target_options: Mapping[str, Any] | None = None,
        fo: str | None = None,
        *,
        verify: str = "auto",
        cache: int | str | None = None,
        cache_dir: str = ".",
        use_listings_cache: bool = False,
        listings_expiry_time: float | None = None,
        max_paths: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            use_listings_cache=use_listings_cache,
            listings_expiry_time=listings_expiry_time,
            max_paths=max_paths,
        )
        target = target_protocol or self.target
        if not target:
            raise BadOption(
                "the file system needs a store",
                expected='nbdata.filesystem("s3://bucket"), or "nbs3://bucket/file" in a library',
            )
        self.target = {"local": "file"}.get(target, target)
        self.fo = fo or ""
        store_options = _of_store({**(target_options or {}), **options})
        self._connections = made = Connections(store_options, verify, self.target, self.fo)
        self._cache = None if cache is None else FileCache(cache, cache_dir, made.options, verify)

    #: The store of a subclass that stands for one protocol; empty if it is an option.
    target: str = ""

    # -- names -----------------------------------------------------------------------------------

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return path_of(os.fspath(path))

    def unstrip_protocol(self, name: str) -> str:
        """Return the URL of a path."""
        return url_of(self.protocol, self._strip_protocol(name))

    def _url(self, path: str) -> str:
        path = path or self.fo
        if self.target in ("http", "https"):
            return path
        if self.target == "file":
            return path or "/"
        return f"{self.target}://{path}"

    def _at(self, path: str) -> Place:
        return self._connections.at(self._url(self._strip_protocol(path)))

    def _naming(self, path: str, place: Place) -> Callable[[str], str]:
        """Return what makes the name of an object below a folder of its key."""
        begin, skip = f"{path}/" if path or self.target == "file" else "", len(place.prefix)
        if self.target in ("http", "https"):
            return lambda key: begin + quote(key[skip:], safe="/-_.~", errors="surrogateescape")
        return lambda key: begin + key[skip:]

    # -- looking ---------------------------------------------------------------------------------

    def ls(self, path: str, detail: bool = True, refresh: bool = False, **kwargs: Any) -> list[Any]:
        """List a folder: its files and folders, but not those below them.

        Parameters
        ----------
        detail : bool
            True: entries as `info` returns them. False: names.
        refresh : bool
            True: ask the store, also for a listing that is remembered.
        """
        path = self._strip_protocol(path)
        entries = None if refresh else self._ls_from_cache(path)
        if entries is None:
            entries = self.dircache[path] = self._list(path)
            entries = list(entries)
        return entries if detail else [entry["name"] for entry in entries]

    def _list(self, path: str) -> list[Entry]:
        if self._is_account(path) and self.target not in ("http", "https"):
            begin = f"{self.target}://"
            found = self._connections.buckets(f"{begin}{path}/" if path else begin)
            return [folder_entry(one[len(begin) :].rstrip("/")) for one in found]
        place = self._at(path)
        naming, entries, exists = self._naming(path, place), list[Entry](), False
        for info in listing_of_folder(place.control, place.store, place.prefix):
            exists = True
            if info.key == place.prefix:  # the object that stands for the folder itself
                continue
            name = naming(info.key.rstrip("/"))
            entries.append(folder_entry(name) if info.key.endswith("/") else file_entry(name, info))
        if not exists and place.key and not place.store.is_folder(place.prefix):
            return [file_entry(path, self._head(place))]
        return entries

    def _is_account(self, path: str) -> bool:
        """Whether the folders of a path are buckets: of the empty one, and of one such as ``@aws``."""
        return is_account(self._url(path)) if path else not self.fo and self.target != "file"

    def _head(self, place: Place) -> ObjectInfo:
        return place.retrying(lambda: place.store.head(place.key))

    def info(self, path: str, **kwargs: Any) -> Entry:
        """Describe a file or folder: see `nbdata.files.entries`."""
        path = self._strip_protocol(path)
        known = self._ls_from_cache(path)
        if known is not None:
            return next((entry for entry in known if entry["name"] == path), folder_entry(path))
        if self._is_account(path):
            return folder_entry(path)
        place = self._at(path)
        if place.key:
            try:
                return file_entry(path, self._head(place))
            except (NotFound, IsADirectoryError):
                pass
        self._require_folder(path, place)
        return folder_entry(path)

    def _require_folder(self, path: str, place: Place) -> None:
        if place.key and place.store.is_folder(place.prefix):
            return
        found = next(iter(listing_of_folder(place.control, place.store, place.prefix)), None)
        if found is None and place.key:
            raise NotFound("there is no such file or folder", path=path)

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Return whether there is such a file or folder. Raises the store's error if it cannot tell."""
        try:
            self.info(path, **kwargs)
        except FileNotFoundError:
            return False
        return True

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        **kwargs: Any,
    ) -> Any:
        """List all files below a path, sorted; with `withdirs` also its folders.

        Returns
        -------
        list of str, or dict of str to dict
            With `detail` the entry of each name.
        """
        path = self._strip_protocol(path)
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        if not path and not self.fo and self.target not in ("file", "http", "https"):
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **kwargs)
        place = self._at(path)
        if withdirs and not place.store.flat:  # it may have empty folders
            return super().find(path, maxdepth=maxdepth, withdirs=True, detail=detail, **kwargs)
        prefix, naming = place.prefix, self._naming(path, place)
        found, above = dict[str, ObjectInfo](), Folders(path)
        folders = above.names
        for info in listing(place.control, place.store, prefix):
            key = info.key
            if key.endswith("/"):  # the object that stands for a folder
                name = naming(key.rstrip("/")) if key != prefix else path
                folders.add(name)
            else:
                name = naming(key)
                if maxdepth is None or name.count("/", len(path) + 1) < maxdepth:
                    found[name] = info
            if withdirs:
                above.add_above(name)
        if not found and not folders and place.key:
            with contextlib.suppress(NotFound, IsADirectoryError):
                found[path] = self._head(place)
        if not withdirs:
            folders.clear()
        elif found or folders or place.store.is_folder(place.prefix):
            folders.add(path)
        if maxdepth is not None:
            folders = {name for name in folders if name.count("/", len(path) + 1) < maxdepth}
        names = sorted({*found, *folders})
        if not detail:
            return names
        return {
            name: file_entry(name, found[name]) if name in found else folder_entry(name) for name in names
        }

    def created(self, path: str) -> datetime:
        """Return when an object was created: object stores tell when it was modified, and replace whole objects."""
        return self.modified(path)

    def modified(self, path: str) -> datetime:
        """Return when a file was modified, with a time zone."""
        found = self.info(path).get("LastModified")
        if not isinstance(found, datetime):
            raise NbdataError("the store does not say when this was modified", path=path)
        return found

    def invalidate_cache(self, path: str | None = None) -> None:
        """Forget the listings that are remembered, of all folders or of one and those above it."""
        if path is None:
            self.dircache.clear()
        else:
            path = self._strip_protocol(path)
            while path:
                self.dircache.pop(path, None)
                path = self._parent(path)
            self.dircache.pop("", None)
        super().invalidate_cache(path)

    # -- reading ---------------------------------------------------------------------------------

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> Content:
        """Return the bytes of a file, or a slice of them; a whole file is compared with its checksum."""
        place = self._at(path)
        verify = self._connections.verify
        if start is None and end is None:
            first = first_bytes(place)
            if 0 <= first.info.size <= len(first.data):
                return compared(place, first, verify)[0].data
            (data,) = fetch(place, [Piece(first.info)], verify)
            return _data(data)
        if start is not None and end is not None and min(start, end) >= 0 and end - start <= FIRST:
            return first_bytes(place, end - start, start).data if end > start else b""
        info = self._head(place)
        if info.size < 0:
            return self.cat_file(path)[start:end]
        first_byte, behind = clipped(start, end, info.size)
        (data,) = fetch(place, [Piece(info, first_byte, behind)], verify)
        return _data(data)

    def cat_ranges(
        self,
        paths: Sequence[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[Any]:
        """Return many slices of files, fetched at the same time; neighbours come with one request.

        All slices of one file are of the same version.

        Parameters
        ----------
        paths : list of str
        starts, ends : int or None, or lists of them
            As in Python's slices. A single value is for all paths.
        max_gap : int, optional
            The most bytes between two slices that come with one request. None: 16 KiB.
        on_error : str
            ``"return"``: put an error into the list, at the place of its slice; ``"raise"``: raise the first.
        """
        if not isinstance(paths, list):
            raise TypeError("paths is no list")
        many = [one if isinstance(one, list) else [one] * len(paths) for one in (starts, ends)]
        if any(len(one) != len(paths) for one in many):
            raise ValueError("starts and ends need as many values as paths")
        found: list[Any] = [None] * len(paths)
        of_path: dict[str, list[int]] = {}
        for number, path in enumerate(paths):
            of_path.setdefault(self._strip_protocol(path), []).append(number)
        for places in self._by_store(of_path):
            self._fill(places, of_path, many, max_gap, found)
        if on_error == "raise":
            _raise_first(found)
        return found

    def _fill(
        self,
        places: Mapping[str, Place],
        of_path: Mapping[str, list[int]],
        slices: Sequence[list[int | None]],
        gap: int | None,
        found: list[Any],
    ) -> None:
        """Fetch the slices of files in one store."""
        pieces, holds = list[Piece](), list[list[tuple[int, int, int]]]()
        for path, place in places.items():
            numbers = of_path[path]
            wanted = [(slices[0][number], slices[1][number]) for number in numbers]
            if wanted == [(None, None)]:
                pieces.append(Piece(ObjectInfo(place.key, -1)))
                holds.append([(numbers[0], 0, -1)])
                continue
            try:
                info = self._head(place)
            except (NbdataError, OSError) as error:
                for number in numbers:
                    found[number] = error
                continue
            if info.size < 0:
                (whole,) = fetch(place, [Piece(info)], self._connections.verify)
                for number, (start, end) in zip(numbers, wanted, strict=True):
                    found[number] = whole if isinstance(whole, NbdataError) else bytes(whole[start:end])
                continue
            ranges = [
                Range(*clipped(start, end, info.size), number)
                for number, (start, end) in zip(numbers, wanted, strict=True)
            ]
            for start, end, within in merged(ranges, gap):
                pieces.append(Piece(info, start, end))
                holds.append([(one.number, one.start - start, one.end - start) for one in within])
        if not pieces:
            return
        answers = fetch(next(iter(places.values())), pieces, self._connections.verify)
        for answer, held in zip(answers, holds, strict=True):
            for number, start, end in held:
                if isinstance(answer, NbdataError) or end < 0:
                    found[number] = answer
                else:
                    found[number] = bytes(memoryview(answer)[start:end])

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **kwargs: Any) -> Any:
        """Return the contents of files: bytes for one path, a dict by path for several, a glob or a folder.

        Parameters
        ----------
        on_error : str
            ``"raise"``: raise the first error; ``"omit"``: leave out what cannot be read; ``"return"``: put the error
            in the place of the bytes.
        """
        paths = self.expand_path(path, recursive=recursive)
        if len(paths) == 1 and not isinstance(path, list) and paths[0] == self._strip_protocol(path):
            return self.cat_file(paths[0], **kwargs)
        if recursive:
            paths = [one for one in paths if not self.isdir(one)]
        found = dict(zip(paths, self.cat_ranges(paths, None, None), strict=True))
        if on_error == "raise":
            _raise_first(found.values())
        if on_error == "omit":
            return {name: data for name, data in found.items() if not isinstance(data, Exception)}
        return found

    def _by_store(self, paths: Iterable[str]) -> Iterator[dict[str, Place]]:
        """Yield the places of the paths, those of one store together."""
        stores: dict[Any, dict[str, Place]] = {}
        for path in paths:
            place = self._at(path)
            store = place.store
            same = id(store) if store.flat else (store.name, store.server)  # folders are opened one by one
            stores.setdefault(same, {})[path] = place
        yield from stores.values()

    # -- opening ---------------------------------------------------------------------------------

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: Mapping[str, Any] | None = None,
        compression: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Open a file.

        Parameters
        ----------
        mode : str
            ``r``, ``w``, ``x`` (the file must not be there) or ``a`` (what is there is sent again), with ``b``; without
            it the file is text.
        block_size : int, optional
            Bytes of a part of a file that is written, at least 8 MiB. A store takes 10,000 parts, and memory holds up
            to five. None: 16 MiB.
        compression : str, optional
            A compression of fsspec, or ``"infer"`` from the name.
        encoding, errors, newline
            For text, as in the builtin `open`.
        """
        path = self._strip_protocol(path)
        if "b" not in mode:
            text = {name: kwargs.pop(name) for name in ("encoding", "errors", "newline") if name in kwargs}
            file = self.open(
                path, mode.replace("t", "") + "b", block_size, cache_options, compression, **kwargs
            )
            return TextFile(file, **text)
        autocommit = kwargs.pop("autocommit", not self._intrans)
        file = self._open(path, mode, block_size, autocommit, **kwargs)
        if not autocommit and "r" not in mode:
            self.transaction.files.append(file)
        compression = get_compression(path, compression)
        if compression is None:
            return file
        return CompressedFile(file, compr[compression](file, mode=mode[0]))

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **kwargs: Any,
    ) -> ReadFile | WriteFile:
        place, kind = self._at(path), mode.replace("b", "")
        if kind == "r":
            return ReadFile(place, path, self._connections.verify, self._cache)
        if kind not in ("w", "x", "a"):
            raise ValueError(f"invalid mode: {mode!r}")
        new = kind == "x"
        if new and self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        size = (block_size or 0) * place.store.max_parts // 2
        file = WriteFile(self._connections, place, path, size=size, autocommit=autocommit, new=new)
        self.invalidate_cache(path)
        if kind == "a":
            try:
                self._copy_to(file, place)
            except BaseException:
                file.discard()
                raise
        return file

    def _copy_to(self, file: WriteFile, place: Place) -> None:
        """Write what is there already."""
        if self.exists(file.path):
            with ReadFile(place, file.path, self._connections.verify) as before:
                while data := before.read(_COPIED):
                    file.write(data)


def _of_store(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for the store; some libraries put those of a chained URL into one another."""
    own = {name: value for name, value in options.items() if name not in _OF_FSSPEC}
    inner = options.get("target_options")
    return {**_of_store(inner), **own} if inner else own


def _data(found: Content | NbdataError) -> Content:
    if isinstance(found, NbdataError):
        raise found
    return found


def _raise_first(found: Iterable[object]) -> None:
    for one in found:
        if isinstance(one, Exception):
            raise one
