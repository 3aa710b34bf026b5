"""Ctrl-C ends a command while the agent does not answer, and ``nbdata agent stop`` ends such an agent."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata.client import agents
from nbdata.client.agents import stop_all
from nbdata.client.remote import AgentHost
from nbdata.errors import AgentUnavailable, BadOption
from nbdata.verbs.probe import Probe
from tests.agent.rig import Rig, rigged
from tests.kernel import Kernel
from tests.waiting import AT_ONCE, PATIENCE, wait_until

NBDATA = str(Path(sys.executable).with_name("nbdata"))
HOST = AgentHost()


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    with rigged(monkeypatch) as rig:
        yield rig


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process, as a debugger or a frozen container does."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def command(*words: str, code: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code] if code else [NBDATA, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/" if code else None,  # no source tree of nbdata there
    )


def waits_for_a_socket(pid: int) -> bool:
    """True once a process waits for one socket, as for the agent's answer; an event loop waits otherwise."""
    waits = Path(f"/proc/{pid}/wchan").read_text()
    return "poll" in waits and not waits.startswith("ep_")


def interrupt(process: subprocess.Popen[str]) -> tuple[int, str, float]:
    """Send Ctrl-C once; return status, errors and the seconds until the end."""
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=PATIENCE)
    return process.returncode, told, time.monotonic() - began


