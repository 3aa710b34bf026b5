"""A line that is said on a small disk, and how it ends: right, refused, filled, or waiting for room."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nbdata.errors import NbdataError
from nbdata.operation import Operation
from nbdata.protocols import Job, slots

__all__ = ["Line", "error_of", "way_of"]

# Seconds within which a line must end.
_BOUND = 120.0


@dataclass
class Line:
    """One line, and what is to come of it; `needed` bytes and files as its plan knows them."""

    operation: Operation
    host: str
    target: Path
    files: Mapping[str, bytes]
    needed: int
    inodes: int
    background: bool = False
    job: Job | None = None
    error: Exception | None = None
    way: str = ""
    words: str = ""

    def start(self) -> None:
        os.environ["NBDATA_HOST"] = self.host
        self.job = slots.host().submit(self.operation, background=self.background)

    @property
    def at_rest(self) -> bool:
        """Whether it ended, or waits for somebody to do something."""
        assert self.job is not None
        found = self.job.snapshot()
        return found.finished or found.state == "PAUSED"

    def wait(self) -> None:
        """Until it has ended; or waits for room."""
        assert self.job is not None
        end = time.monotonic() + _BOUND
        while not self.at_rest and time.monotonic() < end:
            time.sleep(0.01)
        if (found := self.job.snapshot()).state == "PAUSED":
            self.way, self.words = "waited", found.reason
            return
        self.error = error_of(self.job)
        self.way = "right" if self.error is None else way_of(self.error, self.target)
        self.words = str(self.error or "")


def error_of(job: Job) -> Exception | None:
    try:
        job.wait(_BOUND)
    except (NbdataError, TimeoutError) as error:
        return error
    return None


def way_of(error: Exception, target: Path) -> str:
    """What is asked for while a line runs is refused in the same words, but then there is something."""
    return "refused" if str(error).startswith("not enough space") and not target.exists() else "filled"
