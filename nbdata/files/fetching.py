"""Fetches whole objects and ranges of objects into memory: many at a time, by one thread and one session of a store."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nbdata.errors import ChecksumMismatch, NbdataError, NotFound, SourceChanged, StoreUnavailable
from nbdata.files.connections import Place
from nbdata.reading.pieces import Content, Piece, SecondTry
from nbdata.stores.base import ObjectInfo, Store
from nbdata.stores.sessions import Answer, Read
from nbdata.transfer.free_control import FreeControl
from nbdata.transfer.part_records import validator
from nbdata.transfer.retry import retrying
from nbdata.verification.checker import right

__all__ = ["FIRST", "First", "compared", "fetch", "first_bytes"]

#: Bytes of the first request for a file: most small objects come whole, and it is no slower than asking for the size.
FIRST = 256 << 10
# Requests at a time, and bytes of memory that those in flight may use beside what is returned.
_WIDTH, _IN_FLIGHT = 64, 32 << 20
# Bytes of each range of a larger piece, which are fetched at the same time.
_RANGE = 8 << 20


class First(NamedTuple):
    """The start of an object, with the store's metadata of this version."""

    info: ObjectInfo
    data: bytes


def first_bytes(place: Place, most: int = FIRST, start: int = 0) -> First:
    """Ask for the start of an object, or for so many bytes from `start` on.

    Raises
    ------
    NotFound
        If there is none.
    """
    store = place.store

    def attempt() -> First:
        body = store.read(place.key, start, start + most)
        try:
            if body.start not in (0, start):
                raise NbdataError("the store answers with another range", path=place.key)
            skipped = start - body.start  # a server may ignore the range
            while skipped and (count := body.readinto(memoryview(bytearray(min(skipped, FIRST))))):
                place.control.checkpoint()
                skipped -= count
            view, came = memoryview(bytearray(most)), 0
            while came < most and (count := body.readinto(view[came:])):
                came += count
            info = body.info
            if came and 0 <= info.size < start + came:
                raise SourceChanged("the object is longer than the store said", path=place.key)
            if came < min(most, info.size - start):
                raise StoreUnavailable(
                    "the store sent fewer bytes than it announced", path=place.key, details={"retry": True}
                )
            if info.size < 0 and came < most:  # it has ended
                info = info._replace(size=start - skipped + came)
            return First(info, bytes(view[:came]))
        finally:
            body.close()

    return place.retrying(attempt)


def compared(place: Place, first: First, verify: str) -> tuple[First, bool]:
    """Compare a small object, which has come whole; return it, perhaps fetched again, and whether there is a checksum.

    Raises
    ------
    ChecksumMismatch
        If the bytes are wrong, after retries.
    """
    info, data = first
    second = SecondTry(place.control, place.store, verify)
    try:
        proven = right(info, verify, memoryview(data))
        if proven is not None:
            return first, proven
        again, proven = second.compare(Piece(info), data)
    except ChecksumMismatch as error:
        again, proven = second.read(Piece(info), error)
    return First(info, bytes(again)), proven


@dataclass(slots=True, eq=False)
class _Wanted:
    """A piece that is being fetched, the memory that its ranges fill, and the number of those that are missing."""

    number: int
    piece: Piece
    data: io.BytesIO | None = None
    left: int = 1


@dataclass(slots=True)
class _Fetch:
    """One call of `fetch`."""

    store: Store
    control: FreeControl
    verify: str
    found: list[Content | NbdataError | None]
    again: list[tuple[_Wanted, NbdataError | None]] = field(default_factory=list)

    def run(self, pieces: Sequence[Piece]) -> None:
        requests = (
            request for number, piece in enumerate(pieces) for request in self._requests(number, piece)
        )
        with self.store.reading(lambda: _WIDTH, _IN_FLIGHT) as session:
            more = True
            while more:
                more = False
                while session.free > 0 and (request := next(requests, None)) is not None:
                    session.submit(request)
                    more = True
                for answer in session.results():
                    if answer is not None:
                        self._take(answer)
                    while session.free > 0 and (request := next(requests, None)) is not None:
                        session.submit(request)
        self.control.checkpoint()
        again, self.again = self.again, []
        for wanted, error in again:
            self.found[wanted.number] = self._second(wanted.piece, error)

    def _second(self, piece: Piece, error: NbdataError | None) -> Content | NbdataError:
        """Return the bytes of a piece that the session could not read, or the error."""
        try:
            if piece.size < 0 and self.store.ranges:  # perhaps it is large
                info = retrying(self.control, lambda: self.store.head(piece.info.key))
                if info.size >= 0:
                    sized = _Fetch(self.store, self.control, self.verify, [None])
                    sized.run([Piece(info)])
                    return sized.found[0] or b""
            return SecondTry(self.control, self.store, self.verify).read(piece, error)[0]
        except NbdataError as failed:
            return failed

    def _requests(self, number: int, piece: Piece) -> Iterable[Read[_Wanted]]:
        wanted = _Wanted(number, piece)
        whole = piece.end is None
        if piece.size == 0:
            self.found[number] = b""
            return
        if piece.size < 0 and self.store.reads_together < 0:
            self.again.append((wanted, None))
            return
        if piece.size <= _RANGE or (whole and not (self.store.ranges and validator(piece.info))):
            yield Read(wanted, piece.info, piece.start, piece.end)
            return
        # The system gives such zeros page by page, when bytes are written over them.
        wanted.data = io.BytesIO(bytes(piece.size))
        view, behind = wanted.data.getbuffer(), piece.start + piece.size
        starts = range(piece.start, behind, _RANGE)
        wanted.left = len(starts)
        for start in starts:
            end = min(start + _RANGE, behind)
            into = view[start - piece.start : end - piece.start]
            yield Read(wanted, piece.info, start, end, lambda into=into: into)  # type: ignore[misc]

    def _take(self, answer: Answer[Read[_Wanted]]) -> None:
        wanted: _Wanted = answer.request.of
        if wanted.left == 0:  # another range of the piece has failed
            return
        if answer.error is not None:
            wanted.left = 0
            if isinstance(answer.error, NotFound):
                self.found[wanted.number] = answer.error
            else:
                self.again.append((wanted, answer.error))
            return
        wanted.left -= 1
        if wanted.left:
            return
        # `getvalue` copies nothing.
        data: Content = bytes(answer.data) if wanted.data is None else wanted.data.getvalue()
        piece = wanted.piece
        if piece.end is None:
            info = answer.told or piece.info
            try:
                proven = right(info, self.verify, memoryview(data))
                if proven is None:
                    data, _ = SecondTry(self.control, self.store, self.verify).compare(
                        Piece(info._replace(size=len(data))), data
                    )
            except ChecksumMismatch as error:
                self.again.append((wanted, error))
                return
            except NbdataError as error:
                self.found[wanted.number] = error
                return
        self.found[wanted.number] = data


def fetch(place: Place, pieces: Sequence[Piece], verify: str) -> list[Content | NbdataError]:
    """Return the bytes of each piece, or the error that it met. Whole objects are compared with their checksums.

    Memory holds what is returned, and the requests in flight.

    Parameters
    ----------
    place : Place
        A place in the store of the pieces.
    pieces : sequence of Piece
        Their sizes may be unknown.
    verify : str
        See `nbdata.verbs.options.Verifying`.
    """
    found: list[Content | NbdataError | None] = [None] * len(pieces)
    if pieces:
        _Fetch(place.store, place.control, verify, found).run(pieces)
    stopped = NbdataError("reading has ended", path=place.folder.place)
    return [stopped if one is None else one for one in found]
