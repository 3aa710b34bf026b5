"""The panel stays usable when disks respond slowly or an agent sends invalid messages."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nbdata.client.agents import stop_all
from nbdata.client.hosts import ChoosingHost
from nbdata.client.launch import connect
from nbdata.report import Snapshot
from nbdata.server.disks import Disks
from nbdata.server.feed import Feed
from nbdata.server.workers import Workers
from nbdata.verbs.probe import Probe
from tests.waiting import PATIENCE


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers()
    yield made
    made.close()


class SlowDisks(Disks):
    """Disks that do not respond before `freed` is set."""

    def __init__(self, workers: Workers, root: str) -> None:
        super().__init__(workers, root, list)
        self.freed, self.looks = threading.Event(), 0

    def _look(self, written: list[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        self.looks += 1
        self.freed.wait(PATIENCE)
        return [{"path": "/"}], []


def test_disks_that_are_slow_to_answer_hold_one_thread_whoever_asks(workers: Workers, tmp_path: Path) -> None:
    async def ask() -> None:
        disks = SlowDisks(workers, str(tmp_path))
        browsers = [asyncio.ensure_future(disks.seen()) for _ in range(8)]
        seen = {"root": str(tmp_path), "disks": [{"path": "/"}], "caches": [], "mounts": [], "services": []}
        try:
            assert await asyncio.wait_for(workers.run(lambda: "meanwhile"), PATIENCE) == "meanwhile"
            browsers.pop().cancel()  # a browser that leaves does not disturb the others
        finally:
            disks.freed.set()
        assert await asyncio.gather(*browsers) == [seen] * 7
        assert disks.looks == 1

    asyncio.run(ask())


def test_a_call_that_does_not_return_does_not_keep_the_server_from_ending() -> None:
    code = """
        import asyncio, threading
        import nbdata.ending
        from nbdata.server.workers import Workers

        nbdata.ending._PATIENCE = 0.1

        async def main():
            workers, begun = Workers(), asyncio.Event()
            loop = asyncio.get_running_loop()

            def hang():
                loop.call_soon_threadsafe(begun.set)
                threading.Event().wait()

            task = loop.create_task(workers.run(hang))
            await begun.wait()
            task.cancel()

        asyncio.run(main())
        print("ended")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.stdout, done.stderr, done.returncode) == ("ended\n", "", 0)


def test_the_feed_goes_on_after_an_answer_that_it_cannot_read(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd: Any = "yesterday"
    answers = [[Snapshot(id="1", verb="pull", created=odd)]]
    monkeypatch.setattr(ChoosingHost, "look", lambda self: (answers.pop() if answers else [], False))

    async def follow() -> None:
        feed = Feed(workers, "/", {})
        feed.start()
        await asyncio.wait_for(feed.fresh(), PATIENCE)
        assert "internal error" in feed.problem
        await asyncio.wait_for(feed.fresh(), PATIENCE)
        assert feed.problem == ""

    asyncio.run(follow())


def test_the_jobs_of_an_agent_that_does_not_answer_are_not_called_interrupted(workers: Workers) -> None:
    job = Probe(items=100_000, delay=50, tag="silent").start()
    with connect() as connection:
        agent = int(connection.ask({"do": "hello"})["pid"])

    async def follow() -> None:
        feed = Feed(workers, "/", {})
        feed.start()

        def state() -> str:
            return next(str(shown["state"]) for shown in feed.jobs.values() if shown["id"] == job.id)

        async def until(condition: Callable[[], bool]) -> None:
            while not condition():
                await feed.fresh()

        with feed.watching():
            await asyncio.wait_for(feed.fresh(), PATIENCE)
            os.kill(agent, signal.SIGSTOP)
            try:
                await asyncio.wait_for(until(lambda: "does not answer" in feed.problem), PATIENCE)
                assert state() in ("QUEUED", "PLANNING", "RUNNING")
            finally:
                os.kill(agent, signal.SIGCONT)
            await asyncio.wait_for(until(lambda: feed.problem == ""), PATIENCE)
            assert state() != "INTERRUPTED"
            await asyncio.to_thread(stop_all, now=True)
            await asyncio.wait_for(until(lambda: state() == "INTERRUPTED"), PATIENCE)

    asyncio.run(follow())


def test_the_panel_lists_what_transfers_lists_and_what_is_cleared_stays_so(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    over = [Snapshot(id=f"{n}", verb="pull", state="DONE", created=now - 1000 + n) for n in range(300)]
    runs = Snapshot(id="runs", verb="pull", state="RUNNING", created=now - 600)
    answers = [[*over, runs]]
    monkeypatch.setattr(ChoosingHost, "look", lambda self: (answers[-1], False))

    async def follow() -> None:
        feed = Feed(workers, "/", {})
        feed.start()

        async def listed() -> set[str]:
            await asyncio.wait_for(feed.fresh(), PATIENCE)
            return {str(job["id"]) for job in feed.jobs.values()}

        assert await listed() == {job.id for job in answers[-1]}
        answers.append([*over[:200], runs])
        assert await listed() == {job.id for job in answers[-1]}
        feed.clear()
        answers.append([*over, replace(runs, state="DONE"), replace(runs, id="later", created=time.time())])
        assert await listed() == {"runs", "later"}

    asyncio.run(follow())
