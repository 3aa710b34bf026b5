"""A kill of the service, of a consumer or of a worker loses no batch, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbdata.errors import BadOption
from nbdata.loaders.service import Client, serve
from nbdata.loaders.service.address import Address
from nbdata.runtime import runtime_folder
from tests.loaders.service.loaders import Numbers, number_of
from tests.loaders.service.programs import Program
from tests.waiting import PATIENCE

COUNT = 24


@contextlib.contextmanager
def served(name: str, count: int = COUNT, **options: Any) -> Iterator[Program]:
    """A service in a process of its own; its address is the first line."""
    with Program("serve", name, count, json.dumps(options)) as program:
        yield program


def address_of(name: str) -> str:
    return os.path.join(runtime_folder(), "services", f"{name}.json")


def times(long: int) -> Any:
    """Run a test once, and with the mark `long` that often."""
    return pytest.mark.parametrize(
        "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, long))]
    )


@times(20)
def test_after_a_kill_of_the_service_each_batch_is_used_once(seed: int, tmp_path: Path) -> None:
    draw, name, options = random.Random(seed), f"kill-{seed}", {"state": str(tmp_path / "state")}
    got: list[int] = []
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(served(name, **options))
        one = stack.enter_context(Client(service.line(), ahead=draw.randint(1, 4)))
        batches = iter(one)
        for _ in range(3):
            got += [number_of(next(batches)) for _ in range(draw.randint(1, 6))]
            service.kill()
            service = stack.enter_context(served(name, **options))
            assert service.line() == address_of(name)
        got += map(number_of, batches)
        assert got == list(range(COUNT))
        assert [number_of(batch) for batch in one] == list(range(COUNT)), "the next epoch"
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o600
    assert {path.name for path in tmp_path.iterdir()} <= {"state", "state.new"}


def test_the_file_of_the_state_is_there_before_the_first_batch(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with serve(Numbers(COUNT), state=str(state)) as service, Client(service.address) as one:
        assert number_of(next(iter(one))) == 0
        assert json.loads(state.read_text())["first"] == 0


def test_what_was_reported_to_a_service_that_was_killed_is_reported_to_the_next(tmp_path: Path) -> None:
    options = {"state": str(tmp_path / "state")}
    with served("told", **options) as service, Client(service.line(), ahead=1) as one:
        batches = iter(one)
        assert number_of(next(batches)) == 0
        service.kill()
        with served("told", **options) as service:
            service.line()
            assert [number_of(batch) for batch in batches] == list(range(1, COUNT))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 1}'])
def test_a_file_that_has_no_state_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text(text)
    with pytest.raises(BadOption, match=r"no (file|state) of a"):
        serve(Numbers(3), state=str(path))
    assert path.read_text() == text
    path.unlink()
    path.symlink_to(tmp_path / "other")
    with pytest.raises(BadOption, match="no file of a service's state"):
        serve(Numbers(3), state=str(path))
    with pytest.raises(BadOption, match="no state_dict"):
        serve([{"a": 1}], state=str(tmp_path / "new"))


@times(20)
def test_after_a_kill_of_a_consumer_others_get_what_it_had_not_used(seed: int) -> None:
    draw, name = random.Random(seed), f"killed-{seed}"
    with served(name, ahead=1 << 20) as service, contextlib.ExitStack() as stack:
        address = service.line()
        killed = stack.enter_context(Program("consume", address, 1))
        steps = draw.randint(1, 8)
        theirs = [int(killed.line()) for _ in _stepped(killed, steps)]
        with Client(address) as one:
            batches = iter(one)
            mine = [number_of(next(batches)) for _ in range(draw.randint(1, 6))]
            killed.kill()
            mine += map(number_of, batches)
    counts = Counter(theirs + mine)
    assert set(counts) == set(range(COUNT))
    # What it asked for last may not have reached the service.
    assert {number for number, times in counts.items() if times > 1} <= set(theirs[-2:])
    assert theirs[-1] in mine, "the batch in its hand is dealt again"


def _stepped(program: Program, steps: int) -> Iterator[int]:
    for step in range(steps):
        if step:
            program.step()
        yield step


def test_after_a_kill_of_a_consumer_a_broadcast_goes_on() -> None:
    with (
        served("wide", mode="broadcast", consumers=2, ahead=200_000) as service,
        contextlib.ExitStack() as stack,
    ):
        address = service.line()
        killed = stack.enter_context(Program("consume", address, 1))
        with Client(address) as one:
            batches = iter(one)
            mine = [number_of(next(batches))]
            assert killed.line() == "0"
            killed.kill()
            assert mine + [number_of(batch) for batch in batches] == list(range(COUNT))


TRAINER = """
import sys
from pathlib import Path
import nbdata
from nbdata.loaders.pytorch import SampleLoader
from nbdata.loaders.service import serve
import os

