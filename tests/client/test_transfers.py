"""transfers: the table of jobs, and its message for jobs that cannot be paused, resumed or cancelled."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

import nbdata
from nbdata.display import numbers_of
from nbdata.rendering import width_of
from nbdata.report import Snapshot
from nbdata.verbs.probe import Probe
from nbdata.verbs.transfers import JobList
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("inline")

NOW = time.time()


def snapshot(number: int, state: str = "DONE", **more: object) -> Snapshot:
    return Snapshot(id=f"{number:04x}", verb="pull", state=state, created=NOW - 1000 + number, **more)  # type: ignore[arg-type]


def test_running_jobs_come_first_then_the_newest() -> None:
    jobs = JobList([snapshot(1), snapshot(2, "RUNNING"), snapshot(3, "FAILED"), snapshot(4, "PAUSED")])
    assert [s.id for s in jobs] == ["0004", "0002", "0003", "0001"]
    assert [line[:4] for line in repr(jobs).splitlines()[1:]] == ["0004", "0002", "0003", "0001"]


def test_twenty_jobs_are_shown_and_all_are_there() -> None:
    jobs = JobList([snapshot(n) for n in range(23)])
    assert len(jobs) == 23
    lines = repr(jobs).splitlines()
    assert len(lines) == 1 + 20 + 1
    assert lines[-1] == "and 3 more: transfers --all shows them"
    assert jobs._repr_html_().count("<summary") == 20
    assert "and 3 more" in jobs._repr_html_()
    every = JobList(jobs, limit=None)
    assert len(repr(every).splitlines()) == 24
    assert "more" not in every._repr_html_()


def test_one_long_place_is_cut_in_its_middle_and_widens_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    long = snapshot(1, source=f"s3://bucket/begin-{'x' * 3000}", target="/w/the-end")
    jobs = JobList([long, snapshot(2, source="s3://bucket/short", target="/w/y")], whole=True)
    for width in (0, 120):
        monkeypatch.setattr("nbdata.verbs.transfers._terminal_width", lambda width=width: width)
        lines = repr(jobs).splitlines()
        assert len(lines) == 3
        assert max(map(len, lines)) <= (width or 160)
        assert "s3://bucket/begin-" in repr(jobs)
        assert "/w/the-end" in repr(jobs)
        assert "s3://bucket/short → /w/y" in repr(jobs)
    assert long.source in repr(JobList([long])), "one job alone is shown whole"


def test_columns_are_as_wide_as_the_widest_cell() -> None:
    jobs = JobList(
        [
            replace(snapshot(1, source="s3://b/データ"), id="3f2a"),
            replace(snapshot(2, source="s3://b/data"), id="3f2a91c0", verb="untar_volumes"),
        ]
    )
    lines = repr(jobs).splitlines()
    starts = [line.index(verb) for line, verb in zip(lines, ("verb", "untar_volumes", "pull"), strict=True)]
    assert starts == [10, 10, 10]
    assert [width_of(line[: line.index("done")]) for line in lines[1:]] == [lines[0].index("state")] * 2
    assert jobs._repr_html_().count("min-width:8ch") == 2


def test_of_a_job_whose_name_no_line_can_express_no_command_is_shown() -> None:
    odd = snapshot(1, command="pull 's3://b/a\nb' /w/x")
    assert "again" not in JobList([snapshot(1)])._repr_html_()
    assert "not as a command: a name has a line break" in JobList([odd])._repr_html_()
    assert "%pull s3://b/x" in JobList([snapshot(1, command="pull s3://b/x /w/x")])._repr_html_()


def test_a_row_shows_verb_places_progress_and_owner() -> None:
    job = snapshot(
        7, "RUNNING", source="s3://b/d/", target="/x", bytes=5_000_000, bytes_total=20_000_000, files=3,
        files_total=12, rate=2e6, owner="kernel 42",
    )  # fmt: skip
    jobs = JobList([job])
    jobs.at = NOW
    for shown in (repr(jobs), jobs._repr_html_()):
        for word in (
            "0007",
            "pull",
            "s3://b/d/ → /x",
            "running",
            "5.0 MB of 20.0 MB, 3/12 files",
            "2.0 MB/s",
        ):
            assert word in shown
        assert "kernel 42" in shown
    assert "16 min 33 s" in repr(jobs)
    assert "25%" in jobs._repr_html_()
    jobs.whole = True
    assert "<details" not in jobs._repr_html_(), "what is drawn anew each second would close them"


def test_nothing_but_the_whole_is_a_hundred_percent() -> None:
    for done, told in ((0, "0%"), (290, "29%"), (999, "99%"), (1000, "100%"), (1001, "100%")):
        for job in (
            snapshot(7, "RUNNING", bytes=done, bytes_total=1000),
            snapshot(7, "RUNNING", files=done, files_total=1000),
        ):
            assert f">{told}<" in JobList([job])._repr_html_()
            assert numbers_of(job, moving=True)[0] == told


def test_reasons_are_shown_whole_in_html_and_cut_in_a_terminal() -> None:
    why = "the disk is full, " * 10
    failed = JobList([snapshot(1, "FAILED", error={"message": f"<{why}>"})])
    assert failed._repr_html_().count(f"&lt;{why}&gt;") == 2, "in the tooltip, and on demand"
    failed.whole = True
    assert max(map(len, repr(failed).splitlines())) < 150
    assert "…" in repr(failed)
    assert "queued: waits for 3f2a91" in repr(JobList([snapshot(1, "QUEUED", reason="waits for 3f2a91")]))


def test_no_transfers_are_said_to_be_none() -> None:
    assert repr(JobList()) == "no transfers"
    assert "no transfers" in JobList()._repr_html_()


@pytest.mark.parametrize("action", ["pause", "resume", "cancel"])
def test_pausing_resuming_or_cancelling_a_finished_job_is_refused(action: str) -> None:
    done = Probe(items=1, tag=f"over {action}").start()
    done.wait()
    with pytest.raises(
        nbdata.BadOption, match=f"--{action}: job {done.id} is done: there is nothing left to {action}"
    ):
        nbdata.transfers(done.id, **{action: True})
    job = Probe(items=1000, delay=50, tag=f"cancelled {action}").start()
    nbdata.transfers(job.id, cancel=True)
    with pytest.raises(nbdata.Cancelled):
        job.wait()
    with pytest.raises(
        nbdata.BadOption, match=r"is cancelled, so there is nothing .* Run its command again .* to resume"
    ):
        nbdata.transfers(job.id, **{action: True})


def test_a_job_is_paused_resumed_and_cancelled_by_its_id() -> None:
    job = Probe(items=1000, delay=50, tag="by id").start()
    wait_until(lambda: job.snapshot().state == "RUNNING")
    assert nbdata.transfers(job.id, pause=True)[0].state == "PAUSED"
    assert nbdata.transfers(job.id, pause=True)[0].state == "PAUSED", "what is so already is no mistake"
    assert nbdata.transfers(job.id, resume=True)[0].state == "RUNNING"
    assert nbdata.transfers(job.id, resume=True)[0].state == "RUNNING"
    assert nbdata.transfers(job.id, cancel=True)[0].state in ("CANCELLING", "CANCELLED")
    with pytest.raises(nbdata.Cancelled):
        job.wait()


def test_all_and_one_job_exclude_each_other() -> None:
    with pytest.raises(nbdata.BadOption, match="--all"):
        nbdata.transfers("3f2a91", all=True)


def test_one_job_says_its_whole_error_and_what_to_do() -> None:
    why = "the bucket does not answer, " * 10
    jobs = JobList([snapshot(1, "FAILED", error={"message": why, "remedy": "Name another endpoint"})])
    said = f"failed: {why}. Name another endpoint"
    assert said in repr(jobs)
    jobs.whole = True
    assert said not in repr(jobs)
    assert repr(JobList([snapshot(1)])).count("\n") == 1
