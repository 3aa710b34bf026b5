"""The bytes of a window of an archive that does not exist yet: fetched, and put in their places.

Small objects are proven here, each as a whole. Of a large one a window has only a part; `Proof` is told of these parts
in their order, and says with the last one whether they are right.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import NamedTuple

from isal.isal_zlib import crc32

from nbdata.engine.pack.source import Field
from nbdata.errors import ChecksumMismatch, NbdataError
from nbdata.reading.fetcher import Fetcher
from nbdata.reading.pieces import Content, Piece
from nbdata.stores.base import Store
from nbdata.stores.local import LocalStore
from nbdata.transfer.control import Control
from nbdata.transfer.reader import Check
from nbdata.transfer.retry import retrying
from nbdata.verification.checker import decided, stream_check

__all__ = ["TWICE", "Fetching", "LargePart", "Part", "Proof", "read_window"]

#: Bytes of the largest object that is fetched twice if a window ends in its middle: then each time all of it is proven.
TWICE = 1 << 20
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


class Part(NamedTuple):
    """A part of a field that lies in a window; `at` is where the field begins in the archive."""

    field: Field
    low: int
    high: int
    at: int

    @property
    def alone(self) -> bool:
        """Whether only this part is fetched, since its field is large."""
        return self.field.piece.size > TWICE


class LargePart(NamedTuple):
    """A part of a large object, and its bytes."""

    part: Part
    data: memoryview


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


def read_window(
    pieces: Iterable[tuple[int, bytes | Field]],
    start: int,
    end: int,
    fetching: Fetching,
    verify: str,
    seen: Callable[[Part, memoryview], None] | None = None,
) -> tuple[list[memoryview], list[LargePart]]:
    """The bytes between two offsets, and of these the parts of large objects, which are not proven yet.

    Parameters
    ----------
    pieces : iterable
        What lies there, each with the offset where it begins; may reach over the edges.
    seen : callable, optional
        Told of each small field that lies there or reaches in, with all of its bytes.
    """
    found: list[memoryview | Part] = []
    for at, piece in pieces:
        size = piece.piece.size if isinstance(piece, Field) else len(piece)
        low, high = max(0, start - at), min(size, end - at)
        if low < high:
            found.append(
                Part(piece, low, high, at) if isinstance(piece, Field) else memoryview(piece)[low:high]
            )
    parts = [part for part in found if isinstance(part, Part)]
    requests: dict[Store, list[Piece]] = {}
    # Of each part its request, and where it begins there.
    places = [_request(requests.setdefault(part.field.store, []), part) for part in parts]
    contents = {store: fetching.fetch(store, wanted) for store, wanted in requests.items()}
    fetched, large = [], []
    for part, (number, offset) in zip(parts, places, strict=True):
        content = memoryview(contents[part.field.store][number])
        if part.alone:
            data = content[offset : offset + part.high - part.low]
            large.append(LargePart(part, data))
        else:
            whole = content[offset : offset + part.field.piece.size]
            if part.field.crc is not None and verify != "none":
                _Crc(part.field).of(whole)
            if seen is not None:
                seen(part, whole)
            data = whole[part.low : part.high]
        fetched.append(data)
    coming = iter(fetched)
    return [next(coming) if isinstance(one, Part) else one for one in found], large


class Proof:
    """Judges large objects by their parts, which come in order.

    Attributes
    ----------
    unverified : int
        Of these objects, how many had no checksum in the store to compare with.
    """

    def __init__(self, control: Control, verify: str) -> None:
        self._control, self._verify = control, verify
        self._check: Check | None = None
        self.unverified = 0

    def take(self, large: Iterable[LargePart]) -> None:
        """Look at parts; ChecksumMismatch if the last one of an object shows that it is wrong."""
        for part, data in large:
            self._take(part, data)

    def _take(self, part: Part, data: memoryview) -> None:
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


def _request(pieces: list[Piece], part: Part) -> tuple[int, int]:
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
