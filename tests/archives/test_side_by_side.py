"""Decompression in parallel gives the same bytes, errors and restart points as decompression in one thread."""

from __future__ import annotations

import bz2
import gc
import io
import itertools
import random
import struct
import subprocess
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from nbdata.archives import unit_pool
from nbdata.archives.bzip2 import Bzip2Splitter
from nbdata.archives.decoders import CODECS
from nbdata.archives.decompress import ExpansionLimit, open_decompressed
from nbdata.archives.place import Restart
from nbdata.archives.stream import JoinedStream, Readahead
from nbdata.archives.units import LARGEST, Unit, Unsplit, split_gzip, split_zstd
from nbdata.errors import BadArchive
from tests.archives.test_stream import Blocking, Faulty, cut, drain, volumes_of
from tests.waiting import AT_ONCE, wait_until

THREADS = 3


def gzip_member(data: bytes, subfield: bytes = b"IG\4\0", *, size: int | None = None) -> bytes:
    """Return a gzip member that contains its size, as mgzip and `pack` write it, or with bgzip's subfield."""
    deflate = zlib.compressobj(6, wbits=-15)
    body = deflate.compress(data) + deflate.flush()
    whole = 12 + 4 + subfield[2] + len(body) + 8
    carried = struct.pack("<I", whole if size is None else size)
    if subfield[2] == 2:
        carried = struct.pack("<H", whole - 1)
    extra = subfield + carried
    header = b"\x1f\x8b\x08\4" + bytes(6) + struct.pack("<H", len(extra)) + extra
    return header + body + struct.pack("<II", zlib.crc32(data), len(data))


def bgzf(data: bytes) -> bytes:
    return gzip_member(data, b"BC\2\0")


def zstd_frame(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def pzstd_frame(data: bytes) -> bytes:
    """Return a zstd frame without its content size, after a frame in which pzstd stores the compressed size."""
    compressor = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False)
    frame = compressor.compress(data)
    return struct.pack("<III", 0x184D2A50, 4, len(frame)) + frame


def bzip2_stream(data: bytes) -> bytes:
    return bz2.compress(data, 1)


WRITERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gz IG": ("gz", gzip_member),
    "gz BGZF": ("gz", bgzf),
    "zst": ("zst", zstd_frame),
    "zst pzstd": ("zst", pzstd_frame),
    "bz2": ("bz2", bzip2_stream),
}
KINDS = sorted(WRITERS)


