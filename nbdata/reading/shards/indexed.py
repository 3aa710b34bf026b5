"""Reads samples in shards by number: the ranges that hold a sample, and the comparison with the index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from isal.isal_zlib import crc32

from nbdata.errors import BadOption, ChecksumMismatch
from nbdata.formats.sample_index import SampleIndex
from nbdata.formats.sample_objects import ShardMember
from nbdata.protocols import Epoch
from nbdata.reading.counts import Counts
from nbdata.reading.pieces import Content, Piece, PieceReader
from nbdata.reading.source_file import SourceFile
from nbdata.reading.timeline import Timeline

__all__ = ["IndexedShards"]

# Most bytes of a gap between two fields that is read along instead of a second request; mostly headers.
_GAP = 64 << 10
# How often to read a sample with wrong bytes.
_TRIES = 3


class _Cut(NamedTuple):
    """The place of a field in the pieces of its sample."""

    member: ShardMember
    piece: int
    offset: int


class IndexedShards:
    """The samples of all shards in one store.

    Parameters
    ----------
    index : SampleIndex
    shards : sequence of SourceFile
    fetcher_of : callable
        Makes a fetcher from a function that returns the pieces by number.
    verify : str
        ``none`` compares nothing with the index.
    """

    def __init__(
        self,
        index: SampleIndex,
        shards: Sequence[SourceFile],
        fetcher_of: Callable[[Callable[[int], list[Piece]]], PieceReader],
        verify: str,
    ) -> None:
        self._index, self._shards, self._compare = index, shards, verify != "none"
        self._fetcher = fetcher_of(lambda number: self._plan(number)[0])

    def read(self, numbers: list[int], coming: list[int], keep: int) -> list[dict[str, Any]]:
        """Return samples by their numbers, each as a new dict."""
        contents = self._fetcher.fetch(numbers, coming, keep=keep)
        return [self._sample(number, pieces) for number, pieces in zip(numbers, contents, strict=True)]

    def _sample(self, number: int, pieces: list[Content]) -> dict[str, Any]:
        for _ in range(_TRIES):
            try:
                return self._cut(number, pieces)
            except ChecksumMismatch as error:
                wrong = error
                pieces = self._fetcher.fetch([number])[0]
        raise wrong

    def _plan(self, number: int) -> tuple[list[Piece], list[_Cut]]:
        """Return the pieces of a sample to read, and the places of its fields in them."""
        pieces: list[Piece] = []
        cuts: list[_Cut] = []
        for member in self._index.members(number):
            if member.offset < 0:
                raise BadOption(
                    f"the field {member.field!r} of {self._index.key(number)!r} is stored as a sparse file",
                    path=self._shards[member.shard].url,
                    remedy="Use samples.stream()",
                )
            if not member.size:
                cuts.append(_Cut(member, 0, 0))
                continue
            end = member.offset + member.size
            behind = pieces[-1].start + pieces[-1].size if pieces else 0
            if pieces and behind <= member.offset <= behind + _GAP:
                pieces[-1] = pieces[-1]._replace(end=end)
            else:
                pieces.append(Piece(self._shards[member.shard].info, member.offset, end))
            cuts.append(_Cut(member, len(pieces) - 1, member.offset - pieces[-1].start))
        return pieces, cuts

    def _cut(self, number: int, pieces: list[Content]) -> dict[str, Any]:
        cuts = self._plan(number)[1]
        key, url = self._index.key(number), self._shards[cuts[0].member.shard].url
        sample: dict[str, Any] = {"__key__": key, "__url__": url}
        for member, piece, offset in cuts:
            data = bytes(memoryview(pieces[piece])[offset : offset + member.size]) if member.size else b""
            if self._compare and crc32(data) != member.crc:
                raise ChecksumMismatch(
                    f"the field {member.field!r} of the sample {key!r} has another CRC-32 than in the index",
                    path=url,
                    expected=f"{member.crc:08x}",
                    got=f"{crc32(data):08x}",
                    remedy="Check the shard with md5check, and make the index anew with refresh='always'",
                )
            sample[member.field] = data
        return sample

    @property
    def counts(self) -> Counts:
        """The counts of what this process has read so far."""
        return self._fetcher.counts

    def note_epoch(self, epoch: Epoch) -> None:
        """See `PieceReader.note_epoch`."""
        self._fetcher.note_epoch(epoch)

    def drop_ahead(self) -> None:
        """Drop the samples that were fetched ahead."""
        self._fetcher.drop_ahead()

    def close(self) -> None:
        """Stop all work in progress."""
        self._fetcher.close()

    @property
    def timeline(self) -> Timeline:
        """The times at which this process waited."""
        return self._fetcher.timeline
