"""A cancelled transfer does not wait until all that was handed over has landed."""

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

    def cancelled(landing: Committer) -> None:
        for name in "abc":
            final, staging = landing.target.prepare(name)
            fd, temporary = landing.target.temporary(staging)
            os.close(fd)
            landing.land(PendingFile(name, temporary, final, 0))
            committing.wait(PATIENCE)
        threading.Timer(0.1, go_on.set).start()
        raise Cancelled("cancelled")

    landing = Committer(str(tmp_path), Planning(), umask=0o022, landed=landed)
    with pytest.raises(Cancelled), landing:
        cancelled(landing)
    assert os.listdir(tmp_path) == ["a"]
