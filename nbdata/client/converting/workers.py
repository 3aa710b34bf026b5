"""Processes that each write one file of a split at a time; if one ends early for any reason, that is an error."""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from nbdata.client.converting.layout import Part, SplitPlan
from nbdata.client.records.writer import FileWriter
from nbdata.errors import NbdataError, error_from_dict
from nbdata.formats.ffrecord import head_size

__all__ = ["Written", "write_parts"]

# Seconds between two progress messages of a process.
_SAID_EVERY = 0.25
# Bytes to reserve at a time, if samples are larger than the first ones.
_STEP = 8 << 20
# Seconds that a process has to end by itself.
_GRACE = 2.0


class Written(NamedTuple):
    """The progress of a file.

    Attributes
    ----------
    split, part : str
    samples, bytes : int
        Since the previous message.
    size : int or None
        Size of the file, once it is whole.
    wants : int
        Bytes to reserve before the process continues.
    """

    split: str
    part: str
    samples: int
    bytes: int
    size: int | None = None
    wants: int = 0


class _Worker(NamedTuple):
    process: BaseProcess
    connection: Connection


def write_parts(plans: Sequence[SplitPlan], workers: int) -> Iterator[Written]:
    """Write all missing parts; yield progress and how much disk it `wants`. Taking the next item grants that.

    Parameters
    ----------
    plans : sequence of SplitPlan
        Plans that have begun.
    workers : int
        Most processes at a time.

    Raises
    ------
    NbdataError
        If a sample or the disk fails, or a process died; the others are ended then.
    """
    tasks = deque((number, part) for number, plan in enumerate(plans) for part in plan.missing)
    busy: dict[Connection, tuple[_Worker, SplitPlan, Part]] = {}
    every: list[_Worker] = []
    try:
        for _ in range(min(workers, len(tasks))):
            worker = _begin(plans, [one.connection for one in every])
            every.append(worker)
            busy[worker.connection] = _given(worker, plans, *tasks.popleft())
        while busy:
            for connection in wait(list(busy)):
                assert isinstance(connection, Connection)
                worker, plan, part = busy[connection]
                try:
                    message = connection.recv()
                except (EOFError, OSError) as broken:
                    raise _died(worker, plan, part) from broken
                if isinstance(message, dict):
                    raise error_from_dict(message)
                yield message
                if message.wants:
                    connection.send(message.wants)
                if message.size is None:
                    continue
                del busy[connection]
                if tasks:
                    busy[connection] = _given(worker, plans, *tasks.popleft())
                else:
                    connection.close()  # this ends it
        _refuse_failed(every)
    finally:
        for worker in every:
            if worker.connection in busy:
                worker.process.kill()
        for worker in every:
            worker.process.join(_GRACE)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()


def _begin(plans: Sequence[SplitPlan], inherited: list[Connection]) -> _Worker:
    """Fork a process, so that the data sets may be any objects and are in memory only once."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    # A process that inherited an end of another one's pipe would not see it end.
    process = context.Process(target=_serve, args=(plans, theirs, [ours, *inherited]), name="nbdata-convert")
    with theirs, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # libraries of the caller may have threads
        process.start()
    return _Worker(process, ours)


def _given(
    worker: _Worker, plans: Sequence[SplitPlan], number: int, part: Part
) -> tuple[_Worker, SplitPlan, Part]:
    worker.connection.send((number, part))
    return worker, plans[number], part


def _died(worker: _Worker, plan: SplitPlan, part: Part) -> NbdataError:
    worker.process.join(_GRACE)
    code = worker.process.exitcode
    how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with status {code}"
    return NbdataError(
        f"the process that wrote {part.name} of split {plan.split.name!r} {how} amid samples "
        f"{part.start:,} to {part.stop - 1:,}",
        remedy="If it was killed for its memory, use fewer --workers. Run it again to resume",
    )


def _refuse_failed(workers: Sequence[_Worker]) -> None:
    """Raise NbdataError if a process failed after its last file."""
    for worker in workers:
        worker.process.join(_GRACE)
        code = worker.process.exitcode
        if code:
            raise NbdataError(
                f"a process ended with status {code} after its last file",
                remedy="Look at what DATASET.py does when Python ends; run it again to resume",
            )


def _serve(plans: Sequence[SplitPlan], connection: Connection, inherited: list[Connection]) -> None:
    """Write parts until the pipe ends; answer each with `Written`, or an error as data."""
    for other in inherited:
        other.close()
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)  # one processor per process, and the threads from before the fork are gone
    while True:
        try:
            number, part = connection.recv()
        except EOFError:
            return
        try:
            _write(plans[number], part, connection)
        except NbdataError as error:
            connection.send(error.to_dict())
            return


def _write(plan: SplitPlan, part: Part, connection: Connection) -> None:
    split = plan.split
    _sow(f"{split.name} {part.start}")
    samples = size = 0
    said, room = time.monotonic(), plan.size(part) - head_size(part.stop - part.start)
    with FileWriter(plan.path(part), part.stop - part.start) as writer:
        for number in range(part.start, part.stop):
            data = split.sample(number)
            wants = 0 if len(data) <= room else max(_STEP, len(data))
            if wants or time.monotonic() - said > _SAID_EVERY:
                connection.send(Written(split.name, part.name, samples, size, wants=wants))
                samples, size, said = 0, 0, time.monotonic()
            if wants:
                room += connection.recv()
            writer.write_one(data)
            samples, size, room = samples + 1, size + len(data), room - len(data)
    connection.send(Written(split.name, part.name, samples, size, os.path.getsize(plan.path(part))))


def _sow(text: str) -> None:
    """Seed the global random numbers: forked processes start with equal ones."""
    random.seed(text)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(random.getrandbits(32))
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(random.getrandbits(63))
