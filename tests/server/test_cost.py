"""What many jobs cost the Jupyter server: how often it asks for them, and how much of them it makes anew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from nbdata.report import Snapshot
from nbdata.server import feed as feed_module
from nbdata.server.feed import Feed
from nbdata.server.workers import Workers


@pytest.fixture
def feed() -> Iterator[Feed]:
    """A feed that a browser watches."""
    workers = Workers()
    made = Feed(workers, "/work", {})
    with made.watching():
        yield made
    workers.close()


def moving(count: int, done: int) -> list[Snapshot]:
    """Return jobs that have moved so many bytes."""
    return [
        Snapshot(id=f"{n:x}", verb="pull", state="RUNNING", created=1e9 + n, bytes=done) for n in range(count)
    ]


def pause(feed: Feed, *answers: list[Snapshot]) -> float:
    """Return how many seconds the feed waits after these answers of the agents."""
    for answer in answers:
        feed._take(answer, silent=False)
    return feed._pause()


def test_the_more_jobs_move_the_less_often_they_are_asked_for(feed: Feed) -> None:
    nothing = pause(feed, [], [])
    few, many, very_many = (pause(feed, moving(n, 1), moving(n, 2)) for n in (1, 100, 1000))
    assert few < many < very_many == nothing


def test_jobs_that_do_not_move_are_asked_for_as_seldom_as_none(feed: Feed) -> None:
    nothing = pause(feed, [], [])
    assert pause(feed, moving(1, 1), moving(1, 1)) == nothing
    assert pause(feed, moving(1, 2)) < nothing


def test_of_many_jobs_only_those_that_changed_are_converted(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    converted, convert = list[str](), feed_module.shown

    def counted(snapshot: Snapshot, root: str, here: bool) -> dict[str, object]:
        converted.append(snapshot.id)
        return convert(snapshot, root, here)

    monkeypatch.setattr(feed_module, "shown", counted)
    over = [Snapshot(id=f"o{n}", verb="pull", state="DONE", created=n) for n in range(1000)]
    feed._take([*over, *moving(2, 1)], silent=False)
    converted.clear()
    first, second = moving(2, 1)
    feed._take([*map(replace, over), first, replace(second, bytes=2)], silent=False)
    assert converted == [second.id]


def test_a_job_that_vanishes_is_converted_again(feed: Feed) -> None:
    feed._take(moving(1, 1), silent=False)
    feed._take([], silent=False)
    (lost,) = feed.jobs.values()
    assert (lost["state"], lost["rate"]) == ("INTERRUPTED", 0.0)
    assert "its agent ended" in str(lost["error"])
