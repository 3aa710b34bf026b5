"""Writers write everything, limit what waits in memory, and return errors."""

from __future__ import annotations

import threading

import pytest

from nbdata.engine.unpack.targets.folder import writers
from nbdata.engine.unpack.targets.folder.writers import Writers
from tests.waiting import wait_until


def test_all_items_are_written_in_order_by_one_writer() -> None:
    seen: list[int] = []
    pool = Writers[int](1, seen.extend)
    for number in range(1000):
        pool.put(number, 100)
    pool.drain()
    assert seen == list(range(1000))
    pool.close(drop=False)


def test_no_more_bytes_wait_than_the_bound() -> None:
    go_on, taken = threading.Event(), []
    pool = Writers[int](1, lambda items: (taken.extend(items), go_on.wait())[0])
    handed = 0

    def feed() -> None:
        nonlocal handed
        for number in range(64):
            pool.put(number, 1 << 20)
            handed += 1

    thread = threading.Thread(target=feed)
    thread.start()
    # The writer is held while it writes, so only the feeder can wait for a change.
    wait_until(lambda: (taken and pool._changed._waiters) or handed == 64)
    assert thread.is_alive()
    assert handed << 20 <= writers.WAITING + (3 << 20)
    go_on.set()
    thread.join()
    pool.drain()
    assert len(taken) == 64
    pool.close(drop=False)


def test_the_first_error_comes_back_and_nothing_more_is_written() -> None:
    seen: list[int] = []

    def fail(items: list[int]) -> None:
        seen.extend(items)
        raise OSError("no")

    pool = Writers[int](1, fail)
    pool.put(1, writers.WAITING)
    with pytest.raises(OSError, match="no"):
        pool.drain()
    with pytest.raises(OSError, match="no"):
        pool.put(2, writers.WAITING)
    pool.close(drop=False)
    assert seen == [1]


def test_what_waits_is_dropped_when_that_is_asked_for() -> None:
    begun, go_on, seen = threading.Event(), threading.Event(), []

    def write(items: list[int]) -> None:
        seen.extend(items)
        begun.set()
        go_on.wait()

    pool = Writers[int](1, write)
    for number in range(5):
        pool.put(number, 1 << 20)
    begun.wait()
    threading.Timer(0.1, go_on.set).start()
    pool.close(drop=True)
    assert seen == [0]
