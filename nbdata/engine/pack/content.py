"""The bytes of a shard that does not exist yet, any range of them: fetched, proven, and put in their places."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from isal.isal_zlib import crc32

from nbdata.engine.pack.layout import Layout
from nbdata.engine.pack.source import Field
from nbdata.errors import ChecksumMismatch, NbdataError
from nbdata.reading.fetcher import Fetcher
from nbdata.reading.pieces import Content, Piece
from nbdata.stores.base import Store
from nbdata.stores.local import LocalStore
from nbdata.transfer.control import Control
from nbdata.transfer.reader import Check
from nbdata.transfer.retry import retrying
from nbdata.transfer.send import Hasher
from nbdata.verification.checker import decided, stream_check

__all__ = ["WINDOW", "Fetching", "Outgoing", "ShardContent"]

#: Bytes of a shard that one worker holds at a time.
WINDOW = 8 << 20
# Bytes of the largest object that is fetched twice if a window ends in its middle: then each time all of it is proven.
_TWICE = 1 << 20
# Bytes between two fields of a shard that are fetched along with them: headers, mostly.
_GAP = 64 << 10


class Fetching:
    """Fetches pieces for all workers, many requests at a time.

    Parameters
    ----------
    stores : iterable of Store
        All that pieces may be in.
    verify : str
        See `nbdata.verbs.options.Verifying`.
    width : int
        Requests at a time.
    """

    def __init__(self, control: Control, stores: Iterable[Store], *, verify: str, width: int) -> None:
        self._wanted: dict[int, list[Piece]] = {}
        self._numbers = itertools.count()
        self._fetchers = {
            store: Fetcher(
                store, control, self._wanted.__getitem__, verify=verify, width=width, ahead_bytes=0
            )
            for store in stores
        }

    def fetch(self, store: Store, pieces: list[Piece]) -> list[Content]:
        """The bytes of pieces; whole objects only if they are right."""
        number = next(self._numbers)
        self._wanted[number] = pieces
        try:
            return self._fetchers[store].fetch([number])[0]
        except NbdataError as error:
            error.details["retry"] = False  # it has been tried as often as is worth it
            raise
        finally:
            del self._wanted[number]

    @property
    def unverified(self) -> int:
        """Objects that had no checksum in the store to compare with; files of the disk have none."""
        return sum(
            fetcher.counts.unverified
            for store, fetcher in self._fetchers.items()
            if not isinstance(store, LocalStore)
        )

    def close(self) -> None:
        """End what is under way."""
        for fetcher in self._fetchers.values():
            fetcher.close()


class _Part(NamedTuple):
    """A part of a field that lies in a window."""

    field: Field
    low: int
    high: int

    @property
    def alone(self) -> bool:
        """Whether only this part is fetched, since its field is large."""
        return self.field.piece.size > _TWICE


class _Crc:
    """The comparison of a field with its CRC-32 while it comes in order; a `Check`."""

    def __init__(self, field: Field) -> None:
        self._field, self._crc = field, 0

    def offer(self, offset: int, buffer: memoryview) -> bool:
        del offset
        self._crc = crc32(buffer, self._crc)
        return True

    def of(self, data: memoryview) -> None:
        """All at once."""
        self.offer(0, data)
        self.finish(-1, len(data))

    def catch_up(self, fd: int, end: Callable[[], int]) -> None:
        """Nothing was left out."""

    def finish(self, fd: int, size: int) -> bool:
        del fd, size
        if self._crc != self._field.crc:
            raise ChecksumMismatch(
                f"a field {self._field.name!r} has another CRC-32 than when its shard was read first",
                path=self._field.piece.info.key,
                expected=f"{self._field.crc or 0:08x}",
                got=f"{self._crc:08x}",
                remedy="Check the shard with md5check",
            )
        return True


class ShardContent:
    """The bytes of one shard.

    Attributes
    ----------
    in_order : bool
        Whether it must be read from its beginning to its end, by one worker: it holds objects that are larger than what
        is fetched twice, and only all of their bytes prove them.
    step : int
        Bytes of a window. Of what must be read in order the last one is kept, to be sent again.
    unverified : int
        Of these objects, how many had no checksum in the store to compare with.
    """

    def __init__(self, layout: Layout, fetching: Fetching, control: Control, verify: str) -> None:
        self._layout, self._fetching, self._control, self._verify = layout, fetching, control, verify
        self.in_order = layout.largest > _TWICE
        self.step = WINDOW
        self.unverified = 0
        self._check: Check | None = None
        self._window: tuple[int, list[memoryview]] = (-1, [])
        self._wrong: ChecksumMismatch | None = None

    def outgoing(self, start: int, size: int, hasher: Hasher) -> Outgoing:
        """A range of it, as what is sent to a store."""
        return Outgoing(self, self._control, start, size, hasher)

    def window(self, start: int, end: int) -> list[memoryview]:
        """The bytes between two offsets."""
        if not self.in_order:
            return self._read(start, end)
        if self._wrong is not None:
            raise self._wrong
        if start != self._window[0]:  # else they are sent again
            try:
                self._window = (start, self._read(start, end))
            except ChecksumMismatch as error:
                # To be proven again it would have to be read again from its beginning: the next run does that.
                error.details["retry"] = False
                self._wrong = error
                raise
        return self._window[1]

    def _read(self, start: int, end: int) -> list[memoryview]:
        found: list[memoryview | _Part] = []
        for at, piece in self._layout.pieces(start, end):
            size = piece.piece.size if isinstance(piece, Field) else len(piece)
            low, high = max(0, start - at), min(size, end - at)
            if low < high:
                found.append(
                    _Part(piece, low, high) if isinstance(piece, Field) else memoryview(piece)[low:high]
                )
        fetched = iter(self._fetched([part for part in found if isinstance(part, _Part)]))
        return [next(fetched) if isinstance(one, _Part) else one for one in found]

    def _fetched(self, parts: list[_Part]) -> list[memoryview]:
        """The bytes of parts of fields, in their order."""
        requests: dict[Store, list[Piece]] = {}
        # Of each part its request, and where it begins there.
        places = [_request(requests.setdefault(part.field.store, []), part) for part in parts]
        contents = {store: self._fetching.fetch(store, pieces) for store, pieces in requests.items()}
        out = []
        for part, (number, offset) in zip(parts, places, strict=True):
            fetched = memoryview(contents[part.field.store][number])
            if part.alone:
                data = fetched[offset : offset + part.high - part.low]
                self._prove(part, data)
            else:
                whole = fetched[offset : offset + part.field.piece.size]
                if part.field.crc is not None and self._verify != "none":
                    _Crc(part.field).of(whole)
                data = whole[part.low : part.high]
            out.append(data)
        return out

    def _prove(self, part: _Part, data: memoryview) -> None:
        """Look at a part of a large field, and judge it with its last one."""
        field = part.field
        if self._verify == "none" or (part.high - part.low == field.piece.size and field.crc is None):
            return  # the fetcher has judged what it has fetched as a whole
        if part.low == 0:
            self._check = self._check_of(field)
        assert self._check is not None
        self._check.offer(part.low, data)
        if part.high == field.piece.size:
            proven = self._check.finish(-1, part.high)
            self.unverified += not proven and not isinstance(field.store, LocalStore)

    def _check_of(self, field: Field) -> Check:
        if field.crc is not None:
            return _Crc(field)
        info = field.piece.info
        if not decided(info, self._verify):
            info = retrying(self._control, lambda: field.store.head(info.key))
        return stream_check(self._control, field.store, info, self._verify)


def _request(pieces: list[Piece], part: _Part) -> tuple[int, int]:
    """Have a part fetched, or all of its field; the number of the request, and where that begins in it."""
    piece = part.field.piece
    low, high = (part.low, part.high) if part.alone else (0, piece.size)
    if piece.end is None:
        pieces.append(piece if high - low == piece.size else Piece(piece.info, low, high))
        return len(pieces) - 1, 0
    start, end = piece.start + low, piece.start + high
    last = pieces[-1] if pieces else None
    if (
        last is not None
        and last.info == piece.info
        and last.end is not None
        and 0 <= start - last.end <= _GAP
    ):
        pieces[-1] = last._replace(end=end)
        return len(pieces) - 1, start - last.start
    pieces.append(Piece(piece.info, start, end))
    return len(pieces) - 1, 0


class Outgoing:
    """A range of a shard on its way out: fetched window by window, hashed and counted as it is given."""

    def __init__(
        self, content: ShardContent, control: Control, start: int, size: int, hasher: Hasher
    ) -> None:
        self._content, self._control, self._hasher = content, control, hasher
        self._at, self._end = start, start + size
        self._chunks: list[memoryview] = []  # the next ones last
        self.sent = 0
        self.headers: Mapping[str, str] = {}
        self.md5 = ""
        self._fetch()  # before a request is begun, which should not wait for it

    def _fetch(self) -> None:
        behind = min(self._at + self._content.step, self._end)
        self._chunks = self._content.window(self._at, behind)[::-1]
        self._at = behind

    def readinto(self, buffer: memoryview, /) -> int:
        self._control.checkpoint()
        if not self._chunks and self._at < self._end:
            self._fetch()
        room = buffer[: min(len(buffer), self._control.block)]
        filled = 0
        while self._chunks and filled < len(room):
            chunk = self._chunks[-1]
            count = min(len(chunk), len(room) - filled)
            room[filled : filled + count] = chunk[:count]
            filled += count
            if count == len(chunk):
                self._chunks.pop()
            else:
                self._chunks[-1] = chunk[count:]
        if filled:
            self._hasher.update(room[:filled])
            self.sent += filled
            self._control.advance(bytes=filled)
        return filled

    def close(self) -> None:
        """Hold no more of it."""
        self._chunks = []
