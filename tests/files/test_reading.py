"""Files that are read from a store."""

from __future__ import annotations

import io
import os
import random
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import nbdata
from nbdata.files.read_memory import MEMORY
from tests.faults.gate import Gate
from tests.faults.proxy import BEFORE, BODY, Exchange, Fault, FaultProxy
from tests.files.conftest import Home
from tests.waiting import PATIENCE

Put = Callable[[dict[str, bytes]], str]

BIG = random.Random(1).randbytes(21 << 20)


@pytest.fixture
def big(put: Put) -> str:
    """The URL of a file of 21 MiB, which comes in many blocks."""
    return put({"big": BIG}) + "big"


@pytest.mark.parametrize("size", [0, 1, (256 << 10) - 1, 256 << 10, (256 << 10) + 1, 3 << 20])
def test_a_file_of_any_size_is_read_whole(put: Put, size: int) -> None:
    url = put({"file": BIG[:size]}) + "file"
    with nbdata.open(url, "rb") as file:
        assert file.size == size
        assert file.read() == BIG[:size]
        assert file.read() == b""
        assert file.tell() == size
        assert file.proven is True


@pytest.mark.parametrize("step", [1 << 16, 1 << 20, 5_000_003])
def test_a_large_file_is_read_forward_and_compared(big: str, step: int) -> None:
    with nbdata.open(big, "rb") as file:
        data = b"".join(iter(lambda: file.read(step), b""))
        assert data == BIG
        assert file.proven is True


def test_any_part_is_read_in_any_order(big: str) -> None:
    chance = random.Random(2)
    with nbdata.open(big, "rb") as file, io.BytesIO(BIG) as same:
        for _ in range(300):
            if chance.random() < 0.5:
                at, whence = chance.choice([(0, 2), (chance.randrange(len(BIG)), 0), (-10_000, 2)])
                assert file.seek(at, whence) == same.seek(at, whence)
            else:  # a short skip, also backwards
                step = chance.randrange(-100_000, 2_000_000)
                at = max(0, same.tell() + step)
                assert file.seek(at) == same.seek(at)
            size = chance.choice([0, 1, 100, 70_000, 1_500_000, 9_000_000])
            assert file.read(size) == same.read(size)
            assert file.tell() == same.tell()


def test_lines_are_read_as_from_a_file_on_the_disk(put: Put, tmp_path: object) -> None:
    text = b"\n".join([b"first", b"", b"x" * 300_000, b"\xc3\xa9t\xc3\xa9\r", b"last"])
    url = put({"text": text}) + "text"
    with nbdata.open(url, "rb") as file:
        assert list(file) == list(io.BytesIO(text))
    with nbdata.open(url, "rb") as file:
        assert file.readline(3) == b"fir"
        assert file.peek(2)[:2] == b"st"
        assert file.readlines() == io.BytesIO(text[3:]).readlines()
    with nbdata.open(url, encoding="utf-8") as lines:
        assert list(lines) == list(io.TextIOWrapper(io.BytesIO(text), encoding="utf-8"))


def test_readinto_fills_the_buffer(big: str) -> None:
    with nbdata.open(big, "rb") as file:
        buffer = bytearray(len(BIG) + 5)
        assert file.readinto(memoryview(buffer)[: 10 << 20]) == 10 << 20
        assert file.readinto(memoryview(buffer)[10 << 20 :]) == len(BIG) - (10 << 20)
        assert buffer[: len(BIG)] == BIG


def test_a_small_file_takes_one_request(proxy: FaultProxy, put: Put) -> None:
    url = put({"file": b"small"}) + "file"
    asked = list[Exchange]()
    proxy.begin(lambda request, before: asked.append(request))
    with nbdata.open(url, "rb") as file:
        assert file.read() == b"small"
    assert [request.action for request in asked] == ["get"]


def test_what_is_not_read_forward_brings_only_what_it_asks_for(proxy: FaultProxy, big: str) -> None:
    tally = proxy.begin()
    with nbdata.open(big, "rb") as file:
        for start, size in ((256 << 10, 1 << 20), (10 << 20, 100_000), (5 << 20, 300_000), (0, 1000)):
            file.seek(start)
            assert file.read(size) == BIG[start : start + size]
    assert sum(tally.down.values()) == (256 << 10) + (1 << 20) + 100_000 + 300_000


def test_a_long_read_takes_several_requests(proxy: FaultProxy, big: str) -> None:
    asked = list[Exchange]()
    tally = proxy.begin(lambda request, before: asked.append(request))
    with nbdata.open(big, "rb") as file:
        file.seek(3 << 20)
        assert file.read(8 << 20) == BIG[3 << 20 : 11 << 20]
    assert len(asked) == 1 + 4
    assert sum(tally.down.values()) == (256 << 10) + (8 << 20)


