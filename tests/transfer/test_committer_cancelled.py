"""A cancelled transfer does not wait until everything in the committer is written."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from nbdata.engine.runner import Planning
from nbdata.errors import Cancelled
from nbdata.transfer.committer import Committer, PendingFile
from tests.waiting import PATIENCE


def test_what_waits_is_dropped_by_a_cancel(tmp_path: Path) -> None:
    committing, go_on = threading.Event(), threading.Event()

    def landed(batch: list[PendingFile]) -> None:
        committing.set()
        go_on.wait(PATIENCE)

    def cancelled(committer: Committer) -> None:
        for name in "abc":
            final, staging = committer.target.prepare(name)
            fd, temporary = committer.target.temporary(staging)
            written = os.fstat(fd)
            os.close(fd)
            committer.commit(PendingFile(name, temporary, final, 0, written))
            committing.wait(PATIENCE)
        threading.Timer(0.1, go_on.set).start()
        raise Cancelled("cancelled")

    committer = Committer(str(tmp_path), Planning(), umask=0o022, committed=landed)
    with pytest.raises(Cancelled), committer:
        cancelled(committer)
    assert os.listdir(tmp_path) == ["a"]
