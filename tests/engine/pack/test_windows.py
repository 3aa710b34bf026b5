"""Which bytes of shards are requested together for a window."""

from __future__ import annotations

import random
from typing import Any

from nbdata.engine.pack.source import Field
from nbdata.engine.pack.windows import read_window
from nbdata.reading.pieces import Piece
from nbdata.stores.base import ObjectInfo

_KIB = 1 << 10


class _Fetched:
    """Answers from memory, and notes what was requested."""

    def __init__(self, shard: bytes) -> None:
        self.shard, self.pieces = shard, list[Piece]()

    def fetch(self, store: Any, pieces: list[Piece]) -> list[bytes]:
        del store
        self.pieces += pieces
        return [self.shard[piece.start : piece.end] for piece in pieces]


def _read(shard: bytes, starts: list[int], size: int) -> tuple[list[bytes], list[Piece]]:
    """Read fields of a shard, packed one behind the other; return their bytes, and what was requested."""
    info, store, fetching = ObjectInfo("x.tar", len(shard), '"1"'), object(), _Fetched(shard)
    pieces: list[Any] = [
        (number * size, Field("jpg", store, Piece(info, start, start + size)))  # type: ignore[arg-type]
        for number, start in enumerate(starts)
    ]
    found, large = read_window(pieces, 0, size * len(starts), fetching, "none")  # type: ignore[arg-type]
    assert not large
    return [bytes(view) for view in found], fetching.pieces


def test_neighbours_that_are_packed_in_another_order_share_a_request() -> None:
    """Also those between which others lie, as when samples are sorted by a field."""
    shard = random.Random(1).randbytes(400 * _KIB)
    starts = list(range(0, len(shard), 4 * _KIB))
    random.Random(2).shuffle(starts)
    found, requested = _read(shard, starts[:60], _KIB)
    assert found == [shard[start : start + _KIB] for start in starts[:60]]
    assert len(requested) == 1


def test_a_window_of_samples_from_everywhere_fetches_few_bytes_between_them() -> None:
    """They would be fetched again for each other window."""
    shard = random.Random(1).randbytes(48 << 20)
    starts = list(range(0, len(shard), 48 * _KIB))
    random.Random(2).shuffle(starts)
    found, requested = _read(shard, starts, _KIB)
    assert found == [shard[start : start + _KIB] for start in starts]
    assert sum(piece.size for piece in requested) <= len(starts) * _KIB + (8 << 20)


def test_samples_in_the_order_of_the_shard_are_read_forward() -> None:
    shard = random.Random(1).randbytes(48 << 20)
    found, requested = _read(shard, starts := list(range(0, len(shard), 48 * _KIB)), _KIB)
    assert found == [shard[start : start + _KIB] for start in starts]
    assert len(requested) == 1
