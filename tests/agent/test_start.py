"""Many clients start one agent, and the runtime folder holds files of other processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata import wire
from nbdata.client import launch
from nbdata.client.launch import connect
from nbdata.client.remote import AgentHost
from nbdata.errors import AgentUnavailable
from nbdata.lock_files import file_lock, held
from nbdata.runtime import endpoint
from nbdata.verbs.probe import Probe
from tests.agent.rig import Rig, rigged
from tests.waiting import PATIENCE, wait_until

HOST = AgentHost()


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    with rigged(monkeypatch) as rig:
        yield rig


@pytest.fixture
def folder(agent: Rig) -> Path:
    return Path(os.environ["NBDATA_RUNTIME_DIR"])


def test_twenty_processes_that_come_at_once_and_find_no_agent_start_one(agent: Rig, folder: Path) -> None:
    code = "from nbdata.client.launch import connect; print(connect().ask({'do': 'hello'})['pid'])"
    clients = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd="/")
        for _ in range(20)
    ]
    said = [client.communicate(timeout=PATIENCE)[0].strip() for client in clients]
    assert [client.returncode for client in clients] == [0] * 20
    assert set(said) == {str(agent.pid)}
    assert len(list(folder.glob("*.sock"))) == 1
    began = Path(endpoint().log).read_text().count(" serves ")
    assert began == 1


def test_files_of_a_dead_process_block_nothing_although_its_pid_was_reused(
    agent: Rig, folder: Path, tree: Path, tmp_path: Path
) -> None:
    """All files name the pid of a living process. Only a held lock counts."""
    where, pid = endpoint(), str(os.getpid())
    for path in (where.alive, where.start, f"{folder}/holder-{'ab' * 8}"):
        Path(path).write_text(pid)
    (folder / "locks").mkdir()
    (folder / "locks" / "0123456789abcdef.lock").write_text(json.dumps([str(tmp_path), pid]))
    entry = {
        "holder": f"holder-{'ab' * 8}", "target": str(tmp_path), "device": os.stat(tmp_path).st_dev,
        "planned": 10**18, "landed": 0, "inodes": 1, "made": 0,
    }  # fmt: skip
    (folder / "ledger.json").write_text(json.dumps({"entries": {"dead": entry}, "scans": {}}))
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(where.socket)
    assert nbdata.pull(tree, tmp_path / "out", quiet=True).counts == {"fetched": 5}
    assert held(where.alive)
    assert not list((folder / "locks").iterdir()) or not (folder / "locks" / "0123456789abcdef.lock").exists()


def test_a_process_that_stands_still_while_it_starts_the_agent_holds_nobody_up_for_ever(
    agent: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "_PATIENCE", 0.5)
    with file_lock(endpoint().start), pytest.raises(AgentUnavailable, match="has been starting the agent"):
        connect()
    monkeypatch.setattr(launch, "_PATIENCE", 30)
    assert agent.pid


def test_rows_of_an_agent_that_was_killed_go_with_the_next_one(agent: Rig, folder: Path) -> None:
    HOST.submit(Probe(items=1000, delay=50, tag="killed"), background=True)
    killed = {path.name for path in (folder / "jobs").iterdir()}
    assert len(killed) == 1
    os.kill(agent.pid, signal.SIGKILL)
    agent._pid = 0
    wait_until(lambda: not held(endpoint().alive))
    job = HOST.submit(Probe(items=1000, delay=50, tag="lives"), background=True)
    wait_until(lambda: killed.isdisjoint(path.name for path in (folder / "jobs").iterdir()))
    assert len(list((folder / "jobs").iterdir())) == 1
    job.cancel()


def _frame(message: dict[str, Any]) -> bytes:
    body = json.dumps(message).encode()
    return struct.pack(">I", len(body)) + body


SNAPSHOT = {"id": "ffff", "verb": "teleport", "state": "HOVERING", "colour": "blue"}
FOREIGN = {
    "silence": b"",
    "garbage": b"\xff" * 64,
    "no object": struct.pack(">I", 2) + b"[]",
    "nothing in it": _frame({"ok": True}),
    "something else in it": _frame({"ok": True, "jobs": 5, "pid": "many"}),
    "jobs of no shape": _frame({"ok": True, "jobs": [[], None]}),
    "an error of no shape": _frame({"error": 5}),
    "a later version": _frame(
        {"ok": True, "jobs": [SNAPSHOT], "protocol": 7, "version": "9.0", "pid": 1, "mood": "good"}
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.in_ci("a later version")
def test_an_agent_of_another_kind_neither_stops_nor_hides_ours(
    agent: Rig, folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from nbdata.client.agents import main

    job = HOST.submit(Probe(items=1000, delay=50, tag="ours"), background=True)
    wait_until(lambda: job.snapshot().state == "RUNNING")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(folder / "00000000-foreign.sock"))
        other.listen(16)

        def answer() -> None:
            while True:
                try:
                    client, _ = other.accept()
                except OSError:
                    return
                with client:
                    try:
                        wire.receive(client)
                        client.sendall(FOREIGN[name])
                    except OSError:
                        continue

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        listed = {snapshot.id: snapshot.state for snapshot in HOST.jobs()}
        assert listed.pop(job.id) == "RUNNING"
        assert listed == ({"ffff": "HOVERING"} if name == "a later version" else {})
        assert main(["status"]) == 0
        assert f"agent {agent.pid} " in capsys.readouterr().out
        other.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE)
    os.unlink(folder / "00000000-foreign.sock")
    job.cancel()
