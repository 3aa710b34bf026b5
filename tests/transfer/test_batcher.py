"""The batcher of small objects limits how many may wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from nbdata.engine.runner import Planning
from nbdata.errors import NbdataError
from nbdata.stores.base import ObjectInfo
from nbdata.stores.sessions import Answer, Read, Threads, Unusual
from nbdata.transfer.batcher import _RETRIES, _WAITING, BATCH, Batcher
from nbdata.transfer.worker_pool import Unit, WorkerPool
from tests.waiting import PATIENCE

WORKERS, COUNT = 2 * _RETRIES, 200 * BATCH


def test_a_plan_is_not_read_on_while_too_many_wait_for_another_try() -> None:
    control = Planning()
    workers = WorkerPool(control, WORKERS)
    go, stands = threading.Event(), threading.Event()
    read = moved = 0

    def each() -> None:
        def refuse(read: Read[int]) -> Answer[Read[int]]:
            raise Unusual("to be asked for by itself")

        session = Threads(refuse, width=lambda: 1, size=lambda _: 0, max_bytes=1)
        batcher.run_session(
            session,
            lambda number: Read(number, ObjectInfo(str(number), 0)),
            lambda answer: batcher.failed(answer.request.of, answer.error),
        )

    def alone(wanted: int, why: NbdataError | None) -> None:
        nonlocal moved
        stands.set()
        assert go.wait(PATIENCE)
        moved += 1

    batcher = Batcher[int](control, workers, each, alone)

    def units() -> Iterator[Unit]:
        nonlocal read
        for first in range(0, COUNT, BATCH):
            read += BATCH
            yield batcher.unit(list(range(first, first + BATCH)))

    running = threading.Thread(target=workers.run, args=(units(),))
    running.start()
    assert stands.wait(PATIENCE)
    running.join(1)
    seen = read
    go.set()
    running.join(PATIENCE)
    assert not running.is_alive()
    assert seen <= _RETRIES + _WAITING + (WORKERS + 1) * BATCH
    assert (read, workers.broken) == (COUNT, False)
