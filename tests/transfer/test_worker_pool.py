"""The number of threads in a worker pool: limited by the user, or else found by measuring."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from nbdata.engine.runner import Planning
from nbdata.transfer import worker_pool as pool
from nbdata.transfer.worker_pool import FIRST, MOST, WorkerPool, run_units
from tests.slow import take
from tests.waiting import PATIENCE, wait_until


class Work:
    """Units of work that take some time, and the number of units that ran at once."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self.now = self.most = self.done = 0
        self.over = False

    def units(self, count: int) -> Iterator[Callable[[], None]]:
        for _ in range(count):
            if self.over:
                return
            yield self._unit

    def _unit(self) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        take(self._seconds())
        with self._lock:
            self.now -= 1
            self.done += 1


def test_a_number_that_was_asked_for_is_kept() -> None:
    work = Work(lambda: 0.01)
    run_units(Planning(), work.units(300), workers=3)
    assert (work.most, work.done) == (3, 300)


def test_requests_that_only_wait_are_made_by_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    # They wait much longer than a busy machine takes to begin them.
    monkeypatch.setattr(pool, "_LOOK", 0.75)
    work = Work(lambda: 0.25)
    run_units(Planning(), work.units(700))
    assert work.done == 700
    assert work.most == MOST


def test_threads_that_are_of_no_use_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock of this test, a unit takes 10 ms, however many threads there are and however busy the machine is."""
    turn, wanted, done, looks = threading.Lock(), list[int](), itertools.count(1), itertools.count()
    now = 0

    def monotonic() -> float:
        return now / 100 + next(looks) / 10**9

    monkeypatch.setattr(pool, "_LOOK", 0.1)
    monkeypatch.setattr(pool, "time", SimpleNamespace(monotonic=monotonic))
    hire = pool.WorkerPool.hire
    monkeypatch.setattr(
        pool.WorkerPool, "hire", lambda workers, count: (wanted.append(count), hire(workers, count))[1]
    )

    def alone() -> None:
        nonlocal now
        with turn:  # a store that handles one request after the other
            take(0.01)
            now = next(done)

    def units() -> Iterator[Callable[[], None]]:
        end = time.monotonic() + PATIENCE
        while len(wanted) < 3 and time.monotonic() < end:
            yield alone

    run_units(Planning(), units())
    assert wanted[:3] == [FIRST, 2 * FIRST, FIRST]


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_threads_than_the_system_gives_is_no_failure(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_LOOK", 0.05)
    start, given = threading.Thread.start, list[threading.Thread]()

    def scarce(thread: threading.Thread) -> None:
        if thread.name == "mover":
            if len(given) == most:
                raise RuntimeError("can't start new thread")
            given.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", scarce)
    work = Work(lambda: 0.002)
    run_units(Planning(), work.units(200))
    assert (work.done, work.most) == (200, most)
    assert not any(thread.is_alive() for thread in given)


def test_a_pool_that_shrinks_to_few_workers_still_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_LOOK", 0.001)
    control = Planning()
    for _ in range(20):
        work = Work(lambda: 0.001)

        def refused(work: Work = work) -> None:
            work._unit()
            control.pushed_back()

        run_units(control, (refused for _ in range(150)))
        assert work.done == 150


def test_a_store_that_pushes_back_is_given_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_LOOK", 0.05)
    control = Planning()
    work = Work(lambda: 0.02)
    working: list[int] = []

    def refused() -> None:
        work._unit()
        control.pushed_back()
        working.append(work.now)

    run_units(control, (refused for _ in range(250)))
    assert max(working[-20:]) <= 4


def test_the_first_error_ends_all_and_is_raised() -> None:
    work = Work(lambda: 0.01)

    def units() -> Iterator[Callable[[], None]]:
        yield from work.units(40)
        yield lambda: 1 / 0  # type: ignore[return-value]
        yield from work.units(10_000)

    with pytest.raises(ZeroDivisionError):
        run_units(Planning(), units())
    assert work.done < 200
    assert not [thread for thread in threading.enumerate() if thread.name == "mover"]


def test_units_may_submit_others_which_come_first_and_all_threads_help() -> None:
    """This holds even when all other threads have found no more work."""
    order, work = list[str](), Work(lambda: 0.05)
    workers = WorkerPool(Planning(), workers=4)

    def bringing() -> None:
        wait_until(lambda: workers._working == 1)
        workers.submit(work.units(20))

    def later() -> None:
        order.append(f"later, after {work.done}")

    workers.run([bringing])
    assert (work.done, work.most) == (20, 4)
    alone = WorkerPool(Planning(), workers=1)
    alone.run([lambda: alone.submit(work.units(20)), later])
    assert order == ["later, after 40"]


def test_submitted_units_run_while_the_next_of_the_others_waits_for_them() -> None:
    workers, work, asked = WorkerPool(Planning(), workers=3), Work(lambda: 0.01), threading.Event()

    def bringing() -> None:
        assert asked.wait(PATIENCE)
        workers.submit(work.units(30))

    def units() -> Iterator[Callable[[], None]]:
        yield bringing
        asked.set()
        wait_until(lambda: work.done >= 30)
        yield from work.units(5)

    workers.run(units())
    assert work.done == 35


def test_large_objects_have_more_requests_too_where_that_is_faster() -> None:
    work = Work(lambda: 0.1)
    workers = WorkerPool(Planning(), typical=100 << 20, sends=True)
    assert workers.wanted < FIRST == WorkerPool(Planning(), typical=100 << 20).wanted
    workers.run(work.units(600))
    assert work.most > FIRST


@pytest.mark.parametrize(
    ("large", "speeds", "wanted"),
    [(True, [0, 120, 100, 200, 105], [16, 8]), (False, [0, 100, 200], [16, 32])],
)
def test_bytes_that_fill_the_buffers_of_new_requests_do_not_count_as_speed(
    large: bool, speeds: list[float], wanted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This matters for large objects; small ones fit into the buffers."""
    workers, hired = WorkerPool(Planning(), workers=8), list[int]()

    def hire(count: int) -> None:
        hired.append(count)
        workers.wanted = count

    monkeypatch.setattr(workers, "hire", hire)
    pace = pool._Pace(workers, Planning(), large=large)
    for look, speed in enumerate(speeds, 1):
        pace._change(float(look), speed, enough=False, pushed_back=False)
    assert hired == wanted
