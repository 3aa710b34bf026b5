"""Files of many folders are committed in one batch: their names are durable before they are reported."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nbdata import disk
from nbdata.engine.runner import Planning
from nbdata.transfer.committer import Committer, PendingFile

FOLDERS = 40


def land(target: Path, landed: Callable[[list[PendingFile]], None]) -> None:
    """Commit one file in each of many folders, all together."""
    with Committer(str(target), Planning(), umask=0o022, committed=landed) as there:
        files = []
        for number in range(FOLDERS):
            final, staging = there.target.prepare(f"{number}/file")
            fd, temporary = there.target.temporary(staging)
            os.write(fd, b"content")
            written = os.fstat(fd)
            os.close(fd)
            files.append(PendingFile(f"{number}/file", temporary, final, 7, written))
        there.commit_all(files)


def test_their_names_are_synced_together_before_they_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []
    real = disk.syncfs
    assert real is not None

    def synced(fd: int) -> int:
        seen.append(len([*tmp_path.glob("*/file")]))
        return real(fd)

    monkeypatch.setattr(disk, "syncfs", synced)
    land(tmp_path, lambda batch: seen.append([file.error for file in batch]))
    assert seen == [0, FOLDERS, [None] * FOLDERS]  # sync of bytes, sync of names, report


def test_none_of_them_is_done_if_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results, batches = [0, -1], list[list[PendingFile]]()
    monkeypatch.setattr(disk, "syncfs", lambda _: results.pop(0))
    monkeypatch.setattr(disk.ctypes, "get_errno", lambda: errno.EIO)
    land(tmp_path, batches.append)
    assert [file.error is not None for batch in batches for file in batch] == [True] * FOLDERS
