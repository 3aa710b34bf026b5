"""Results of jobs whose agents have ended: real agents that were stopped or killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata.client.agents import stop_all
from nbdata.client.launch import connect
from nbdata.client.remote import AgentHost
from nbdata.history import past_jobs, record_of, remember
from nbdata.lock_files import held
from nbdata.report import Snapshot
from nbdata.runtime import endpoint, endpoints
from nbdata.sealed_lines import value_of
from nbdata.sizes import format_size
from nbdata.verbs.probe import Probe
from nbdata.verbs.transfers import JobList
from tests.agent.rig import Rig, rigged
from tests.engine.cache.test_cache_stream import Put
from tests.faults.gate import Gate
from tests.waiting import PATIENCE, wait_until

NBDATA = str(Path(sys.executable).with_name("nbdata"))


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The state folder of the agent."""
    return tmp_path / "state"


@pytest.fixture
def rig(state: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    with rigged(monkeypatch, state) as made:
        yield made


def terminal(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([NBDATA, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE)


def kill(rig: Rig) -> None:
    """Kill the agent, as the system does when it is short of memory."""
    os.kill(rig.pid, signal.SIGKILL)
    wait_until(lambda: not held(endpoint().alive))


def clear_up_after_the_killed() -> None:
    """Start the next agent, and wait until it has cleaned up."""
    connect().close()
    wait_until(lambda: not list(Path(endpoint().folder).glob("jobs/*")))


def running_probe() -> nbdata.Job:
    """Start a job, and wait until its start is recorded.

    A separate thread records it, so that no slow disk delays a job.
    """
    job = Probe(items=1000, delay=50, tag="goes on").start()
    wait_until(lambda: job.snapshot().state == "RUNNING")
    noted = Path(os.environ["NBDATA_STATE_DIR"]) / "jobs.log"
    wait_until(lambda: noted.exists() and job.id in noted.read_text())
    return job


@pytest.mark.long
def test_a_job_that_went_well_is_shown_with_its_end_when_its_agent_has_ended(
    rig: Rig, tree: Path, tmp_path: Path
) -> None:
    job = nbdata.pull(tree, tmp_path / "out", background=True)
    line = job.wait().line
    stop_all(now=True)

    assert [(s.id, s.state, s.files) for s in AgentHost().jobs()] == [(job.id, "DONE", 5)]
    assert AgentHost().job(job.id).wait().counts == {"fetched": 5}
    assert job.wait().counts == job.report().counts == {"fetched": 5}, "who kept the job is told too"
    assert "done" in repr(job)
    listed = terminal("transfers")
    assert job.id in listed.stdout
    assert "done" in listed.stdout
    waited = terminal("transfers", job.id[:3], "--wait")
    assert (waited.returncode, waited.stdout.splitlines()[0]) == (0, line)
    assert not endpoints(), "to look starts no agent"


@pytest.mark.long
def test_a_failed_job_says_why_and_a_wait_for_it_raises(rig: Rig, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "a.txt").mkdir(parents=True)
    job = nbdata.pull(tree, tmp_path / "out", background=True)
    with pytest.raises(nbdata.TransferFailed) as told:
        job.wait()
    stop_all(now=True)

    with pytest.raises(nbdata.TransferFailed) as later:
        AgentHost().job(job.id).wait()
    assert str(later.value) == str(told.value)
    waited = terminal("transfers", job.id, "--wait")
    assert waited.returncode == 1
    assert "a folder with this name exists" in waited.stderr
    assert "failed" in terminal("transfers").stdout


@pytest.mark.in_ci("killed")
@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_a_job_that_its_agent_did_not_end_is_interrupted(rig: Rig, end: str) -> None:
    job = running_probe()
    if end == "killed":
        kill(rig)
    else:
        stop_all(now=True)

    (past,) = AgentHost().jobs()
    assert (past.id, past.state) == (job.id, "INTERRUPTED")
    with pytest.raises(nbdata.Cancelled, match=r"interrupted.*agent ended.*Run it again to resume"):
        AgentHost().job(job.id).wait()
    assert "interrupted" in terminal("transfers").stdout
    assert terminal("transfers", job.id, "--wait").returncode == 1
    with pytest.raises(nbdata.NotFound, match=r"nothing to pause\. Run its command again"):
        AgentHost().job(job.id).pause()
    refused = terminal("transfers", job.id, "--cancel")
    assert "is interrupted, so there is nothing to cancel" in refused.stderr
    if end == "killed":
        clear_up_after_the_killed()


def test_a_job_of_a_killed_agent_is_listed_with_how_far_it_was(
    rig: Rig, state: Path, put: Put, gate: Gate, tmp_path: Path
) -> None:
    gate.close(after=3_000_000)
    url = put({f"{n}.bin": os.urandom(1_000_000) for n in range(6)})
    job = nbdata.Pull(url, str(tmp_path / "out"), concurrency=1).start()

    def noted() -> Snapshot | None:
        lines = (state / "jobs.log").read_bytes().splitlines(keepends=True)
        known = Snapshot.from_dict(value_of(lines[-1])["snapshot"])
        return known if known.bytes else None

    wait_until((state / "jobs.log").exists)
    known = wait_until(noted)
    kill(rig)
    (past,) = AgentHost().jobs()
    assert (past.state, past.bytes, past.bytes_total) == ("INTERRUPTED", known.bytes, 6_000_000)
    assert past.seconds == known.seconds > 0
    assert AgentHost().job(job.id).report().bytes == known.bytes
    assert f"{format_size(known.bytes)} of 6.0 MB" in terminal("transfers").stdout
    assert f"{past.percent}, {format_size(known.bytes)}, " in JobList([past])._repr_html_()
    clear_up_after_the_killed()
    nbdata.cleanup(tmp_path / "out", quiet=True)


def test_jobs_of_a_killed_agent_are_not_confused_with_those_of_the_next_one(rig: Rig) -> None:
    first = running_probe()
    kill(rig)
    second = running_probe()
    assert {s.id: s.state for s in AgentHost().jobs()} == {first.id: "INTERRUPTED", second.id: "RUNNING"}
    second.cancel()
    wait_until(lambda: second.snapshot().finished)
    assert {s.id: s.state for s in AgentHost().jobs()}[second.id] == "CANCELLED"
    stop_all(now=True)


def test_a_job_of_an_agent_that_does_not_answer_is_not_called_interrupted(rig: Rig, state: Path) -> None:
    job = running_probe()
    wait_until((state / "jobs.log").exists)
    pid = rig.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        assert past_jobs(str(state)) == []
    finally:
        os.kill(pid, signal.SIGCONT)
    assert [s.state for s in AgentHost().jobs()] == ["RUNNING"]
    job.cancel()


def test_a_full_state_disk_spoils_no_job(rig: Rig, state: Path, tree: Path, tmp_path: Path) -> None:
    state.mkdir()
    (state / "jobs.log").symlink_to("/dev/full")
    assert nbdata.pull(tree, tmp_path / "out", quiet=True).counts == {"fetched": 5}
    wait_until(lambda: "the history of jobs could not be written" in Path(endpoint().log).read_text())
    assert [s.state for s in AgentHost().jobs()] == ["DONE"], "its agent still knows it"


def remembered(state: Path, number: int, *, command: str = "") -> None:
    snapshot = Snapshot(f"{number:04x}", "pull", state="DONE", created=1000.0 + number, command=command)
    remember(str(state), record_of(snapshot, None, None, "raise"), "/nowhere/holder")


def test_a_torn_record_is_passed_over_and_spoils_no_other(state: Path) -> None:
    remembered(state, 1)
    whole = (state / "jobs.log").read_bytes()
    with open(state / "jobs.log", "ab") as file:
        file.write(whole.replace(b"0001", b"0009") + b"rubbish\n" + whole[: len(whole) // 2])
    remembered(state, 2)
    assert [past.snapshot.id for past in past_jobs(str(state))] == ["0001", "0002"]
    assert os.stat(state / "jobs.log").st_mode & 0o077 == 0


def test_the_history_stays_small_and_keeps_the_newest(state: Path) -> None:
    for number in range(700):
        remembered(state, number, command="x" * 4000)
        assert os.path.getsize(state / "jobs.log") < 1.1 * (1 << 20)
    ids = [past.snapshot.id for past in past_jobs(str(state))]
    assert ids[-1] == f"{699:04x}"
    assert ids == sorted(ids)
    assert 100 < len(ids) <= 300
    remembered(state, 700, command="x" * 100_000)
    newest = past_jobs(str(state))[-1].snapshot
    assert (newest.id, newest.command) == (f"{700:04x}", ""), "of one that is too long the rest is kept"


def test_jobs_of_another_machine_are_called_interrupted_when_nobody_can_hope_any_more(state: Path) -> None:
    for number, created in enumerate((time.time() - 60, time.time() - 2 * 24 * 3600)):
        snapshot = Snapshot(f"{number:04x}", "pull", state="RUNNING", created=created)
        record = {**record_of(snapshot, None, None, "raise"), "host": "another"}
        remember(str(state), json.loads(json.dumps(record)), "/elsewhere/holder")
    assert [(p.snapshot.id, p.snapshot.state) for p in past_jobs(str(state))] == [("0001", "INTERRUPTED")]
