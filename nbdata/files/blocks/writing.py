"""Writes to the cache behind the readers, in one thread and with bounded memory."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from nbdata.errors import NotEnoughSpace
from nbdata.files.blocks.folder import BlockFolder
from nbdata.threads import begin

__all__ = ["Work", "Writer"]

#: Something to write, while the folder is locked; returns False if there is no room.
Work = Callable[[], bool]

# Bytes that wait to be written at most, and those that are written while the folder stays locked.
_WAITING, _BATCH = 32 << 20, 8 << 20
# Seconds that a reader waits for a slow disk, and that nothing is written after it was too slow, full or broken.
_PATIENCE, _PAUSE = 2.0, 10.0


class Writer:
    """The thread that writes; safe to use from many threads.

    Parameters
    ----------
    folder : BlockFolder
    say : callable
        Writes a line to the log.

    Attributes
    ----------
    left_out : int
        How much work was left out: there was no room, or the disk refused.
    trouble : str
        Why, the last time.
    """

    def __init__(self, folder: BlockFolder, say: Callable[[str], None]) -> None:
        self._folder, self._say = folder, say
        self._changed = threading.Condition()
        self._work: deque[tuple[int, Work, Callable[[], None]]] = deque()
        self._bytes = 0
        self._paused_until = 0.0
        self._ended = self._begun = False
        self.left_out = 0
        self.trouble = ""

    @property
    def is_paused(self) -> bool:
        """Whether nothing is written just now."""
        return self._ended or time.monotonic() < self._paused_until

    @property
    def waiting(self) -> int:
        """How many pieces of work wait, or are being done."""
        return len(self._work)

    def submit(self, size: int, work: Work, after: Callable[[], None] = lambda: None) -> bool:
        """Have something written; return False, and do nothing, if it is left out.

        Parameters
        ----------
        size : int
            The bytes that it holds.
        after : callable
            Called once it was done or has failed.
        """
        with self._changed:
            end = time.monotonic() + _PATIENCE
            while not self.is_paused and self._bytes + size > _WAITING and self._work:
                if not self._changed.wait(max(0.0, end - time.monotonic())) and time.monotonic() >= end:
                    self._pause("the disk is slow")
            if self.is_paused or not self._begin():
                self.left_out += 1
                return False
            self._work.append((size, work, after))
            self._bytes += size
            self._changed.notify_all()
            return True

    def _begin(self) -> bool:
        if not self._begun:
            self._begun = begin(self._run, name="cache-writer")
        return self._begun

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._work:
                    if self._ended:
                        return
                    self._changed.wait()
            try:
                with self._folder.locked():
                    self._do_some()
            except OSError as error:  # the folder is gone, or cannot be locked
                self._failed(error)
                self._drop(1)

    def _do_some(self) -> None:
        done = 0
        while self._work and done < _BATCH:
            size, work, _ = self._work[0]
            done += max(size, 1)
            try:
                if time.monotonic() < self._paused_until:
                    self.left_out += 1
                elif not work():
                    self._failed(None)
            except Exception as error:  # a fault here must not end the thread
                self._failed(error)
            self._drop(1)

    def _drop(self, count: int) -> None:
        for _ in range(count):
            with self._changed:
                size, _, after = self._work[0]
            after()  # while it still counts as waiting
            with self._changed:
                self._work.popleft()
                self._bytes -= size
                self._changed.notify_all()

    def _failed(self, error: Exception | None) -> None:
        with self._changed:
            self.left_out += 1
            if not self.is_paused:
                full = error is None or isinstance(error, NotEnoughSpace)
                self._pause("there is no room" if full else f"{error}")

    def _pause(self, why: str) -> None:
        self._paused_until = time.monotonic() + _PAUSE
        self.trouble = why
        self._say(f"the cache keeps nothing for {_PAUSE:.0f} s: {why}")

    def close(self, patience: float) -> None:
        """Write what waits, as far as that takes no longer than so many seconds; take nothing more."""
        end = time.monotonic() + patience
        with self._changed:
            self._ended = True
            self._changed.notify_all()
            while self._work and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
