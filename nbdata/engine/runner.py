"""Turn an operation into its Plan, or into a running Task that ends with its Report.

Only this module connects verbs to their implementation: it finds the verb's module, locks the target, reserves the
space that the plan needs, and only then starts the transfer. The agent and the inline host both call it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import re
import secrets
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol

from nbdata.disk import full_disk_told
from nbdata.engine.job.dealing import Dealer
from nbdata.engine.job.leases import Leases
from nbdata.engine.job.run import Run
from nbdata.engine.job.shared_cache import SharedCache
from nbdata.engine.job.shortage import Shortage
from nbdata.engine.job.task import Task
from nbdata.engine.planning.target_path import refuse_unwritable
from nbdata.errors import NotEnoughSpace, NotFound, cleaned
from nbdata.guarded_folders import NamedFolders
from nbdata.operation import Context, Operation
from nbdata.optional_calls import Watch
from nbdata.paths import is_url
from nbdata.redaction import is_secret_name, redacted, scrub, scrub_data, shortened
from nbdata.report import Plan, Report, Snapshot
from nbdata.runtime import runtime_folder
from nbdata.space.holders import is_alive, this_process
from nbdata.space.ledger import Ledger, not_enough
from nbdata.space.limits import limited_folders
from nbdata.stores.http.servers import account_in
from nbdata.transfer.index import index_file
from nbdata.transfer.locks import TargetLock
from nbdata.verbs.options import Storing

__all__ = [
    "DealerOf",
    "Planning",
    "command_line",
    "forget",
    "forget_the_dead",
    "identity_of",
    "load_all",
    "make_plan",
    "module_of",
    "new_folder",
    "new_task",
    "perform",
    "shown_command",
    "with_rate",
]

# Storage options that describe the place and the access, and are not secret.
_TOLD = (
    *("endpoint_url", "client_kwargs.endpoint_url", "region", "client_kwargs.region_name", "profile", "anon"),
    *("requester_pays", "addressing_style"),
)
# Variables that decide which server and account a place means. Keys and tokens are renewed, so they are not among them.
_SERVERS = re.compile("(?=.*(ENDPOINT|PROFILE|ACCOUNT|EMULATOR|CONFIG_FILE))(?!.*(KEY|TOKEN|SECRET))")
# The storage options that do.
_ACCOUNTS = (*_TOLD, "account_name", "account_host", "project", "host", "port", "username")
# The most characters of a command that lists show.
_COMMAND = 64 << 10
# Most unusable entries of a listing that a plan names.
_NAMED = 3
# Prefix of the ledger's names for processes.
_HOLDER = "holder-"
# The names of folders with the rows of a job.
_ROWS = re.compile("[0-9a-f]{32}")
# The module of each verb, below this package, with `plan(run) -> Plan` and `perform(run, plan) -> Report`.
_VERBS = {
    "pull": "pull.perform",
    "push": "push.perform",
    "copy": "copy.perform",
    "pack": "pack.perform",
    "shards": "shards.perform",
    "md5check": "check.md5check",
    "untar_volumes": "unpack.untar_volumes",
    "cache_stream": "cache.cache_stream",
    "sample_cache": "cache.sample_cache",
    "quota": "upkeep.quota",
    "cleanup": "upkeep.cleanup",
    "delete": "upkeep.delete",
    "probe": "queries.probe",
    "complete": "queries.complete",
    "ls": "queries.ls",
    "du": "queries.du",
}


#: Opens the dealer of a job; gives None if the job asks for no cluster.
DealerOf = Callable[[Operation, Context, Task], AbstractContextManager["Dealer | None"]]


class _Verb(Protocol):
    def plan(self, run: Run) -> Plan: ...

    def perform(self, run: Run, planned: Plan) -> Report: ...


def module_of(verb: str) -> _Verb:
    """Return the module that plans and performs a verb."""
    return importlib.import_module(f"nbdata.engine.{_VERBS[verb]}")


def load_all() -> None:
    """Import every verb now: an agent must not load code that was replaced after its start."""
    for verb in _VERBS:
        module_of(verb)


class Planning(Task):
    """A Task that runs in its caller's thread: for plans, which count nothing but can be stopped."""

    def __init__(self) -> None:
        super().__init__(Snapshot(id="plan", verb="plan"))


def new_folder() -> str:
    """Make a private folder for the rows of one plan or job; its name begins with the id of the process."""
    own = this_process().removeprefix(_HOLDER)
    folder = os.path.join(runtime_folder(), "jobs", own + secrets.token_hex(8))
    os.makedirs(folder, mode=0o700)
    return folder


def forget_the_dead() -> None:
    """Remove the rows that killed processes left."""
    folder = os.path.join(runtime_folder(), "jobs")
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):
            # Another name is another version's, and does not identify its process, or not nbdata's.
            if _ROWS.fullmatch(name) and not is_alive(_HOLDER + name[:16]):
                forget(os.path.join(folder, name))


