"""The agent under attack: whatever clients do, it stays alive, answers other clients, and keeps its limits."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import nbdata
from nbdata import wire
from nbdata.agent import server as serving
from nbdata.agent import sessions
from nbdata.client import agents, connection, remote
from nbdata.client.connection import Connection
from nbdata.client.remote import AgentHost
from nbdata.errors import AgentUnavailable, Cancelled
from nbdata.ready import is_ready
from nbdata.runtime import Endpoint
from nbdata.sockets import listen
from nbdata.space.holders import this_process
from nbdata.verbs.probe import Probe
from tests.agent.rig import Rig, rigged
from tests.waiting import AT_ONCE, PATIENCE, wait_until

HOST = AgentHost()


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    with rigged(monkeypatch) as rig:
        yield rig


# -- messages -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\xff" * 4096,
        struct.pack(">I", 0),
        struct.pack(">I", 0xFFFFFFFF) + b"x" * 100,
        struct.pack(">I", wire.MAX_FRAME) + b"{",
        struct.pack(">I", 9) + b"not  json",
        struct.pack(">I", 2) + b"[]",
        struct.pack(">I", 4) + b"\xff\xfe\xfd\xfc",
        struct.pack(">I", 100_000) + b"[" * 100_000,
        struct.pack(">I", 20_000) + b'{"do":' + b"9" * 19_993 + b"}",
        b"\0\0",
    ],
)
@pytest.mark.in_ci("GET *", "said1", "said8")
def test_an_invalid_message_ends_only_its_own_connection(agent: Rig, said: bytes) -> None:
    with agent.raw() as sock:
        sock.sendall(said)
        sock.shutdown(socket.SHUT_WR)
        try:
            answer = sock.recv(1 << 16)
        except ConnectionError:
            answer = b""
        assert answer == b"" or b'"error"' in answer
    assert agent.pid


def test_a_client_that_dies_in_the_middle_of_a_message_leaves_nothing(agent: Rig) -> None:
    before = agent.threads()
    for _ in range(50):
        sock = agent.raw()
        sock.sendall(struct.pack(">I", 5000) + b'{"do": "submit", "operation": {')
        sock.close()
    wait_until(lambda: agent.threads() <= before + 1)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.just(10**30) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
# No plain texts in place of paths, because these operations really run.
operations = values | st.fixed_dictionaries(
    {"verb": st.sampled_from(["probe", "pull", "push", "copy", "quota", "cache_stream", "none"]) | values},
    optional=dict.fromkeys(("source", "target", "path", "items", "tag", "include", "limit", "by"), values),
)
contexts = values | st.fixed_dictionaries(
    {"cwd": values | st.just("/")},
    optional=dict.fromkeys(
        ("umask", "env", "storage_options", "target_id", "state_dir", "owner", "notebook"), values
    ),
)
messages = st.fixed_dictionaries(
    {"do": st.sampled_from(sorted(set(sessions._HANDLERS) - {"stop"})) | values | st.text(max_size=5)},
    optional={
        "operation": operations,
        "context": contexts,
        "job": values | st.text(max_size=4) | st.just("JOB"),
        **dict.fromkeys(("session", "background", "offset", "folder", "credit", "at_once"), values),
    },
)


def test_every_message_of_the_wrong_shape_is_answered_or_ends_its_connection(agent: Rig) -> None:
    job = HOST.submit(Probe(items=1000, delay=100, tag="bystander"), background=True)

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(messages)
    @example({"do": "stop", "how": "perhaps"})
    @example({"do": "submit", "operation": {"verb": "probe", "items": 1}, "context": {"cwd": "/", "env": []}})
    @example({"do": "plan", "operation": {"verb": "pull", "source": 5, "target": {}}, "context": {"cwd": 3}})
    @example({"do": "rows", "folder": "../../../etc", "offset": -5})
    @example({"do": "items", "job": "JOB", "credit": 10**30})
    def check(message: dict[str, Any]) -> None:
        if message.get("job") == "JOB" and message["do"] not in ("cancel", "interrupt", "pause"):
            message = {**message, "job": job.id}
        answer = agent.says(message)
        assert answer is None or answer.get("ok") or answer["error"]["message"]

    check()
    assert agent.pid
    assert not job.snapshot().finished
    for snapshot in HOST.jobs():
        if not snapshot.finished:
            HOST.job(snapshot.id).cancel()


def test_a_message_of_the_wrong_shape_is_said_to_be_the_clients_fault(agent: Rig) -> None:
    for message in (
        {"do": "submit"},
        {"do": "submit", "operation": 5, "context": {}},
        {"do": "submit", "operation": {"verb": "probe", "nonsense": 1}, "context": {"cwd": "/"}},
        {"do": "submit", "operation": {"verb": "probe"}, "context": []},
        {"do": "rows", "offset": "first"},
        {"do": "stop", "how": "perhaps"},
    ):
        answer = agent.says(message)
        assert answer is not None
        assert answer["error"]["class"] == "BadOption", answer


# -- floods ---------------------------------------------------------------------------------------


def test_a_client_that_asks_and_never_reads_holds_up_nobody(agent: Rig) -> None:
    job = HOST.submit(Probe(items=200, delay=10, tag="meanwhile"), background=True)
    before = agent.threads()
    message = json.dumps({"do": "list"}).encode()
    with agent.raw() as sock:
        sock.settimeout(0.5)
        flood = (struct.pack(">I", len(message)) + message) * 100_000
        with pytest.raises(TimeoutError):  # the agent stops reading, because its answers fill the socket
            sock.sendall(flood)
        assert job.wait(timeout=PATIENCE).state == "DONE"
        assert agent.pid
    wait_until(lambda: agent.threads() <= before)


def test_many_watches_on_one_connection_are_bounded(agent: Rig) -> None:
    job = HOST.submit(Probe(items=10_000, delay=100, tag="watched"), background=True)
    before = agent.threads()
    with agent.raw() as sock:
        for _ in range(300):
            wire.send(sock, {"do": "watch", "job": job.id})
        refused = 0
        while refused < 300 - sessions._HELPERS:
            answer = wire.receive(sock)
            assert answer is not None
            refused += "error" in answer
        assert agent.threads() <= before + sessions._HELPERS + 2
    job.cancel()
    wait_until(lambda: agent.threads() <= before)


@pytest.mark.long
def test_hundreds_of_connections_are_served_or_told_why_not(agent: Rig) -> None:
    before = agent.threads()
    rude = [agent.raw() for _ in range(serving._CLIENTS - 20)]
    try:
        assert HOST.submit(Probe(items=1, tag="in a crowd"), background=False).wait(PATIENCE).state == "DONE"
        refused = 0
        while refused < 50:
            assert len(rude) < 2 * serving._CLIENTS
            sock = agent.connected()
            rude.append(sock)
            if is_ready(sock, 0.1):  # else it is served
                answer = wire.receive(sock)
                assert answer is not None
                assert "256 clients" in answer["error"]["message"]
                refused += 1
        with pytest.raises(AgentUnavailable, match="256 clients"):
            HOST.submit(Probe(items=1, tag="one too many"), background=True)
    finally:
        for sock in rude:
            sock.close()
    wait_until(lambda: not _refused(agent))
    wait_until(lambda: agent.threads() <= before + 1)
    assert HOST.submit(Probe(items=1, tag="afterwards"), background=False).wait(PATIENCE).state == "DONE"


def _refused(agent: Rig) -> bool:
    try:
        return not agent.pid
    except AgentUnavailable:
        return True


def test_two_hundred_jobs_at_once_take_a_bounded_number_of_threads_and_all_are_done(agent: Rig) -> None:
    assert agent.pid
    first = [HOST.submit(Probe(items=1000, delay=100, tag=f"long {n}"), background=True) for n in range(8)]
    before, memory = agent.threads(), agent.memory()
    rest = [HOST.submit(Probe(items=1, tag=f"short {n}"), background=True) for n in range(200)]
    wait_until(lambda: agent.threads() <= before + 10)
    assert agent.memory() - memory < 50 << 20
    waiting = rest[0].snapshot()
    assert (waiting.state, waiting.reason) == ("QUEUED", "waits for one of 8 running jobs to end")
    rest[100].cancel()
    with pytest.raises(Cancelled):
        rest[100].wait(PATIENCE)
    for job in first:
        job.cancel()
    for number, job in enumerate(rest):
        if number != 100:
            assert job.wait(PATIENCE).state == "DONE"


def test_more_jobs_than_can_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from nbdata.engine import jobs as module

    monkeypatch.setattr(module, "_UNFINISHED", 12)
    monkeypatch.setenv("NBDATA_HOST", "inline")
    held = [Probe(items=1000, delay=100, tag=f"inline {n}").start() for n in range(12)]
    with pytest.raises(nbdata.NbdataError, match="12 jobs run or wait"):
        Probe(items=1, tag="one too many").start()
    for job in held:
        job.cancel()
    for job in held:
        with pytest.raises(Cancelled):
            job.wait(PATIENCE)
    assert Probe(items=1, tag="afterwards").start().wait(PATIENCE).state == "DONE"


def test_paused_jobs_and_queries_take_no_turn(agent: Rig, tmp_path: Path) -> None:
    never = 10**6  # so many items that no job ends
    held = [HOST.submit(Probe(items=never, delay=100, tag=f"paused {n}"), background=True) for n in range(8)]
    waits = HOST.submit(Probe(items=1, tag="waits"), background=True)
    assert waits.snapshot().state == "QUEUED"
    nbdata.quota(tmp_path, quiet=True)  # is answered, although all turns are taken
    paused = HOST.submit(Probe(items=1, tag="paused while it waits"), background=True)
    paused.pause()
    held[0].pause()
    assert waits.wait(PATIENCE).state == "DONE"
    assert paused.snapshot().state == "PAUSED"
    paused.resume()
    assert paused.wait(PATIENCE).state == "DONE"
    held[0].resume()
    for job in held:
        job.cancel()


def test_many_plans_at_once_are_all_whole(agent: Rig, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(20):
        (source / f"{number}").touch()
    plans = [nbdata.Pull(source, tmp_path / f"out{number}") for number in range(30)]
    together = threading.Barrier(30)

    def planned(operation: nbdata.Pull) -> int:
        together.wait(PATIENCE)
        return len(operation.plan().rows)

    with ThreadPoolExecutor(30) as pool:
        assert list(pool.map(planned, plans)) == [20] * 30


# -- time limits, with small values ---------------------------------------------------------------


@pytest.fixture
def here(agent: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[serving.Server]:
    """The agent's server in this process, with small limits."""
    monkeypatch.setattr(sessions, "_MESSAGE", 0.3)
    monkeypatch.setattr(serving, "_SILENT_KEEPS", 0.3)
    monkeypatch.setattr(serving, "_CLIENTS", 2)
    where = Endpoint(os.environ["NBDATA_RUNTIME_DIR"], "01234567-0123456789abcdef")
    server = serving.Server(where)
    listener = listen(where)
    thread = threading.Thread(target=server.serve, args=(listener,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop_now()
        thread.join(PATIENCE)
        listener.close()
        assert not thread.is_alive()
        server.jobs.close()


def test_a_client_that_hangs_in_the_middle_of_a_message_is_let_go(here: serving.Server) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(PATIENCE)
        sock.connect(here.endpoint.socket)
        sock.sendall(struct.pack(">I", 100) + b"{")
        assert sock.recv(1) == b""


def test_a_server_with_the_maximum_of_clients_still_obeys_a_stop(
    here: serving.Server,
) -> None:
    held = [Connection(here.endpoint) for _ in range(2)]
    for one in held:
        one.ask({"do": "hello"}, timeout=PATIENCE)
    with pytest.raises(AgentUnavailable, match="2 clients"), Connection(here.endpoint) as third:
        third.ask({"do": "hello"}, timeout=PATIENCE)
    held[0].ask({"do": "stop", "how": "idle"}, timeout=PATIENCE)
    wait_until(lambda: not os.path.exists(here.endpoint.socket))
    for one in held:
        one.close()


def test_a_silent_client_does_not_keep_an_idle_agent_running(here: serving.Server) -> None:
    here._idle_after = 0.1
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(here.endpoint.socket)
        wait_until(lambda: not os.path.exists(here.endpoint.socket))


def test_a_client_for_whom_there_is_no_thread_is_told_so_and_the_next_one_is_served(
    here: serving.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if thread.name == "session":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(AgentUnavailable, match="no more clients"), Connection(here.endpoint) as one:
            one.ask({"do": "hello"}, timeout=PATIENCE)
    with Connection(here.endpoint) as one:
        assert one.ask({"do": "hello"}, timeout=PATIENCE)["pid"] == os.getpid()


def test_files_in_use_get_fresh_times_so_that_no_cleaner_removes_them(here: serving.Server) -> None:
    this_process()
    folder = Path(here.endpoint.folder)
    used = [Path(here.endpoint.socket), folder / "ledger.lock", *folder.glob("holder-*")]
    assert len(used) == 3
    for path in used:
        os.utime(path, (0, 0))
    here._touch()
    assert all(path.stat().st_mtime > 10**9 for path in used)


# -- a stopped agent ------------------------------------------------------------------------------


@pytest.fixture
def answer_within(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Returns a function that sets how long clients wait for an answer.

    If one is expected, allow for a busy machine.
    """

    def wait(seconds: float) -> None:
        for module, name in (
            (connection, "ANSWER"), (connection, "QUIET"), (remote, "_ANSWER"), (remote, "_ROWS"),
            (remote, "_INTERRUPTED"), (agents, "_ANSWER"),
        ):  # fmt: skip
            monkeypatch.setattr(module, name, seconds)

    return wait


@pytest.mark.long
def test_no_client_hangs_while_the_agent_is_stopped_and_its_jobs_continue_with_it(
    agent: Rig, answer_within: Callable[[float], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "source").mkdir()
    job = HOST.submit(Probe(items=1000, delay=50, tag="goes on"), background=True)
    interrupted = HOST.submit(Probe(items=1000, delay=50, tag="interrupted"), background=False)
    leased = HOST.submit(Probe(items=1000, lease=True, tag="leased"), background=True)
    items = leased.items()
    next(items)
    watched = job.watch()
    next(watched)
    pid = agent.pid
    os.kill(pid, signal.SIGSTOP)
    answer_within(0.5)
    try:
        for name, ask in {
            "submit": lambda: HOST.submit(Probe(items=1, tag="late"), background=True),
            "plan": lambda: nbdata.Pull(tmp_path / "source", tmp_path / "out").plan(),
            "snapshot": job.snapshot,
            "watch": lambda: [*watched],
            "wait": job.wait,
            "wait a while": lambda: job.wait(timeout=PATIENCE),
            "report": job.report,
            "items": lambda: [*items],
            "interrupt": interrupted.interrupt,
        }.items():
            began = time.monotonic()
            with pytest.raises(AgentUnavailable, match="does not answer") as caught:
                ask()
            assert time.monotonic() - began < AT_ONCE, name
            assert f"kill -CONT {pid}" in str(caught.value), name
        assert HOST.look() == ([], True)
        assert agents.main(["status"]) == 0
        assert f"does not answer (process {pid})" in capsys.readouterr().out
    finally:
        os.kill(pid, signal.SIGCONT)
    answer_within(PATIENCE)
    assert not job.snapshot().finished
    before = job.snapshot().files
    wait_until(lambda: job.snapshot().files > before)
    with pytest.raises(Cancelled):  # it now carries out the earlier request
        interrupted.wait(PATIENCE)
    for one in (job, leased):
        one.cancel()


def test_an_agent_that_takes_its_time_is_waited_for_as_long_as_it_lives(
    agent: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "QUIET", 0.2)
    job = HOST.submit(Probe(items=1, delay=3000, tag="slow"), background=False)
    job.pause()
    threading.Timer(2.0, job.resume).start()
    assert job.wait().state == "DONE"
