"""Two jobs at once: neither removes files that the other one uses."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from nbdata.engine.runner import Planning
from nbdata.transfer.committer import Committer
from nbdata.transfer.locks import TargetLock


def test_a_lock_that_is_released_while_another_looks_at_it_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, other = TargetLock(str(tmp_path), "holder"), TargetLock(str(tmp_path), "other")
    assert holder.acquire() is None
    real, test_ = fcntl.flock, threading.get_ident()

    def flock(fd: int, how: int) -> None:
        if how & fcntl.LOCK_NB and threading.get_ident() == test_:
            holder.release()  # between open and flock
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    assert other.acquire() is None
    other.release()


def test_two_jobs_for_files_of_one_folder_do_not_remove_each_others_staging_folder(tmp_path: Path) -> None:
    with Committer(str(tmp_path), Planning(), umask=0o022, committed=lambda batch: None) as one:
        with Committer(str(tmp_path), Planning(), umask=0o022, committed=lambda batch: None):
            pass  # finds the folder for temporary files empty, and removes it
        _, staging = one.target.prepare("a")
        fd, _ = one.target.temporary(staging)
        os.close(fd)
