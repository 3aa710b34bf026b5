"""Locks that let only one job at a time write to a target folder and to the folders around and in it.

A lock is a file in the runtime folder. It names the target folder and is flock'ed by its holder, so it ends with the
holder's process. Taking a lock checks all others under one table lock.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets

from nbdata.disk import disk_error
from nbdata.paths import is_inside
from nbdata.runtime import LockFile, file_lock, held, runtime_folder

__all__ = ["TargetLock", "dead_locks"]


class TargetLock:
    """The right to write below `target`. `label` names the holder to other jobs."""

    def __init__(self, target: str, label: str) -> None:
        self._target = os.path.realpath(target.rstrip("/") or "/")
        self._label = label
        self._folder = os.path.join(runtime_folder(), "locks")
        self._file = LockFile()
        self._path = ""

    def acquire(self) -> str | None:
        """Take the lock and return None, or return the label of the job with a lock on an overlapping folder."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        with file_lock(os.path.join(self._folder, "table")):
            for name in os.listdir(self._folder):
                if name.endswith(".lock"):
                    holder = self._conflict(os.path.join(self._folder, name))
                    if holder is not None:
                        return holder
            self._path = os.path.join(self._folder, f"{secrets.token_hex(8)}.lock")
            self._file.open(self._path, os.O_CREAT | os.O_EXCL)
            self._file.lock()
            try:
                os.write(
                    self._file.fd, json.dumps([self._target, self._label]).encode("utf-8", "surrogatepass")
                )
            except OSError as error:
                self.release()
                raise disk_error(error, self._path) from error
        return None

    def holder(self) -> str | None:
        """Return the label of the job that blocks `acquire`, or None. Takes and removes nothing."""
        with contextlib.suppress(FileNotFoundError), file_lock(os.path.join(self._folder, "table")):
            for name in os.listdir(self._folder):
                if name.endswith(".lock"):
                    holder = self._conflict(os.path.join(self._folder, name), remove=False)
                    if holder is not None:
                        return holder
        return None

    def _conflict(self, path: str, *, remove: bool = True) -> str | None:
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
        if self._file.fd >= 0:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
        self._file.close()


def dead_locks(*, remove: bool = True) -> int:
    """Remove locks whose holder is dead, and return their number. With `remove` False, only count them."""
    folder = os.path.join(runtime_folder(), "locks")
    count = 0
    with contextlib.suppress(FileNotFoundError), file_lock(os.path.join(folder, "table")):
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if name.endswith(".lock") and not held(path):
                count += 1
                if remove:
                    os.unlink(path)
    return count
