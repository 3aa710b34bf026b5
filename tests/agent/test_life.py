"""The agent's life: it starts once, is shared, outlives its clients, ends when idle, and makes way for other builds."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import nbdata
from nbdata.client.agents import stop_all
from nbdata.client.connection import Connection
from nbdata.client.launch import connect
from nbdata.client.remote import AgentHost
from nbdata.errors import AgentUnavailable, BadOption, Cancelled
from nbdata.lock_files import file_lock, held
from nbdata.runtime import Endpoint, endpoint
from nbdata.verbs.probe import Probe
from tests.slow import take
from tests.stores.servers import ok, read_head, serving
from tests.waiting import PATIENCE, wait_until

NBDATA = str(Path(sys.executable).with_name("nbdata"))


@pytest.fixture
def fresh() -> None:
    """Make sure that no agent runs."""
    stop_all(now=True)


def hello() -> dict[str, object]:
    with connect() as connection:
        return connection.ask({"do": "hello"})


def drains(where: Endpoint) -> bool:
    with Connection(where) as connection:
        return bool(connection.ask({"do": "hello"})["draining"])


@pytest.mark.usefixtures("fresh")
def test_clients_that_come_at_once_start_one_agent() -> None:
    with ThreadPoolExecutor(8) as pool:
        pids = set(pool.map(lambda _: hello()["pid"], range(8)))
    assert len(pids) == 1


@pytest.mark.usefixtures("fresh")
def test_stop_names_the_agents_that_it_ended() -> None:
    pid = hello()["pid"]
    said = subprocess.run([NBDATA, "agent", "stop"], capture_output=True, text=True, timeout=PATIENCE).stdout
    assert said.startswith("agents stopped: 1\n")
    assert f"agent {pid}  nbdata {nbdata.__version__}, this environment's  unfinished jobs: 0" in said


def test_a_stale_socket_is_replaced() -> None:
    pid = int(str(hello()["pid"]))
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not held(endpoint().alive))
    assert os.path.exists(endpoint().socket)
    assert hello()["pid"] != pid


def test_the_agent_is_no_child_that_a_waiting_caller_would_wait_for(tmp_path: Path, tree: Path) -> None:
    stop_all(now=True)
    run = subprocess.run(
        [NBDATA, "pull", str(tree), str(tmp_path / "out")], capture_output=True, text=True, timeout=PATIENCE
    )
    assert run.returncode == 0, run.stderr
    assert "5 fetched" in run.stdout
    assert held(endpoint().alive), "the command ended, and the agent did not"


def test_the_agent_lives_in_a_session_of_its_own_with_no_pipe_of_its_clients() -> None:
    pid = hello()["pid"]
    assert os.getsid(int(str(pid))) != os.getsid(0)
    for name in ("0", "1", "2"):
        assert "pipe" not in os.readlink(f"/proc/{pid}/fd/{name}")
    environment = Path(f"/proc/{pid}/environ").read_bytes().decode()
    assert not [line for line in environment.split("\0") if line.startswith(("AWS_", "OBS_", "GOOGLE_"))]


def test_a_working_directory_with_a_module_named_like_pythons_own_does_no_harm(
    tmp_path: Path, tree: Path
) -> None:
    (tmp_path / "queue.py").write_text("raise RuntimeError('not the real one')\n")
    stop_all(now=True)
    run = subprocess.run(
        [NBDATA, "pull", str(tree), "out"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE
    )
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "out" / "a.txt").exists()


def test_an_idle_agent_ends_and_the_next_operation_starts_another(monkeypatch: pytest.MonkeyPatch) -> None:
    stop_all(now=True)
    monkeypatch.setenv("NBDATA_AGENT_IDLE", "0.5")
    pid = hello()["pid"]
    wait_until(lambda: not held(endpoint().alive))
    assert not os.path.exists(endpoint().socket)
    monkeypatch.setenv("NBDATA_AGENT_IDLE", "60")
    assert hello()["pid"] != pid


def test_clients_that_only_look_do_not_keep_an_agent_however_often_they_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop_all(now=True)
    monkeypatch.setenv("NBDATA_AGENT_IDLE", "0.5")
    hello()

    def has_ended() -> bool:
        try:
            with Connection(endpoint()) as connection:
                connection.ask({"do": "list"})
        except OSError:
            return True
        return False

    wait_until(has_ended)


def test_an_agent_that_makes_a_plan_is_not_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_all(now=True)
    monkeypatch.setenv("NBDATA_AGENT_IDLE", "0.5")

    def slowly(connection: socket.socket) -> None:
        while read_head(connection):
            take(2)
            connection.sendall(
                ok(
                    b"<R><IsTruncated>false</IsTruncated><Contents><Key>x/a</Key><Size>1</Size></Contents></R>"
                )
            )

    with serving(slowly) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
        assert AgentHost().plan(nbdata.Pull("s3://bucket/x/", str(tmp_path / "out"))).files == 1
    wait_until(lambda: not held(endpoint().alive))


ENDLESS = """
import sys, nbdata
what, source, target = sys.argv[1:]
nbdata.pull(source, target, dry_run=True) if what == "plan" else nbdata.du(source)
"""


@pytest.mark.in_ci(1)
@pytest.mark.parametrize("what", ["plan", "query"])
def test_what_only_a_killed_process_waited_for_ends(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_all(now=True)
    monkeypatch.setenv("NBDATA_AGENT_IDLE", "0.5")
    pages = 0

    def listing(connection: socket.socket) -> None:
        nonlocal pages
        with contextlib.suppress(OSError):
            while read_head(connection):
                pages += 1
                take(0.02)
                connection.sendall(
                    ok(
                        b"<R><IsTruncated>true</IsTruncated><NextContinuationToken>%d</NextContinuationToken>"
                        b"<Contents><Key>x/%09d</Key><Size>1</Size></Contents></R>" % (pages, pages)
                    )
                )

    with serving(listing) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
        with subprocess.Popen(
            [sys.executable, "-c", ENDLESS, what, "s3://bucket/x/", str(tmp_path / "out")]
        ) as process:
            wait_until(lambda: pages > 20)
            process.kill()
        wait_until(lambda: not held(endpoint().alive))


def test_an_agent_that_ends_leaves_no_rows_of_its_jobs(tree: Path, tmp_path: Path) -> None:
    stop_all(now=True)
    jobs = Path(endpoint().folder, "jobs")
    before = set(jobs.glob("*"))
    nbdata.pull(tree, tmp_path / "out", quiet=True)
    nbdata.pull(tree, tmp_path / "out", dry_run=True)
    assert len(set(jobs.glob("*")) - before) == 2
    stop_all(now=True)
    assert set(jobs.glob("*")) <= before


def test_stop_refuses_while_a_job_runs_and_interrupts_it_when_told_to() -> None:
    job = AgentHost().submit(Probe(items=10_000, delay=50, tag="stop"), background=True)
    with pytest.raises(BadOption, match="not finished"):
        stop_all(now=False)
    assert not job.snapshot().finished
    assert stop_all(now=True) == 1
    with pytest.raises(AgentUnavailable, match="again to resume"):
        job.snapshot()


def test_an_agent_that_dies_is_said_to_be_gone_and_nobody_hangs() -> None:
    job = AgentHost().submit(Probe(items=10_000, delay=50, tag="die"), background=True)
    os.kill(int(str(hello()["pid"])), signal.SIGKILL)
    with pytest.raises(AgentUnavailable, match=r"agent (ended|that had)"):
        job.wait()


def copied(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which Python imports a copy of the package."""
    package = Path(nbdata.__file__).parent
    shutil.copytree(package, tmp_path / "nbdata", ignore=shutil.ignore_patterns("__pycache__"))
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