def keyed(sample):
    return {"key": int(sample["__key__"]), "pid": os.getpid(), "x": sample["bin"]}

if __name__ == "__main__":
    samples = nbdata.samples(sys.argv[1])
    loader = SampleLoader(samples, 2, transform=keyed, collate_fn=list, num_workers=2, ahead=2)
    with serve(loader, name="worker", ahead=1000) as service:
        print(service.address, flush=True)
        os.read(0, 1)  # a worker that is forked meanwhile would wait for the lock of sys.stdin
"""


def test_after_a_kill_of_a_worker_each_batch_is_used_once(tmp_path: Path) -> None:
    _worker_killed(tmp_path, [5])


@pytest.mark.long
def test_twenty_kills_of_workers_lose_nothing(tmp_path: Path) -> None:
    _worker_killed(tmp_path, list(range(3, 63, 3)))


def _worker_killed(tmp_path: Path, after: list[int]) -> None:
    (tmp_path / "data").mkdir()
    count = 2 * max(after) + 20
    for number in range(count):
        (tmp_path / f"data/{number:04}.bin").write_bytes(os.urandom(600))
    script = tmp_path / "trainer.py"
    script.write_text(TRAINER)
    command = [sys.executable, str(script), str(tmp_path / "data")]
    got: list[int] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        assert service.stdin is not None
        try:
            with Client(service.stdout.readline().strip()) as one:
                for step, batch in enumerate(one):
                    got += [sample["key"] for sample in batch]
                    if step in after:
                        os.kill(batch[0]["pid"], signal.SIGKILL)
        finally:
            service.stdin.close()
            service.wait(PATIENCE)
    assert got == list(range(count))


def test_a_service_that_is_killed_is_started_again_under_its_name_and_leaves_nothing() -> None:
    with served("again") as service:
        address = service.line()
        with Client(address) as one:
            batches = iter(one)
            assert number_of(next(batches)) == 0
            service.kill()
            assert Path(address).exists()
            with served("other") as other:
                other.line()
                assert not Path(address).exists(), "the next service removes what a killed one left"
            with served("again", listen="tcp://127.0.0.1:0") as again:
                assert again.line() == address
                # It has another state and other keys: the pass begins anew. What was here already may come before.
                got = [number_of(batch) for batch in batches]
                assert got[-COUNT:] == list(range(COUNT))
                assert got[:-COUNT] in ([], [1], [1, 2])
    assert not list(Path(address).parent.glob("again.[js]*"))


def test_ctrl_c_ends_the_command_and_leaves_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for number in range(12):
        (data / f"{number:04}.bin").write_bytes(os.urandom(600))
    (tmp_path / "own.py").write_text("def load(sample):\n    return int(sample['__key__'])\n")
    command = [str(Path(sys.executable).with_name("nbdata")), "serve-samples", str(data), "--batch", "3"]
    more = ["--transform", "own:load", "--workers", "1", "--name", "command", "--state", "state"]
    with subprocess.Popen(
        [*command, *more], cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as service:
        assert service.stdout is not None
        try:
            assert service.stdout.readline() == f"Client({address_of('command')!r})\n"
            with Client(address_of("command")) as one:
                assert [batch.tolist() for batch in one] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
                assert next(iter(one)).tolist() == [0, 1, 2]
        finally:
            os.killpg(service.pid, signal.SIGINT)
        assert service.wait(PATIENCE) == 130
    with pytest.raises(ProcessLookupError):
        os.killpg(service.pid, 0)
    assert not list(Path(address_of("command")).parent.glob("command.[js]*"))


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_worker_keeps_no_socket_of_the_service_which_would_outlive_it() -> None:
    for listen in ("ipc", "tcp://127.0.0.1:0"):
        with serve(Numbers(3), listen=listen) as service, Client(service.address) as one:
            assert number_of(next(iter(one))) == 0
            endpoint = Address.read(service.address).endpoint
            at = endpoint.removeprefix("ipc://") if listen == "ipc" else int(endpoint.rpartition(":")[2])
            assert len(_sockets_at(at)) == 2, "the one that listens, and the consumer's"
            if not (child := os.fork()):
                os._exit(len(_sockets_at(at)))
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _sockets_at(at: str | int) -> list[int]:
    """Return the descriptors of this process's sockets with this path or port at their own end."""
    found = []
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                continue
            with socket.socket(fileno=os.dup(fd)) as copy:
                name = copy.getsockname()
            if name and (name if isinstance(name, str) else name[1]) == at:
                found.append(fd)
    return found
