"""The batcher of small objects limits how many may wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from nbdata.engine.runner import Planning
from nbdata.stores.base import ObjectInfo
from nbdata.stores.sessions import AHEAD, Answer, Read, Threads, Unusual
from nbdata.transfer import batcher as batcher_module
from nbdata.transfer.batcher import _WAITING, BATCH, Batcher
from nbdata.transfer.retry import Tries
from nbdata.transfer.worker_pool import Unit, WorkerPool
from tests.waiting import PATIENCE, wait_until

# Fewer retries than nbdata allows: the 128 threads that those need mostly wait for each other. The rest of the workers
# read the plan; requests that were sent before the limit was met take `AHEAD` and one of them.
RETRIES = 8
WORKERS, COUNT = 2 * (RETRIES + AHEAD), 60 * BATCH


@dataclass(eq=False)
class Small:
    """A small object."""

    number: int
    tries: Tries | None = None


class Waiting(Planning):
    """Counts how often the batcher has looked since it was asked for the unit that `reader` waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.reader: int | None = None
        self.looks = 0

    def checkpoint(self) -> None:
        if threading.get_ident() == self.reader:
            self.looks += 1
        super().checkpoint()


@pytest.mark.long
def test_a_plan_is_not_read_on_while_too_many_wait_for_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher_module, "_RETRIES", RETRIES)
    control = Waiting()
    workers = WorkerPool(control, WORKERS)
    go, stands = threading.Event(), threading.Event()
    read = moved = 0

    def each() -> None:
        def refuse(read: Read[Small]) -> Answer[Read[Small]]:
            raise Unusual("to be asked for by itself")

        session = Threads(refuse, width=lambda: 1, size=lambda _: 0, max_bytes=1)
        batcher.run_session(
            session,
            lambda small: Read(small, ObjectInfo(str(small.number), 0)),
            lambda answer: batcher.alone(answer.request.of, answer.error),
        )

    def alone(wanted: Small) -> None:
        nonlocal moved
        stands.set()
        assert go.wait(PATIENCE)
        moved += 1

    batcher = Batcher[Small](control, workers, each, alone)

    def units() -> Iterator[Unit]:
        nonlocal read
        for first in range(0, COUNT, BATCH):
            read += BATCH
            control.looks, control.reader = 0, threading.get_ident()
            unit = batcher.unit([Small(number) for number in range(first, first + BATCH)])
            control.reader = None
            yield unit

    running = threading.Thread(target=workers.run, args=(units(),), daemon=True)
    running.start()
    assert stands.wait(PATIENCE)
    # The batcher looks twice for one unit only if it holds back whoever reads the plan.
    wait_until(lambda: control.looks > 1 or read == COUNT)
    seen = read
    go.set()
    assert seen <= RETRIES + _WAITING + (WORKERS + 1) * BATCH
    running.join(PATIENCE)
    assert not running.is_alive()
    assert (read, workers.broken) == (COUNT, False)
