"""Marks: files in a staging folder that show which job, on which machine, owns which temporaries.

A mark is a file ``TOKEN0``, where TOKEN is twelve hexadecimal digits. All temporaries of that job begin with TOKEN. A
mark holds the job's location (machine and runtime folder) and its process, as in `space.holders.is_alive`. Within one
machine and runtime folder, `TargetLock` admits one job at a time, and a mark only shows which temporaries can go.
Another user's jobs in the same folder have their marks in a folder beside this user's; those are waited for, too, and
never removed.

Machines or containers that see nothing else of each other may share a disk, and file locks do not work on all such
disks. There the mark is the lock. Its holder touches it every few seconds. A job that finds a mark untouched for a
while removes it with all its temporaries. Times are those that the disk sets, compared with the job's own mark. A time
in the future, as of a clock that was set back, tells nothing: such a mark is watched for that long. A holder that was
suspended and resumes after that finds its mark gone, and ends before it renames anything.

Anybody may have left such a file: one that is not as jobs write it counts as a mark of a job elsewhere. Nor is a file a
temporary because of its name: where another user could have renamed the folder to ``.nbdata``, only what has its mark
beside it is removed. So a mark goes last.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from nbdata.ending import Daemon
from nbdata.errors import NbdataError, NotFound
from nbdata.made_folders import names_prove
from nbdata.optional_calls import is_refusal
from nbdata.own_files import is_shared, own_folders_in, read_small
from nbdata.runtime import runtime_folder
from nbdata.space.holders import is_alive, this_process
from nbdata.transfer.part_records import boot
from nbdata.transfer.staging import Staging

__all__ = ["Mark", "is_marked", "is_temporary", "mark_of", "worker_elsewhere"]

# The names of marks and temporaries.
_NAMES = re.compile("[0-9a-f]{13,24}")
# The names of files that tell the disk's time.
_PROBES = re.compile("[0-9a-f]{12}t")
# Seconds between two touches, and seconds until another machine's untouched mark counts as dead.
_BEAT, _DEAD = 10.0, 60.0
# The most bytes of a mark, and the names of processes in one.
_MOST = 4096
_PROCESS = re.compile("holder-[0-9a-f]{16}")
# The most folders whose marks from the future are watched at once.
_WATCHED = 1000


def is_temporary(name: str) -> bool:
    """True for the names of marks and temporaries of jobs."""
    return any(names.fullmatch(name) for names in (_NAMES, _PROBES))


def mark_of(name: str) -> str:
    """Return the name of the mark of a job, given its token or the name of one of its temporaries."""
    return f"{name[:12]}0"


def is_marked(folder: str, name: str) -> bool:
    """True if a job has written the mark of a temporary, or of a mark itself, in a folder."""
    return _is_of_a_job(_said(os.path.join(folder, mark_of(name)))[1])


class Mark:
    """The mark of this job in one staging folder.

    Raises
    ------
    FileNotFoundError
        If the folder was just removed.
    """

    def __init__(self, folder: Staging, token: str) -> None:
        self._folder, self._name, self._path = folder, mark_of(token), folder.path_of(mark_of(token))
        self._gone = threading.Event()
        self._write(os.O_WRONLY | os.O_CREAT)

    def keep(self) -> None:
        """Touch the mark regularly from now on."""
        Daemon(self._beat, name="mark").start()

    def _beat(self) -> None:
        while not self._gone.wait(_BEAT):
            with contextlib.suppress(OSError):
                self._touch()

    def _touch(self) -> None:
        try:
            os.utime(self._name, dir_fd=self._folder.fd, follow_symlinks=False)
        except OSError as error:
            if not is_refusal(error.errno, "times"):
                raise
            self._write(os.O_WRONLY)  # the disk sets the time of what is written

    def _write(self, flags: int) -> None:
        flags |= os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self._name, flags, 0o644, dir_fd=self._folder.fd)  # for jobs of other users
        try:
            os.write(fd, json.dumps([*_here(), this_process()]).encode())
        except BaseException:
            if flags & os.O_CREAT:
                os.unlink(self._name, dir_fd=self._folder.fd)
            raise
        finally:
            os.close(fd)

    def check(self) -> None:
        """Raise NbdataError if another machine has taken this job for dead and may work here now."""
        if not os.path.isdir(self._folder.path):
            raise NotFound(
                "the folder was deleted while this job worked in it",
                path=self._folder.path,
                remedy="Run the command again",
            )
        if not os.path.exists(self._path):
            raise NbdataError(
                "another machine has taken this job for dead, and works in this folder now",
                path=self._folder.path,
                remedy="Wait for its end; run it again to resume",
            )

    def remove(self) -> None:
        """Remove the mark."""
        self._gone.set()
        with contextlib.suppress(OSError):
            os.unlink(self._name, dir_fd=self._folder.fd)

    def remove_dead(self) -> str | None:
        """Remove the temporaries of dead jobs. Returns the machine of a live job elsewhere, or None."""
        names = self._folder.names()
        with contextlib.suppress(OSError):
            self._touch()
            now = os.stat(self._name, dir_fd=self._folder.fd, follow_symlinks=False).st_mtime
            mine = _look(self._folder.path, names, now, own=self._path, remove=self._folder)
            return mine or _others(self._folder.path, now)
        return None


def worker_elsewhere(folder: str) -> str | None:
    """Return the other machine that works in a staging folder now, or None. Removes nothing.

    Creates a file there for a moment to learn the disk's time. If the disk refuses, this machine's time counts.
    """
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    probe, now = f"{folder}/{secrets.token_hex(6)}t", time.time()
    with contextlib.suppress(OSError):
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        now = os.stat(probe).st_mtime
        os.unlink(probe)
    return _look(folder, names, now, own="", remove=None) or _others(folder, now)


def _others(folder: str, now: float) -> str | None:
    """Return the machine of another user's job in the folder above, or None."""
    above, jobs = os.path.dirname(folder), list[_Job]()
    for name in own_folders_in(above) if is_shared(above) else ():
        other = os.path.join(above, name)
        if other != folder:
            with contextlib.suppress(OSError):  # another user's, who lets nobody look
                jobs += _jobs_in(other, os.listdir(other), own="")
    return _living(jobs, _working(jobs, now, above))


