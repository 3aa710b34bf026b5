"""The process that runs an operation if no agent can."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import nbdata
from nbdata.client import launch
from nbdata.client.agents import stop_all
from nbdata.client.hosts import ChoosingHost
from nbdata.client.remote import AgentHost
from nbdata.runtime import build_id
from nbdata.verbs.probe import Probe
from tests.waiting import PATIENCE, wait_until

PULL = "import sys, nbdata; print(nbdata.pull(sys.argv[1], sys.argv[2], quiet=True).counts)"


def test_without_a_possible_agent_the_work_is_done_here_and_that_is_said_once(
    tree: Path, tmp_path: Path
) -> None:
    stop_all(now=True)
    code = (
        "from nbdata.client import launch; launch._BIRTH = 0.3; launch.sys.executable = '/bin/true'\n"
        + PULL * 1
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tree), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert run.stdout == "{'fetched': 5}\n", run.stderr
    assert run.stderr.count("works in this process") == 1


def test_a_process_that_imported_an_older_build_is_told_to_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    stop_all(now=True)
    monkeypatch.setattr(build_id, "__wrapped__", lambda: "another build")
    with pytest.raises(nbdata.AgentUnavailable, match="Restart the kernel"):
        launch.connect()


def test_a_target_that_the_agent_sees_elsewhere_is_served_here(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An example is a container that shares the runtime folder, but not the disks."""
    from nbdata.client import remote

    real = remote.capture

    def elsewhere(operation):  # type: ignore[no-untyped-def]
        context = real(operation)
        path, device, inode = context.target_id
        context.target_id = (path, device, inode + 1)
        return context

    monkeypatch.setattr(remote, "capture", elsewhere)
    before = len(AgentHost().jobs())
    assert nbdata.pull(tree, tmp_path / "out", quiet=True).counts == {"fetched": 5}
    assert len(AgentHost().jobs()) == before
    assert "another disk" in capsys.readouterr().err
    assert os.path.exists(tmp_path / "out" / "a.txt")


def test_an_id_that_two_processes_drew_means_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guess could cancel the wrong one."""
    theirs = Probe(items=1000, delay=50, tag="agent").start()
    with monkeypatch.context() as patch:
        patch.setenv("NBDATA_HOST", "inline")
        patch.setattr("nbdata.engine.runner.secrets.token_hex", lambda _: theirs.id)
        own = Probe(items=1000, delay=50, tag="here").start()
    assert own.id == theirs.id
    wait_until(lambda: own.snapshot().state == theirs.snapshot().state == "RUNNING")
    for asked in (own.id, own.id[:3]):
        with pytest.raises(nbdata.NotFound, match=f"several jobs begin with '{asked}'"):
            nbdata.transfers(asked, cancel=True)
    assert own.snapshot().state == theirs.snapshot().state == "RUNNING"
    for job in (own, theirs):
        job.cancel()
        with pytest.raises(nbdata.Cancelled):
            job.wait()


@pytest.mark.parametrize("host", ["agent", "inline"])
def test_a_file_system_that_cannot_be_opened_is_told_as_such(
    host: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NBDATA_HOST", host)
    pull = nbdata.Pull("ftp://user:SECRET@127.0.0.1:9/x", tmp_path / "out")
    for do in (pull.plan, lambda: pull.run(quiet=True)):
        with pytest.raises(nbdata.StoreUnavailable, match="cannot be opened") as caught:
            do()
        assert caught.value.path == "ftp://127.0.0.1:9/x"
        assert "SECRET" not in str(caught.value.to_dict())


@pytest.mark.parametrize("where", ["agent", "inline"])
def test_a_plan_that_was_begun_is_the_plan(where: str, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBDATA_HOST", where)
    operation = nbdata.Pull(str(tree), str(tree.parent / "out"))
    begun = ChoosingHost().planning(operation)
    planned = begun.wait()
    told = planned.line.partition(", ")[0]  # what is free on the disk changes
    assert operation.plan().line.startswith(told)
    assert len(list(planned.rows)) == len(planned.rows) == 5
    begun.cancel()  # too late to matter
