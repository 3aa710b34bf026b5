"""A folder that two machines share: one job works there at a time, and files of a dead machine are removed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import nbdata
from nbdata.engine.runner import Planning
from nbdata.errors import Cancelled, NbdataError, NotFound
from nbdata.transfer import marks
from nbdata.transfer.committer import Committer, PendingFile
from tests.waiting import PATIENCE, wait_until

ELSEWHERE = "0123456789ab"


def mark_of_elsewhere(target: Path, *, age: float = 0.0) -> Path:
    """Make the files of another machine's job in the target: its mark and a temporary file."""
    own = target / ".nbdata"
    own.mkdir(parents=True, exist_ok=True)
    (own / f"{ELSEWHERE}1").write_bytes(b"half a file")
    mark = own / f"{ELSEWHERE}0"
    mark.write_text(json.dumps(["far-away", 1, 2, "holder-1"]))
    then = time.time() - age
    os.utime(mark, (then, then))
    return mark


def committer(target: Path, control: Planning | None = None) -> Committer:
    return Committer(str(target), control or Planning(), umask=0o022, committed=lambda batch: None)


def test_a_job_waits_for_one_of_another_machine_and_says_so(tmp_path: Path) -> None:
    mark = mark_of_elsewhere(tmp_path)
    control = Planning()

    def end_the_other() -> None:
        said.append(wait_until(lambda: control.snapshot().phase))
        mark.unlink()

    said: list[str] = []
    other = threading.Thread(target=end_the_other)
    other.start()
    with committer(tmp_path, control):
        assert not mark.exists()
    other.join()
    assert said == ["waits for a job on far-away, which works in the same folder"]


def test_a_waiting_job_can_be_stopped(tmp_path: Path) -> None:
    mark_of_elsewhere(tmp_path)
    control = Planning()
    control.enter("PLANNING")
    threading.Timer(0.3, control.cancel).start()
    with pytest.raises(Cancelled), committer(tmp_path, control):
        pytest.fail("another machine works there")
    assert sorted(p.name for p in (tmp_path / ".nbdata").iterdir()) == [f"{ELSEWHERE}0", f"{ELSEWHERE}1"]


def test_what_a_dead_machine_left_is_taken_away(tmp_path: Path) -> None:
    mark_of_elsewhere(tmp_path, age=marks._DEAD + 5)
    with committer(tmp_path):
        assert not (tmp_path / ".nbdata" / f"{ELSEWHERE}1").exists()
    assert not (tmp_path / ".nbdata").exists()


def test_a_living_job_keeps_its_mark_young(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "_BEAT", 0.05)
    with committer(tmp_path) as one:
        mark = Path(one.target.staging(str(tmp_path))) / f"{one.target.token}0"
        os.utime(mark, (0, 0))
        wait_until(lambda: mark.stat().st_mtime > 0)


def test_a_job_that_was_taken_for_dead_renames_nothing_when_it_wakes_up(tmp_path: Path) -> None:
    def wake_up() -> None:
        with committer(tmp_path) as one:
            final, staging = one.target.prepare("a")
            fd, temporary = one.target.temporary(staging)
            written = os.fstat(fd)
            os.close(fd)
            os.unlink(f"{staging}/{one.target.token}0")
            one.commit(PendingFile("a", temporary, final, 0, written))

    with pytest.raises(NbdataError, match="another machine has taken this job for dead"):
        wake_up()
    assert not (tmp_path / "a").exists()


def test_a_job_whose_folder_was_deleted_is_told_so(tmp_path: Path) -> None:
    def deleted() -> None:
        with committer(tmp_path / "new") as one:
            final, staging = one.target.prepare("a")
            fd, temporary = one.target.temporary(staging)
            written = os.fstat(fd)
            os.close(fd)
            shutil.rmtree(tmp_path / "new")
            one.commit(PendingFile("a", temporary, final, 0, written))

    with pytest.raises(NotFound, match="the folder was deleted while this job worked in it"):
        deleted()


