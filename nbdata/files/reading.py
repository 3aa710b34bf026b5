"""A file that is read from a store."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from typing import Any

from nbdata.errors import NbdataError
from nbdata.files.cached import CachedWindow, FileCache
from nbdata.files.connections import Place
from nbdata.files.entries import Entry, file_entry
from nbdata.files.fetching import First, compared, first_bytes
from nbdata.files.proof import Proof
from nbdata.files.window import Bytes, Window
from nbdata.redaction import redacted
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.retry import retrying

__all__ = ["ReadFile"]


class ReadFile(io.BufferedIOBase):
    """A file of a store, opened for reading; its bytes are of one version from the first to the last.

    Made by `nbdata.open` and `nbdata.files.FileSystem.open`. One that is read as a whole, from its first byte to its
    last without leaving any out, is compared with the checksum that the store has.

    Parameters
    ----------
    place : Place
    name : str
        As the user calls it.
    verify : str
        See `nbdata.verbs.options.Verifying`.
    cache : FileCache, optional
        The cache that it is read through.
    first : First, optional
        The start of the object, perhaps nothing of it, and its metadata. None: the store is asked for it.
    window : callable
        Makes what holds its bytes.

    Attributes
    ----------
    name, path : str
        The same; files of fsspec have the second.
    size : int
        Bytes.
    proof : Proof
        Compares what is read. Open files of one version may share one.

    Raises
    ------
    NotFound
        If there is no such object.
    """

    mode = "rb"
    #: Bytes of the blocks in which fsspec's caches keep a file.
    blocksize = 1 << 20
    #: A cache of fsspec that the file is read through, if one was given (``blockcache::``).
    cache: Any = None

    def __init__(
        self,
        place: Place,
        name: str,
        verify: str,
        cache: FileCache | None = None,
        *,
        first: First | None = None,
        window: Callable[[Place, First], Bytes] = Window,
    ) -> None:
        super().__init__()
        self.name = self.path = name
        self._place = place
        self._at = 0
        if cache is not None:
            info = retrying(place.control, lambda: place.store.head(place.key))
            if cache.takes(info):  # what comes into the cache is compared there
                self._info, self.size, self.proof = info, info.size, Proof(place, info, "none")
                self._window: Bytes = CachedWindow(cache, place, info)
                return
        first = first_bytes(place) if first is None else first
        if first.info.size < 0:
            raise NbdataError(
                "the server does not say how long this is, so it cannot be opened at any place",
                path=name,
                remedy="Pull it to the disk, and open it there",
            )
        proven = None
        if len(first.data) >= first.info.size:
            first, proven = compared(place, first, verify)
        self._info, self.size = first.info, first.info.size
        self.proof = Proof(place, first.info, verify)
        self.proof.proven = proven
        self._window = window(place, first)

    # -- reading ---------------------------------------------------------------------------------

    def read(self, size: int | None = -1, /) -> bytes:
        """Read at most so many bytes, all of the rest if negative or None."""
        start, end = self._range(size)
        if start >= end:
            return b""
        view = self._view(start, end)
        if len(view) == end - start:
            return bytes(view)
        data = io.BytesIO(bytes(end - start))  # gives its bytes without another copy
        with data.getbuffer() as whole:
            whole[: len(view)] = view
            self.readinto(whole[len(view) :])
        return data.getvalue()

    def read_parts(self, size: int) -> list[memoryview]:
        """Read at most so many bytes as parts of what is held, without a copy; they outlive the file."""
        start, end = self._range(size)
        parts = list[memoryview]()
        while start < end:
            parts.append(self._view(start, end))
            start = self._at
        return parts

    def goes_on(self, start: int) -> bool:
        """Whether a read at an offset is near others, or what it asks for is held; see `read_apart`."""
        return self._window.goes_on(start)

    def read_apart(self, start: int, size: int) -> memoryview:
        """Return bytes at an offset that is far from others, perhaps fewer; many threads may do so at a time."""
        end = min(start + size, self.size)
        if start >= end:
            return memoryview(b"")
        view = self._window.apart(start, end)[: end - start]
        self.proof.given(start, view)
        return view

    def read1(self, size: int = -1, /) -> bytes:
        """Read some bytes, those that one request brings."""
        start, end = self._range(size)
        return bytes(self._view(start, end)) if start < end else b""

    def peek(self, size: int = 1, /) -> bytes:
        """Return some of the next bytes without moving on."""
        at = self._at
        try:
            return self.read1(max(size, io.DEFAULT_BUFFER_SIZE))
        finally:
            self._at = at

    def readinto(self, buffer: Any, /) -> int:
        """Read into a buffer until it is full or the file ends; return the number of bytes."""
        target = memoryview(buffer).cast("B")
        start, end = self._range(len(target))
        done = 0
        while start + done < end:
            view = self._view(start + done, end)
            target[done : done + len(view)] = view
            done += len(view)
        return done

    readinto1 = readinto

    def readline(self, size: int | None = -1, /) -> bytes:
        """Read to the end of a line, at most `size` bytes."""
        start, end = self._range(size)
        line = bytearray()
        while start + len(line) < end:
            at = start + len(line)
            view = self._view(at, min(end, at + _LINES))
            found = bytes(view[:_LINE]).find(b"\n")
            if found < 0 and len(view) > _LINE:
                found = bytes(view).find(b"\n")
            taken = len(view) if found < 0 else found + 1
            line += view[:taken]
            self._at = start + len(line)
            if found >= 0:
                break
        return bytes(line)

    def _range(self, size: int | None) -> tuple[int, int]:
        self._refuse_closed()
        end = self.size if size is None or size < 0 else min(self._at + size, self.size)
        return self._at, end

    def _view(self, start: int, end: int) -> memoryview:
        view = self._window.view(start, end) if self.cache is None else self._cached(start, end)
        self.proof.given(start, view)
        self._at = start + len(view)
        return view

    def _cached(self, start: int, end: int) -> memoryview:
        return memoryview(self.cache._fetch(start, min(end, start + self.blocksize)))

    def _fetch_range(self, start: int, end: int) -> bytes:
        """Return a part of the file, for a cache of fsspec."""
        end = min(end, self.size)
        data = bytearray()
        while start + len(data) < end:
            data += self._window.view(start + len(data), end)
        return bytes(data)

    @property
    def proven(self) -> bool | None:
        """True once all bytes were compared with a checksum of the store, False if there is none; None before."""
        return self.proof.proven

    # -- the rest of a file ----------------------------------------------------------------------

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to an offset; return it."""
        self._refuse_closed()
        if whence not in (io.SEEK_SET, io.SEEK_CUR, io.SEEK_END):
            raise ValueError(f"invalid whence ({whence}, should be 0, 1 or 2)")
        at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        if at < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._at = at
        return at

    def tell(self) -> int:
        """Return the offset of the next byte."""
        self._refuse_closed()
        return self._at

    def readable(self) -> bool:
        self._refuse_closed()
        return True

    def seekable(self) -> bool:
        self._refuse_closed()
        return True

    @property
    def version(self) -> ObjectInfo:
        """The metadata of the version that is read."""
        return self._info

    def info(self) -> Entry:
        """Return what is known of the file, as `FileSystem.info` does."""
        return file_entry(self.name, self._info)

    details = property(info)

    def close(self) -> None:
        """Drop what was read ahead."""
        if not self.closed:
            window = getattr(self, "_window", None)
            if window is not None:
                window.close()
            super().close()

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return bool(super().closed)

    @closed.setter
    def closed(self, closed: bool) -> None:
        """Do nothing: fsspec's caches say of a file that they have closed that it is."""

    def _refuse_closed(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def __repr__(self) -> str:
        return f"<file {redacted(self.name)!r}, mode 'rb'{', closed' if self.closed else ''}>"


# Most lines are shorter.
_LINE = 4096
# Bytes that a line asks for at a time; a long one asks again.
_LINES = 64 << 10