def _look(folder: str, names: list[str], now: float, *, own: str, remove: Staging | None) -> str | None:
    jobs = list(_jobs_in(folder, names, own=own))
    working = _working(jobs, now, folder)
    for job, works in zip(jobs, working, strict=True):
        if not works and remove is not None and (_is_of_a_job(job.process) or names_prove(remove.fd)):
            # The mark goes last, so that a kill in between leaves the rest to the next job.
            with contextlib.suppress(OSError):
                for each in job.names:
                    os.unlink(each, dir_fd=remove.fd)
    return _living(jobs, working)


class _Job(NamedTuple):
    """A job that may work in a staging folder.

    Attributes
    ----------
    mark : str
        The path of its mark.
    names : list of str
        Its files, the mark last.
    where : list
        Its location; empty if the mark is lost.
    process : str
    touched : float or None
        When it last showed that it lives; None if its process is known to be dead.
    """

    mark: str
    names: list[str]
    where: list[object]
    process: str
    touched: float | None


def _jobs_in(folder: str, names: list[str], *, own: str) -> Iterator[_Job]:
    """Yield the jobs with files in a folder, except the one whose mark is `own`, and live ones of this location."""
    found: dict[str, list[str]] = {}
    for name in sorted(filter(_NAMES.fullmatch, names), reverse=True):
        found.setdefault(mark_of(name), []).append(name)
    for mark, files in found.items():
        path = os.path.join(folder, mark)
        if path == own:
            continue
        with contextlib.suppress(OSError):
            where, process = _said(path)
            touched = None
            if not where or where != _here():
                seen = [mark] if where else files
                touched = max(os.lstat(os.path.join(folder, name)).st_mtime for name in seen)
            elif _is_of_a_job(process) and is_alive(process):
                continue
            yield _Job(path, files, where, process, touched)


def _working(jobs: list[_Job], now: float, folder: str) -> list[bool]:
    """Return whether each job counts as alive: it was touched a short while ago, or has a time in the future.

    Times in the future count until all those of a folder were seen unchanged for as long. They are watched as one: a
    folder may have any number of them.
    """
    future = [(job.mark, job.touched) for job in jobs if job.touched is not None and job.touched > now]
    is_new = bool(future) and not _was_seen_for_long(folder, hash(tuple(future)))
    return [
        job.touched is not None and (is_new if job.touched > now else now - job.touched < _DEAD)
        for job in jobs
    ]


def _was_seen_for_long(folder: str, future: int) -> bool:
    """True if the times in the future in a folder, given their digest, have not changed for a while."""
    seen, when = _watched.get(folder, (None, 0.0))
    if seen != future:
        if len(_watched) >= _WATCHED:
            _watched.clear()
        when = time.monotonic()
        _watched[folder] = future, when
    return time.monotonic() - when >= _DEAD


# Folders with times in the future: a digest of these, and when it was first seen.
_watched: dict[str, tuple[int, float]] = {}


def _living(jobs: list[_Job], working: list[bool]) -> str | None:
    """Return the machine of the last job that works; None if there is none, or no mark tells."""
    machines = [str(job.where[0]) for job, works in zip(jobs, working, strict=True) if works and job.where]
    return machines[-1] if machines else None


def _is_of_a_job(process: str) -> bool:
    """True if a mark says a process as jobs write it."""
    return _PROCESS.fullmatch(process) is not None


def _said(path: str) -> tuple[list[object], str]:
    """Return a mark's location and process; nothing if the mark was lost with its machine."""
    try:
        *where, process = json.loads(read_small(path, _MOST).decode("ascii"))
    except FileNotFoundError:
        return ([], "") if not os.path.lexists(path) else (["another machine"], "")
    except (ValueError, TypeError, RecursionError):  # a kill came before it was written, or it is no mark
        return ["another machine"], ""
    told = bool(where) and isinstance(where[0], str) and where[0].isprintable() and isinstance(process, str)
    return (where, process) if told else (["another machine"], "")


def _here() -> list[object]:
    """The scope in which a process name is valid."""
    found, namespace = os.stat(runtime_folder()), 0
    with contextlib.suppress(OSError):  # containers may agree in everything else
        namespace = os.stat("/proc/self/ns/pid").st_ino
    return [os.uname().nodename, boot(), namespace, found.st_dev, found.st_ino]
