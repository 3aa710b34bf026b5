"""The record of jobs that outlives their agents: ``jobs.log`` in the state folder.

An append-only file of `nbdata.sealed_lines`, each an object. A job gets one line when it begins, some that say how far
it is, and one with its report and error when it ends; its last line holds. Torn lines are skipped. A file that has
grown too large is rewritten with the newest jobs. A job counts as interrupted if it began and its process is gone
without a line of its end.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from dataclasses import dataclass, replace
from typing import Any

from nbdata.errors import Cancelled
from nbdata.lock_files import file_lock, held
from nbdata.optional_calls import set_mode
from nbdata.own_files import through_no_link
from nbdata.redaction import scrub_data
from nbdata.report import Report, Snapshot
from nbdata.runtime import runtime_folder
from nbdata.sealed_lines import append, format_line, value_of

__all__ = ["Past", "failed_into", "past_jobs", "record_of", "remember"]

# Most jobs that are remembered, and the size in bytes beyond which the file is rewritten with at most half of that.
_KEPT, _LARGE = 300, 1 << 20
# Most bytes of a record, characters of a text in a list of it, and texts in such a list.
_RECORD, _TEXT, _NAMED = 16 << 10, 500, 10
# A job whose process cannot be looked up from here counts as interrupted after this many seconds.
_ELSEWHERE = 24 * 3600.0
# The fields that are kept of a report and of an error; others may be large.
_REPORT = ("verb", "source", "target", "state", "counts", "files", "bytes", "present", "seconds", "retries")
_ERROR = ("class", "message", "path", "expected", "got", "remedy")


@dataclass
class Past:
    """A job from the record.

    Attributes
    ----------
    snapshot : Snapshot
    report, failure : dict or None
        As in `Report.to_dict` and `NbdataError.to_dict`, without the fields that may be large.
    on_error : str
        What to do about failures, as the job's options say: raise or report.
    host, holder : str
        The job's machine, and the file on which its process held a flock while it ran.
    """

    snapshot: Snapshot
    report: dict[str, Any] | None
    failure: dict[str, Any] | None
    on_error: str
    host: str
    holder: str

    @property
    def key(self) -> tuple[str, float]:
        """Identifies the job among all others; an id alone may be used again."""
        return self.snapshot.id, self.snapshot.created

    def carried_on(self) -> bool:
        """True if some process may still work on it."""
        if (self.host, os.path.dirname(self.holder)) == (os.uname().nodename, runtime_folder()):
            return held(self.holder)
        return time.time() - self.snapshot.created < _ELSEWHERE


def record_of(
    snapshot: Snapshot, report: Report | None, failure: dict[str, Any] | None, on_error: str
) -> dict[str, Any]:
    """Make the record of a job, at its beginning or at its end."""
    short = None
    if report is not None:
        short = {name: getattr(report, name) for name in _REPORT}
        short["headline"] = report.headline[:_TEXT]
        short["failures"] = [[text[:_TEXT] for text in row] for row in report.failures[:_NAMED]]
        short["notes"] = [note[:_TEXT] for note in report.notes[:_NAMED]]
    error = failure or snapshot.error
    snapshot.error = None if error is None else {name: error.get(name) for name in _ERROR}
    return {
        "snapshot": snapshot.to_dict(),
        "report": short,
        "failure": snapshot.error,
        "on_error": on_error,
        "host": os.uname().nodename,
    }


def remember(state_dir: str, record: dict[str, Any], holder: str) -> None:
    """Append a record of a job whose process holds a flock on `holder`; OSError if there is no room for it."""
    record = scrub_data({**record, "holder": holder})
    line = format_line(record)
    if len(line) > _RECORD:
        record["snapshot"]["command"], record["report"] = "", None
        line = format_line(record)
    if len(line) > _RECORD:
        return
    os.makedirs(state_dir, mode=0o700, exist_ok=True)
    path = _path(state_dir)
    with file_lock(os.path.join(runtime_folder(), "history.lock")):
        fd = through_no_link(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            size = append(fd, line)
        finally:
            os.close(fd)
        if size + len(line) > _LARGE:
            _write_anew(path)


def _write_anew(path: str) -> None:
    """Rewrite the file with the newest jobs; it replaces the old one only once it is written whole."""
    newest = dict[tuple[str, float], bytes]()
    for line in _lines(path, os.path.getsize(path)):
        if (past := _parse(line)) is not None:
            newest.pop(past.key, None)
            newest[past.key] = line
    kept, room = list[bytes](), _LARGE // 2
    for line in reversed(list(newest.values())[-_KEPT:]):
        room -= len(line)
        if room < 0:
            break
        kept.append(line)
    try:
        with open(path + ".new", "wb", opener=through_no_link) as file:
            set_mode(file.fileno(), 0o600)
            file.writelines(reversed(kept))
        os.replace(path + ".new", path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(path + ".new")
        raise


def past_jobs(state_dir: str) -> list[Past]:
    """Return the finished jobs on record, oldest first; records that cannot be read are skipped.

    A job that began and never ended is INTERRUPTED. A job that may still be running is left out.
    """
    open_ended = [p.key for p in _read(state_dir) if not p.snapshot.finished and not p.carried_on()]
    found = []
    # Read again after looking at the processes: one may have recorded its end and exited in between.
    for past in _read(state_dir):
        if past.snapshot.finished:
            found.append(past)
        elif past.key in open_ended:
            found.append(_interrupted(past))
    return found


def failed_into(state_dir: str, path: str) -> str:
    """Return why the last job that should have made a local path failed, as a sentence; '' if there is no such job."""
    for past in reversed(past_jobs(state_dir)):
        target = past.snapshot.target.rstrip("/")
        if target and target == path.rstrip("/"):
            if past.failure is None:
                return ""
            why = str(past.failure.get("message") or "").partition(":")[0]
            return f"The last {past.snapshot.verb} into it failed: {why}"
    return ""


def _interrupted(past: Past) -> Past:
    snapshot = replace(past.snapshot)
    error = Cancelled(
        f"{snapshot.verb} was interrupted: its agent ended", remedy=snapshot.said_again.capitalize()
    ).to_dict()
    snapshot.state, snapshot.reason = "INTERRUPTED", f"its agent ended; {snapshot.said_again}"
    snapshot.error = error
    return Past(snapshot, None, error, past.on_error, past.host, past.holder)


def _read(state_dir: str) -> list[Past]:
    try:
        status = os.stat(_path(state_dir))
        return _parsed(_path(state_dir), status.st_size, status.st_mtime_ns, status.st_ino)
    except OSError:
        return []


@functools.lru_cache(maxsize=2)
def _parsed(path: str, size: int, *_version: int) -> list[Past]:
    """Parse the file, cached by size and version: faces ask several times a second, and it seldom changes."""
    newest = dict[tuple[str, float], Past]()
    for line in _lines(path, size):
        if (past := _parse(line)) is not None:
            newest.pop(past.key, None)
            newest[past.key] = past
    return sorted(newest.values(), key=lambda past: past.snapshot.created)[-_KEPT:]


def _lines(path: str, size: int) -> list[bytes]:
    """Read the lines of a file: no more than its size, and no more than a bound if it grew beyond reason."""
    with open(path, "rb", opener=through_no_link) as file:
        return file.read(min(size, 4 * _LARGE)).splitlines(keepends=True)


def _path(state_dir: str) -> str:
    return os.path.join(state_dir, "jobs.log")


def _parse(line: bytes) -> Past | None:
    try:
        data = value_of(line)
        snapshot = Snapshot.from_dict(data["snapshot"])
        return Past(snapshot, data["report"], data["failure"], data["on_error"], data["host"], data["holder"])
    except (ValueError, KeyError, TypeError, AttributeError):  # a record of another version
        return None
