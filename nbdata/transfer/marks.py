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
# The most marks from the future that are watched at once.
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
    above = os.path.dirname(folder)
    for name in own_folders_in(above) if is_shared(above) else ():
        other = os.path.join(above, name)
        if other != folder:
            with contextlib.suppress(OSError):  # another user's, who lets nobody look
                if (machine := _look(other, os.listdir(other), now, own="", remove=None)) is not None:
                    return machine
    return None


def _look(folder: str, names: list[str], now: float, *, own: str, remove: Staging | None) -> str | None:
    living = None
    jobs: dict[str, list[str]] = {}
    for name in sorted(filter(_NAMES.fullmatch, names), reverse=True):
        jobs.setdefault(mark_of(name), []).append(os.path.join(folder, name))
    for mark, paths in jobs.items():
        path = os.path.join(folder, mark)
        if path == own:
            continue
        with contextlib.suppress(OSError):
            where, process = _said(path)
            if where and where == _here():
                if _is_of_a_job(process) and is_alive(process):
                    continue
            elif _is_fresh(path, max(os.lstat(each).st_mtime for each in ([path] if where else paths)), now):
                living = str(where[0]) if where else living
                continue
            if remove is not None and (_is_of_a_job(process) or names_prove(remove.fd)):
                # The mark goes last, so that a kill in between leaves the rest to the next job.
                for each in paths:
                    os.unlink(os.path.basename(each), dir_fd=remove.fd)
    return living


def _is_of_a_job(process: str) -> bool:
    """True if a mark says a process as jobs write it."""
    return _PROCESS.fullmatch(process) is not None


def _is_fresh(path: str, touched: float, now: float) -> bool:
    """True if a mark was touched a short while ago. One from the future is, until it was seen unchanged for as long."""
    if touched <= now:
        return now - touched < _DEAD
    seen, when = _watched.get(path, (0.0, 0.0))
    if seen != touched:
        if len(_watched) >= _WATCHED:
            _watched.clear()
        when = time.monotonic()
        _watched[path] = touched, when
    return time.monotonic() - when < _DEAD


# Marks from the future: their times, and when they were first seen.
_watched: dict[str, tuple[float, float]] = {}


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
