"""The pieces of samples, and the second try for a piece that the fetcher's session could not read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from nbdata.errors import ChecksumMismatch, NbdataError
from nbdata.protocols import Epoch
from nbdata.reading.counts import Counts
from nbdata.reading.timeline import Timeline
from nbdata.stores.base import ObjectInfo, Store
from nbdata.transfer.control import Control
from nbdata.transfer.reader import Check, Reader
from nbdata.transfer.retry import Tries, retrying
from nbdata.verification.checker import stream_check

__all__ = ["Content", "Piece", "PieceReader", "SecondTry", "refuse_beyond", "too_large"]

#: The bytes of a piece.
Content = bytes | bytearray


class Piece(NamedTuple):
    """A piece of a sample: an object, or a range of one in a store that supports ranges.

    Attributes
    ----------
    info : ObjectInfo
        The object, in this version.
    start : int
        The first byte.
    end : int or None
        The end of the range, exclusive. None: the whole object, which is compared with its checksum; a range is
        not.
    """

    info: ObjectInfo
    start: int = 0
    end: int | None = None

    @property
    def size(self) -> int:
        """Bytes; -1 if the store does not say."""
        return self.info.size if self.end is None else self.end - self.start


# Bytes of an object whose store does not say its size: those that come decide.
_UNSAID = 256 << 20
# Bytes of an object that the ranges of one sample may have together, if it is smaller: fields may share bytes.
_AGAIN = 64 << 20


def refuse_beyond(pieces: Sequence[Piece]) -> None:
    """Refuse ranges of a sample that lie beyond the end of their object, or that together are much longer than it.

    Raises
    ------
    NbdataError
        An index can claim any ranges, and memory would be taken for all of them.
    """
    total: dict[tuple[str, str], int] = {}
    for info, start, end in pieces:
        if end is None or info.size < 0:
            continue
        one = info.key, info.etag
        total[one] = total.get(one, 0) + end - start
        if end > info.size or total[one] > max(info.size, _AGAIN):
            raise NbdataError(
                "the index names bytes that an object does not have",
                path=info.key,
                expected=f"at most {info.size:,} bytes",
                got=f"{max(end, total[one]):,}",
                remedy='Build the index anew: refresh="always"',
            )


def too_large(piece: Piece) -> NbdataError:
    """Return the error for a piece that has no room in the memory."""
    return NbdataError(
        "there is no memory for an object of a sample",
        path=piece.info.key,
        expected=f"an object of {piece.size:,} bytes, as the index says",
        remedy="Stream such data to the disk with cache_stream; if the size is wrong, build the index anew: "
        'refresh="always"',
    )


def _without_end(piece: Piece) -> NbdataError:
    """Return the error for an object of unknown size that is too large to collect."""
    return NbdataError(
        "an object of a sample is too large, and the store does not say its size in advance",
        path=piece.info.key,
        expected=f"at most {_UNSAID >> 20:,} MiB",
        got="more, perhaps without an end",
        remedy="Pull it to a folder, and read the samples there; or leave it out with exclude=",
    )


class PieceReader(Protocol):
    """Reads the pieces of samples by number: straight from a store (`Fetcher`), or through a cache."""

    @property
    def counts(self) -> Counts:
        """The counts of what was read so far."""

    @property
    def timeline(self) -> Timeline:
        """The times at which `fetch` waited."""

    def fetch(
        self, numbers: Sequence[int], ahead: Iterable[int] = (), *, keep: int = 0
    ) -> list[list[Content]]:
        """Return the pieces of each sample, in the order requested; see `nbdata.reading.fetcher.Fetcher.fetch`."""

    def note_epoch(self, epoch: Epoch) -> None:
        """Note that the loop begins an epoch, or that it is over; only a cache has a use for it."""

    def drop_ahead(self) -> None:
        """Drop all samples that no call has requested."""

    def close(self) -> None:
        """Start nothing more."""


class SecondTry:
    """Reads a piece with a request of its own, or asks the store for the checksum of bytes that came.

    Parameters
    ----------
    control : Control
    store : Store
    verify : str
        See `nbdata.verbs.options.Verifying`.
    """

    def __init__(self, control: Control, store: Store, verify: str) -> None:
        self._control, self._store, self._verify = control, store, verify

    def read(self, piece: Piece, failed: NbdataError | None) -> tuple[Content, bool]:
        """Return the bytes and whether they were compared; resumes and retries as long as that makes sense.

        Parameters
        ----------
        failed : NbdataError or None
            The error of the first try, if there was one.
        """
        tries = Tries(self._control, failed)
        control, store, (info, start, end) = self._control, self._store, piece
        check = self._check if end is None else None

        def attempt() -> tuple[Content, bool]:
            data = bytearray()

            def begins(_told: ObjectInfo) -> None:
                data.clear()

            with Reader(
                control, store, info, start, end, begins=begins, anew=True, tries=tries, check=check
            ) as reader:
                for block in reader.blocks():
                    data += block
                    if piece.size < 0 and len(data) > _UNSAID:
                        raise _without_end(piece)
            return (bytes(data), bool(reader.proven)) if end is None else (data, True)

        return tries.until_matching(attempt)

    def compare(self, piece: Piece, data: Content) -> tuple[Content, bool]:
        """Compare bytes with a checksum that needs another request; read them again if they are wrong."""
        told = retrying(self._control, lambda: self._store.head(piece.info.key))
        check = self._check(told)
        check.offer(0, memoryview(data))
        try:
            return data, check.finish(-1, len(data))
        except ChecksumMismatch as error:
            if error.details.get("retry") is False:
                raise
            return self.read(piece, error)

    def _check(self, told: ObjectInfo) -> Check:
        return stream_check(self._control, self._store, told, self._verify)
