"""Runs ``convert``: starts a process for the caller's code, reserves disk for it, shows its progress and ends it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from nbdata.client.context import capture
from nbdata.client.converting.layout import make_unfinished_folder, opened_unfinished_folder
from nbdata.client.converting.process import Request
from nbdata.client.in_process import InProcessRun, Progress
from nbdata.disk import disk_error
from nbdata.errors import NbdataError, UnsafeMember, error_from_dict
from nbdata.lock_files import lock_for_children
from nbdata.made_folders import MADE
from nbdata.optional_calls import Watch
from nbdata.own_files import again_if_removed, own_folder, taken
from nbdata.paths import CONVERTING
from nbdata.ready import is_ready
from nbdata.report import Plan, Report, Row, Rows
from nbdata.sizes import counted, format_size
from nbdata.space.ledger import Ledger, Reservation
from nbdata.space.limits import limited_folders
from nbdata.threads import processors
from nbdata.transfer.locks import TargetLock
from nbdata.verbs.convert import MMDET3D, Convert

__all__ = ["Conversion"]

# Seconds that processes have to end after the request to do so.
_GRACE = 1.0
# Flags to open the lock of a data set.
_LOCK = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
# Seconds to wait for another conversion that is ending.
_PATIENCE = 5.0
# The code that starts the process. It finds the same modules as this process, except those in the working folder.
_BEGIN = (
    "import sys; sys.path[:] = [path for path in sys.path if path]; import json; "
    "sys.path += [path for path in json.loads(sys.argv.pop(1)) if path not in sys.path]; "
    "from nbdata.client.converting.process import main; sys.exit(main())"
)
_NOT_YET = "the sizes are those of the first samples; how large all are shows while they are converted"


class Conversion(InProcessRun):
    """A conversion in child processes of this one.

    Parameters
    ----------
    operation : Convert
    """

    again = "run it again to resume: it makes the files that are missing"

    def __init__(self, operation: Convert) -> None:
        self._operation = operation
        if operation.mini is not None:
            _refuse_links(os.path.dirname(operation.folder), operation.folder)
        context = capture(operation)
        self._state_dir = context.state_dir
        self._limited = limited_folders(context.state_dir, context.env)

    # -- planning -----------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """Estimate the result from the first samples of each split."""
        with _Process(self._request(only_plan=True), None) as process:
            said = process.next("plan")
            process.finish()
        return self._planned(said)

    def _planned(self, said: dict[str, Any]) -> Plan:
        folder = self._operation.folder
        out = Plan("convert", *self._operation.places(), notes=[*said["notes"]])
        for split in said["splits"]:
            if split["action"] == "unchanged":
                out.actions.setdefault("unchanged", [0, 0])
                out.actions["unchanged"][0] += split["files"]
                out.actions["unchanged"][1] += split["bytes"]
            else:
                sums = out.actions.setdefault(split["action"], [0, 0])
                sums[0] += split["missing"]
                sums[1] += split["needed"]
                out.files += split["missing"]
                out.needed += split["needed"]
                out.present += split["bytes"] - split["needed"]
            out.notes.append(_described(split))
            if split["unproven"]:
                unproven = counted(split["unproven"], "files", "are")
                out.notes.append(
                    f"{split['name']}: {unproven} made anew: no seal of yours is on what was there"
                )
        if said["copies"]:
            out.actions["copy"] = [said["copies"], said["copied"]]
            out.files += said["copies"]
            out.needed += said["copied"]
        out.bytes = out.needed
        out.inodes = out.files + 4 * len(said["splits"]) + 4
        out.at_least = any(
            split["action"] != "unchanged" and split["samples"] > 100 for split in said["splits"]
        )
        if out.at_least:
            out.notes.append(_NOT_YET)
        if out.needed:
            room = Ledger().room(folder, self._limited)[0]
            out.free, out.limit_source = room.free, room.domain.source
            out.limit = room.domain.limit
            out.fits = out.needed <= room.free
        out.details["splits"] = {split["name"]: split["samples"] for split in said["splits"]}
        return out

    # -- doing --------------------------------------------------------------------------------------

    def perform(self, progress: Progress) -> Report:
        """Convert."""
        folder, watch = self._operation.folder, Watch()
        with ExitStack() as stack:
            progress.tell("convert: the data set is loaded, and its first samples are looked at")
            lock = stack.enter_context(_held(folder))
            process = stack.enter_context(_Process(self._request(only_plan=False), lock))
            said = process.next("plan")
            planned = self._planned(said)
            room = stack.enter_context(self._reserved(planned))
            process.go()
            report = self._report(planned, said)
            self._follow(process, planned, report, room, progress)
            report.notes += watch.notes([folder])
            return report

    def _reserved(self, planned: Plan) -> Reservation:
        operation = self._operation
        return Ledger().reserve(
            operation.folder, planned.needed, planned.inodes, self._limited,
            force=operation.ignore_space, less=operation.with_less, at_least=planned.at_least,
        )  # fmt: skip

    def _follow(
        self, process: _Process, planned: Plan, report: Report, room: Reservation, progress: Progress
    ) -> None:
        """Handle the events of the conversion until its end."""
        samples = done = 0
        rows, reserved = list[Row](), planned.needed
        for event in process.events():
            kind = event.pop("event")
            if kind in ("written", "copied"):
                done += event["bytes"]
                room.note_written(event["bytes"], 1 if kind == "copied" or event["size"] is not None else 0)
            if kind == "room":
                if not self._operation.ignore_space:
                    room.grow(event["bytes"], at_least=True)
                reserved += event["bytes"]
                process.go()
            elif kind == "written":
                samples += event["samples"]
                if event["size"] is not None:
                    rows.append(Row(f"{event['split']}/{event['part']}", "converted", event["size"], {}))
            elif kind == "split":
                report.notes += event["notes"]
            elif kind == "copied":
                report.counts["copied"] = report.counts.get("copied", 0) + 1
            if progress.is_due:
                progress.tell(
                    f"convert: {counted(samples, 'samples')} so far, {format_size(done)} of {format_size(reserved)}"
                )
        report.counts["converted"] = len(rows)
        report.counts = {
            name: report.counts[name]
            for name in ("converted", "copied", "unchanged")
            if report.counts.get(name)
        }
        report.files, report.bytes = len(rows) + report.counts.get("copied", 0), done
        report.rows = Rows(len(rows), lambda _: (rows, None))

    def _report(self, planned: Plan, said: dict[str, Any]) -> Report:
        """Start the report with the facts that are known beforehand."""
        kept = sum(split["kept"] for split in said["splits"])
        unchanged = planned.actions.get("unchanged", [0, 0])[0] + kept
        return Report(
            "convert", planned.source, planned.target, counts={"unchanged": unchanged},
            notes=[note for note in planned.notes if note != _NOT_YET], details=planned.details,
        )  # fmt: skip

    def _request(self, *, only_plan: bool) -> Request:
        operation = self._operation
        return Request(
            dataset=MMDET3D if operation.is_mmdet3d else operation.dataset,
            source=operation.source,
            folder=operation.folder,
            mini=operation.mini,
            store=operation.store,
            key=operation.files_key,
            sweeps=operation.sweeps,
            root=operation.root or os.getcwd(),
            run_config=operation.run_config,
            file_size=operation.file_size,
            overwrite=operation.overwrite,
            workers=operation.workers or processors(),
            only_plan=only_plan,
            state_dir=self._state_dir,
            here=operation.here,
        )


def _refuse_links(*places: str) -> None:
    """Raise UnsafeMember if a link has a place that the user has not named: ``mini``, or ``mini/NAME``."""
    for place in places:
        if os.path.islink(place):
            raise UnsafeMember(
                "a link has the place of the folder for small splits", path=place,
                expected="a folder, or nothing", remedy="Remove it, or use another NAME",
            )  # fmt: skip


def _described(split: dict[str, Any]) -> str:
    stored = {"own": "as serialize_sample has them", "pickle": "as pickles: reading them needs allow_pickle=True "
              "if they are more than plain data"}.get(split["stored"], f"as {split['stored']}")  # fmt: skip
    count, of = split["samples"], split["of"]
    some = f"{count:,} of {of:,}" if count != of else f"{count:,}"
    files = counted(split["files"], "files")
    return f"{split['name']}: {some} samples in {files}, {stored}" + (
        "; there already" if split["action"] == "unchanged" else ""
    )


@contextlib.contextmanager
def _held(folder: str) -> Iterator[int]:
    """Lock a data set against other jobs, until the last process of a conversion has ended."""
    jobs, until = TargetLock(folder, "convert"), time.monotonic() + _PATIENCE
    try:
        while (number := _locked(folder)) is None or jobs.acquire() is not None:
            if number is not None:
                os.close(number)
            if time.monotonic() > until:
                raise NbdataError(
                    "another job works there",
                    path=folder,
                    remedy="Wait until it has ended, then run the command again",
                )
            time.sleep(0.05)
    except OSError as error:
        raise error if isinstance(error, NbdataError) else disk_error(error, folder) from error
    try:
        yield number
    finally:
        jobs.release()
        _tidy(folder)
        os.close(number)


def _locked(folder: str) -> int | None:
    """Lock a file for this process and those that inherit it; None if another process holds the lock."""
    opened: list[int] = []

    def make() -> None:
        path = os.path.join(make_unfinished_folder(folder), "lock")
        try:
            with opened_unfinished_folder(folder) as (_, unfinished):
                opened.append(os.open("lock", _LOCK, 0o666, dir_fd=unfinished))
        except OSError as error:
            raise taken(path) or error from error

    again_if_removed(make)
    number = opened[0]
    try:
        number = lock_for_children(number)
        if os.fstat(number).st_nlink:
            return number
    except BlockingIOError:
        pass
    os.close(number)
    return None


def _tidy(folder: str) -> None:
    """Remove our own folders where nothing is unfinished."""
    with contextlib.suppress(OSError), opened_unfinished_folder(folder) as (own, unfinished):
        if set(left := os.listdir(unfinished)) <= {"lock", MADE}:
            for name in sorted(left):  # the lock last: the next job seals the folder when it has a lock
                os.unlink(name, dir_fd=unfinished)
            os.rmdir(CONVERTING, dir_fd=own)
            os.rmdir(own_folder(folder))
            os.rmdir(folder)  # we may have made it for nothing


class _Process:
    """The converting process and its events; a context manager that ends it and all processes that it started."""

    def __init__(self, request: Request, lock: int | None) -> None:
        opened: list[int] = []
        try:
            life, self._life = _pipe(opened)
            control, self._control = _pipe(opened)
            self._said, said = _pipe(opened)
            null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            opened.append(null)
            theirs = (life, control, said, null if lock is None else lock)
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    _BEGIN,
                    json.dumps([path for path in sys.path if path]),
                    *map(str, theirs),
                ],
                stdin=subprocess.DEVNULL,
                stdout=2,  # ours may be for JSON
                pass_fds=theirs,
                start_new_session=True,  # so that a Ctrl-C is heard by us alone, and all can be ended at once
            )
        except BaseException:
            for number in opened:
                os.close(number)
            raise
        for number in (life, control, said, null):
            os.close(number)
        os.write(self._control, json.dumps(asdict(request)).encode() + b"\n")
        self._buffer = b""
        self._ended = False

    def go(self) -> None:
        """Tell the process that the requested disk space is reserved."""
        with contextlib.suppress(BrokenPipeError):  # `events` says why
            os.write(self._control, b"\n")

    def next(self, kind: str) -> dict[str, Any]:
        """Return the next event, which must be of this kind."""
        for event in self.events():
            if event["event"] == kind:
                return event
        raise NbdataError(
            "the process that converts ended before it had a plan", remedy="Run the command again"
        )

    def finish(self) -> None:
        """Wait for the end of the process."""
        for _ in self.events():
            pass

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events until the end of the process.

        Raises
        ------
        NbdataError
            The error that the process reports, or an error that says it died.
        """
        while not self._ended:
            line = self._line()
            if line is None:
                raise self._died()
            event = json.loads(line)
            if event["event"] == "error":
                error = error_from_dict(event["error"])
                trace = error.details.pop("traceback", "")
                raise error from (_RemoteError(trace) if trace else None)
            if event["event"] == "end":
                if status := self._process.wait():
                    raise NbdataError(
                        f"the process that converts ended with status {status} after its work",
                        remedy="Look at what DATASET.py does when Python ends",
                    )
                self._ended = True
                return
            yield event

    def _line(self) -> bytes | None:
        """Read one line of events; None if the process has ended."""
        while b"\n" not in self._buffer:
            # Workers hold the other end too: one that hangs must not hide the death of their parent.
            if not is_ready(self._said, _GRACE):
                if _has_ended(self._process.pid):
                    return None
                continue
            data = os.read(self._said, 1 << 16)
            if not data:
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _died(self) -> NbdataError:
        self._await_end()
        self._kill()
        code = self._process.returncode
        how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with status {code}"
        return NbdataError(
            f"the process that converts {how}",
            remedy="What it wrote last may say why; if it was killed for its memory, make less of it. "
            "Run it again to resume",
        )

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *exc: object) -> None:
        self._kill()
        for number in (self._life, self._control, self._said):
            os.close(number)

    def _await_end(self) -> None:
        until = time.monotonic() + _GRACE
        while time.monotonic() < until and not _has_ended(self._process.pid):
            time.sleep(0.01)

    def _kill(self) -> None:
        """Kill the process group. Its leader is reaped last: until then no other process can get its pid."""
        if self._process.returncode is not None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
            if number == signal.SIGTERM:
                self._await_end()
        self._process.wait()


class _RemoteError(Exception):
    """The traceback of the caller's code in another process, as the cause of an error."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._text = text

    def __str__(self) -> str:
        return f"\n{self._text}"


def _has_ended(pid: int) -> bool:
    """True if a child has ended; does not reap it."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return True
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _pipe(opened: list[int]) -> tuple[int, int]:
    ends = os.pipe()
    opened += ends
    return ends
