"""The stored bytes of shards, read in ranges that are fetched ahead, or in one stream."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from nbdata.archives.stream import Readahead
from nbdata.protocols import Epoch
from nbdata.reading.counts import Counts
from nbdata.reading.fetcher import Fetcher
from nbdata.reading.pieces import Piece, PieceReader
from nbdata.reading.source_file import SourceFile
from nbdata.reading.timeline import Timeline
from nbdata.stores.base import ObjectInfo, Store
from nbdata.stores.local import LocalStore
from nbdata.transfer.control import Control
from nbdata.transfer.part_records import validator
from nbdata.transfer.reader import Check, Reader
from nbdata.transfer.retry import retrying
from nbdata.verification.checker import decided, stream_check

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["Bodies", "Body"]

# Bytes of a range, and how many ranges are fetched ahead.
_CHUNK, _AHEAD = 4 << 20, 16
# A range's number holds in its lowest bits, this many, its place in its shard.
_PLACE = 24
# Bytes to read at a time in one stream; a member across two such blocks is copied once more.
_BLOCK = 4 << 20


class Body(io.RawIOBase):
    """The stored bytes of one shard, from first to last.

    Attributes
    ----------
    proven : bool or None
        Whether the bytes were compared with a checksum of their store; None until the last one was read. If they
        are wrong, ChecksumMismatch is raised in place of the last ones.
    is_on_disk : bool
        Whether the shard is a file of a disk, which keeps no checksums.
    """

    proven: bool | None = None
    is_on_disk = False
    _left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def block(self) -> memoryview:
        """Return the next bytes as they lie in memory, valid until the next call; empty at the end."""
        block, self._left = self._left or self._more(), memoryview(b"")
        return block

    def _more(self) -> memoryview:
        raise NotImplementedError

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        if not self._left and view:
            self._left = self._more()
        count = min(len(view), len(self._left))
        view[:count], self._left = self._left[:count], self._left[count:]
        return count

    def close(self) -> None:
        self._left = memoryview(b"")
        super().close()


class _Stream(Body):
    """A shard read with one request."""

    def __init__(self, reader: Reader, *, is_on_disk: bool = False) -> None:
        super().__init__()
        self._reader, self._buffer = reader, memoryview(bytearray(_BLOCK))
        self.is_on_disk = is_on_disk

    def _more(self) -> memoryview:
        count = self._reader.readinto(self._buffer)
        self.proven = self._reader.proven if count else bool(self._reader.proven)
        return self._buffer[:count]

    def close(self) -> None:
        self._reader.close()
        super().close()


class _Ranges(Body):
    """A shard read in ranges that are fetched ahead.

    Attributes
    ----------
    next : int
        The next range to read.
    count : int
        The number of ranges.
    """

    def __init__(self, bodies: Bodies, fetcher: PieceReader, number: int, size: int, check: Check) -> None:
        super().__init__()
        self._bodies, self.fetcher, self.number = bodies, fetcher, number
        self._size, self._check = size, check
        # Unknown size does not mean empty: the first range is requested, and refused with the shard's name.
        self.next, self.count = 0, -(-size // _CHUNK) if size >= 0 else 1

    def _more(self) -> memoryview:
        if self.next == self.count:
            if self.proven is None:  # an empty shard
                self.proven = self._check.finish(-1, self._size)
            return memoryview(b"")
        at = self.next * _CHUNK
        (data,) = self._bodies.fetch(self)
        self.next += 1
        block = memoryview(data)
        self._check.offer(at, block)
        if self.next == self.count:
            self.proven = self._check.finish(-1, self._size)
        return block.toreadonly()

    def close(self) -> None:
        self._bodies.left(self)
        super().close()


class Bodies:
    """Opens shards, one after the other or several at a time; for one thread.

    Parameters
    ----------
    control : Control
    shards : sequence of SourceFile
    store_of : callable
        Returns the store of a shard.
    verify : str
        See `nbdata.verbs.options.Verifying`.
    width : int
        Most requests at a time.
    ahead_bytes : int
        Most bytes to fetch ahead.
    cached : callable, optional
        Makes a reader of a shard, and of those beside it, through a cache. None: read straight from the store.

    Attributes
    ----------
    verify : str
        The comparison during reading.
    coming : callable
        Returns the numbers of the shards that are opened next, soonest first; to be set by the user of the object.
    """

    def __init__(
        self,
        control: Control,
        shards: Sequence[SourceFile],
        store_of: Callable[[SourceFile], Store],
        *,
        verify: str,
        width: int,
        ahead_bytes: int,
        cached: Callable[[SourceFile, Callable[[int], list[Piece]]], PieceReader] | None = None,
    ) -> None:
        self._control, self._shards, self._store_of = control, shards, store_of
        # Objects in a cache were compared when they were fetched to it.
        self.verify = verify if cached is None else "none"
        self._width, self._ahead_bytes, self._cached = width, ahead_bytes, cached
        self._fetchers: dict[Store, PieceReader] = {}
        self._open: list[_Ranges] = []
        self.coming: Callable[[], Iterable[int]] = lambda: ()
        self._epoch: Epoch | None = None

    @property
    def counts(self) -> Counts:
        """The counts of range reads."""
        return Counts.of(fetcher.counts for fetcher in self._fetchers.values())

    @property
    def timeline(self) -> Timeline:
        """The times of waiting for ranges."""
        found = [fetcher.timeline for fetcher in self._fetchers.values()]
        return max(found, key=lambda timeline: len(timeline.waited), default=Timeline())

    def open(self, number: int) -> Body:
        """Open the bytes of a shard; close the result at the end."""
        shard = self._shards[number]
        store = self._store_of(shard)
        if isinstance(store, LocalStore) and self.verify in ("auto", "none"):  # a disk keeps no checksums
            return _Stream(Reader(self._control, store, shard.info), is_on_disk=True)
        if not self._in_ranges(store, shard):
            return _ReadAhead(_Stream(Reader(self._control, store, shard.info, check=self._checker(store))))
        info = shard.info
        if not decided(info, self.verify):
            info = retrying(self._control, lambda: store.head(shard.key))
        opened = _Ranges(self, self._fetcher(store, shard), number, shard.size, self._checker(store)(info))
        self._open.append(opened)
        return opened

    def _checker(self, store: Store) -> Callable[[ObjectInfo], Check]:
        return lambda told: stream_check(self._control, store, told, self.verify)

    def _fetcher(self, store: Store, shard: SourceFile) -> PieceReader:
        fetcher = self._fetchers.get(store)
        if fetcher is None:
            fetcher = self._fetchers[store] = (
                self._cached(shard, self._pieces)
                if self._cached
                else Fetcher(
                    store,
                    self._control,
                    self._pieces,
                    verify="none",
                    width=self._width,
                    ahead_bytes=self._ahead_bytes,
                )
            )
            if self._epoch is not None:
                fetcher.note_epoch(self._epoch)
        return fetcher

    def _in_ranges(self, store: Store, shard: SourceFile) -> bool:
        """True if a shard is read in ranges."""
        return self._cached is not None or (store.ranges and shard.size >= 0 and bool(validator(shard.info)))

    def _pieces(self, number: int) -> list[Piece]:
        shard, place = self._shards[number >> _PLACE], number & ((1 << _PLACE) - 1)
        return [Piece(shard.info, place * _CHUNK, min((place + 1) * _CHUNK, shard.size))]

    def fetch(self, body: _Ranges) -> list[bytes | bytearray]:
        """Return the next range of a shard; later ranges are fetched meanwhile."""
        number = body.number << _PLACE | body.next
        return body.fetcher.fetch([number], self._following(body))[0]

    def _following(self, body: _Ranges) -> list[int]:
        """Return the ranges to fetch after that one: of the open shards in turn, then of the coming shards."""
        found: list[int] = []
        alike = [one for one in self._open if one.fetcher is body.fetcher]
        for step in range(_AHEAD):
            for one in alike:
                place = one.next + step + (one is body)
                if place < one.count:
                    found.append(one.number << _PLACE | place)
            if len(found) >= _AHEAD:
                return found
        for number in self.coming():
            shard = self._shards[number]
            store = self._store_of(shard)
            if self._fetchers.get(store) is body.fetcher and self._in_ranges(store, shard):
                count = min(_AHEAD, -(-shard.size // _CHUNK))
                found += [number << _PLACE | place for place in range(count)]
            if len(found) >= _AHEAD:
                break
        return found[:_AHEAD]

    def note_epoch(self, epoch: Epoch) -> None:
        """See `PieceReader.note_epoch`."""
        self._epoch = epoch
        for fetcher in self._fetchers.values():
            fetcher.note_epoch(epoch)

    def left(self, body: _Ranges) -> None:
        """Note that a shard was closed."""
        if body in self._open:
            self._open.remove(body)

    def rest(self) -> None:
        """Drop all data until the next shard is opened."""
        self.coming = lambda: ()
        for fetcher in self._fetchers.values():
            fetcher.drop_ahead()

    def close(self) -> None:
        """Stop all work in progress."""
        for fetcher in self._fetchers.values():
            fetcher.close()


class _ReadAhead(Body):
    """A shard read with one request, by its own thread."""

    def __init__(self, stream: _Stream) -> None:
        super().__init__()
        self._stream, self._ahead = stream, Readahead(stream)

    def _more(self) -> memoryview:
        block = self._ahead.block()
        if not block:
            self.proven = self._stream.proven
        return block

    def close(self) -> None:
        self._ahead.close()
        super().close()