def test_a_file_that_changes_while_it_is_open_is_an_error(put: Put, big: str) -> None:
    with nbdata.open(big, "rb") as file:
        start = file.read(1000)
        assert start == BIG[:1000]
        put({"big": BIG[::-1]})
        with pytest.raises(nbdata.SourceChanged):
            file.read()


@pytest.mark.parametrize("missing", ["no", "no/such", "folder", "folder/"])
def test_what_is_no_file_is_not_found(put: Put, missing: str) -> None:
    url = put({"folder/file": b"1"})
    with pytest.raises(FileNotFoundError):
        nbdata.open(url + missing)


def test_a_closed_file_is_read_no_more(put: Put) -> None:
    file = nbdata.open(put({"file": b"1"}) + "file", "rb")
    file.close()
    file.close()
    for use in (file.read, file.tell, file.readline, lambda: file.seek(0)):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_many_open_files_share_one_bound_of_memory(big: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBDATA_READ_MEMORY", "16MB")
    files = [nbdata.open(big, "rb") for _ in range(12)]
    most = 0
    for _ in range(8):
        for file in files:
            file.read(2_000_000)
            most = max(most, MEMORY.used)
    assert most <= 16_000_000 + (8 << 20) + (256 << 10)  # the block that is read at the moment comes on top
    for file in files:
        file.seek(0)
        assert file.read() == BIG
        file.close()
    assert MEMORY.used == 0


def test_files_that_are_read_at_the_same_time_take_no_bytes_from_each_other(
    proxy: FaultProxy, big: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBDATA_READ_MEMORY", "16MB")
    tally = proxy.begin()
    files = [nbdata.open(big, "rb") for _ in range(4)]
    for at in range(0, len(BIG), 1 << 20):
        assert all(file.read(1 << 20) == BIG[at : at + (1 << 20)] for file in files)
        assert MEMORY.used <= (16 << 20) + 4 * (2 << 20)  # beside what they are asked for just now
    for file in files:
        file.close()
    assert sum(tally.down.values()) <= 1.1 * 4 * len(BIG)


def test_reads_at_other_places_run_side_by_side(proxy: FaultProxy, big: str) -> None:
    window = nbdata.open(big, "rb")._window
    together = threading.Barrier(4)

    def wait(request: Exchange, before: int) -> None:
        together.wait(PATIENCE)  # each waits until all four are asked for

    proxy.begin(wait)
    places = [(3 << 20) + number * (2 << 20) for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert not any(map(window.goes_on, places))
        found = list(pool.map(lambda at: bytes(window.apart(at, at + 1000)[:1000]), places))
    assert found == [BIG[at : at + 1000] for at in places]
    assert all(map(window.goes_on, places[-1:]))


def test_a_child_of_a_fork_goes_on_reading(big: str) -> None:
    with nbdata.open(big, "rb") as file:
        assert file.read(3 << 20) == BIG[: 3 << 20]
        child = os.fork()
        if not child:
            signal.alarm(int(PATIENCE))  # without its own thread, it would wait for ever
            os._exit(0 if file.read() == BIG[3 << 20 :] else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert file.read() == BIG[3 << 20 :]


def test_a_file_that_the_collector_closes_waits_for_no_lock(big: str) -> None:
    forgotten, done = [nbdata.open(big, "rb")], []
    forgotten[0].read(1)

    def collect() -> None:
        with MEMORY._lock:  # so holds it a thread whose allocation has the collector run
            forgotten.clear()
        done.append(True)

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert done
    assert MEMORY.used == 0


def test_a_child_of_a_fork_takes_memory_from_files_of_its_parent(
    big: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nbdata.open(big, "rb") as file, nbdata.open(big, "rb") as other:
        file.read(6 << 20)
        monkeypatch.setenv("NBDATA_READ_MEMORY", "0")
        assert file._window._fetcher is not None
        held, forked, changed = threading.Event(), threading.Event(), file._window._fetcher._changed

        def hold() -> None:  # as the fetcher's thread may do at the moment of the fork
            with changed:
                held.set()
                forked.wait(2 * PATIENCE)

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait()
        try:
            child = os.fork()
            if not child:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest's own would go on with the tests here
                signal.alarm(int(PATIENCE))
                ok = other.read(6 << 20) == BIG[: 6 << 20] and file.read() == BIG[6 << 20 :]
                os._exit(0 if ok else 1)
        finally:
            forked.set()
            holder.join()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_line_in_the_middle_asks_for_little(proxy: FaultProxy, put: Put) -> None:
    url = put({"lines": b"x" * 99 + b"\n" + bytes(9 << 20) + b"y\n" + bytes(9 << 20)}) + "lines"
    with nbdata.open(url, "rb") as file:
        assert file.readline() == b"x" * 99 + b"\n"
        tally = proxy.begin()
        file.seek(100 + (9 << 20))
        assert file.readline() == b"y\n"
    assert sum(tally.down.values()) <= 1 << 20


def test_threads_read_files_of_one_file_system(big: str) -> None:
    files, wrong = nbdata.filesystem(big), []

    def read(seed: int) -> None:
        chance = random.Random(seed)
        with files.open(big) as file:
            for _ in range(20):
                at, size = chance.randrange(len(BIG)), chance.randrange(1 << 20)
                file.seek(at)
                if (
                    file.read(size) != BIG[at : at + size]
                    or files.cat_file(big, at, at + 9) != BIG[at : at + 9]
                ):
                    wrong.append(seed)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.in_ci("1048576-cut", "22020096-reset")
@pytest.mark.parametrize("kind", ["cut", "reset", "drop", "refuse"])
@pytest.mark.parametrize("step", [1 << 20, len(BIG)])
def test_reading_goes_on_after_a_break(proxy: FaultProxy, big: str, kind: str, step: int) -> None:
    where = BEFORE if kind in ("drop", "refuse") else BODY
    tally = proxy.begin(
        lambda request, before: Fault(kind, where, 0.4) if request.download and not before else None
    )
    with nbdata.open(big, "rb") as file:
        assert b"".join(iter(lambda: file.read(step), b"")) == BIG
    assert nbdata.filesystem(big).cat_file(big) == BIG
    assert tally.faults


@pytest.mark.parametrize("step", [1 << 20, len(BIG)])
def test_wrong_bytes_are_an_error_at_the_end(proxy: FaultProxy, big: str, step: int) -> None:
    proxy.begin(lambda request, before: Fault("flip", BODY, 0.4) if request.start and not before else None)
    with nbdata.open(big, "rb") as file, pytest.raises(nbdata.ChecksumMismatch):
        list(iter(lambda: file.read(step), b""))


def test_wrong_bytes_of_a_whole_file_are_fetched_again(proxy: FaultProxy, put: Put, big: str) -> None:
    small = put({"small": BIG[:5000]}) + "small"
    tally = proxy.begin(
        lambda request, before: Fault("flip", BODY, 0.4) if request.download and not before else None
    )
    with nbdata.open(small, "rb") as file:
        assert file.read() == BIG[:5000]
    files = nbdata.filesystem(big)
    assert files.cat([big, small]) == {
        files._strip_protocol(big): BIG,
        files._strip_protocol(small): BIG[:5000],
    }
    assert len(tally.faults) >= 2


@pytest.mark.parametrize("size", [5000, 3 << 20])
def test_wrong_bytes_of_one_file_are_fetched_again(proxy: FaultProxy, put: Put, size: int) -> None:
    url = put({"file": BIG[:size]}) + "file"
    tally = proxy.begin(
        lambda request, before: Fault("flip", BODY, 0.4) if request.download and not before else None
    )
    files = nbdata.filesystem(url)
    assert files.cat_file(url) == BIG[:size]
    assert tally.faults


def test_reading_waits_for_a_store_that_is_slow(gate: Gate, put: Put) -> None:
    url = put({"big": BIG}) + "big"
    with nbdata.open(url, "rb") as file:
        gate.close(after=100_000)
        found = list[bytes]()
        thread = threading.Thread(target=lambda: found.append(file.read()))
        thread.start()
        gate.wait_until_it_holds()
        gate.open()
        thread.join()
        assert found == [BIG]


@pytest.mark.in_ci(2)
def test_slices_of_files_are_those_of_python(home: Home) -> None:
    data = BIG[:70_000]
    path = f"{home.path}/file"
    home.files.pipe_file(path, data)
    for start, end in [
        (None, None),
        (0, 5),
        (5, None),
        (None, -5),
        (-5, None),
        (69_999, 80_000),
        (80_000, None),
        (9, 3),
        (0, -5),
        (5, -70_000),
    ]:
        assert home.files.cat_file(path, start, end) == data[start:end], (start, end)
    slices = [(0, 10), (12, 30), (None, 5), (-7, None), (50_000, 50_100), (80_000, 90_000)]
    found = home.files.cat_ranges([path] * len(slices), [s for s, _ in slices], [e for _, e in slices])
    assert found == [data[start:end] for start, end in slices]


@pytest.mark.in_ci("moto", "local")
def test_many_files_come_together_and_each_says_what_it_met(home: Home) -> None:
    paths = {f"{home.path}/{number}": BIG[number : 2 * number] for number in range(0, 60_000, 3000)}
    for path, data in paths.items():
        home.files.pipe_file(path, data)
    assert home.files.cat(list(paths)) == paths
    assert home.files.cat(f"{home.path}/*") == paths
    assert home.files.cat(home.path, recursive=True) == paths
    missing = f"{home.path}/missing"
    assert home.files.cat([*paths, missing], on_error="omit") == paths
    found = home.files.cat([*paths, missing], on_error="return")
    assert isinstance(found.pop(missing), FileNotFoundError)
    assert found == paths
    with pytest.raises(FileNotFoundError):
        home.files.cat([*paths, missing])