def make_plan(
    operation: Operation, context: Context, control: Task, folder: str, bindings: Mapping[str, object]
) -> Plan:
    """Make the plan, with the room at its target; writes only its rows."""
    outer = sys.exc_info()[1]
    run = Run(operation, context, control, folder, dict(bindings), only_plan=True)
    try:
        return _planned(run)
    except Exception as error:
        cleaned(error, outer)
        raise
    finally:
        run.close()


def _planned(run: Run) -> Plan:
    planned = module_of(run.operation.verb).plan(run)
    planned.source, planned.target = redacted(planned.source), redacted(planned.target)
    _note_bad_entries(run, planned)
    where = run.operation.local_target()
    if where is not None and (planned.needed or planned.inodes):
        refuse_unwritable(where, below=run.operation.verb == "push")  # the others make their own folder there
    if where is not None and planned.needed:
        room = Ledger().room(where, limited_folders(run.context.state_dir, run.context.env))[0]
        planned.free, planned.limit_source = room.free, room.domain.source
        planned.limit = room.domain.limit if room.domain.device is None else None
        short = room.inodes_free is not None and planned.inodes > room.inodes_free
        planned.fits = planned.needed <= room.free and not short
        if not planned.fits:
            error = not_enough(
                where,
                planned.needed,
                planned.inodes,
                room,
                less=run.operation.with_less,
                at_least=planned.at_least,
            )
            planned.notes.append(str(_with_ways(error, planned)))
    planned.notes = scrub_data(planned.notes)
    return planned


def _note_bad_entries(run: Run, planned: Plan) -> None:
    """Count the entries of listings that cannot be used; performing the plan reports each as a failure."""
    rows = run.control.bad_entries.rows
    for row in rows:
        planned.count(row.action, 0)
    planned.notes += [f"{row.path or '…'}: {row.detail['reason']}" for row in rows[:_NAMED]]
    if rows and "delete" in planned.actions:
        planned.notes.append("nothing will be deleted, because entries of a listing cannot be used")


def _with_ways(error: NotEnoughSpace, planned: Plan) -> NotEnoughSpace:
    """Add the plan's alternatives to the error."""
    error.remedy = ". ".join(filter(None, [error.remedy, *planned.details.get("instead", [])]))
    return error


def new_task(operation: Operation, context: Context, *, background: bool) -> Task:
    """Make a task in state QUEUED."""
    source, target = (redacted(place) for place in operation.places())
    task = Task(
        Snapshot(
            id=secrets.token_hex(3),
            verb=operation.verb,
            source=shortened(scrub(source)),
            target=shortened(scrub(target)),
            background=background,
            owner=shortened(scrub(context.owner)),
            notebook=_whole_or_nothing(scrub(context.notebook)),
            command=shown_command(operation, context),
            writes_to=_whole_or_nothing(scrub(operation.local_target() or "")),
        ),
        stopped=operation.stopped,
    )
    task.limit(operation.max_rate if isinstance(operation, Storing) else None)
    return task


def shown_command(operation: Operation, context: Context) -> str:
    """The command line that lists show and that repeats the operation; empty if it is too long."""
    return _whole_or_nothing(scrub(command_line(operation, context)))


def with_rate(operation: Storing, max_rate: int | None) -> Storing:
    """Return the same operation with another limit of its rate; it stays the same command (`identity_of`)."""
    changed = replace(operation, max_rate=max_rate)
    changed.made_in(operation.here)
    return changed


def _whole_or_nothing(text: str) -> str:
    """Return a command or a path unless it is too long to be shown: a shortened one would be another one."""
    return text if len(text) <= _COMMAND else ""


