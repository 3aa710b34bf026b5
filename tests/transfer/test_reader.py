"""The common object reader: it resumes broken reads, refuses another version, and works without a job."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from nbdata.errors import Cancelled, ChecksumMismatch, NbdataError, SourceChanged, StoreUnavailable
from nbdata.stores.base import ObjectInfo
from nbdata.stores.local import LocalStore
from nbdata.transfer.control import Pulse
from nbdata.transfer.reader import RangesIgnored, Reader
from nbdata.verification.checker import stream_check
from tests.transfer.flaky import Flaky, broken

MIB = 1 << 20


class Own:
    """A control without a job, which the caller can stop."""

    rate, block = None, MIB

    def __init__(self) -> None:
        self.tries, self.stopped = 0, False

    def is_set(self) -> bool:
        return self.stopped

    def add(self, abort: Callable[[], None]) -> None:
        pass

    def remove(self, abort: Callable[[], None]) -> None:
        pass

    def checkpoint(self) -> None:
        if self.stopped:
            raise Cancelled("stopped")

    def sleep(self, seconds: float) -> None:
        self.checkpoint()

    def advance(self, *, files: int = 0, bytes: int = 0, present: int = 0, failures: int = 0) -> None:  # noqa: A002
        raise AssertionError("the reader counts nothing")

    def tried_again(self, error: Exception) -> None:
        self.tries += 1

    def pulse(self) -> Pulse:
        return Pulse(0, 0, self.tries, 0)

    def listed(self, count: int) -> None:
        pass

    def pushed_back(self) -> None:
        pass

    def expect_more(self, *, files: int, bytes: int) -> None:  # noqa: A002
        pass

    def fail(self, error: NbdataError) -> None:
        raise error

    def phase(self, text: str) -> None:
        pass


@pytest.fixture
def big(tmp_path: Path) -> Path:
    path = tmp_path / "big"
    path.write_bytes(os.urandom(3 * MIB + 5))
    return path


def info_of(path: Path) -> ObjectInfo:
    return LocalStore().head(str(path).lstrip("/"))


def read(reader: Reader) -> bytes:
    with reader:
        return b"".join(map(bytes, reader.blocks()))


@pytest.mark.parametrize(("start", "end"), [(0, None), (MIB, None), (5, 2 * MIB + 7), (3 * MIB + 5, None)])
def test_a_range_is_gone_on_with_where_it_broke_off(big: Path, start: int, end: int | None) -> None:
    store, control = Flaky(partial(broken, 1, 2 * MIB)), Own()
    assert read(Reader(control, store, info_of(big), start, end)) == big.read_bytes()[start:end]
    assert control.tries == len(store.starts) - 1 or not store.starts
    assert control.tries <= 1


def test_bytes_are_claimed_first_and_written_at_their_place(big: Path, tmp_path: Path) -> None:
    claimed: list[int] = []
    fd = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT)
    with Reader(Own(), Flaky(partial(broken, 1, 2 * MIB)), info_of(big), 10) as reader:
        for block in reader.into(fd, lambda end: claimed.append(end - os.fstat(fd).st_size)):
            assert os.pread(fd, len(block), reader.at - len(block)) == block
    os.close(fd)
    assert (tmp_path / "out").read_bytes()[10:] == big.read_bytes()[10:]
    assert all(room > 0 for room in claimed), "told before it is written"


def test_another_version_is_refused_also_after_a_break(big: Path) -> None:
    def replaced(number: int, at: int, count: int) -> int:
        if number == 1 and at >= MIB:
            big.write_bytes(b"another")
            raise StoreUnavailable("the connection broke", details={"retry": True})
        return count

    with pytest.raises(SourceChanged):
        read(Reader(Own(), Flaky(replaced), info_of(big)))


def test_where_no_version_is_known_it_begins_anew_and_says_so(big: Path) -> None:
    begun: list[int] = []
    info = info_of(big)._replace(etag="", modified=None)
    store = Flaky(partial(broken, 2, 2 * MIB))
    with Reader(Own(), store, info, begins=lambda told: begun.append(told.size), anew=True) as reader:
        out = bytearray()
        for block in reader.blocks():
            del out[reader.at - len(block) :]
            out += block
    assert out == big.read_bytes()
    assert store.starts == [0, 0, 0]
    assert begun == [info.size] * 3


def test_a_reader_that_cannot_start_over_resumes_without_a_version(big: Path) -> None:
    store = Flaky(partial(broken, 1, 2 * MIB))
    assert read(Reader(Own(), store, info_of(big)._replace(etag="", modified=None))) == big.read_bytes()
    assert store.starts == [0, 2 * MIB]


def test_what_comes_before_is_dropped_or_refused_where_ranges_are_ignored(big: Path) -> None:
    ignores = Flaky(lambda _number, _at, count: count, honours=False)
    assert read(Reader(Own(), ignores, info_of(big), MIB)) == big.read_bytes()[MIB:]
    for start, end in ((0, 512), (MIB, 2 * MIB), (5, 6)):
        assert read(Reader(Own(), ignores, info_of(big), start, end)) == big.read_bytes()[start:end]
    with pytest.raises(RangesIgnored):
        read(Reader(Own(), ignores, info_of(big), MIB, 2 * MIB, skips=False))


def test_without_retries_errors_reach_the_caller(big: Path) -> None:
    control = Own()
    with pytest.raises(StoreUnavailable):
        read(Reader(control, Flaky(partial(broken, 1, MIB)), info_of(big), retries=False))
    assert control.tries == 0


def test_retries_are_counted_anew_after_progress_and_end_without_it(big: Path) -> None:
    often = Flaky(lambda number, at, count: broken(99, (number - 1) // 5 * MIB + MIB, number, at, count))
    assert read(Reader(Own(), often, info_of(big))) == big.read_bytes()
    assert len(often.starts) > 8
    never = Flaky(partial(broken, 99, MIB))
    with pytest.raises(StoreUnavailable):
        read(Reader(Own(), never, info_of(big)))
    assert len(never.starts) == 8


def test_a_stop_ends_it(big: Path) -> None:
    control = Own()
    reader = Reader(control, LocalStore(), info_of(big))
    blocks = reader.blocks()
    assert len(next(blocks)) == MIB
    control.stopped = True
    with pytest.raises(Cancelled):
        next(blocks)
    reader.close()


@pytest.mark.parametrize("right", [True, False])
def test_wrong_bytes_are_not_given_to_their_end(right: bool, big: Path) -> None:
    control, seen, md5 = Own(), 0, hashlib.md5(big.read_bytes()).hexdigest()
    told = info_of(big)._replace(checksums={"md5": md5 if right else "0" * 32})
    reader = Reader(control, LocalStore(), told, check=lambda _: stream_check(control, LocalStore(), told))
    try:
        with reader:
            for block in reader.blocks():
                seen += len(block)
    except ChecksumMismatch:
        assert not right
        assert seen < told.size
    else:
        assert right
        assert reader.proven
