"""Parts of a job that need the disk and the folders of the coordinator's machine.

A worker knows that it is there by the folder of the job, whose name nobody can guess. It stops when the coordinator
has died, since the lock of the target is free then.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from nbdata.ending import Daemon
from nbdata.engine.job.run import Run
from nbdata.engine.job.task import Task
from nbdata.errors import NbdataError
from nbdata.paths import is_inside
from nbdata.runtime import runtime_folder
from nbdata.space.holders import is_alive, this_process

__all__ = ["ELSEWHERE", "here", "on_this_machine"]

#: The entry in the details of an error of a worker that is elsewhere.
ELSEWHERE = "elsewhere"
# Seconds between two looks whether the coordinator lives.
_LOOK = 1.0


def here(run: Run) -> dict[str, object]:
    """Return the facts by which a worker knows the machine of this run."""
    return {"folder": run.folder, "coordinator": this_process()}


@contextlib.contextmanager
def on_this_machine(run: Run, facts: Mapping[str, Any]) -> Iterator[None]:
    """Perform a part on the machine that the facts tell; stop it if the coordinator dies.

    Raises
    ------
    NbdataError
        If this is another machine, or this process has another runtime folder.
    """
    folder = str(facts["folder"])
    if not (is_inside(folder, runtime_folder()) and os.path.isdir(folder)):
        raise NbdataError(
            f"a worker does not see the files of this job: {run.operation.verb} needs workers on the "
            "same machine, with the same runtime folder",
            path=folder,
            remedy="Use --cluster local",
            details={ELSEWHERE: True},
        )
    over, control = threading.Event(), run.control

    def look() -> None:
        while not over.wait(_LOOK):
            if not is_alive(facts["coordinator"]) and isinstance(control, Task):
                control.cancel()
                return

    Daemon(look, name="coordinator").start()
    try:
        yield
    finally:
        over.set()
