"""Fetch the bytes of a window of an archive that does not exist yet, and put them in place.

Small objects are verified here, each as a whole. A window holds only a part of a large object; `Proof` receives these
parts in order, and verifies the object with the last one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from isal.isal_zlib import crc32

from nbdata.engine.pack.source import Field
from nbdata.errors import ChecksumMismatch, NbdataError
from nbdata.reading.fetcher import Fetcher
from nbdata.reading.pieces import Content, Piece
from nbdata.stores.base import ObjectInfo, Store
from nbdata.stores.local import LocalStore
from nbdata.transfer.control import Control
from nbdata.transfer.reader import Check
from nbdata.transfer.retry import retrying
from nbdata.verification.checker import decided, stream_check

__all__ = ["TWICE", "Fetching", "LargePart", "Part", "Proof", "read_window"]

#: Largest object that is fetched twice if a window ends within it: each time, the whole object is verified.
TWICE = 1 << 20
# Largest gap between two fields of a shard that is fetched along with them: mostly headers.
_GAP = 64 << 10
# If they are packed in another order, the same bytes may be fetched again for other windows: gaps as small as headers,
# and up to so many bytes of larger ones in a window.
_SMALL_GAP, _GAPS = 4 << 10, 8 << 20
# The first byte of a part in its shard, the byte behind it, and the number of the part.
_Span = tuple[int, int, int]


class Fetching:
    """Fetches pieces for all workers, with many requests in parallel.

    Parameters
    ----------
    stores : iterable of Store
        All stores that hold pieces.
    verify : str
        See `nbdata.verbs.options.Verifying`.
    width : int
        Number of parallel requests.
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
        """Fetch pieces; whole objects are verified."""
        number = next(self._numbers)
        self._wanted[number] = pieces
        try:
            return self._fetchers[store].fetch([number])[0]
        except NbdataError as error:
            error.details["retry"] = False  # it has been retried enough
            raise
        finally:
            del self._wanted[number]

    @property
    def unverified(self) -> int:
        """The number of objects without a checksum in the store; files on the disk are not counted."""
        return sum(
            fetcher.counts.unverified
            for store, fetcher in self._fetchers.items()
            if not isinstance(store, LocalStore)
        )

    def close(self) -> None:
        """End requests in progress."""
        for fetcher in self._fetchers.values():
            fetcher.close()


class Part(NamedTuple):
    """The part of a field in a window; `at` is the start of the field in the archive."""

    field: Field
    low: int
    high: int
    at: int

    @property
    def alone(self) -> bool:
        """True if only this part is fetched, since its field is large."""
        return self.field.piece.size > TWICE


class LargePart(NamedTuple):
    """A part of a large object, and its bytes."""

    part: Part
    data: memoryview


class _Crc:
    """Compares a field, read in order, with its CRC-32; implements `Check`."""

    unforgeable = False

    def __init__(self, field: Field) -> None:
        self._field, self._crc = field, 0

    def offer(self, offset: int, buffer: memoryview) -> bool:
        del offset
        self._crc = crc32(buffer, self._crc)
        return True

    def of(self, data: memoryview) -> None:
        """Check all bytes at once."""
        self.offer(0, data)
        self.finish(-1, len(data))

    def catch_up(self, fd: int, end: Callable[[], int]) -> None:
        """Do nothing: no byte was skipped."""

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
    """Read the bytes between two offsets; also return the parts of large objects, which are not verified yet.

    Parameters
    ----------
    pieces : iterable
        The pieces there, each with its start offset; they may extend beyond the offsets.
    seen : callable, optional
        Called with each small field that overlaps the range, and all of its bytes.
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
    requests, places = _requests(parts)
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
    """Verifies large objects by their parts, which come in order.

    Attributes
    ----------
    unverified : int
        The number of these objects without a checksum in the store.
    """

    def __init__(self, control: Control, verify: str) -> None:
        self._control, self._verify = control, verify
        self._check: Check | None = None
        self.unverified = 0

    def take(self, large: Iterable[LargePart]) -> None:
        """Check parts; raise ChecksumMismatch with the last part of a wrong object."""
        for part, data in large:
            self._take(part, data)

    def _take(self, part: Part, data: memoryview) -> None:
        field = part.field
        if self._verify == "none" or (part.high - part.low == field.piece.size and field.crc is None):
            return  # the fetcher has verified objects that it fetched as a whole
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


def _requests(parts: list[Part]) -> tuple[dict[Store, list[Piece]], list[tuple[int, int]]]:
    """Return the pieces to fetch from each store; for each part, the number of its piece, and its start there.

    Parts that are close to each other in a shard are fetched with one request, in whatever order they are packed.
    """
    requests: dict[Store, list[Piece]] = {}
    places = [(0, 0)] * len(parts)
    # By the object that describes a shard: a source has one for each.
    in_shards: dict[tuple[Store, int], list[_Span]] = {}
    infos: dict[int, ObjectInfo] = {}
    for number, part in enumerate(parts):
        piece = part.field.piece
        low, high = (part.low, part.high) if part.alone else (0, piece.size)
        if piece.end is not None:
            infos[id(piece.info)] = piece.info
            spans = in_shards.setdefault((part.field.store, id(piece.info)), [])
            spans.append((piece.start + low, piece.start + high, number))
            continue
        pieces = requests.setdefault(part.field.store, [])
        pieces.append(piece if high - low == piece.size else Piece(piece.info, low, high))
        places[number] = len(pieces) - 1, 0
    most = _GAP if all(_in_order(spans) for spans in in_shards.values()) else _sort(in_shards.values())
    for (store, shard), spans in in_shards.items():
        pieces, info = requests.setdefault(store, []), infos[shard]
        begin = end = -1
        for start, behind, number in spans:
            if begin >= 0 and start - end <= most:
                end = max(end, behind)
                pieces[-1] = Piece(info, begin, end)
            else:
                begin, end = start, behind
                pieces.append(Piece(info, begin, end))
            places[number] = len(pieces) - 1, start - begin
    return requests, places


def _in_order(spans: list[_Span]) -> bool:
    return all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


def _sort(in_shards: Collection[list[_Span]]) -> int:
    """Sort the spans of each shard, and return the largest gap that is fetched along with them."""
    for spans in in_shards:
        spans.sort()
    gaps = sorted(after[0] - before[1] for spans in in_shards for before, after in itertools.pairwise(spans))
    most, total = _SMALL_GAP, 0
    for gap in gaps:
        if gap > _SMALL_GAP:
            total += gap
            if gap > _GAP or total > _GAPS:
                return min(most, gap - 1)
            most = gap
    return most