def content(size: int, seed: int = 0) -> bytes:
    source = random.Random(seed)
    return b"".join(b"%d " % source.randrange(5000) for _ in range(size // 4))[:size]


PARTS = [content(size, size) for size in (30_000, 1, 60_000, 0, 45_000, 50_000, 20_000)]


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make each unit a separate task; check at the end that no thread is left."""
    monkeypatch.setattr(unit_pool, "_TOGETHER", 1)
    yield
    gc.collect()
    wait_until(lambda: not decoder_threads())


def decoder_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("nbdata-decoder")]


def read(
    raw: io.RawIOBase | bytes, format_: str, threads: int = THREADS, start: Restart | None = None
) -> tuple[bytes, dict[str, object]]:
    """Return the decoded data, and the visible state of the stream at the end."""
    if isinstance(raw, bytes):
        raw = io.BytesIO(raw)
    stream, _ = open_decompressed(raw, format=format_, name="a", start=start, threads=threads)
    came, told = bytearray(), dict[str, object]()
    with stream:
        try:
            drain(stream, into=came)
        except BadArchive as error:
            told = {"fault": error.details["fault"], "offset": error.details["offset"]}
        told |= {"verified": stream.verified, "trailing": stream.trailing, "padding": stream.padding}
    return bytes(came), told


def taken_from_pool(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the units that came from the pool, in order."""
    take, sizes = unit_pool.UnitPool.take, list[int]()

    def noting(self: unit_pool.UnitPool, state: str) -> unit_pool.Taken | None:
        found = take(self, state)
        if found is not None:
            sizes.append(len(found.unit.raw))
        return found

    monkeypatch.setattr(unit_pool.UnitPool, "take", noting)
    return sizes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.in_ci("bz2", "gz BGZF", "zst")
def test_all_pieces_come_from_the_pool_in_their_order(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    format_, pack = WRITERS[kind]
    sizes = taken_from_pool(monkeypatch)
    blob = b"".join(map(pack, PARTS))
    assert read(blob, format_)[0] == b"".join(PARTS)
    assert sum(sizes) >= len(blob) - 40  # a short one at the very end may be missing
    assert len(sizes) >= len(PARTS) - 1


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)  # each example starts threads
@given(data=st.data(), parts=st.lists(st.binary(max_size=300), min_size=1, max_size=6))
@pytest.mark.in_ci("zst", "gz BGZF")
def test_any_content_cut_into_any_volumes_gives_the_same_bytes(
    kind: str, data: st.DataObject, parts: list[bytes]
) -> None:
    format_, pack = WRITERS[kind]
    padding = bytes(data.draw(st.sampled_from([0, 4, 512])))
    blob = b"".join(map(pack, parts)) + padding
    points = data.draw(st.lists(st.integers(0, len(blob)), max_size=30))
    found, told = read(JoinedStream(volumes_of(cut(blob, points))), format_)
    assert found == b"".join(parts)
    assert told["padding"] == len(padding)


def spoilt(blob: bytes, source: random.Random) -> Iterator[bytes]:
    """Yield damaged versions of a stream: a wrong bit, truncated, padded inside, with trailing data, or doubled."""
    for _ in range(60):
        wrong = bytearray(blob)
        wrong[source.randrange(len(blob))] ^= 1 << source.randrange(8)
        yield bytes(wrong)
    for _ in range(30):
        yield blob[: source.randrange(1, len(blob))]
    for _ in range(10):
        at, count = source.randrange(len(blob)), source.choice([1, 4, 700])
        yield blob[:at] + bytes(count) + blob[at:]
        yield blob[:at] + blob[at + count :]
    yield blob + bytes(700)
    yield blob + b"garbage"
    yield blob + bytes(9) + b"garbage" * 20_000
    yield blob + bytes(9) + blob


def compare_spoilt(format_: str, blob: bytes, seed: str) -> None:
    faults = 0
    for wrong in spoilt(blob, random.Random(seed)):
        (alone, told), (found, told_here) = read(wrong, format_, 1), read(wrong, format_)
        assert int(str(told_here.pop("verified"))) >= int(str(told.pop("verified")))
        if "fault" in told:
            faults += 1
            assert found.startswith(alone) or alone.startswith(found)
            # A decoder notices damage with the precision of the blocks that it gets.
            apart = abs(int(str(told.pop("offset"))) - int(str(told_here.pop("offset"))))
            assert apart <= (0 if told["fault"] != "damaged" else 256 << 10)
        else:
            assert found == alone
        assert told_here == told
    assert faults > 50


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.in_ci("gz BGZF", "zst")
def test_damage_is_told_as_without_the_pool(kind: str) -> None:
    format_, pack = WRITERS[kind]
    compare_spoilt(format_, b"".join(map(pack, PARTS)), kind)


@pytest.mark.long
def test_damage_in_streams_of_many_blocks_is_told_as_without_the_pool() -> None:
    blob = bz2.compress(content(350_000), 1) + bz2.compress(content(120_000), 1)
    compare_spoilt("bz2", blob, "blocks")
    crc = len(bz2.compress(content(350_000), 1)) - 3  # the CRC of all blocks of the first stream
    wrong = blob[:crc] + bytes([blob[crc] ^ 1]) + blob[crc + 1 :]
    assert read(wrong, "bz2")[1] == read(wrong, "bz2", 1)[1]
    assert read(wrong, "bz2")[0] == content(350_000)


@pytest.mark.in_ci("bz2", "gz IG")
@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_that_ends_too_early_gives_what_came_before_and_says_where(kind: str) -> None:
    format_, pack = WRITERS[kind]
    blob = b"".join(map(pack, PARTS))
    found, told = read(blob[:-1], format_)
    assert b"".join(PARTS).startswith(found)
    assert (told["fault"], told["offset"]) == ("truncated", len(blob) - 1)


@pytest.mark.in_ci("bz2", "gz IG")
@pytest.mark.parametrize("kind", KINDS)
def test_reading_can_begin_at_each_place_that_was_told(kind: str) -> None:
    format_, pack = WRITERS[kind]
    blob, whole = b"".join(map(pack, PARTS)), b"".join(PARTS)
    places = []
    for threads in (1, THREADS):
        stream, _ = open_decompressed(io.BytesIO(blob), format=format_, threads=threads)
        points = set()
        for offset in itertools.count(0, 5000):
            if not stream.read(5000):
                break
            points.add(stream.restart(offset))
            assert offset <= stream.verified
        stream.close()
        places.append(points)
        for point in points:
            assert read(blob[point.compressed :], format_, threads, point)[0] == whole[point.expanded :]
    assert places[0] == places[1] or kind == "zst pzstd"  # without the pool, also between frames


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.in_ci("bz2", "gz BGZF", "zst")
def test_pieces_before_and_behind_a_long_one_come_from_the_pool(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    format_, pack = WRITERS[kind]
    sizes = taken_from_pool(monkeypatch)
    # The middle piece does not tell its end, or it is too large. In bzip2, a block of zeros expands to much more.
    middle = {
        "gz": zlib.compress(PARTS[0], wbits=31),
        "zst": zstandard.ZstdCompressor(write_content_size=False).compress(PARTS[0]),
        "bz2": bz2.compress(bytes(20 << 20), 9),
    }[format_]
    inner = bytes(20 << 20) if format_ == "bz2" else PARTS[0]
    blob = pack(PARTS[2]) * 3 + middle + pack(PARTS[4]) * 3
    assert read(blob, format_)[0] == PARTS[2] * 3 + inner + PARTS[4] * 3
    assert len(sizes) >= 6
    assert sum(sizes) >= len(blob) - len(middle)


@pytest.mark.parametrize("lie", [30, 17, 0, -1, -5, 1, 5, 1 << 31], ids=str)
@pytest.mark.in_ci("30", "-1")
def test_a_size_that_is_wrong_changes_nothing(lie: int) -> None:
    right = gzip_member(PARTS[0])
    size = lie if lie in (0, 17, 30, 1 << 31) else len(right) + lie
    blob = gzip_member(PARTS[0], size=size) + right * 2
    assert read(blob, "gz")[0] == PARTS[0] * 3
    two = gzip_member(PARTS[0], size=2 * len(right)) + right * 2
    assert read(two, "gz")[0] == PARTS[0] * 3


def test_a_piece_that_declares_too_much_content_does_not_use_the_pool() -> None:
    frame = zstandard.ZstdCompressor().compress(bytes(LARGEST + 1))
    assert split_zstd(bytearray(frame), "") is Unsplit.STREAM
    announced = b"\x28\xb5\x2f\xfd" + b"\xe0" + struct.pack("<Q", 1 << 50) + b"\1\0\0" + bytes(20)
    assert split_zstd(bytearray(announced), "") is Unsplit.STREAM
    window = b"\x28\xb5\x2f\xfd" + b"\xc0\xa8" + struct.pack("<Q", 5) + bytes(20)
    assert split_zstd(bytearray(window), "") is Unsplit.STREAM
    member = bytearray(gzip_member(b"x"))
    member[-4:] = struct.pack("<I", LARGEST + 1)
    assert split_gzip(member, "") is Unsplit.STREAM
    assert split_gzip(bytearray(gzip_member(b"x", size=LARGEST + 1)), "") is Unsplit.STREAM


def test_a_piece_with_more_content_than_it_declares_is_not_kept() -> None:
    member = bytearray(gzip_member(bytes(8 << 20)))
    member[-4:] = struct.pack("<I", 100)
    unit = split_gzip(member, "")
    assert isinstance(unit, Unit)
    assert unit_pool._decode_all(CODECS["gz"], [unit]) == [None]
    block = Bzip2Splitter()(bytearray(bz2.compress(bytes(20 << 20))), "")
    assert isinstance(block, Unit)
    assert unit_pool._decode_all(CODECS["bz2"], [block]) == [None]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.in_ci("bz2", "gz BGZF", "zst")
def test_what_is_in_the_pool_is_bounded(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    format_, pack = WRITERS[kind]
    monkeypatch.setattr(unit_pool, "IN_FLIGHT", 300_000)
    monkeypatch.setattr(unit_pool, "_MORE_TASKS", 1000)
    most = 0
    submit = unit_pool.UnitPool._submit

    def noting(self: unit_pool.UnitPool, batch: list[tuple[int, Unit]]) -> None:
        nonlocal most
        submit(self, batch)
        held = sum(2 * len(taken.unit.raw) + taken.unit.most for taken in self._units)
        most = max(most, held if len(self._units) > 1 else 0)

    monkeypatch.setattr(unit_pool.UnitPool, "_submit", noting)
    blob = b"".join(map(pack, PARTS * 4))
    assert read(blob, format_)[0] == b"".join(PARTS * 4)
    assert most <= 300_000


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.in_ci("bz2", "gz BGZF", "zst")
def test_a_bomb_of_many_pieces_is_stopped_at_the_limit(kind: str) -> None:
    format_, pack = WRITERS[kind]
    blob = pack(bytes(60_000)) * 500
    stream, _ = open_decompressed(io.BytesIO(blob), format=format_, threads=THREADS)
    came = bytearray()
    with stream, pytest.raises(BadArchive, match=r"more than 3\.0 MB"):
        drain(ExpansionLimit(stream, 3_000_000), into=came)
    assert len(came) <= 3_000_000


@pytest.mark.in_ci("bz2", "gz IG")
@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_the_source_comes_after_the_pieces_before_it(kind: str) -> None:
    format_, pack = WRITERS[kind]
    stream, _ = open_decompressed(Faulty(b"".join(map(pack, PARTS))), format=format_, threads=THREADS)
    came = bytearray()
    with stream:
        for _ in range(2):
            with pytest.raises(BadArchive, match="broken here"):
                drain(stream, into=came)
    assert came == b"".join(PARTS)


class Slow(io.RawIOBase):
    """Returns some bytes, then blocks until it is closed."""

    def __init__(self, data: bytes) -> None:
        self.source, self.rest = io.BytesIO(data), Blocking()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        return self.source.readinto(buffer) or self.rest.readinto(buffer)

    def close(self) -> None:
        self.rest.close()
        super().close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.in_ci("bz2")
def test_closing_while_the_source_waits_leaves_no_thread(kind: str) -> None:
    format_, pack = WRITERS[kind]
    source = Slow(b"".join(map(pack, PARTS)))
    chain = Readahead(open_decompressed(Readahead(source), format=format_, threads=THREADS)[0])
    assert chain.read(10)
    assert decoder_threads()
    started = time.monotonic()
    chain.close()
    assert time.monotonic() - started < AT_ONCE
    assert source.closed
    assert not decoder_threads()


@pytest.mark.in_ci("bz2", "gz IG")
@pytest.mark.parametrize("kind", KINDS)
def test_complete_pieces_are_returned_while_the_source_waits(kind: str) -> None:
    format_, pack = WRITERS[kind]
    source = Slow(pack(PARTS[0]) * 8)
    with open_decompressed(source, format=format_, threads=2)[0] as stream:
        assert len(stream.read(10)) == 10


def test_a_stream_that_is_dropped_leaves_no_thread() -> None:
    stream, _ = open_decompressed(io.BytesIO(gzip_member(PARTS[0]) * 3), format="gz", threads=THREADS)
    assert stream.read(10)
    assert decoder_threads()
    del stream
    gc.collect()
    wait_until(lambda: not decoder_threads())


def test_it_works_in_one_thread_if_the_system_gives_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    for format_, pack in WRITERS.values():
        assert read(b"".join(map(pack, PARTS)), format_)[0] == b"".join(PARTS)


@pytest.mark.parametrize(
    ("format_", "command"),
    [
        ("zst", "pzstd -q -p 2 -c"),
        ("zst", "pzstd -q -p 3 --check -19 -c"),
        ("zst", "zstd -q -c"),
        ("zst", "zstd -q -c -T2 --long=24 --check"),
        ("bz2", "bzip2 -c"),
        ("bz2", "bzip2 -1 -c"),
        ("gz", "gzip -c"),
        ("xz", "xz -0 -T2 --block-size=100000 -c"),
    ],
    ids=str,
)
@pytest.mark.in_ci("zst-pzstd -q -p 2*", "gz-gzip -c")
def test_what_programs_write_is_read(format_: str, command: str) -> None:
    data = content(3_000_000) + random.Random(3).randbytes(300_000)
    blob = subprocess.run(command.split(), input=data, capture_output=True, check=True).stdout
    assert read(blob * 2, format_)[0] == data * 2


def test_each_of_their_own_programs_reads_what_is_packed_here() -> None:
    for kind, program in (("gz IG", "gzip"), ("gz BGZF", "gzip"), ("zst", "zstd"), ("zst pzstd", "pzstd")):
        blob = b"".join(map(WRITERS[kind][1], PARTS))
        run = subprocess.run([program, "-d", "-c", "-q"], input=blob, capture_output=True, check=True)
        assert run.stdout == b"".join(PARTS)