_HELLO = "from nbdata.client.launch import connect; print(connect().ask({'do': 'hello'})['pid'])"
# A client of an old agent: a job that lasts until a line of input, a second job meanwhile, then the first one's end.
_BEFORE_THE_UPGRADE = """
from nbdata.client.remote import AgentHost
from nbdata.errors import AgentUnavailable
from nbdata.runtime import endpoint
from nbdata.verbs.probe import Probe

old = AgentHost().submit(Probe(items=1, lease=True, tag="old build"), background=True)
where = endpoint()
print(where.folder, where.name, flush=True)
input()
try:
    AgentHost().submit(Probe(items=1, tag="too late"), background=True)
except AgentUnavailable as error:
    print(error, flush=True)
print(len([*old.items()]), old.wait().state, flush=True)
"""


def test_after_an_upgrade_another_agent_serves_and_the_old_one_ends_after_its_last_job(
    tmp_path: Path,
) -> None:
    environment = copied(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", _BEFORE_THE_UPGRADE], env=environment, cwd="/", text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as before:  # fmt: skip
        assert before.stdin is not None
        assert before.stdout is not None
        where = Endpoint(*before.stdout.readline().split())
        (tmp_path / "nbdata" / "sizes.py").touch()
        run = subprocess.run(
            [sys.executable, "-c", _HELLO], env=environment, cwd="/", check=True, timeout=PATIENCE
        )
        assert run.returncode == 0
        wait_until(lambda: drains(where))
        print(file=before.stdin, flush=True)
        assert "upgraded" in before.stdout.readline()
        assert before.stdout.readline() == "1 DONE\n"
    wait_until(lambda: not held(where.alive))
    stop_all(now=True)


@pytest.mark.long
def test_an_agent_of_another_build_elsewhere_runs_beside_this_one(tmp_path: Path) -> None:
    """The other build belongs to a checkout, for example, whose user also has nbdata installed."""
    pid, environment = hello()["pid"], copied(tmp_path)
    for _ in range(3):
        run = subprocess.run(
            [sys.executable, "-c", _HELLO], env=environment, cwd="/", check=True, capture_output=True, text=True,
            timeout=PATIENCE,
        )  # fmt: skip
        assert run.stdout.strip() != str(pid)
        # The other agent may ask this one to retire now or a little later, so ask it here.
        with Connection(endpoint()) as connection:
            assert connection.ask({"do": "stop", "how": "drain"})["unfinished"] == 0
        assert AgentHost().submit(Probe(items=0, tag="beside"), background=True).wait().state == "DONE"
        assert hello() == {**hello(), "pid": pid, "draining": False}
    stop_all(now=True)


@pytest.mark.usefixtures("fresh")
def test_what_agents_left_long_ago_is_removed_by_the_next_one() -> None:
    """Each build and each container leaves files with a name of its own."""
    folder, old = Path(endpoint().folder), time.time() - 8 * 24 * 3600
    names = {age: f"01234567-{digit * 16}" for age, digit in (("old", "a"), ("new", "b"), ("alive", "c"))}
    for age, name in names.items():
        for kind in ("alive", "log", "sock", "start"):
            (folder / f"{name}.{kind}").touch()
            if age != "new":
                os.utime(folder / f"{name}.{kind}", (old, old))
    with file_lock(f"{folder}/{names['alive']}.alive"):
        assert hello()
        wait_until(lambda: not list(folder.glob(f"{names['old']}.*")))
        for age in ("new", "alive"):
            assert len([*folder.glob(f"{names[age]}.*")]) == 4, age
    for path in (path for age in ("new", "alive") for path in folder.glob(f"{names[age]}.*")):
        path.unlink()


@pytest.mark.long
def test_the_first_jobs_of_a_list_are_dropped_not_the_running_ones() -> None:
    host = AgentHost()
    running = host.submit(Probe(items=20_000, delay=50, tag="long"), background=True)
    for number in range(205):
        host.submit(Probe(items=0, tag=f"short {number}"), background=False).wait()
    with connect() as connection:
        ids = [job["id"] for job in connection.ask({"do": "list"})["jobs"]]
    assert running.id in ids
    assert len(ids) <= 202
    assert len(host.jobs()) >= 206, "the others are in the history"
    running.cancel()
    with pytest.raises(Cancelled):
        running.wait()
