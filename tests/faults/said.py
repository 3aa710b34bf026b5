"""A command of the small-disk campaign, and how it ends: right, refused, filled or waiting for room."""

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
    """A command and its expected result. `needed` and `inodes` count bytes and files as the command's plan does."""

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
        """True if the command has ended, or waits until somebody acts."""
        assert self.job is not None
        found = self.job.snapshot()
        return found.finished or found.state == "PAUSED"

    def wait(self) -> None:
        """Wait until the command has ended or waits for room."""
        assert self.job is not None
        with contextlib.suppress(AssertionError):  # the campaign must report a command that never ends
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
    """Return `refused` or `filled` for an error.

    The messages may be the same, but a refused command has created no target.
    """
    return "refused" if str(error).startswith("not enough space") and not target.exists() else "filled"
