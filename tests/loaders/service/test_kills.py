"""A kill of the service, of a consumer or of a worker loses no batch, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import itertools
import json
import multiprocessing
import os
import random
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.errors import BadOption
from nbdata.loaders.service import Client, serve, serving
from nbdata.loaders.service.address import Address
from nbdata.runtime import runtime_folder
from tests.loaders.service.loaders import Numbers, number_of
from tests.loaders.service.programs import Program
from tests.waiting import PATIENCE, wait_until

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


def test_after_a_restart_what_one_consumer_has_used_goes_to_no_other(tmp_path: Path) -> None:
    options, got = {"state": str(tmp_path / "state")}, list[int]()
    with contextlib.ExitStack() as stack:
        with serve(Numbers(COUNT), **options) as service:
            slow = stack.enter_context(Client(service.address, ahead=1))
            batches = iter(slow)
            assert number_of(next(batches)) == 0
        with serve(Numbers(COUNT), **options) as service:  # no other than after a kill
            fast = stack.enter_context(Client(service.address, ahead=9))
            rest = threading.Thread(target=lambda: got.extend(map(number_of, fast)))
            rest.start()
            wait_until(lambda: len(got) >= COUNT - 1)
            assert list(batches) == []
            rest.join()
    assert got == list(range(1, COUNT))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_after_a_kill_of_the_service_no_batch_of_one_consumer_goes_to_another(
    seed: int, tmp_path: Path
) -> None:
    draw, name = random.Random(seed), f"two-{seed}"
    options = {"state": str(tmp_path / "state"), "ahead": draw.choice([1, 200_000])}
    got: list[int] = []
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(served(name, **options))
        slow = stack.enter_context(Client(service.line(), ahead=2))
        fast = stack.enter_context(Client(address_of(name), ahead=draw.randint(1, 3)))
        batches = iter(slow)
        mine = [number_of(next(batches)) for _ in range(draw.randint(1, 3))]
        rest = threading.Thread(target=lambda: got.extend(map(number_of, fast)))
        if draw.random() < 0.5:
            got += [number_of(next(iter(fast))) for _ in range(3)]
        service.kill()
        service = stack.enter_context(served(name, **options))
        assert service.line()
        rest.start()
        # The trainer computes meanwhile: it has one batch in its hand, and perhaps another one.
        wait_until(lambda: len(got) >= COUNT - len(mine) - 1 or not rest.is_alive())
        mine += map(number_of, batches)
        rest.join()
    assert sorted(got + mine) == list(range(COUNT))


def test_the_file_of_the_state_says_who_gets_a_batch_before_that_is_sent(tmp_path: Path) -> None:
    path, gate, got = tmp_path / "state", threading.Event(), list[int]()

    class Gated(Numbers):
        def __iter__(self) -> Iterator[dict[str, Any]]:
            for batch in super().__iter__():
                assert batch["n"][0] != 1 or gate.wait(PATIENCE)
                yield batch

    with serve(Gated(3), state=str(path)) as service, Client(service.address, ahead=1) as one:
        batches = iter(one)
        assert number_of(next(batches)) == 0
        thread = threading.Thread(target=lambda: got.append(number_of(next(batches))))
        thread.start()
        wait_until(lambda: json.loads(path.read_text())["first"] == 1)
        gate.set()
        thread.join()
        assert got == [1]
        assert list(json.loads(path.read_text())["out"].values()) == [[1]]


def test_a_consumer_leaves_once_the_file_of_the_state_has_what_it_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, early = threading.Event(), list[bool]()
    with serve(Numbers(3), state=str(tmp_path / "state")) as service:
        one = Client(service.address)
        assert number_of(next(iter(one))) == 0
        write = service._making.write_state
        monkeypatch.setattr(service._making, "write_state", lambda: (early.append(left.wait(0.3)), write()))
        one.close()
        left.set()
        wait_until(lambda: early)
    assert early[0] is False
    assert json.loads((tmp_path / "state").read_text())["first"] == 1


@pytest.mark.long
def test_after_a_kill_of_the_service_no_consumer_of_a_broadcast_misses_a_batch(tmp_path: Path) -> None:
    options = {"state": str(tmp_path / "state"), "mode": "broadcast", "consumers": 2, "ahead": 200_000}
    got: list[list[int]] = [[], []]
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(served("all", **options))
        service.line()
        slow, fast = (stack.enter_context(Client(address_of("all"), ahead=1)) for _ in range(2))
        rest = threading.Thread(target=lambda: got[1].extend(map(number_of, fast)))
        rest.start()
        batches = iter(slow)
        got[0] += [number_of(next(batches)) for _ in range(3)]
        wait_until(lambda: len(got[1]) >= 4)
        service.kill()
        service = stack.enter_context(served("all", **options))
        assert service.line()
        wait_until(lambda: len(got[1]) >= 6)
        got[0] += map(number_of, batches)
        rest.join()
    assert got == 2 * [list(range(COUNT))]


def test_the_batches_of_a_consumer_that_does_not_come_back_are_dealt_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, count = tmp_path / "state", 6
    with serve(Numbers(count), state=str(path)) as service, Client(service.address, ahead=1) as one:
        batches = iter(one)
        assert [number_of(next(batches)) for _ in range(2)] == [0, 1]
        (held,) = json.loads(path.read_text())["out"].values()
        assert held == [1]
    state = json.loads(path.read_text())
    assert (state["first"], state["out"]) == (2, {}), "whoever says goodbye is not waited for"
    path.write_text(json.dumps({**state, "out": {"gone": [3, 4]}}))
    monkeypatch.setattr(serving, "ABSENT", PATIENCE)
    with serve(Numbers(count), state=str(path)) as service, Client(service.address) as one:
        batches = iter(one)
        assert [number_of(next(batches)) for _ in range(2)] == [2, 5]
        service._serving._absent_until = 0.0
        service._serving.wake()
        assert [number_of(batch) for batch in batches] == [3, 4]


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


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "[]", '{"version": 1}'),
        '{"version": 1, "service": "a", "turn": 1, "first": 0, "done": [], "loader": {}, "out": {"b": 1}}',
    ],
)
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
        three = [stack.enter_context(Program("consume", address, 1)) for _ in range(3)]
        theirs = [
            [int(killed.line()) for _ in _stepped(killed, steps)]
            for killed, steps in ((killed, draw.randint(1, 4)) for killed in three)
        ]
        with Client(address, ahead=1) as one:
            batches, mine = iter(one), list[int]()
            for killed in three:
                mine += [number_of(next(batches)) for _ in range(draw.randint(1, 2))]
                killed.kill()
            mine += map(number_of, batches)
    counts = Counter([*itertools.chain(*theirs), *mine])
    assert set(counts) == set(range(COUNT))
    # What they asked for last may not have reached the service.
    last = [number for held in theirs for number in held[-2:]]
    assert {number for number, times in counts.items() if times > 1} <= set(last)
    assert {held[-1] for held in theirs} <= set(mine), "the batch in a hand is dealt again"


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
import torch

# Of tensors a worker sends only where they are; of many bytes, a part until they are asked for.
VALUES = {"bytes": lambda data: data, "tensors": lambda data: torch.zeros(5000), "many": lambda data: 500 * data}

def keyed(sample):
    return {"key": int(sample["__key__"]), "pid": os.getpid(), "x": VALUES[sys.argv[2]](sample["bin"])}

if __name__ == "__main__":
    samples = nbdata.samples(sys.argv[1])
    options = {"persistent_workers": len(sys.argv) > 3}
    loader = SampleLoader(samples, 2, transform=keyed, collate_fn=list, num_workers=2, ahead=2, **options)
    with serve(loader, name="worker", ahead=1000) as service:
        print(service.address, flush=True)
        sys.stdin.read()  # which holds the lock of sys.stdin while workers are forked
"""


