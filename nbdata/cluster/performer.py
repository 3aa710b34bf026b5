"""What runs on a worker: it learns of a job once, then performs parts of it.

The operation and its credentials come with `enter`, a call outside of Dask's tasks, and stay in this process's memory.
So no argument of a task holds them, and neither the scheduler nor its pages can show them. A worker that does not know
a job says so, and the coordinator tells it: workers may come and go.

No function here raises: Dask writes the arguments of a call that failed into its log.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from nbdata.disk import internal_error
from nbdata.ending import Daemon
from nbdata.engine.job.dealing import Moved, Part, PartReport, encoded_report, rows_in
from nbdata.engine.job.run import Run
from nbdata.engine.job.spool import read_page
from nbdata.engine.job.task import Task
from nbdata.engine.runner import forget, module_of, new_folder
from nbdata.errors import NbdataError, without_calls
from nbdata.guarded_folders import NamedFolders
from nbdata.operation import Context, Operation
from nbdata.optional_calls import Watch
from nbdata.redaction import Hidden, scrub_data
from nbdata.report import Plan, Row, Rows, Snapshot
from nbdata.runtime import state_folder
from nbdata.stores.base import Location
from nbdata.stores.http.client import close_idle
from nbdata.stores.local import LocalStore
from nbdata.threads import ForkLock
from nbdata.transfer.part_index import PartIndex
from nbdata.verbs import operation_from_dict
from nbdata.version import __version__

__all__ = ["enter", "hello", "leave", "perform_part", "topic_of"]

# Seconds between two reports of a part's progress.
_EVERY = 0.5
# The most jobs that a worker remembers; the oldest is forgotten first. Only killed coordinators leave one.
_REMEMBERED = 64


@dataclass(eq=False)
class _Place:
    """What a thread of this worker keeps from one part of a job to the next.

    Attributes
    ----------
    task : Task
        Stops and counts; the stores stop with it.
    opened : dict
        See `Run`; only places in stores, since a folder of the disk may be another one by the next part.
    """

    task: Task
    opened: dict[tuple[str, str], Location] = field(default_factory=dict)

    def leave_disks(self) -> None:
        """Forget the places on disks."""
        for key in [key for key, location in self.opened.items() if isinstance(location.store, LocalStore)]:
            del self.opened[key]


@dataclass
class _Job:
    """A job of which this process performs parts.

    Attributes
    ----------
    operation, context
    tasks : set of Task
        Of the parts that are performed now.
    free : list of _Place
        Those of no part: at most as many as this worker has performed parts at a time. They go with the job.
    """

    operation: Operation
    context: Context
    tasks: set[Task] = field(default_factory=set)
    free: list[_Place] = field(default_factory=list)


_jobs: dict[str, _Job] = {}
_lock = ForkLock()


def topic_of(job: str) -> str:
    """Return the name under which Dask passes on the progress of a job's parts."""
    return f"nbdata-{job}"


def hello() -> dict[str, str]:
    """Return what must be alike on the coordinator and all workers."""
    return {"nbdata": __version__, "Python": ".".join(platform.python_version_tuple()[:2])}


def enter(job: str, said: Hidden) -> dict[str, Any]:
    """Learn of a job; return nothing, or an error as plain data.

    Parameters
    ----------
    job : str
    said : Hidden
        The ``operation``, and the ``context`` or as much of it as the coordinator sends. This process adds its own
        environment to a part of one; only the ways to servers if it is ``alone``, with credentials. With ``renews``,
        only a job that is known gets these: it may have ended.
    """
    try:
        context = said["context"]
        if not said["whole"]:
            env = _ways() if said["alone"] else dict(os.environ)
            context = {"cwd": "/", "env": env, "state_dir": state_folder(), **context}
        known = _Job(operation_from_dict(said["operation"]), Context.from_dict(context))
        with _lock:
            if (before := _jobs.pop(job, None)) is None and said["renews"]:
                return {}
            if before is not None:
                known.tasks = before.tasks
                # Stores of running parts look there when the old ones are refused.
                before.context.storage_options.update(known.context.storage_options)
                before.context.target_options.update(known.context.target_options)
            _jobs[job] = known
            while len(_jobs) > _REMEMBERED:
                del _jobs[next(iter(_jobs))]
    except Exception as error:
        return {"error": internal_error(error).to_dict()}
    return {}


def _ways() -> dict[str, str]:
    """Return the variables of this process that say how to reach servers, and neither who asks nor which server."""
    own = {name: value for name, value in os.environ.items() if name.startswith("NBDATA_")}
    ways = Context("/", env=dict(os.environ)).without_credentials().env
    return own | {
        name: value
        for name, value in ways.items()
        if not name.startswith(("AWS_ENDPOINT_URL", "OBS_", "AIS_ENDPOINT", "STORAGE_EMULATOR_HOST"))
    }


