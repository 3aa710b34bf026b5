"""Jobs over the socket: watching, pausing, cancelling, attaching, items, rows and errors."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

import nbdata
from nbdata.client import remote
from nbdata.client.launch import connect
from nbdata.client.remote import AgentHost
from nbdata.errors import Cancelled
from nbdata.verbs.probe import Probe
from tests.stores.servers import ok, read_head, serving
from tests.waiting import AT_ONCE, PATIENCE, wait_until

HOST = AgentHost()


def test_the_same_command_attaches_to_the_job_and_another_does_not() -> None:
    one = HOST.submit(Probe(items=10_000, delay=20, tag="same"), background=True)
    two = HOST.submit(Probe(items=10_000, delay=20, tag="same"), background=True)
    three = HOST.submit(Probe(items=10_000, delay=20, tag="other"), background=True)
    assert (two.id, two.attached) == (one.id, f"attached to job {one.id}, which was running already")
    assert (three.id != one.id, three.attached) == (True, "")
    one.cancel()
    three.cancel()


def test_a_paused_job_stands_still_and_goes_on() -> None:
    job = HOST.submit(Probe(items=400, delay=5, lease=True, tag="pause"), background=True)
    items = job.items()
    assert [next(items).number for _ in range(3)] == [0, 1, 2]
    job.pause()
    assert (job.snapshot().state, job.snapshot().reason) == ("PAUSED", "user")
    before = job.snapshot().files
    HOST.submit(Probe(items=60, delay=5, tag="beside"), background=True).wait(PATIENCE)
    assert job.snapshot().files <= before + 1
    job.resume()
    assert next(items).number == 3
    job.cancel()
    with pytest.raises(Cancelled):
        list(items)


def test_a_cancelled_job_ends_at_once_and_says_so() -> None:
    job = HOST.submit(Probe(items=10_000, delay=int(PATIENCE * 1000), tag="cancel"), background=True)
    began = time.monotonic()
    job.cancel()
    with pytest.raises(Cancelled):
        job.wait()
    assert time.monotonic() - began < AT_ONCE
    assert job.snapshot().state == "CANCELLED"


def test_items_are_handed_out_once_and_a_lost_consumer_gives_its_items_back() -> None:
    job = HOST.submit(Probe(items=6, lease=True, tag="items"), background=True)
    consumer = job.items(credit=2)
    got = [next(consumer).number]
    wait_until(lambda: job.snapshot().files >= 3)  # one in use, one sent ahead, one waiting
    consumer.close()  # closes the connection and its lease
    got += [item.number for item in job.items()]
    assert sorted(got) == list(range(6))
    assert job.wait().counts == {"handed out": 6}


def test_an_item_unpacks_as_path_and_size() -> None:
    for path, size in HOST.submit(Probe(items=1, lease=True, tag="unpack"), background=True).items():
        assert (path, size) == ("item-0", 1)


def test_rows_of_a_plan_and_a_report_are_paged(tmp_path: Path) -> None:
    source = tmp_path / "many"
    source.mkdir()
    for number in range(3000):
        (source / f"{number:05d}-{'x' * 80}").touch()
    operation = nbdata.Pull(source, tmp_path / "out")
    assert len(list(operation.plan().rows)) == 3000
    report = operation.run(quiet=True)
    assert len(report.rows) == 3000
    assert {row.action for row in report.rows} == {"fetched"}


def test_an_error_crosses_the_socket_with_its_class_and_its_words(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        nbdata.pull(tmp_path / "nothing", tmp_path / "out", quiet=True)
    assert isinstance(caught.value, nbdata.NotFound)
    assert str(tmp_path / "nothing") in str(caught.value)


def test_files_get_the_clients_umask_not_the_agents(tree: Path, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        nbdata.pull(tree, tmp_path / "out", quiet=True)
    finally:
        os.umask(before)
    assert (tmp_path / "out" / "a.txt").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "out" / "b").stat().st_mode & 0o777 == 0o750


def test_two_jobs_on_one_target_run_one_after_the_other(tmp_path: Path, put, gate) -> None:  # type: ignore[no-untyped-def]
    url = put({f"a/{n}": bytes(500_000) for n in range(8)} | {"b/x": b"x"})
    gate.close(after=1_000_000)
    first = nbdata.Pull(url + "a/", tmp_path / "out").start()
    gate.wait_until_it_holds()
    second = nbdata.Pull(url + "b/", tmp_path / "out" / "below").start()
    wait_until(lambda: first.id in second.snapshot().reason)
    assert second.snapshot().state == "QUEUED"
    gate.open()
    assert second.wait().state == "DONE"
    assert first.snapshot().state == "DONE"


def test_memory_file_systems_are_served_by_this_process(tmp_path: Path) -> None:
    import fsspec

    fs = fsspec.filesystem("memory")
    fs.pipe("/box/a", b"1")
    try:
        report = nbdata.pull("memory://box/", tmp_path / "out", quiet=True)
    finally:
        fs.rm("/box", recursive=True)
    assert report.counts == {"fetched": 1}
    assert report.notes == ["1 could not be verified: the store has no checksum for them"]


def test_an_interrupt_cancels_a_job_that_somebody_had_paused() -> None:
    job = HOST.submit(Probe(items=10_000, delay=50, tag="paused"), background=False)
    job.pause()
    assert job._ask("interrupt", session=job._session, at_once=False)["alone"]
    with pytest.raises(Cancelled):
        job.wait(PATIENCE)


def test_an_interrupt_read_after_its_kernel_has_gone_changes_nothing() -> None:
    """A kernel that restarts at once sends the interrupt, and is gone before the agent reads it."""
    job = HOST.submit(Probe(items=40, delay=50, tag="gone"), background=False)
    lifeline = job._lifeline._sock
    lifeline.shutdown(socket.SHUT_WR)
    assert lifeline.recv(1) == b"", "the agent has released what the connection held, and closes it"
    job._let_go()
    job._ask("interrupt", session=job._session, at_once=False)
    assert job.wait(PATIENCE).state == "DONE"


def test_waiting_for_a_job_that_stands_still_ends_in_time() -> None:
    job = HOST.submit(Probe(items=10_000, delay=20, tag="still"), background=True)
    job.pause()
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        job.wait(timeout=0.5)
    assert 0.5 <= time.monotonic() - began < AT_ONCE
    job.cancel()
    with pytest.raises(Cancelled):
        job.wait(timeout=PATIENCE)
    with pytest.raises(Cancelled):
        job.wait(timeout=0)


def test_a_loop_is_left_in_time_though_the_agent_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_ANSWER", 0.5)
    monkeypatch.setattr(remote, "_RELEASED", 0.5)
    job = HOST.submit(Probe(items=400, delay=20, lease=True, tag="held"), background=False)
    next(job.items())
    with connect() as connection:
        agent = int(connection.ask({"do": "hello"})["pid"])
    os.kill(agent, signal.SIGSTOP)
    began = time.monotonic()
    try:
        job.release()
    finally:
        os.kill(agent, signal.SIGCONT)
    assert time.monotonic() - began < AT_ONCE


@pytest.mark.long
def test_more_jobs_than_a_message_holds_are_listed_with_those_that_run() -> None:
    running = HOST.submit(Probe(items=2000, delay=50, tag="first"), background=True)
    queued = [
        HOST.submit(Probe(items=2000, delay=50, tag=f"{number} {'long ' * 4000}"), background=True)
        for number in range(60)
    ]
    listed = {snapshot.id for snapshot in HOST.jobs()}
    assert running.id in listed
    assert listed & {job.id for job in queued}
    for job in [running, *queued]:
        job.cancel()


@pytest.mark.long
def test_a_watching_client_is_told_when_no_more_updates_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, goes_on = 40_000_000, threading.Event()

    def handle(connection: socket.socket) -> None:
        while head := read_head(connection):
            answer = ok(bytes(2 * sent), 'ETag: "x"', "Accept-Ranges: none")
            if head.startswith(b"HEAD"):
                connection.sendall(answer[: -2 * sent])
                continue
            connection.sendall(answer[:-sent])
            goes_on.wait(PATIENCE)
            connection.sendall(answer[-sent:])

    with serving(handle) as port:
        job = nbdata.Pull(f"http://127.0.0.1:{port}/x", tmp_path).start()
        try:
            rates = list[float]()
            for snapshot in job.watch():
                rates.append(snapshot.rate)
                if (snapshot.bytes >= sent and snapshot.rate == 0) or snapshot.finished:
                    break
        finally:
            goes_on.set()
        assert not snapshot.finished
        assert max(rates) > 0
        assert job.wait().counts == {"fetched": 1}
