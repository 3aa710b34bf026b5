"""Volumes are read as one stream, and readahead loses no bytes, errors or threads."""

from __future__ import annotations

import gc
import io
import threading
import time
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbdata.archives.stream import JoinedStream, Readahead, volume_at
from nbdata.errors import BadArchive, BadOption
from tests.waiting import AT_ONCE, PATIENCE, wait_until


@dataclass
class Volume:
    name: str
    data: bytes
    size: int | None = None
    opened: int = 0
    closed: int = 0

    def open(self, offset: int) -> io.BytesIO:
        self.opened += 1
        volume = self

        class Reader(io.BytesIO):
            def close(self) -> None:
                volume.closed += not self.closed
                super().close()

        return Reader(self.data[offset:])


def cut(data: bytes, points: list[int]) -> list[bytes]:
    edges = [0, *sorted(point % (len(data) + 1) for point in points), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def drain(stream: io.RawIOBase, *, into: bytearray) -> None:
    while piece := stream.read(100_000):
        into += piece


def volumes_of(pieces: list[bytes], *, sized: bool = True) -> list[Volume]:
    return [Volume(f"v{n}", piece, len(piece) if sized else None) for n, piece in enumerate(pieces)]


@given(st.binary(max_size=300), st.lists(st.integers(0, 300)), st.booleans(), st.integers(1, 50))
def test_bytes_cut_anywhere_join_to_the_same_bytes(
    data: bytes, points: list[int], sized: bool, step: int
) -> None:
    volumes = volumes_of(cut(data, points), sized=sized)
    progress: list[int] = []
    joined, found = JoinedStream(volumes, on_progress=progress.append), b""
    while piece := joined.read(step):
        found += piece
        assert joined.tell() == len(found)
    assert found == data
    assert sum(progress) == len(data)
    joined.close()
    assert all(volume.opened == volume.closed for volume in volumes)


@given(st.binary(min_size=1, max_size=100), st.lists(st.integers(0, 100)), st.lists(st.integers(0, 100)))
def test_seeking_lands_where_it_says(data: bytes, points: list[int], targets: list[int]) -> None:
    joined = JoinedStream(volumes_of(cut(data, points)))
    for target in targets:
        target %= len(data) + 1
        assert joined.seek(target) == joined.tell() == target
        assert joined.read(1) == data[target : target + 1]
    assert joined.seek(0, io.SEEK_END) == len(data)


def test_volumes_are_opened_one_at_a_time_and_only_when_reached() -> None:
    volumes = volumes_of([b"aa", b"bb", b"cc"])
    joined = JoinedStream(volumes)
    assert joined.read(1) == b"a"
    assert [(v.opened, v.closed) for v in volumes] == [(1, 0), (0, 0), (0, 0)]
    joined.read(1)
    joined.read(1)
    assert [(v.opened, v.closed) for v in volumes] == [(1, 1), (1, 0), (0, 0)]


def test_an_offset_tells_its_volume_also_when_sizes_become_known_by_reading() -> None:
    joined = JoinedStream(volumes_of([b"aaa", b"bb"]))
    assert joined.volume_at(2) == ("v0", 2)
    assert joined.volume_at(3) == ("v1", 0)
    assert joined.volume_at(99) == ("v1", 96)
    unsized = JoinedStream(volumes_of([b"aaa", b"bb"], sized=False))
    assert unsized.volume_at(3) == ("v0", 3)
    assert unsized.read() == b"aaabb"
    assert unsized.volume_at(3) == ("v1", 0)
    assert volume_at(io.BytesIO(), 0) is None


def test_a_volume_that_ends_before_its_size_is_named_with_the_offset() -> None:
    joined = JoinedStream([Volume("v0", b"abc", 3), Volume("v1", b"de", 5), Volume("v2", b"f", 1)])
    with pytest.raises(BadArchive, match=r"v1 ends at byte 2 \(expected 5 bytes\)") as caught:
        joined.read()
    assert caught.value.details == {"volume": "v1", "offset": 2}


def test_volumes_of_unknown_size_cannot_be_sought_nor_any_beyond_their_end() -> None:
    unsized = JoinedStream(volumes_of([b"a"], sized=False))
    assert not unsized.seekable()
    with pytest.raises(io.UnsupportedOperation):
        unsized.seek(0)
    with pytest.raises(BadOption):
        JoinedStream(volumes_of([b"a"])).seek(2)


class Faulty(io.RawIOBase):
    """Returns some bytes, then raises an error."""

    def __init__(self, data: bytes) -> None:
        self.source = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        count = self.source.readinto(buffer)
        if not count:
            raise BadArchive("broken here")
        return count


def readahead_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "nbdata-readahead"]


@given(st.binary(max_size=2000), st.integers(1, 300), st.integers(1, 64))
def test_reading_ahead_changes_no_byte(data: bytes, step: int, block: int) -> None:
    class Small(Readahead):
        BLOCK_SIZE = block

    with Small(io.BytesIO(data)) as ahead:
        found = b""
        while piece := ahead.read(step):
            found += piece
    assert found == data
    assert not readahead_threads()


def test_an_error_comes_after_the_bytes_before_it_and_again_on_every_read() -> None:
    data = bytes(range(256)) * 10_000
    with Readahead(Faulty(data)) as ahead:
        buffered = bytearray()
        for _ in range(2):
            with pytest.raises(BadArchive, match="broken here"):
                drain(ahead, into=buffered)
    assert buffered == data


def test_no_more_than_eight_blocks_are_read_ahead() -> None:
    class Endless(io.RawIOBase):
        count = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer) -> int:
            self.count += len(buffer)
            return len(buffer)

    source = Endless()
    with Readahead(source) as ahead:
        ahead.read(1)
        wait_until(lambda: source.count >= 8 << 20)
        # Either the thread waits for a free block, or it has read on.
        wait_until(lambda: ahead._queue._changed._waiters or source.count > 8 << 20)
        assert source.count == 8 << 20
    assert not readahead_threads()


class Blocking(io.RawIOBase):
    """Blocks in reads until another thread closes the source, as reads from a socket do."""

    def __init__(self) -> None:
        self.gate = threading.Event()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        self.gate.wait(PATIENCE)
        return 0

    def close(self) -> None:
        self.gate.set()
        super().close()


def test_closing_ends_the_thread_within_a_second_even_while_its_source_blocks() -> None:
    ahead = Readahead(Blocking())
    started = time.monotonic()
    ahead.close()
    assert time.monotonic() - started < AT_ONCE
    assert not readahead_threads()
    with pytest.raises(ValueError, match="closed"):
        ahead.read(1)


def test_a_readahead_that_is_dropped_leaves_no_thread() -> None:
    ahead = Readahead(io.BytesIO(bytes(20 << 20)))
    assert ahead.read(1)
    del ahead
    gc.collect()
    assert not readahead_threads()


def test_volumes_are_told_through_a_readahead() -> None:
    with Readahead(JoinedStream(volumes_of([b"aaa", b"bb"]))) as ahead:
        assert ahead.volume_at(4) == ("v1", 1)