def leave(job: str) -> None:
    """Forget a job, and stop its parts. Without any job, no connection to a store is kept."""
    with _lock:
        known = _jobs.pop(job, None)
        tasks = list(known.tasks) if known is not None else []
        idle = not _jobs
    for task in tasks:
        task.cancel()
    if idle:
        close_idle(every=True)


def perform_part(job: str, number: int, max_rate: int | None, data: bytes) -> tuple[str, bytes]:
    """Perform a part; return this worker's address and the report. The report is empty if the job is not known here.

    Parameters
    ----------
    job : str
    number : int
        The part's number, for reports of its progress.
    max_rate : int or None
        The part's share of the job's limit.
    data : bytes
        See `encoded_rows`.
    """
    worker = import_module("distributed").get_worker()
    with _lock:
        known = _jobs.get(job)
        if known is None:
            return worker.address, b""
        place = known.free.pop() if known.free else _Place(Task(Snapshot(id=job, verb="part")))
        known.tasks.add(task := place.task)
    began, before = time.monotonic(), task.snapshot()
    try:
        task.limit(max_rate)
        with _Telling(worker, topic_of(job), number, task, before):
            report = _performed(known, place, data)
    except BaseException as error:
        report = PartReport(error=internal_error(error))
    finally:
        place.leave_disks()
        with _lock:
            known.tasks.discard(task)
            if not task.is_set():
                known.free.append(place)
    report.moved, report.seconds = _moved(task, before), time.monotonic() - began
    report.retries, report.why_again = task.snapshot().retries - before.retries, task.last_retry
    return worker.address, encoded_report(report)


def _performed(job: _Job, place: _Place, data: bytes) -> PartReport:
    facts, known, rows = rows_in(data)
    part = Part(PartIndex(known), token=facts.get("token", ""))
    planned = Plan(job.operation.verb, *job.operation.places(), details=facts)
    planned.files, planned.bytes = len(rows), sum(max(0, row.size) for row in rows)
    planned.rows = Rows(len(rows), lambda _: (rows, None))
    error: NbdataError | None = None
    watch = Watch()
    folder, folders = new_folder(), NamedFolders(job.context.here)
    try:
        run = Run(
            job.operation,
            job.context,
            place.task,
            folder,
            as_part=part,
            folders=folders,
            stores=[location.store for location in place.opened.values()],
            opened=place.opened,
        )
        try:
            module_of(job.operation.verb).perform(run, planned)
        except Exception as raised:
            error = internal_error(raised)
            without_calls(error)
        finally:
            run.close()
            folders.close()
        return _report(run, part, _rows_of(folder), watch, error)
    finally:
        forget(folder)


def _rows_of(folder: str) -> list[Row]:
    """Return all outcomes that the part has written; they are as few as its rows."""
    found = list[Row]()
    offset: int | None = 0
    while offset is not None:
        rows, offset = read_page(os.path.join(folder, "report.rows"), offset)
        found += rows
    return found


def _report(run: Run, part: Part, rows: list[Row], watch: Watch, error: NbdataError | None) -> PartReport:
    report = PartReport(rows=rows, records=part.index.made, staged=part.staged, error=error)
    report.details, report.data = scrub_data(part.details), part.data
    if (done := part.outcomes) is not None:
        report.files, report.bytes, report.present = done.files, done.bytes, done.present
        report.verified, report.unverified = done.verified[True], done.verified[False]
        report.tallies, report.sums = done.tallies, done.sums
        report.notes = scrub_data(done.notes)
    where = run.operation.local_target()
    report.about = scrub_data([*run.store_notes(), *watch.notes([where] if where else [])])
    return report


def _moved(task: Task, before: Snapshot) -> Moved:
    """Return what was moved since then."""
    now = task.snapshot()
    return Moved(
        now.files - before.files,
        now.bytes - now.present - (before.bytes - before.present),
        now.present - before.present,
        now.failures - before.failures,
    )


class _Telling:
    """Reports from time to time that a part has begun, and that it goes on: one that does not is dealt again."""

    def __init__(self, worker: Any, topic: str, number: int, task: Task, began: Snapshot) -> None:
        self._worker, self._topic, self._number, self._task = worker, topic, number, task
        self._began = began
        self._over = threading.Event()

    def __enter__(self) -> None:
        self._tell()
        Daemon(self._run, name="progress").start()

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _run(self) -> None:
        before = self._task.pulse()
        while not self._over.wait(_EVERY):
            if (now := self._task.pulse()) != before:  # a request that is made again counts, too
                before = now
                self._tell()

    def _tell(self) -> None:
        self._worker.log_event(
            self._topic, [self._number, self._worker.address, *_moved(self._task, self._began)]
        )
