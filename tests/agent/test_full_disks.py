"""If the agent's own disks are full, it stays alive, reports that, and continues when there is room."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata.client.remote import AgentHost
from nbdata.lock_files import held
from nbdata.runtime import LOG_BYTES, endpoint
from nbdata.space.ledger import Ledger
from nbdata.transfer.index import Index, Record
from nbdata.verbs.probe import Probe
from tests.agent.rig import Rig, fill, rigged, tmpfs
from tests.waiting import PATIENCE, wait_until

HOST = AgentHost()


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    with rigged(monkeypatch) as rig:
        yield rig


@pytest.fixture
def runtime(agent: Rig, mounts: None) -> Iterator[Path]:
    """The runtime folder on its own disk of 2 MB."""
    with tmpfs(Path(os.environ["NBDATA_RUNTIME_DIR"]), size="2m") as disk:
        (disk / "jobs").mkdir()
        yield disk
        from nbdata.client.agents import stop_all

        stop_all(now=True)


@pytest.fixture
def state(agent: Rig, mounts: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The state folder on its own disk of 1 MB."""
    with tmpfs(tmp_path / "state", size="1m") as disk, monkeypatch.context() as patch:
        patch.setenv("NBDATA_STATE_DIR", str(disk / "nbdata"))
        yield disk


def test_a_full_disk_below_the_runtime_folder_is_named_and_the_agent_lives(
    agent: Rig, runtime: Path, tree: Path, tmp_path: Path
) -> None:
    assert agent.pid
    filler = fill(runtime / "jobs")
    for _ in range(3):
        with pytest.raises(nbdata.NotEnoughSpace, match=f"became full: {runtime}"):
            nbdata.pull(tree, tmp_path / "out", quiet=True)
    agent.says({"do": "plan", "operation": {"verb": "quota"}, "context": {"cwd": "/", "state_dir": 5}})
    filler.unlink()
    assert nbdata.pull(tree, tmp_path / "out", quiet=True).counts == {"fetched": 5}
    assert agent.pid


def test_an_agent_starts_although_nothing_can_be_written_to_its_log(agent: Rig, runtime: Path) -> None:
    os.kill(agent.pid, signal.SIGKILL)
    agent._pid = 0
    wait_until(lambda: not held(endpoint().alive))
    os.truncate(endpoint().log, 0)
    fill(runtime / "jobs")
    assert agent.pid
    assert Path(endpoint().log).read_bytes() == b""


def test_reserved_space_is_released_although_the_ledger_cannot_be_written(
    agent: Rig, runtime: Path, tmp_path: Path
) -> None:
    limited = {str(tmp_path): (10_000_000, "%quota --limit")}
    ledger = Ledger()
    with ledger.reserve(str(tmp_path), 6_000_000, 1, limited):
        filler = fill(runtime / "jobs")
    assert ledger.room(str(tmp_path), limited)[0].reserved == 0
    with pytest.raises(nbdata.NotEnoughSpace, match=f"became full: {runtime}"):
        ledger.reserve(str(tmp_path), 6_000_000, 1, limited)
    assert not list(runtime.glob("ledger.json.*"))
    filler.unlink()
    with ledger.reserve(str(tmp_path), 6_000_000, 1, limited):
        assert ledger.room(str(tmp_path), limited)[0].reserved == 6_000_000


def test_the_log_is_bounded(agent: Rig) -> None:
    assert agent.pid
    os.truncate(endpoint().log, LOG_BYTES + 1)
    agent.says(
        {"do": "plan", "operation": {"verb": "transfers"}, "context": {"cwd": "/"}}
    )  # an error that is not the client's fault
    wait_until(lambda: 0 < os.path.getsize(endpoint().log) < LOG_BYTES)
    assert "Traceback" in Path(endpoint().log).read_text()


def test_with_a_full_state_disk_all_is_fetched_and_compared_the_next_time(
    state: Path, tree: Path, tmp_path: Path
) -> None:
    filler = fill(state)
    report = nbdata.pull(tree, tmp_path / "out", quiet=True)
    assert report.counts == {"fetched": 5}
    assert any("recorded" in note and str(state) in note for note in report.notes), report.notes
    filler.unlink()
    assert nbdata.pull(tree, tmp_path / "out", quiet=True).state == "DONE"
    assert nbdata.pull(tree, tmp_path / "out", quiet=True).counts == {"unchanged": 5}


def test_a_limit_that_cannot_be_kept_is_refused_in_words(state: Path, tmp_path: Path) -> None:
    fill(state)
    with pytest.raises(nbdata.NotEnoughSpace, match=str(state)):
        nbdata.quota(tmp_path, limit="1GB", quiet=True)


def test_a_record_that_could_not_be_replaced_is_not_believed(state: Path, tmp_path: Path) -> None:
    identity, record = (1, 2), Record("etag a", 1, 1, 1, 1)
    index = Index(str(state / "nbdata"), "s3://b/", str(tmp_path), identity)
    index.open(identity, needed=False)
    index.put({"old": record})
    fill(state)
    newer = record._replace(tag="etag b" + "x" * 10_000)
    index.put({"new": newer})
    assert index.problem
    index.close()
    assert Index(str(state / "nbdata"), "s3://b/", str(tmp_path), identity).get("old") == record
    again = Index(str(state / "nbdata"), "s3://b/", str(tmp_path), identity)
    again.open(identity, needed=False)
    again.put({"old": newer})
    again.close()
    assert Index(str(state / "nbdata"), "s3://b/", str(tmp_path), identity).get("old") is None


def test_a_job_fails_with_a_clear_error_when_the_disk_of_its_rows_fills(agent: Rig, runtime: Path) -> None:
    fill(runtime / "jobs", leave=100_000)  # enough for the job and some of its rows
    job = HOST.submit(Probe(items=200_000, tag="many rows"), background=True)
    with pytest.raises(nbdata.NotEnoughSpace, match="became full"):
        job.wait(PATIENCE)
    assert agent.pid
