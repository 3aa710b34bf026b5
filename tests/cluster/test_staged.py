"""Files of a part: workers write beside the coordinator's mark only, and only such files get final names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import nbdata
from nbdata.engine.job.dealing import PartReport
from nbdata.engine.pull.dealt import DealtPull
from nbdata.report import Plan, Row
from nbdata.transfer.committer import Committer, PendingFile
from nbdata.transfer.free_control import FreeControl
from nbdata.transfer.index import Index
from nbdata.transfer.staged_files import StagedFile, StagedFiles
from nbdata.verbs.pull import Pull


class Coordinator:
    """A committer of a target folder, and the work that it deals."""

    def __init__(self, root: Path, state: Path) -> None:
        self.failed: dict[str, str] = {}
        self.named: list[str] = []
        self.committer = Committer(str(root), FreeControl(), umask=0o022, committed=self._committed)
        index = Index(str(state), "s3://b/", str(root), None)
        self.work = DealtPull(self, Plan("pull"), self, index, self.committer, None)  # type: ignore[arg-type]
        self.operation = Pull("s3://b/", str(root))

    def fail(self, path: str, error: Exception) -> None:
        self.failed[path] = str(error)

    def _committed(self, batch: list[PendingFile]) -> None:
        self.named += [file.path for file in batch if file.error is None]

    def name(self, file: StagedFile) -> None:
        row = Row(file.path, "fetch", file.size, {"key": file.path})
        self.work.record({file.path: row}, PartReport(staged=[file]))
        self.committer.flush()


class Item:
    verified, present = True, 0


def staged_by_a_worker(root: Path, token: str, data: bytes = b"data") -> list[StagedFile]:
    made: list[StagedFile] = []
    with StagedFiles(str(root), FreeControl(), token=token, umask=0o022, staged=made) as files:
        final, staging = files.target.prepare("a")
        temporary, written = files.target.written(staging, memoryview(data), "a")
        files.commit(PendingFile("a", temporary, final, len(data), written, tag="t", of=Item()))
        files.flush()
    return made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def test_a_staged_file_gets_its_name_from_the_coordinator(root: Path, tmp_path: Path) -> None:
    coordinator = Coordinator(root, tmp_path / "state")
    with coordinator.committer as committer:
        (file,) = staged_by_a_worker(root, committer.target.token)
        assert not (root / "a").exists(), "the worker gives no name"
        coordinator.name(file)
    assert coordinator.failed == {}
    assert (root / "a").read_bytes() == b"data"
    assert sorted(os.listdir(root)) == ["a"]


def test_what_a_worker_left_goes_with_the_coordinator(root: Path, tmp_path: Path) -> None:
    with Coordinator(root, tmp_path / "state").committer as committer:
        staged_by_a_worker(root, committer.target.token)
        staged_by_a_worker(root, committer.target.token)
    assert os.listdir(root) == []


def test_a_worker_refuses_a_folder_without_the_mark_of_its_job(root: Path, tmp_path: Path) -> None:
    with (
        Coordinator(root, tmp_path / "state").committer,
        pytest.raises(nbdata.NbdataError, match="does not see the files of this job"),
    ):
        staged_by_a_worker(root, "0123456789ab")
    with pytest.raises(nbdata.NbdataError, match="does not see the files of this job"):
        staged_by_a_worker(root, "0123456789ab")
    assert os.listdir(root) == []


def test_only_a_file_of_the_job_gets_a_name(root: Path, tmp_path: Path) -> None:
    coordinator = Coordinator(root, tmp_path / "state")
    (root / "mine").write_bytes(b"data")
    with coordinator.committer as committer:
        (file,) = staged_by_a_worker(root, committer.target.token)
        found = (root / "mine").stat()
        other = file._replace(name="../mine", inode=found.st_ino, mtime_ns=found.st_mtime_ns)
        coordinator.name(other)
        assert "not of this job" in coordinator.failed["a"]
    assert sorted(os.listdir(root)) == ["mine"]


def test_a_staged_file_that_was_exchanged_gets_no_name(root: Path, tmp_path: Path) -> None:
    coordinator = Coordinator(root, tmp_path / "state")
    with coordinator.committer as committer:
        (file,) = staged_by_a_worker(root, committer.target.token)
        path = Path(committer.target.staging(str(root))) / file.name
        path.rename(path.with_name(file.name + "0"))
        path.write_bytes(b"evil")
        coordinator.name(file)
        assert coordinator.failed.keys() == {"a"}
    assert os.listdir(root) == []
