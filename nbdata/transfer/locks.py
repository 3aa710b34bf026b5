"""Locks that let only one job at a time write to a target folder and to the folders around and in it.

A lock is a file in the runtime folder. It names the target folder and is flock'ed by its holder, so it ends with the
holder's process. Taking a lock checks all others under one table lock.

A job gives its lock back while it waits for its turn or for space. A `Claim` names its folders until it ends, so that
cleanup leaves them alone meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets

from nbdata.disk import disk_error
from nbdata.lock_files import LockFile, file_lock, held
from nbdata.paths import is_inside
from nbdata.runtime import runtime_folder

__all__ = ["Claim", "TargetLock", "dead_locks"]

_LOCK, _CLAIM = ".lock", ".claim"
# The names of the files; the last are those of `lock_files`.
_NAMES = re.compile(r"[0-9a-f]{16}\.(lock|claim|disk)")


class TargetLock:
    """The right to write below `target`. `label` names the holder to other jobs."""

    def __init__(self, target: str, label: str) -> None:
        self._target = os.path.realpath(target.rstrip("/") or "/")
        self._label = label
        self._folder = os.path.join(runtime_folder(), "locks")
        self._file = LockFile()
        self._path = ""

    def acquire(self, *, claims: bool = False) -> str | None:
        """Take the lock and return None, or return the label of the job with a lock on an overlapping folder.

        With `claims`, a claim on an overlapping folder blocks it too.
        """
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        with file_lock(os.path.join(self._folder, "table")):
            holder = self._blocking((_LOCK, _CLAIM) if claims else (_LOCK,), remove=True)
            if holder is None:
                self._path = _written_down(self._file, _LOCK, [self._target, self._label])
        return holder

    def holder(self) -> str | None:
        """Return the label of the job with a lock or a claim on an overlapping folder, or None. Changes nothing."""
        with contextlib.suppress(FileNotFoundError), file_lock(os.path.join(self._folder, "table")):
            return self._blocking((_LOCK, _CLAIM), remove=False)
        return None

    def _blocking(self, kinds: tuple[str, ...], *, remove: bool) -> str | None:
        for name in os.listdir(self._folder):
            if _NAMES.fullmatch(name) and name.endswith(kinds):
                holder = self._conflict(os.path.join(self._folder, name), remove=remove)
                if holder is not None:
                    return holder
        return None

    def _conflict(self, path: str, *, remove: bool) -> str | None:
        file = LockFile()
        try:
            file.open(path)
        except FileNotFoundError:
            return None
        try:
            if not file.lock(wait=False):
                target, label = json.loads(os.pread(file.fd, 1 << 16, 0).decode("utf-8", "surrogatepass"))
                overlaps = is_inside(self._target, target) or is_inside(target, self._target)
                return str(label) if overlaps else None
            if remove:
                with contextlib.suppress(FileNotFoundError):  # released just now
                    os.unlink(path)  # its holder is dead
            return None
        finally:
            file.close()

    def release(self) -> None:
        """Release the lock."""
        _removed(self._file, self._path)


class Claim:
    """Names the folders in which an unfinished job works, to cleanup. It blocks no other job.

    Parameters
    ----------
    folders : list of str
    label : str
        The id of the job.
    """

    def __init__(self, folders: list[str], label: str) -> None:
        self._held = list[tuple[LockFile, str]]()
        if not folders:
            return
        folder = os.path.join(runtime_folder(), "locks")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with file_lock(os.path.join(folder, "table")):
            for target in folders:
                file = LockFile()
                try:
                    path = _written_down(file, _CLAIM, [os.path.realpath(target), label])
                except BaseException:
                    self.release()
                    raise
                self._held.append((file, path))

    def release(self) -> None:
        """End the claim, because the job has ended."""
        for file, path in self._held:
            _removed(file, path)


def _written_down(file: LockFile, kind: str, content: list[str]) -> str:
    """Make and lock a file of that kind, and return its path. Call it while holding the table's lock."""
    path = os.path.join(runtime_folder(), "locks", f"{secrets.token_hex(8)}{kind}")
    file.open(path, os.O_CREAT | os.O_EXCL)
    file.lock()
    try:
        os.write(file.fd, json.dumps(content).encode("utf-8", "surrogatepass"))
    except OSError as error:
        _removed(file, path)
        raise disk_error(error, path) from error
    return path


def _removed(file: LockFile, path: str) -> None:
    if file.fd >= 0:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    file.close()


def dead_locks(*, remove: bool = True) -> int:
    """Remove locks and claims whose holder is dead, and return their number. With `remove` False, only count them."""
    folder = os.path.join(runtime_folder(), "locks")
    count = 0
    with contextlib.suppress(FileNotFoundError), file_lock(os.path.join(folder, "table")):
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if _NAMES.fullmatch(name) and not held(path):
                count += 1
                if remove:
                    os.unlink(path)
    return count