def identity_of(operation: Operation, context: Context) -> str:
    """Return a hash that is equal for the same command on the same servers; see `Operation.identity`."""
    given: list[Mapping[str, object]] = [
        context.storage_options,
        context.target_options,
        context.filesystem or {},
    ]
    given += [conf for conf in context.fsspec_conf.values() if isinstance(conf, Mapping)]
    told = [
        [str(pair) for pair in _flat(options) if pair[0] in _ACCOUNTS or _is_told(pair[0])]
        for options in given
    ]
    env = {name: value for name, value in context.env.items() if _SERVERS.match(name)}
    strings = [
        context.env.get("AZURE_STORAGE_CONNECTION_STRING"),
        *(o.get("connection_string") for o in given),
    ]
    accounts = [account_in(str(one or "")) for one in strings]
    servers = json.dumps([operation.identity(), told, env, accounts], sort_keys=True)
    return hashlib.sha256(servers.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def command_line(operation: Operation, context: Context) -> str:
    """The command line that repeats the operation on the same server; possible secrets are left out."""
    line = operation.line(redacted)
    if not line:
        return ""
    words = []
    for flag, options in (("--option", context.storage_options), ("--target-option", context.target_options)):
        connection, *of_connection = context.connections.get(flag, [""])
        if connection:
            words += [flag, f"connection={connection}"]
        for name, value in _flat(options):
            if name not in of_connection and _is_told(name) and isinstance(value, (str, bool, int)):
                text = redacted(value) if isinstance(value, str) else str(value).lower()
                words += [flag, f"{name}={text}"]
    return f"{line} {shlex.join(words)}" if words else line


def _is_told(name: str) -> bool:
    """True for a storage option that a repeated command needs, and that is not secret."""
    stored = name.startswith("s3_additional_kwargs.") and not is_secret_name(name.rpartition(".")[2])
    return name in _TOLD or stored


def _flat(options: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield nested options under their names for ``--option``."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def perform(
    operation: Operation,
    context: Context,
    task: Task,
    folder: str,
    bindings: Mapping[str, object],
    leases: Leases,
    cache: SharedCache,
    dealer_of: DealerOf,
) -> Report:
    """Plan, lock the target, reserve space, transfer and report; a Task runs this function.

    If the disk is too full for a background job, the job waits for room and then repeats all steps.
    """

    def planned_anew(rows: str) -> Plan:
        control = Planning()

        def stop() -> None:
            control.cancel()

        task.add(stop)
        try:
            return make_plan(operation, context, control, rows, bindings)
        finally:
            task.remove(stop)

    shortage, folders = Shortage(task, planned_anew), NamedFolders(context.here)
    opened = contextlib.ExitStack()
    try:
        dealer = opened.enter_context(dealer_of(operation, context, task))
        while True:
            run = Run(
                operation,
                context,
                task,
                folder,
                dict(bindings),
                leases=leases,
                cache=cache,
                dealer=dealer,
                folders=folders,
            )
            try:
                report = _performed(run, task)
            except NotEnoughSpace as error:
                shortage.after(error, run)
                continue
            if shortage.times:
                waited = "once" if shortage.times == 1 else f"{shortage.times:,} times"
                report.notes.append(
                    f"it waited for free space {waited}; work done before that counts as unchanged"
                )
            return report
    finally:
        opened.close()
        folders.close()
        leases.end()
        leases.release()
        cache.end()


def _performed(run: Run, task: Task) -> Report:
    operation, context = run.operation, run.context
    where, locked = operation.local_target(), operation.locked_target() or _recorded(operation, context)
    with contextlib.ExitStack() as stack:
        stack.callback(run.close)
        if locked is not None:
            stack.enter_context(_locked(task, locked))
        task.enter("PLANNING")
        places = {*operation.claimed(), *filter(None, [where])}
        for place in places:
            run.folders.hold(place)
        task.bad_entries.take()  # of an earlier try
        planned = _planned(run)
        if planned.empty:
            raise NotFound("; ".join(planned.notes), path=planned.source, remedy="Loosen the filters")
        _expect(task, planned)
        if where is not None and (planned.needed or planned.files or operation.shared):
            force = isinstance(operation, Storing) and operation.ignore_space
            limited = limited_folders(context.state_dir, context.env)
            try:
                reserved = Ledger().reserve(
                    where, planned.needed, planned.inodes, limited,
                    force=force, less=operation.with_less, at_least=planned.at_least,
                )  # fmt: skip
            except NotEnoughSpace as error:
                raise _with_ways(error, planned) from None
            run.reservation = stack.enter_context(reserved)
        task.enter("RUNNING")
        run.moving = True
        watch = Watch()
        with full_disk_told(where):
            report = module_of(operation.verb).perform(run, planned)
        report.notes += [*run.store_notes(), *watch.notes(places)]
        if run.dealer is not None:
            report.details |= run.dealer.told()
        report.source, report.target = redacted(report.source), redacted(report.target)
        report.retries = task.snapshot().retries
        report.notes += filter(None, [task.why_again])
        return report


def _expect(task: Task, planned: Plan) -> None:
    """Set the totals: results of earlier runs count as done, so progress resumes where it was."""
    files = size = 0
    if planned.verb == "untar_volumes":
        size = planned.present  # counts as done if a new check finds it unchanged
    elif planned.files and planned.verb in ("pull", "push", "copy", "pack"):
        there = [planned.actions.get(action, [0, 0]) for action in ("unchanged", "moved away")]
        files, size = (sum(sums) for sums in zip(*there, strict=True))
    task.expect(files=planned.files + files or None, bytes=planned.bytes + size or None)
    if files:
        task.advance(files=files, present=size)


def _recorded(operation: Operation, context: Context) -> str | None:
    """The lock name for the records of a job to a store: only one job at a time may read and write them.

    A job to a folder locks that folder anyway. The name is not the path of a real folder: otherwise a pull into the
    home folder would block pushes.
    """
    source, target = operation.places()
    return f"/dev/null{index_file(context.state_dir, source, target)}" if is_url(target) else None


@contextlib.contextmanager
def _locked(task: Task, target: str) -> Iterator[None]:
    lock = TargetLock(target, f"{task.id}")
    while (holder := lock.acquire()) is not None:
        task.enter("QUEUED", f"waits for {holder}, which works on the same target")
        task.sleep(0.2)
    try:
        yield
    finally:
        lock.release()


def forget(folder: str) -> None:
    """Remove the rows of a job that will not be requested again."""
    shutil.rmtree(folder, ignore_errors=True)
