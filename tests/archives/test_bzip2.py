"""bzip2 streams, decoded block by block, also from the middle."""

from __future__ import annotations

import bz2
import random
from typing import NamedTuple

import pytest

from nbdata.archives import bzip2
from nbdata.archives.bzip2 import Bzip2Block, DamagedBlock

REST = b"what follows"


class Point(NamedTuple):
    """The start of a block, or the end: its bit offset, the number of decoded bytes, and the decoder's state."""

    offset: int
    expanded: int
    state: str


def decoded(
    data: bytes, state: str = "", chunk: int = 100_000, most: int = 1 << 20
) -> tuple[bytes, list[Point]]:
    """Decode a stream that is followed by REST; return the data and the points that were passed."""
    out, points, at, expanded = [], [], 0, 0
    while True:
        decoder = Bzip2Block(state)
        while not decoder.eof:
            piece = b""
            if decoder.needs_input:
                piece, at = data[at : at + chunk], at + chunk
                if not piece:
                    decoder.at_end()
                    raise EOFError
            out.append(decoder.decompress(piece, most))
            assert len(out[-1]) <= most
            expanded += len(out[-1])
        at, state = min(at, len(data)) - len(decoder.unused_data), decoder.state
        if not state:
            assert data[at:] == REST
            return b"".join(out), points
        points.append(Point(at, expanded, state))


def content(kind: str, size: int) -> bytes:
    source = random.Random(size)
    if kind == "random":
        return source.randbytes(size)
    piece = b"the same again, " if kind == "text" else bytes(1000) + source.randbytes(30)
    return (piece * (size // len(piece) + 1))[:size]


@pytest.mark.in_ci(8)
@pytest.mark.parametrize("kind", ["random", "text", "zeros"])
@pytest.mark.parametrize("size", [0, 1, 1000, 99_981, 950_000])
@pytest.mark.parametrize("level", [1, 9])
def test_decoding_equals_bz2_from_the_start_and_from_each_block(kind: str, size: int, level: int) -> None:
    data = content(kind, size)
    packed = bz2.compress(data, level)
    found, points = decoded(packed + REST)
    assert found == data
    assert len(points) >= size // 1_000_000
    for point in points:
        assert decoded(packed[point.offset :] + REST, point.state)[0] == data[point.expanded :]


@pytest.mark.parametrize("chunk", [1, 13, 4096])
def test_input_may_come_in_pieces_of_any_size_and_output_is_bounded(chunk: int) -> None:
    data = content("random", 5000) + bytes(3_000_000)
    assert decoded(bz2.compress(data, 1) + REST, chunk=chunk, most=10_000)[0] == data


def test_blocks_may_begin_at_any_bit_of_a_byte() -> None:
    begun = set()
    for size in range(150_000, 150_040):
        data = content("random", size)
        packed = bz2.compress(data, 1)
        point = decoded(packed + REST)[1][0]
        assert decoded(packed[point.offset :] + REST, point.state)[0] == data[point.expanded :]
        begun.add(point.state[0])
    assert begun == set("01234567")


def test_a_damaged_block_says_how_far_back_it_begins() -> None:
    packed = bytearray(bz2.compress(content("random", 450_000), 1))
    points = decoded(bytes(packed) + REST)[1]
    packed[len(packed) // 2] ^= 1
    damaged = points[1]
    decoder = Bzip2Block(damaged.state)
    decoder.decompress(bytes(packed[damaged.offset :]), 1 << 20)
    with pytest.raises(DamagedBlock) as caught:
        decoder.at_end()
    assert caught.value.behind == len(packed) - damaged.offset


def test_a_wrong_crc_over_all_blocks_is_found_from_any_of_them() -> None:
    packed = bytearray(bz2.compress(content("random", 250_000), 1))
    points = decoded(bytes(packed) + REST)[1]
    packed[-3] ^= 4
    for point in [Point(0, 0, ""), *points]:
        with pytest.raises(DamagedBlock, match="CRC over all"):
            decoded(bytes(packed[point.offset :]) + REST, point.state)


def test_bits_that_look_like_a_block_start_by_chance_are_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    find = bzip2._find_end

    def finds_too_much(data: bytearray, begin: int) -> int:
        found = find(data, begin)
        wrong = -(-begin // 100_000) * 100_000  # some false hits
        return wrong if 0 <= wrong + 48 < 8 * len(data) and (found < 0 or wrong < found) else found

    monkeypatch.setattr(bzip2, "_find_end", finds_too_much)
    data = content("random", 450_000)
    found, points = decoded(bz2.compress(data, 1) + REST)
    assert found == data
    assert len(points) == 5


def test_a_block_full_of_bits_that_look_like_its_end_is_tried_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A valid block may have 150,000 of them, and each try costs as much as the whole block."""
    monkeypatch.setattr(
        bzip2, "_find_end", lambda data, begin: begin + 8 if begin + 8 < 8 * len(data) else -1
    )
    tries, stream = [], bzip2._as_stream
    monkeypatch.setattr(bzip2, "_as_stream", lambda *args: tries.append(1) or stream(*args))
    with pytest.raises(DamagedBlock, match="does not decode"):
        decoded(bz2.compress(content("random", 250_000), 1) + REST)
    assert len(tries) == bzip2._MOST_WRONG


def test_a_block_without_an_end_is_not_buffered_without_limit() -> None:
    with pytest.raises(DamagedBlock):
        decoded(bz2.compress(b"x")[:14] + bytes(2_000_000))


def test_an_end_that_is_missing_is_no_damage() -> None:
    with pytest.raises(EOFError):
        decoded(bz2.compress(content("random", 450_000), 1)[:200_000])
