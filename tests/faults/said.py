"""A command that runs on a small disk, and how it ends: right, refused, filled, or waiting for room."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nbdata.errors import NbdataError
from nbdata.operation import Operation, slots
from nbdata.protocols import Job
from tests.waiting import PATIENCE, wait_until

__all__ = ["Line", "error_of", "way_of"]


@dataclass
class Line:
    """One command and its expected result; `needed` counts bytes and files as in its plan."""

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
        """True if it has ended, or waits for an action by someone else."""
        assert self.job is not None
        found = self.job.snapshot()
        return found.finished or found.state == "PAUSED"

    def wait(self) -> None:
        """Wait until it has ended or waits for room."""
        assert self.job is not None
        with contextlib.suppress(AssertionError):  # the run must find and report a command that never ends
            wait_until(lambda: self.at_rest)
        if (found := self.job.snapshot()).state == "PAUSED":
            self.way, self.words = "waited", found.reason
            return
        self.error = error_of(self.job)
        self.way = "right" if self.error is None else way_of(self.error, self.target)
        self.words = str(self.error or "")


def error_of(job: Job) -> Exception | None:
    try:
        job.wait(PATIENCE)
    except (NbdataError, TimeoutError) as error:
        return error
    return None


def way_of(error: Exception, target: Path) -> str:
    """Classify an error; errors amid a command may have the same words, but then the target exists."""
    return "refused" if str(error).startswith("not enough space") and not target.exists() else "filled"