def test_ctrl_c_ends_a_command_that_waits_for_the_answer_to_its_submission(
    agent: Rig, tmp_path: Path
) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").write_text("content")
    with stopped(agent.pid):
        process = command("pull", str(tmp_path / "source"), str(tmp_path / "out"))
        wait_until(lambda: waits_for_a_socket(process.pid))
        status, told, seconds = interrupt(process)
        assert (status, seconds < AT_ONCE) == (130, True), told
        assert "does not begin the job" in told
        assert "nbdata agent stop --now" in told
    assert agent.pid
    wait_until(lambda: not HOST.look()[1])
    assert not [job for job in HOST.jobs() if not job.finished or job.state == "DONE"]
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_ctrl_c_ends_a_plan_while_the_agent_does_not_answer(agent: Rig, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    with stopped(agent.pid):
        process = command("pull", str(tmp_path / "source"), str(tmp_path / "out"), "-n")
        wait_until(lambda: waits_for_a_socket(process.pid))
        status, _, seconds = interrupt(process)
        assert (status, seconds < AT_ONCE) == (130, True)


FOLLOW = """
from nbdata.client.hosts import ChoosingHost
from nbdata.verbs.probe import Probe

submit = ChoosingHost.submit

def begun(*arguments, **options):
    job = submit(*arguments, **options)
    print("begun", flush=True)  # the agent has answered
    return job

ChoosingHost.submit = begun

Probe(items=2000, delay=50, tag="followed").run(quiet={quiet})
"""


@pytest.mark.in_ci("False")
@pytest.mark.parametrize("quiet", [False, True])
def test_ctrl_c_ends_a_wait_for_a_job_and_the_agent_cancels_it_once_it_goes_on(
    agent: Rig, quiet: bool
) -> None:
    pid = agent.pid
    process = command(code=FOLLOW.format(quiet=quiet))
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    wait_until(lambda: [job for job in HOST.jobs() if job.state == "RUNNING"])
    with stopped(pid):
        status, told, seconds = interrupt(process)
        assert (status, seconds < AT_ONCE) == (-signal.SIGINT, True), told
        assert f"does not answer (process {pid}), and stops the job once it goes on" in told
    wait_until(lambda: [job.state for job in HOST.jobs()] == ["CANCELLED"])


def test_ctrl_c_does_not_wait_for_a_process_that_starts_the_agent_and_is_stopped(agent: Rig) -> None:
    code = "import time\nfrom nbdata.lock_files import file_lock\nfrom nbdata.runtime import endpoint\n"
    code += "file_lock(endpoint().start).acquire()\nprint('taken', flush=True)\ntime.sleep(1000)"
    starter = command(code=code)
    assert starter.stdout is not None
    assert starter.stdout.readline() == "taken\n"
    try:
        process = command("pull", "s3://nowhere/x", "out")
        wait_until(lambda: "nanosleep" in Path(f"/proc/{process.pid}/wchan").read_text())
        status, _, seconds = interrupt(process)
        assert (status, seconds < AT_ONCE) == (130, True)
    finally:
        starter.kill()
        starter.communicate()


def test_a_client_that_leaves_before_the_answer_begins_no_job(agent: Rig, tmp_path: Path) -> None:
    from nbdata import wire
    from nbdata.client.context import capture

    operation = Probe(items=2000, delay=50, tag="left")
    pid = agent.pid
    with stopped(pid), agent.connected() as sock:
        context = capture(operation).to_dict()
        wire.send(
            sock,
            {"do": "submit", "operation": operation.to_dict(), "context": context, "background": True},
        )
    HOST.submit(Probe(items=1, tag="after"), background=True).wait()
    assert [job.state for job in HOST.jobs()] == ["DONE"], "only the second one"


def test_agent_stop_ends_a_stopped_agent(agent: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    with stopped(agent.pid):
        assert agents.main(["stop"]) == 0
    assert "agents stopped: 1" in capsys.readouterr().out


@pytest.mark.long
def test_agent_stop_kills_an_agent_that_hangs_only_with_now(
    agent: Rig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pid = agent.pid
    HOST.submit(Probe(items=2000, delay=50, tag="hangs"), background=True)
    monkeypatch.setattr(agents, "_ANSWER", 0.5)
    monkeypatch.setattr(agents, "_WAKES", 0.5)
    send = signal.pidfd_send_signal
    monkeypatch.setattr(  # it hangs: to be told to go on does not help
        signal, "pidfd_send_signal", lambda fd, number: None if number == signal.SIGCONT else send(fd, number)
    )
    with stopped(pid):
        with pytest.raises(AgentUnavailable, match="does not answer") as caught:
            stop_all(now=False)
        assert "nbdata agent stop --now" in str(caught.value)
        assert agents.main(["stop", "--now"]) == 0
        assert f"agent {pid}" in (told := capsys.readouterr().out)
        assert "killed because it did not answer" in told
    from tests.client.test_history import clear_up_after_the_killed

    clear_up_after_the_killed()


@pytest.mark.long
def test_agent_stop_refuses_while_jobs_of_a_stopped_agent_run(agent: Rig) -> None:
    job = HOST.submit(Probe(items=2000, delay=50, tag="runs"), background=True)
    with stopped(agent.pid), pytest.raises(BadOption, match="jobs that are not finished"):
        stop_all(now=False)
    job.cancel()


def test_no_other_process_gets_the_signal_of_an_agent(agent: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    from nbdata.client import connection
    from nbdata.runtime import endpoint

    assert agent.pid
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    try:
        monkeypatch.setattr(connection, "peer", lambda sock: (other.pid, None))
        assert agents._signalled(endpoint(), signal.SIGKILL) == 0
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


@pytest.mark.long
def test_the_list_of_transfers_says_that_some_are_missing(agent: Rig) -> None:
    HOST.submit(Probe(items=2000, delay=50, tag="missing"), background=True)
    with stopped(agent.pid):
        assert "an agent does not answer" in repr(nbdata.transfers())
    stop_all(now=True)


LOOP = """
from nbdata.verbs.probe import Probe
from nbdata.operation import slots
job = slots.host().submit(Probe(items=2000, delay=1, lease=True, tag="looped"), background=False)
import weakref
class Loop:
    pass
loop = Loop()
weakref.finalize(loop, job.release)
for item in job.items():
    print("an item", flush=True)
"""


def test_a_loop_that_ctrl_c_ends_and_the_end_of_its_process_do_not_wait_for_the_agent(agent: Rig) -> None:
    pid = agent.pid
    process = command(code=LOOP)
    assert process.stdout is not None
    assert process.stdout.readline() == "an item\n"
    with stopped(pid):
        status, told, seconds = interrupt(process)
        assert (status, seconds < AT_ONCE) == (-signal.SIGINT, True), told
    wait_until(lambda: [job.state for job in HOST.jobs()] == ["CANCELLED"])


def test_the_stop_button_ends_a_cell_and_the_agent_cancels_its_job_once_it_goes_on(
    agent: Rig, tmp_path: Path
) -> None:
    pid = agent.pid
    with Kernel(tmp_path) as kernel:
        kernel.run("%load_ext nbdata\nfrom nbdata.verbs.probe import Probe")
        cell = kernel.start("Probe(items=2000, delay=50, tag='cell').run()")
        wait_until(lambda: [job for job in HOST.jobs() if job.state == "RUNNING"])
        with stopped(pid):
            began = time.monotonic()
            kernel.manager.interrupt_kernel()
            out = kernel.collect(cell)
            assert time.monotonic() - began < AT_ONCE
            assert "stops the job once it goes on" in str(out.error)
            # A kernel that has not begun the cell yet ignores an interrupt.
            magic = kernel.start("open('begun', 'w').close()\n%pull s3://nowhere/x x")
            wait_until((tmp_path / "begun").exists)
            wait_until(lambda: waits_for_a_socket(kernel.manager.provisioner.pid))
            kernel.manager.interrupt_kernel()
            told = str(kernel.collect(magic).error)  # before or after the agent got the job
            assert "does not begin the job" in told or "does not answer" in told
            assert time.monotonic() - began < 2 * AT_ONCE
        wait_until(lambda: [job.state for job in HOST.jobs()] == ["CANCELLED"])