def test_two_machines_that_begin_at_once_go_one_after_the_other(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(40):
        (source / f"{number}").write_bytes(os.urandom(200_000))
    code = "import sys, nbdata; print(nbdata.pull(sys.argv[1], sys.argv[2], quiet=True).state)"
    jobs = []
    for name in ("one", "two"):
        environment = {
            **os.environ,
            "NBDATA_HOST": "inline",
            "NBDATA_RUNTIME_DIR": str(tmp_path / name),
            "NBDATA_STATE_DIR": str(tmp_path / f"{name}-state"),
        }
        command = [sys.executable, "-c", code, str(source), str(tmp_path / "out")]
        jobs.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    assert [job.communicate(timeout=PATIENCE)[0] for job in jobs] == ["DONE\n", "DONE\n"]
    for file in source.iterdir():
        assert (tmp_path / "out" / file.name).read_bytes() == file.read_bytes()
    assert not (tmp_path / "out" / ".nbdata").exists()


def test_cleanup_leaves_alone_what_another_machine_works_on(tmp_path: Path) -> None:
    mark = mark_of_elsewhere(tmp_path)
    report = nbdata.cleanup(tmp_path, quiet=True)
    assert report.counts["in use"] == 2
    assert mark.exists()
    then = time.time() - marks._DEAD - 5
    os.utime(mark, (then, then))
    nbdata.cleanup(tmp_path, quiet=True)
    assert not (tmp_path / ".nbdata").exists()


def test_a_mark_that_says_nothing_is_taken_away_when_it_is_old(tmp_path: Path) -> None:
    """This is left if a kill came between the mark's creation and its writing."""
    mark = mark_of_elsewhere(tmp_path, age=marks._DEAD + 5)
    then = mark.stat().st_mtime
    mark.write_text("")
    os.utime(mark, (then, then))
    with committer(tmp_path):
        assert not mark.exists()
    assert not (tmp_path / ".nbdata").exists()


def test_on_a_full_disk_a_living_job_of_another_machine_is_seen_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = mark_of_elsewhere(tmp_path)
    open_ = os.open

    def full(path: str, flags: int, *more: int, **how: int) -> int:
        if flags & os.O_CREAT:
            raise OSError(28, "No space left on device")
        return open_(path, flags, *more, **how)

    monkeypatch.setattr(os, "open", full)
    assert marks.worker_elsewhere(str(mark.parent)) == "far-away"


def test_a_job_that_is_taken_for_dead_during_a_sync_renames_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nbdata.transfer.committer as module

    monkeypatch.setattr(
        module, "make_durable", lambda _: [os.unlink(mark._path) for mark in at[0].target._marks]
    )
    at: list[Committer] = []

    def slow_sync() -> None:
        with committer(tmp_path) as one:
            at.append(one)
            final, staging = one.target.prepare("a")
            fd, temporary = one.target.temporary(staging)
            written = os.fstat(fd)
            os.close(fd)
            one.commit(PendingFile("a", temporary, final, 0, written))

    with pytest.raises(NbdataError, match="taken this job for dead"):
        slow_sync()
    assert not (tmp_path / "a").exists()


def test_any_number_of_marks_from_the_future_counts_as_dead_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive that brings a ``.nbdata`` folder can give its files any time."""
    clock = [1000.0]
    monkeypatch.setattr(marks, "_WATCHED", 5)
    monkeypatch.setattr(marks.time, "monotonic", lambda: clock[0])
    own = tmp_path / ".nbdata"
    own.mkdir()
    for number in range(20):
        (own / f"{number:012x}0").write_text("{}")
        os.utime(own / f"{number:012x}0", (4e9, 4e9))
    assert marks.worker_elsewhere(str(own)) == "another machine"
    clock[0] += marks._DEAD - 1
    assert marks.worker_elsewhere(str(own)) == "another machine"
    clock[0] += 1
    assert marks.worker_elsewhere(str(own)) is None
    os.utime(own / f"{0:012x}0", (4e9 + 1, 4e9 + 1))  # its job lives, whose clock was set back
    assert marks.worker_elsewhere(str(own)) == "another machine"


def test_so_do_those_in_any_number_of_folders_of_other_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(marks, "_WATCHED", 5)
    monkeypatch.setattr(marks.time, "monotonic", lambda: clock[0])
    tmp_path.chmod(0o777)
    own = tmp_path / ".nbdata"
    own.mkdir()
    for number in range(20):
        other = tmp_path / f".nbdata-{number}"
        other.mkdir()
        (other / f"{ELSEWHERE}0").write_text("{}")
        os.utime(other / f"{ELSEWHERE}0", (4e9, 4e9))
    assert marks.worker_elsewhere(str(own)) == "another machine"
    clock[0] += marks._DEAD
    assert marks.worker_elsewhere(str(own)) is None
