"""Changes samples with a Python function, in forked processes, so that the function may be any closure."""

from __future__ import annotations

import contextlib
import multiprocessing
import queue
import random
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from nbdata.client.mapping.ordered import Sample
from nbdata.errors import BadOption, Cancelled, NbdataError, error_from_dict
from nbdata.formats.encoding import encode
from nbdata.redaction import scrub

__all__ = ["FunctionChanger"]

# Seconds that an idle process has to end by itself.
_GRACE = 2.0
_EXPECTED = "a dict of extension to value, an iterable of such dicts, or None"


class _Worker(NamedTuple):
    """A process, and our end of the pipe to it."""

    process: BaseProcess
    connection: Connection


class FunctionChanger:
    """Worker processes that call a function; a `nbdata.client.mapping.ordered.Changer`.

    The processes are forked at construction, so construct it before any threads start.

    Parameters
    ----------
    function : callable
        Takes a sample; returns one, an iterable of samples, or None.
    workers : int
        How many processes to fork.
    seed : int
        Random numbers in the function depend only on this seed and on the key of the sample.
    """

    def __init__(self, function: Callable[[Sample], object], workers: int, seed: int) -> None:
        self.workers, self._seed = workers, seed
        self._lock, self._stopped = threading.Lock(), False
        self._all: list[_Worker] = []
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        try:
            for _ in range(workers):
                self._begin(function)
        except BaseException:
            self.stop()
            raise

    def _begin(self, function: Callable[[Sample], object]) -> None:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        # A process that inherited an end of another one's pipe would not see it end.
        inherited = [ours, *(worker.connection for worker in self._all)]
        process = context.Process(
            target=_serve, args=(function, self._seed, theirs, inherited), name="nbdata-map", daemon=True
        )
        with theirs, warnings.catch_warnings():
            # Python warns about forks beside threads; these processes use nothing that our threads may hold.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        worker = _Worker(process, ours)
        self._all.append(worker)
        self._idle.put(worker)

    def change(self, sample: Sample) -> list[Sample]:
        """See `Changer`."""
        key = sample["__key__"]
        try:
            worker = self._idle.get_nowait()  # there is one for each thread
        except queue.Empty:
            raise Cancelled("--map has ended") from None
        try:
            worker.connection.send(sample)
            error, trace, samples = worker.connection.recv()
        except (EOFError, OSError) as broken:
            worker.connection.close()
            raise self._died(worker, key) from broken
        self._idle.put(worker)
        if error is not None:
            raise error_from_dict(error) from (_RemoteError(trace) if trace else None)
        return list(samples)

    def _died(self, worker: _Worker, key: str) -> NbdataError:
        with self._lock:
            if self._stopped:
                return Cancelled("--map has ended")
        worker.process.join(_GRACE)
        return NbdataError(
            f"a process of --map ended with status {worker.process.exitcode} while it changed the sample {key!r}",
            remedy="If it was killed for its memory, use fewer --map-workers",
        )

    def stop(self) -> None:
        """See `Changer`; waits until all processes are gone."""
        with self._lock:
            self._stopped = True
        idle = set[int]()
        with contextlib.suppress(queue.Empty):
            while True:
                worker = self._idle.get_nowait()
                idle.add(id(worker))
                worker.connection.close()  # this ends it
        for worker in self._all:
            if id(worker) not in idle:
                worker.process.kill()
        for worker in self._all:
            worker.process.join(_GRACE)
            if worker.process.exitcode is None:
                worker.process.kill()
                worker.process.join()
            worker.process.close()
        self._all.clear()


class _RemoteError(Exception):
    """The traceback of a function's error, as the process that called it shows it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._text = text

    def __str__(self) -> str:
        return f"\n{self._text}"


def _serve(
    function: Callable[[Sample], object], seed: int, connection: Connection, inherited: Iterable[Connection]
) -> None:
    """Answer until the pipe ends, each time with an error as data, its traceback, and the new samples."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # our parent gets it, and ends us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in inherited:
        other.close()
    with contextlib.suppress(EOFError, OSError):
        while True:
            sample = connection.recv()
            _sow(f"{seed} {sample['__key__']}")
            connection.send(_answer(function, sample))


def _sow(text: str) -> None:
    """Seed the global random numbers of Python and of loaded libraries: a fork inherits those of its parent."""
    random.seed(text)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(random.getrandbits(32))
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(random.getrandbits(63))


def _answer(
    function: Callable[[Sample], object], sample: Sample
) -> tuple[dict[str, Any] | None, str, list[Sample]]:
    key = sample["__key__"]
    try:
        made = _several(function(sample))
    except BaseException as error:  # after any error of the function, the next sample may succeed
        where = traceback.extract_tb(error.__traceback__)[-1]
        error_of_function = NbdataError(
            f"--map: the function failed for the sample {key!r}: {type(error).__name__}: {error} "
            f"({where.filename}, line {where.lineno})",
            remedy="To leave a sample out, return None",
        )
        return error_of_function.to_dict(), scrub("".join(traceback.format_exception(error))), []
    try:
        return None, "", _encoded(key, made)
    except NbdataError as error:
        return error.to_dict(), "", []


def _several(made: object) -> list[object]:
    """Return a function's result as a list; runs a generator to its end."""
    if made is None:
        return []
    if isinstance(made, (Mapping, str, bytes)) or not isinstance(made, Iterable):
        return [made]
    return list(made)


def _encoded(key: str, made: list[object]) -> list[Sample]:
    """Return the samples with their fields as bytes; a single sample keeps the key of its origin by default."""
    samples, keys = list[Sample](), set[str]()
    for one in made:
        if not isinstance(one, Mapping) or not all(isinstance(name, str) for name in one):
            raise BadOption(
                f"--map: the function returned something else for the sample {key!r}",
                expected=_EXPECTED,
                got=type(one).__name__,
            )
        own = one.get("__key__", key if len(made) == 1 else None)
        if not isinstance(own, str) or not own:
            raise BadOption(
                f"--map: a sample that the function made of {key!r} has no key",
                expected='a str that is not empty as "__key__"',
            )
        if own in keys:
            raise BadOption(
                f"--map: the function made two samples with the key {own!r} of {key!r}",
                remedy='Give each another "__key__"',
            )
        keys.add(own)
        fields = {
            name: bytes(encode(own, name, value, {})) for name, value in one.items() if name[:2] != "__"
        }
        samples.append({"__key__": own, **fields})
    return samples
