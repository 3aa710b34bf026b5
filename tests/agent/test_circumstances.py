"""A command gets an agent with the disks, the network and the groups that it has itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata.client.agents import stop_all
from nbdata.client.launch import connect
from nbdata.client.remote import AgentHost
from nbdata.runtime import endpoint, endpoints
from tests.stores.servers import each, ok, serving
from tests.waiting import PATIENCE

NBDATA = str(Path(sys.executable).with_name("nbdata"))
# A group that nobody else is in.
GROUP = 60_001


@pytest.fixture(autouse=True)
def first() -> Iterator[int]:
    """The agent of this process, which serves whoever is like this one: its process id."""
    with connect() as connection:
        yield int(connection.ask({"do": "hello"})["pid"])


def run(command: list[str], *, check: bool = True, **how: object) -> str:
    """Run a command in a folder that all see alike, and return its output; standard error comes with it."""
    done = subprocess.run(
        command, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, **how
    )  # type: ignore[call-overload]
    assert done.returncode == 0 or not check, done.stdout
    return str(done.stdout)


# -- disks ----------------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder in whose place each container has one of its own: ``A``, ``B``. Both have a file of a user's."""
    for name in ("A", "B", "data", "source"):
        (tmp_path / name).mkdir()
    (tmp_path / "A/a.txt").write_text("of A")
    (tmp_path / "B/b.txt").write_text("of B")
    (tmp_path / "source/staged.txt").write_text("staged")
    return tmp_path / "data"


def inside(name: str, data: Path, *words: object) -> str:
    """Run ``nbdata …`` in a container: a mount namespace in which the folder `name` lies over `data`."""
    script = f'mount --bind "{data.parent / name}" "{data}" && exec "$@"'
    return run(["unshare", "--mount", "sh", "-c", script, "sh", NBDATA, *map(str, words)])


@pytest.mark.usefixtures("namespaces", "mounts")
def test_a_command_in_a_container_reads_writes_and_deletes_in_no_other_one(
    data: Path, tmp_path: Path
) -> None:
    """Each of these has its places below a folder that is another one there; the working folder is the same."""
    inside("A", data, "pull", f"{tmp_path}/source/", f"{data}/")
    inside("B", data, "push", f"{data}/", f"{tmp_path}/pushed/")
    assert os.listdir(tmp_path / "pushed") == ["b.txt"]
    inside("B", data, "md5check", "--write", f"{data}/")
    inside("B", data, "cleanup", "--all", f"{data}/")
    assert sorted(os.listdir(tmp_path / "A")) == ["a.txt", "staged.txt"]
    assert sorted(os.listdir(tmp_path / "B")) == ["MD5SUMS", "b.txt"]
    assert os.listdir(data) == []


# -- network --------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.usefixtures("namespaces")
def test_a_command_in_another_network_asks_no_server_of_this_one(tmp_path: Path) -> None:
    """The address is that of this machine itself, which is another one in each network namespace."""
    seen = list[str]()
    with serving(each(lambda _: ok(b"of this network"), seen)) as port:
        words = [NBDATA, "pull", f"http://127.0.0.1:{port}/a.txt", str(tmp_path / "out/")]
        told = run(["unshare", "--net", *words], check=False)
        assert "127.0.0.1" in told
        assert not seen
        run(words)
        assert seen


# -- groups ---------------------------------------------------------------------------------------


@pytest.mark.in_ci("how0")
@pytest.mark.needs("other users")
@pytest.mark.parametrize("how", [{"group": GROUP}, {"extra_groups": [GROUP]}])
def test_files_get_the_group_of_the_command_not_of_one_before(tmp_path: Path, how: dict[str, object]) -> None:
    """The first one is in a shell of newgrp(1), or of a session with more groups."""
    before = len(endpoints())
    (tmp_path / "a.txt").write_text("a")
    run([NBDATA, "pull", str(tmp_path / "a.txt"), f"{tmp_path}/first/"], **how)
    run([NBDATA, "pull", str(tmp_path / "a.txt"), f"{tmp_path}/second/"])
    assert (tmp_path / "first/a.txt").stat().st_gid == how.get("group", os.getegid())
    assert (tmp_path / "second/a.txt").stat().st_gid == os.getegid()
    assert len(endpoints()) == before + 1


# -- one process ----------------------------------------------------------------------------------

CHANGES = """
import ctypes, os, sys, threading
from nbdata import runtime

CLONE_NEWNET = 0x40000000
said = [runtime.agent_id()]

def in_another_network():
    assert ctypes.CDLL(None).unshare(CLONE_NEWNET) == 0
    said.append(runtime.agent_id())

thread = threading.Thread(target=in_another_network)
thread.start()
thread.join()
assert runtime.agent_id() == said[0], "of this thread"
if not os.fork():
    os._exit(runtime.agent_id() != said[0])
assert os.wait()[1] == 0
os.setgroups([60001])
said.append(runtime.agent_id())
os.setegid(60002)
said.append(runtime.agent_id())
os.seteuid(0)
runtime._namespace = {"mnt": 1, "net": 2}.get  # there is no /proc in there
said.append(runtime.agent_id())
os.chroot(sys.argv[1])
said.append(runtime.agent_id())
print(len({*said}), len(said))
"""


@pytest.mark.usefixtures("namespaces")
@pytest.mark.needs("other users")
def test_a_process_that_changes_is_served_by_another_agent(tmp_path: Path) -> None:
    assert run([sys.executable, "-c", CHANGES, str(tmp_path)]).split() == ["6", "6"]


# -- all of them ----------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.needs("other users")
def test_the_agents_and_jobs_of_all_circumstances_are_seen_and_ended(first: int) -> None:
    say = "from nbdata.verbs.probe import Probe; print(Probe(items=1000, delay=20, tag='other').start().id)"
    job_id = run([sys.executable, "-c", say], extra_groups=[GROUP]).strip()
    assert endpoints()[0] == endpoint()
    job = AgentHost().job(job_id)
    assert job.snapshot().state in ("QUEUED", "RUNNING")
    told = run([NBDATA, "agent", "status"])
    assert f"agent {first}  nbdata {nbdata.__version__}, this environment's  serves" in told
    assert "this environment's, for another container or other groups  serves, unfinished jobs: 1" in told
    job.cancel()
    with pytest.raises(nbdata.Cancelled):
        job.wait()
    assert stop_all(now=True) >= 2
    assert endpoints() == []
