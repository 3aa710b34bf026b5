"""A session with a thread per request bounds the answers that nobody has read yet."""

from __future__ import annotations

import threading

from nbdata.stores.base import ObjectInfo
from nbdata.stores.sessions import AHEAD, Answer, Read, Threads
from tests.waiting import PATIENCE


def test_answers_that_wait_to_be_read_leave_no_room_for_requests() -> None:
    asked = threading.Semaphore(0)

    def ask(read: Read[int]) -> Answer[Read[int]]:
        asked.release()
        return Answer(read)

    most = 1 + AHEAD
    with Threads(ask, width=lambda: 1, size=lambda _: 0, max_bytes=1) as session:
        for number in range(most):
            assert session.free == most - number
            session.submit(Read(number, ObjectInfo(str(number), 0)))
            assert asked.acquire(timeout=PATIENCE)  # so it no longer waits to be sent
        assert session.free == 0
        for number, _ in enumerate(session.results()):
            assert session.free == number + 1
