"""Digests of streams, and of files whose parts are written in any order."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbdata.algorithms import ALGORITHMS
from nbdata.errors import BadOption, SourceChanged
from nbdata.integrity.digests import OrderedDigest, algorithms_of, new_digest
from tests.slow import take
from tests.waiting import PATIENCE


@pytest.mark.parametrize("algorithm", ["md5", "sha1", "sha256", "sha512"])
def test_a_digest_is_the_one_that_hashlib_gives(algorithm):
    digest = new_digest(algorithm)
    digest.update(b"ab")
    digest.update(memoryview(b"c"))
    assert digest.hexdigest() == hashlib.new(algorithm, b"abc").hexdigest()


@pytest.mark.parametrize(
    ("data", "digest"),
    [  # RFC 3720, appendix B.4, read as numbers
        (b"", "00000000"),
        (b"123456789", "e3069283"),
        (bytes(32), "8a9136aa"),
        (b"\xff" * 32, "62a8ab43"),
    ],
)
def test_crc32c_gives_the_digests_of_its_standard_in_eight_digits(data, digest):
    crc = new_digest("crc32c")
    crc.update(data)
    assert crc.hexdigest() == digest


@pytest.mark.parametrize(
    ("algorithm", "digest"),  # of "123456789", by the catalogue of CRCs at reveng.sourceforge.io
    [("crc32", "cbf43926"), ("crc32c", "e3069283"), ("crc64nvme", "ae8b14860a799888")],
)
def test_each_crc_gives_its_check_value(algorithm, digest):
    crc = new_digest(algorithm)
    crc.update(b"12345")
    other = crc.copy()
    crc.update(memoryview(b"6789"))
    assert (crc.hexdigest(), new_digest(algorithm).hexdigest()) == (digest, "0" * len(digest))
    other.update(b"6789")
    assert other.hexdigest() == digest


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_any_buffer_in_any_pieces_gives_the_same_digest(algorithm, kind):
    data = random.Random(1).randbytes(3 << 20)
    whole, pieces = new_digest(algorithm), new_digest(algorithm)
    whole.update(kind(data))
    for start in range(0, len(data), 70_001):
        pieces.update(kind(data[start : start + 70_001]))
    assert whole.hexdigest() == pieces.hexdigest()


def test_an_unknown_algorithm_is_refused_and_the_known_ones_are_named():
    with pytest.raises(BadOption, match="sha512, sha256, sha1, md5, crc64nvme, crc32c, crc32"):
        new_digest("sha3")


def test_the_length_of_a_digest_tells_its_algorithm():
    for algorithm in ("md5", "sha1", "sha256", "sha512"):
        assert algorithms_of(new_digest(algorithm).hexdigest().upper()) == [algorithm]


@pytest.mark.parametrize("text", ["deadbeef", "", "x" * 32, "a" * 16, "a" * 96, "٣" * 32])
def test_what_is_ambiguous_or_no_digest_tells_no_algorithm(text):
    assert algorithms_of(text) == []


@pytest.fixture
def landed(tmp_path):
    """Create a file of slightly more than 3 MiB, and return it with its content."""
    data = random.Random(2).randbytes((3 << 20) + 12345)
    path = tmp_path / "data"
    path.write_bytes(data)
    fd = os.open(path, os.O_RDWR)
    yield fd, data
    os.close(fd)


def test_only_bytes_at_the_frontier_are_taken():
    digest = OrderedDigest("md5")
    assert not digest.offer(2, b"cd")
    assert digest.offer(0, b"ab")
    assert not digest.offer(0, b"ab")
    assert digest.offer(2, memoryview(b"cd"))
    assert digest.position == 4
    assert digest.hexdigest(4) == hashlib.md5(b"abcd").hexdigest()


def test_the_frontier_counts_bytes_and_not_the_items_of_a_buffer():
    digest = OrderedDigest("md5")
    assert digest.offer(0, memoryview(bytes(8)).cast("I"))
    assert digest.position == 8


def test_the_digest_of_a_part_never_passes_for_that_of_the_whole():
    digest = OrderedDigest("md5")
    digest.offer(0, b"abc")
    for size in (2, 4):
        with pytest.raises(ValueError, match="3 bytes are hashed"):
            digest.hexdigest(size)


def test_an_offer_does_not_wait_for_a_thread_that_hashes():
    digest = OrderedDigest("md5")
    hashing, go_on = threading.Event(), threading.Event()

    class Slow:
        def update(self, data):
            hashing.set()
            assert go_on.wait(PATIENCE)

        def hexdigest(self):
            return ""

    digest._digest = Slow()
    worker = threading.Thread(target=digest.offer, args=(0, b"ab"))
    worker.start()
    try:
        assert hashing.wait(PATIENCE)
        assert not digest.offer(0, b"ab")
    finally:
        go_on.set()
        worker.join()
    assert digest.position == 2


def test_what_was_written_but_not_hashed_is_read_from_the_file(landed):
    fd, data = landed
    digest = OrderedDigest("sha256")
    assert digest.offer(0, data[:1000])
    assert digest.catch_up(fd, 2000) == 2000
    assert digest.offer(2000, data[2000:3000])
    assert digest.catch_up(fd, len(data)) == len(data)
    assert digest.hexdigest(len(data)) == hashlib.sha256(data).hexdigest()


def test_nothing_beyond_the_written_bytes_is_read(landed):
    fd, _ = landed
    digest = OrderedDigest("md5")
    digest.catch_up(fd, 10)
    assert digest.catch_up(fd, 5) == 10


def test_a_callable_end_is_asked_again_so_that_one_call_follows_a_growing_file(landed):
    fd, data = landed
    ends = iter([100, 5000, len(data)])
    now = 0

    def end():
        nonlocal now
        now = now if digest.position < now else next(ends, len(data))
        return now

    digest = OrderedDigest("md5")
    assert digest.catch_up(fd, end) == len(data)
    assert digest.hexdigest(len(data)) == hashlib.md5(data).hexdigest()


def test_a_file_shorter_than_what_was_written_is_an_error_and_no_endless_loop(landed):
    fd, data = landed
    with pytest.raises(SourceChanged):
        OrderedDigest("md5").catch_up(fd, len(data) + 1)


def test_two_threads_that_offer_the_same_bytes_at_once_hash_them_once():
    data = random.Random(3).randbytes(200_000)
    for _ in range(20):
        digest = OrderedDigest("md5")
        barrier = threading.Barrier(4)

        def offer_all(digest=digest, barrier=barrier):
            barrier.wait(PATIENCE)
            while (position := digest.position) < len(data):
                digest.offer(position, data[position : position + 10_000])

        with ThreadPoolExecutor(4) as pool:
            for future in [pool.submit(offer_all) for _ in range(4)]:
                future.result()
        assert digest.hexdigest(len(data)) == hashlib.md5(data).hexdigest()


class _Racing:
    """A digest that detects races: it records its bytes slowly, and fails if two threads are inside at once."""

    def __init__(self):
        self.content = bytearray()
        self.inside = threading.Lock()

    def update(self, data):
        assert self.inside.acquire(blocking=False), "two threads hash at once"
        try:
            before = bytes(self.content)
            take(0.0002)
            self.content[:] = before + bytes(data)
        finally:
            self.inside.release()

    def hexdigest(self):
        return hashlib.md5(self.content).hexdigest()


@pytest.mark.parametrize("seed", range(10))
def test_parts_that_land_in_any_order_from_many_threads_give_the_right_digest(tmp_path, seed):
    rng = random.Random(seed)
    data = rng.randbytes(40_000)
    cuts = sorted({0, len(data), *(rng.randrange(len(data)) for _ in range(30))})
    parts = list(itertools.pairwise(cuts))
    rng.shuffle(parts)
    digest = OrderedDigest("md5")
    digest._digest = racing = _Racing()
    done: set[int] = set()
    lock = threading.Lock()

    def contiguous():
        with lock:
            return next((start for start in cuts[:-1] if start not in done), len(data))

    with open(tmp_path / "data", "wb+") as file:
        file.truncate(len(data))

        def land(part):
            start, end = part
            os.pwrite(file.fileno(), data[start:end], start)
            with lock:
                done.add(start)
            if not digest.offer(start, data[start:end]) and start % 3 == 0:
                digest.catch_up(file.fileno(), contiguous)

        with ThreadPoolExecutor(6) as pool:
            for future in [pool.submit(land, part) for part in parts]:
                future.result()
        digest.catch_up(file.fileno(), contiguous)
    assert bytes(racing.content) == data
    assert digest.hexdigest(len(data)) == hashlib.md5(data).hexdigest()


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=8), st.randoms())
def test_offers_in_any_order_and_a_last_look_at_the_file_give_the_right_digest(parts, rng):
    data = b"".join(parts)
    offsets = [sum(map(len, parts[:n])) for n in range(len(parts))]
    order = list(zip(offsets, parts, strict=True))
    rng.shuffle(order)
    digest = OrderedDigest("crc32c")
    for offset, part in order:
        digest.offer(offset, part)
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(data)
        digest.catch_up(file.fileno(), len(data))
    expected = new_digest("crc32c")
    expected.update(data)
    assert digest.hexdigest(len(data)) == expected.hexdigest()
