"""Notices that a worker of a DataLoader, or its parent, was killed, where PyTorch hangs or raises another error."""

from __future__ import annotations

import contextlib
import os
import select
import time
import weakref
from collections.abc import Callable
from multiprocessing import connection
from typing import Any, NoReturn

from nbdata.ending import Daemon

__all__ = ["Beginning", "are_alive", "raise_of", "watch"]

# Seconds between two looks; until PyTorch must have noticed a death, for which it looks every 5; and until a process
# whose connection has broken must have ended.
_LOOK, _PATIENCE, _DYING = 0.2, 8.0, 1.0
# What is written into the pipe of a batch that will not come to its end.
_ZEROS = bytes(1 << 16)


class Beginning:
    """A ``worker_init_fn`` that ends a worker whose parent was killed while it began.

    PyTorch looks for the parent only after this, and would take for it whoever adopted the worker, which would stay for
    ever. A worker that was not forked has another parent, so it is left alone.

    Parameters
    ----------
    init : callable or None
        Called before.
    parent : int or None
        The process that forks the workers.
    """

    def __init__(self, init: Callable[[int], None] | None, parent: int | None) -> None:
        self._init, self._parent = init, parent

    def __call__(self, worker: int) -> None:
        if self._init is not None:
            self._init(worker)
        if self._parent not in (None, os.getppid()):
            os._exit(1)

    def __reduce__(self) -> tuple[Any, ...]:
        return Beginning, (self._init, None)


def watch(iterator: Any) -> None:
    """Have the pass over a DataLoader fail, instead of waiting forever, if a worker is killed in the middle of a batch.

    The pass would wait for the rest of the batch, and the other workers for the lock that the dead one held. PyTorch
    interrupts that by a signal, but only in the main thread.
    """
    if workers := getattr(iterator, "_workers", None):
        Daemon(_watch, weakref.ref(iterator), list(workers), name="loader-workers").start()


def _watch(iterator: weakref.ref[Any], workers: list[Any]) -> None:
    sentinels = [worker.sentinel for worker in workers]
    while not connection.wait(sentinels, _LOOK):
        if _has_noticed(iterator()):
            return
    until = time.monotonic() + _PATIENCE
    while not _has_noticed(iterator()):
        if time.monotonic() > until:
            _break(iterator, workers)
            return
        time.sleep(_LOOK)


def _has_noticed(iterator: Any) -> bool:
    return iterator is None or iterator._shutdown or not all(iterator._workers_status)


def _break(iterator: weakref.ref[Any], workers: list[Any]) -> None:
    """End the workers, and the batch in the pipe: with zeros, which no reader takes for the end of a pickle.

    The end of the pipe would not come while another child of this process has a copy of it.
    """
    for worker in workers:
        worker.kill()
    for worker in workers:
        connection.wait([worker.sentinel], _DYING)
    if (of_it := iterator()) is None:
        return
    writer, of_it = of_it._worker_result_queue._writer, None
    with writer:
        os.set_blocking(writer.fileno(), False)
        poller = select.poll()
        poller.register(writer, select.POLLOUT)
        while not _has_noticed(iterator()):
            if poller.poll(1000 * _LOOK):
                with contextlib.suppress(BlockingIOError, BrokenPipeError):
                    os.write(writer.fileno(), _ZEROS)


def are_alive(iterator: Any) -> bool:
    """False if a worker of this iterator has ended."""
    return all(worker.is_alive() for worker in getattr(iterator, "_workers", ()))


def raise_of(iterator: Any, error: Exception) -> NoReturn:
    """Raise an error of a pass; if a worker was killed meanwhile, that of PyTorch for it.

    Tensors come over a connection to the worker, which breaks a moment before the worker has ended.
    """
    workers = {worker.sentinel: worker for worker in getattr(iterator, "_workers", ())}
    if str(error).startswith("Caught "):  # by a worker
        raise error
    ended = connection.wait([*workers], _DYING) if workers else []
    if not ended:
        raise error
    iterator._shutdown_workers()  # else the workers of the next pass would do that, in their copies of it
    if str(error).startswith("DataLoader worker (pid"):
        raise error
    pids = ", ".join(str(worker.pid) for sentinel, worker in workers.items() if sentinel in ended)
    raise RuntimeError(f"DataLoader worker (pid(s) {pids}) was killed") from error