@pytest.mark.filterwarnings("ignore:.*fork")
def test_after_a_kill_of_a_worker_each_batch_is_used_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

    from nbdata.loaders.pytorch import SampleLoader

    # Outside of the main thread PyTorch looks every five seconds whether workers live.
    monkeypatch.setattr(_MultiProcessingDataLoaderIter._try_get_data, "__defaults__", (0.1,))
    for number in range(60):
        (tmp_path / f"{number:04}.bin").write_bytes(bytes(600))
    samples = nbdata.samples(str(tmp_path))
    loader = SampleLoader(samples, 2, transform=_with_worker, collate_fn=list, num_workers=2, ahead=2)
    with serve(loader, ahead=1) as service, Client(service.address, ahead=1) as one:
        got, kills, old = list[int](), 0, set[int]()
        for batch in one:
            got += [key for key, _ in batch]
            if (worker := batch[0][1]) not in old and kills < 3:
                old |= {child.pid for child in multiprocessing.active_children() if child.pid is not None}
                os.kill(worker, signal.SIGKILL)
                kills += 1
        assert kills == 3
    assert got == list(range(60))


def _with_worker(sample: dict[str, Any]) -> tuple[int, int]:
    return int(sample["__key__"]), os.getpid()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["bytes", "tensors", "many"])
def test_twenty_kills_of_workers_lose_nothing(kind: str, tmp_path: Path) -> None:
    _worker_killed(tmp_path, list(range(3, 63, 3)), kind)


@pytest.mark.long
def test_after_a_kill_of_a_persistent_worker_each_batch_is_used_once(tmp_path: Path) -> None:
    _worker_killed(tmp_path, [5], "bytes", "persistent")


def _worker_killed(tmp_path: Path, after: list[int], *options: str) -> None:
    (tmp_path / "data").mkdir()
    count = 2 * max(after) + 20
    for number in range(count):
        (tmp_path / f"data/{number:04}.bin").write_bytes(os.urandom(600))
    script = tmp_path / "trainer.py"
    script.write_text(TRAINER)
    command = [sys.executable, str(script), str(tmp_path / "data"), *(options or ["bytes"])]
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


@pytest.mark.long
@pytest.mark.parametrize("mode", ["share", "broadcast"])
@pytest.mark.parametrize("listen", ["ipc", "tcp://127.0.0.1:0"])
def test_a_consumer_goes_on_after_a_thousand_ctrl_c(mode: str, listen: str) -> None:
    options = {"mode": mode, "listen": listen, "ahead": 200_000}
    with (
        served(f"interrupted-{mode}", **options) as service,
        Program("interrupted", service.line(), 1000) as program,
    ):
        times = {(epoch, number): count for epoch, number, count in json.loads(program.line())}
    epochs = range(max(epoch for epoch, _ in times))
    assert len(epochs) > 3
    assert max(times.values()) == 1
    # One may be lost between the last step of the client and the first of the loop.
    assert len({(epoch, number) for epoch in epochs for number in range(COUNT)} - {*times}) <= 5


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


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_worker_gets_no_standard_input_that_the_trainer_may_be_reading() -> None:
    before, of_worker = sys.stdin, list[int]()

    def has_it() -> int:
        if not (child := os.fork()):
            os._exit(int(sys.stdin is before))
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    class Forking(Numbers):
        def __iter__(self) -> Iterator[dict[str, Any]]:
            of_worker.append(has_it())
            return super().__iter__()

    with serve(Forking(3)):
        assert has_it(), "only workers lose it"
    assert of_worker == [0]


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
