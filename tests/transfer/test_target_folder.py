"""Folders that are created in the target for new files."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

import nbdata
from nbdata.engine.job.task import Task
from nbdata.report import Snapshot
from nbdata.transfer.target_folder import TargetFolder


def test_a_folder_has_the_users_mode_though_what_is_told_of_it_fails(tmp_path: Path) -> None:
    """The agent's own files are private to its user, and without care new folders would be private too."""
    folder = tmp_path / "a"

    def made(_: str) -> None:
        if folder.exists():
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    before = os.umask(0o077)
    try:
        task = Task(Snapshot(id="t", verb="pull"))
        target = TargetFolder(str(tmp_path), task, umask=0o022, made=made)
        target.enter()
        with pytest.raises(nbdata.NbdataError, match="Too many open files"):
            target.prepare("a/x")
        target.leave()
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_a_temporary_can_be_read_by_its_user_alone(tmp_path: Path) -> None:
    """What it gets a name in may be private, and the folder for temporaries of a shared disk is not."""
    tmp_path.chmod(0o777)
    target = TargetFolder(str(tmp_path), Task(Snapshot(id="t", verb="pull")), umask=0o022)
    target.enter()
    fd, temporary = target.temporary(target.staging(str(tmp_path)))
    os.close(fd)
    assert stat.S_IMODE(os.stat(temporary).st_mode) == 0o600
    target.leave()
