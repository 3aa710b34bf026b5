"""A pass over a `SampleLoader` ends with an error if a worker is killed, in any thread and at any moment."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import pickle
import select
import signal
import struct
import termios
import threading
import weakref
from multiprocessing import SimpleQueue, get_context
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.loaders.pytorch import SampleLoader, workers
from tests.waiting import AT_ONCE, PATIENCE, wait_until

pytestmark = pytest.mark.filterwarnings("ignore:.*fork")


def large(sample: dict[str, Any]) -> bytes:
    return sample["bin"] * 400_000  # type: ignore[no-any-return]


def waiting(fd: int) -> int:
    """Return the bytes in a pipe."""
    size = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, size)
    return size[0]


@pytest.mark.long
def test_a_worker_that_is_killed_in_the_middle_of_a_batch_ends_the_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_PATIENCE", 0.5)
    for number in range(8):
        (tmp_path / f"{number}.bin").write_bytes(b"x")
    samples = nbdata.samples(str(tmp_path))
    loader = SampleLoader(
        samples, 1, transform=large, collate_fn=list, num_workers=1, persistent_workers=True
    )
    ends: list[Any] = []

    def train() -> None:
        batches = iter(loader)
        next(batches)
        at: Any = loader._iterator
        wait_until(lambda: waiting(at._worker_result_queue._reader.fileno()) >= 1 << 15)
        os.kill(at._workers[0].pid, signal.SIGKILL)
        try:
            next(batches)
        except RuntimeError as error:
            ends.append(str(error))
        ends.append(len(list(loader)))

    thread = threading.Thread(target=train, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert len(ends) == 2
    assert ends[0].startswith("DataLoader worker (pid")
    assert ends[1] == 8, "the next pass has new workers"


class Iterator:
    """What PyTorch's iterator is to `raise_of`."""

    def __init__(self) -> None:
        self._workers = [get_context("fork").Process(target=os._exit, args=(3,))]
        self._workers[0].start()
        self.shut = False

    def _shutdown_workers(self) -> None:
        self.shut = True


def test_a_connection_that_breaks_because_a_worker_was_killed_names_the_worker() -> None:
    of_it, of_transform = ConnectionResetError("reset"), OSError("Caught OSError in DataLoader worker")
    iterator = Iterator()
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid\(s\) \d+\) was killed") as caught:
        workers.raise_of(iterator, of_it)
    assert caught.value.__cause__ is of_it
    assert iterator.shut
    iterator._workers[0].join()
    with pytest.raises(OSError, match="Caught OSError"):
        workers.raise_of(iterator, of_transform)
    with pytest.raises(ConnectionResetError):
        workers.raise_of(object(), of_it)


def test_half_a_batch_ends_though_another_child_has_a_copy_of_its_pipe() -> None:
    killed = get_context("fork").Process(target=os._exit, args=(3,))
    killed.start()
    queue: Any = SimpleQueue()
    iterator = Iterator()
    at: Any = iterator
    at._worker_result_queue, at._workers_status, at._shutdown = queue, [True], False
    copy = os.dup(queue._writer.fileno())
    os.write(copy, struct.pack("!i", 5 << 20) + b"\x80\x04")  # the beginning of a pickle of 5 MiB
    ends: list[BaseException] = []

    def read() -> None:
        try:
            queue.get()
        except Exception as error:
            ends.append(error)
        at._shutdown = True

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    breaking = threading.Thread(target=workers._break, args=(weakref.ref(iterator), [killed]), daemon=True)
    breaking.start()
    try:
        reader.join(PATIENCE)
        assert [type(error) for error in ends] == [pickle.UnpicklingError]
        breaking.join(PATIENCE)
        assert queue._writer.closed
    finally:
        os.close(copy)
        killed.join()
        iterator._workers[0].join()


def test_a_worker_whose_parent_is_killed_while_it_begins_ends(tmp_path: Path) -> None:
    (tmp_path / "0.bin").write_bytes(b"x")
    reads, writes = os.pipe()

    def killed(_: int) -> None:
        parent = os.getppid()
        os.write(writes, struct.pack("i", os.getpid()))
        os.kill(parent, signal.SIGKILL)
        wait_until(lambda: os.getppid() != parent)

    if not (trainer := os.fork()):
        samples = nbdata.samples(str(tmp_path))
        list(SampleLoader(samples, 1, collate_fn=list, num_workers=1, worker_init_fn=killed))
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        (worker,) = struct.unpack("i", pipe.read(4))
        assert os.waitstatus_to_exitcode(os.waitpid(trainer, 0)[1]) == -signal.SIGKILL
        try:
            assert select.select([pipe], [], [], AT_ONCE)[0], "the worker ends, and closes the pipe"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
