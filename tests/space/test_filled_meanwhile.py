"""Another process fills the disk during a pull: a foreground job fails with a message, a background job waits."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.engine.job import shortage
from nbdata.engine.job import task as task_module
from nbdata.protocols import Job
from nbdata.space import ledger
from nbdata.space.ledger import Ledger
from tests.agent.rig import fill, tmpfs
from tests.faults.gate import Gate
from tests.faults.proxy import BEFORE, Fault, FaultProxy
from tests.waiting import AT_ONCE, PATIENCE, wait_until

MB = 10**6
Put = Callable[[dict[str, bytes]], str]


@pytest.fixture
def disk(tmp_path: Path, mounts: None) -> Iterator[Path]:
    with tmpfs(tmp_path / "disk", size="20m") as folder:
        yield folder


@pytest.fixture
def gate(s3: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """A gate in front of the store that holds after 4 MB."""
    with Gate(s3.url, limit=4 * MB) as line:
        monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
        yield line


@pytest.fixture
def looks_often(inline: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs run in this process, and a job that waits for room checks it every few moments."""
    monkeypatch.setattr(shortage, "_LOOK_EVERY", 0.02)


@pytest.fixture
def large_waits(s3: EmbeddedServer, inline: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A proxy in front of the store that never answers for the object ``large``, so its pull goes on.

    Jobs run in this process, and note at once in the ledger what they wrote.
    """
    monkeypatch.setattr(ledger, "_NOTE_EVERY", 0)
    with FaultProxy(s3.url) as line:
        line.begin(lambda request, before: Fault("stall", BEFORE) if request.key.endswith("/large") else None)
        monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
        yield


class Clock:
    """The clock of tasks. A job that waits for room reads it at each check."""

    def __init__(self) -> None:
        self.reads = 0

    def monotonic(self) -> float:
        self.reads += 1
        return time.monotonic()


def all_but_a_megabyte(disk: Path) -> Path:
    """Write another process's file that leaves only a megabyte."""
    return fill(disk, leave=MB)


def begun(
    put: Put, gate: Gate, target: Path, use_up: Callable[[Path], Path] = all_but_a_megabyte
) -> tuple[Job, Path, dict[str, bytes]]:
    """Start a pull of 10 MB in the background, and fill the disk while the pull is held halfway."""
    content = {f"{number:02d}": os.urandom(MB // 2) for number in range(20)}
    url = put({f"d/{name}": data for name, data in content.items()}) + "d/"
    job = nbdata.Pull(url, target, concurrency=4).start()
    gate.wait_until_it_holds()
    wait_until(lambda: any(target.glob("[0-9]*")))
    filler = use_up(target.parent)
    gate.open()
    return job, filler, content


def whole(target: Path, content: dict[str, bytes]) -> bool:
    """True if the target holds exactly these files."""
    return {path.name: path.read_bytes() for path in target.iterdir()} == content


def test_a_background_pull_pauses_with_the_reason_and_goes_on_when_there_is_room(
    put: Put, gate: Gate, disk: Path
) -> None:
    job, filler, content = begun(put, gate, disk / "out")
    wait_until(lambda: job.snapshot().state == "PAUSED")
    paused = job.snapshot()
    assert paused.reason.startswith("no space: it needs ")
    assert "may be used; it continues when there is space" in paused.reason
    assert [s.state for s in nbdata.transfers() if s.id == job.id] == ["PAUSED"]
    assert nbdata.quota(disk, quiet=True).details["rooms"][0]["reserved"] == 0, (
        "others may use what it cannot"
    )
    filler.unlink()
    report = job.wait(PATIENCE)
    assert report.state == "DONE"
    assert report.counts["fetched"] + report.counts["unchanged"] == 20
    assert report.counts["unchanged"] > 0
    assert any("waited for free space" in note for note in report.notes)
    now = job.snapshot()
    assert (now.files, now.files_total) == (20, 20), "what was there before it waited counts as done"
    # A part of the file that met the full disk may have been kept.
    assert report.bytes - report.present == now.bytes - now.present
    assert whole(disk / "out", content)


def test_what_waits_for_room_can_be_cancelled_at_once_and_the_same_line_continues(
    put: Put, gate: Gate, disk: Path
) -> None:
    job, filler, content = begun(put, gate, disk / "out")
    wait_until(lambda: job.snapshot().state == "PAUSED")
    began = time.monotonic()
    job.cancel()
    with pytest.raises(nbdata.Cancelled):
        job.wait(PATIENCE)
    assert time.monotonic() - began < AT_ONCE
    with pytest.raises(nbdata.NotEnoughSpace, match="not enough space: it needs"):
        nbdata.pull(job.snapshot().source, disk / "out", quiet=True)
    filler.unlink()
    assert nbdata.pull(job.snapshot().source, disk / "out", quiet=True).counts["unchanged"] > 0
    assert whole(disk / "out", content)


def test_what_waits_for_room_tries_when_told_to_and_waits_again(
    put: Put, gate: Gate, disk: Path, looks_often: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, filler, content = begun(put, gate, disk / "out")
    wait_until(lambda: job.snapshot().state == "PAUSED")
    nbdata.transfers(job.id, resume=True)
    wait_until(lambda: job.snapshot().state == "PAUSED")
    assert job.snapshot().reason.startswith("no space")
    nbdata.transfers(job.id, pause=True)  # a user's pause; it must not resume by itself
    assert job.snapshot().reason == "user"
    monkeypatch.setattr(task_module, "time", clock := Clock())
    filler.unlink()
    wait_until(lambda: clock.reads > 5 or job.snapshot().state != "PAUSED")
    assert job.snapshot().state == "PAUSED"
    nbdata.transfers(job.id, resume=True)
    assert job.wait(PATIENCE).state == "DONE"
    assert whole(disk / "out", content)


@pytest.mark.parametrize("host", ["agent", "inline"])
def test_a_pull_that_somebody_waits_for_ends_with_the_numbers_and_the_same_line_completes(
    put: Put, gate: Gate, disk: Path, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBDATA_HOST", host)
    content = {f"{number:02d}": os.urandom(MB // 2) for number in range(20)}
    url = put({f"d/{name}": data for name, data in content.items()}) + "d/"
    from nbdata.operation import slots

    job = slots.host().submit(nbdata.Pull(url, disk / "out", concurrency=4), background=False)
    gate.wait_until_it_holds()
    wait_until(lambda: any((disk / "out").glob("[0-9]*")))
    filler = fill(disk, leave=MB)
    gate.open()
    with pytest.raises(nbdata.NotEnoughSpace, match=r"became full: it still needs .* may be used") as caught:
        job.wait(PATIENCE)
    told = caught.value.details
    assert told["free"] < told["needed"] < 10 * MB
    assert told["source"] == "free on the disk"
    assert "command again" in str(caught.value)
    assert not any(path.stat().st_size not in (0, MB // 2) for path in (disk / "out").glob("[0-9]*"))
    filler.unlink()
    report = nbdata.pull(url, disk / "out", quiet=True)
    assert report.counts["unchanged"] > 0
    assert whole(disk / "out", content)


def test_a_limit_that_others_use_up_meanwhile_holds_what_unpacks_without_a_known_size(
    disk: Path, tmp_path: Path, looks_often: None
) -> None:
    """The extracted size is unknown, so room is reserved in steps. A refused step waits as on a full disk."""
    import tarfile

    members = tmp_path / "members"
    members.mkdir()
    for number in range(8):
        (members / f"{number}").write_bytes(bytes(2 * MB))
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(members, arcname=".")
    filler = fill(disk, leave=6 * MB)
    job = nbdata.UntarVolumes(str(tmp_path / "a.tar.gz"), disk / "out").start()
    wait_until(lambda: job.snapshot().state == "PAUSED")
    assert job.snapshot().reason.startswith("no space")
    filler.unlink()
    assert job.wait(PATIENCE).state == "DONE"
    assert {path.name for path in (disk / "out").iterdir()} >= {f"{number}" for number in range(8)}


def bulky(folder: Path) -> Path:
    """Write an archive of 16 MB that compresses to almost nothing."""
    import tarfile

    with tarfile.open(folder / "bulky.tar.gz", "w:gz") as archive:
        for number in range(16):
            entry = tarfile.TarInfo(f"{number}")
            entry.size = MB
            with open("/dev/zero", "rb") as zeros:
                archive.addfile(entry, zeros)
    return folder / "bulky.tar.gz"


def test_a_limit_given_when_the_command_is_repeated_applies_to_the_waiting_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = tmp_path / "room"
    monkeypatch.setenv("NBDATA_QUOTA", f"6MB:{room}")
    job = nbdata.UntarVolumes(str(bulky(tmp_path)), room / "out").start()
    wait_until(lambda: job.snapshot().state == "PAUSED")
    assert job.snapshot().reason.startswith("no space: it needs ")
    monkeypatch.setenv("NBDATA_QUOTA", f"60MB:{room}")
    again = nbdata.UntarVolumes(str(tmp_path / "bulky.tar.gz"), room / "out").start()
    assert again.id == job.id
    assert again.wait(PATIENCE).state == "DONE"
    assert {path.name: path.stat().st_size for path in (room / "out").iterdir()} == {
        f"{number}": MB for number in range(16)
    }


@pytest.mark.needs("mounts")
def test_a_disk_without_inodes_says_so_and_what_unpacks_names_no_more_than_it_can_need(
    tmp_path: Path,
) -> None:
    archive = bulky(tmp_path)
    disks = tmpfs(tmp_path / "few", size="60m,nr_inodes=12")
    with disks as disk:
        with pytest.raises(nbdata.NotEnoughSpace, match="no inodes left for more files") as caught:
            nbdata.untar_volumes(str(archive), disk / "out", quiet=True)
        assert caught.value.details["needed"] <= 16 * MB, "a step of 32 MB or more was reserved"
        job = nbdata.UntarVolumes(str(archive), disk / "out").start()
        wait_until(lambda: job.snapshot().state == "PAUSED")
        assert "no inodes left for more files; it continues" in job.snapshot().reason
        job.cancel()


@pytest.mark.needs("mounts")
def test_folders_are_counted_before_a_byte_moves(put: Put, tmp_path: Path) -> None:
    url = put({f"d/{number}/deep/file": b"x" for number in range(8)}) + "d/"
    with tmpfs(tmp_path / "few", size="20m,nr_inodes=24") as disk:
        (disk / "there").mkdir()
        with pytest.raises(nbdata.NotEnoughSpace, match="files and folders") as caught:
            nbdata.pull(url, disk / "and" / "a" / "new", quiet=True)
        # 8 files, 16 folders, the target and its parents; while it runs, also the folder for temporary files and its
        # mark
        assert caught.value.details["inodes"] == 8 + 16 + 3 + 2
        assert not (disk / "and").exists()
    (tmp_path / "out" / "3" / "deep").mkdir(parents=True)
    plan = nbdata.pull(url, tmp_path / "out", dry_run=True)
    assert plan.inodes == 8 + 14 + 2
    assert plan.needed == (8 + 14) * os.statvfs(tmp_path).f_frsize, "each folder takes a block, too"
    nbdata.pull(url, tmp_path / "out", quiet=True)
    assert nbdata.pull(url, tmp_path / "out", dry_run=True).inodes == 0


@pytest.mark.needs("mounts")
def test_no_room_is_kept_for_folders_that_were_made(large_waits: None, put: Put, tmp_path: Path) -> None:
    small = {f"d/{number}/deep/file": b"x" for number in range(8)}
    url = put({**small, "d/large": os.urandom(MB)}) + "d/"
    with tmpfs(tmp_path / "few", size="40m,nr_inodes=60") as disk:
        job = nbdata.Pull(url, disk / "out").start()

        def kept() -> int:
            free = Ledger().room(str(disk), {})[0].inodes_free
            assert free is not None
            return os.statvfs(disk).f_favail - free

        wait_until(lambda: job.snapshot().files == 8 and kept() <= 1 + 3)
        assert not job.snapshot().finished
        job.cancel()
        with pytest.raises(nbdata.Cancelled):
            job.wait(PATIENCE)


@pytest.mark.needs("mounts")
def test_files_that_were_there_and_differed_use_up_nothing_that_is_kept_for_others(
    large_waits: None, put: Put, tmp_path: Path
) -> None:
    url = put({**{f"d/{n}": b"new" for n in range(8)}, "d/large": os.urandom(MB)}) + "d/"
    with tmpfs(tmp_path / "few", size="40m,nr_inodes=60") as disk:
        (disk / "out").mkdir()
        for number in range(8):
            (disk / "out" / str(number)).write_bytes(b"old")
        job = nbdata.Pull(url, disk / "out").start()
        wait_until(lambda: job.snapshot().files == 8)
        free = Ledger().room(str(disk), {})[0].inodes_free
        assert free is not None
        assert not job.snapshot().finished
        assert os.statvfs(disk).f_favail - free >= 1
        job.cancel()
        with pytest.raises(nbdata.Cancelled):
            job.wait(PATIENCE)


def test_a_background_pull_that_never_fitted_is_refused_and_does_not_wait(
    put: Put, disk: Path, s3: object
) -> None:
    url = put({f"d/{number}": bytes(5 * MB) for number in range(5)}) + "d/"
    job = nbdata.Pull(url, disk / "out").start()
    with pytest.raises(nbdata.NotEnoughSpace, match="not enough space: it needs 2"):
        job.wait(PATIENCE)
    assert not (disk / "out").exists()


def test_a_pull_started_with_ignore_space_waits_until_there_is_more_room(
    put: Put, s3: EmbeddedServer, disk: Path, looks_often: None
) -> None:
    content = {f"{number:02d}": os.urandom(MB // 2) for number in range(50)}
    url = put({f"d/{name}": data for name, data in content.items()}) + "d/"
    job = nbdata.Pull(url, disk / "out", ignore_space=True).start()
    wait_until(lambda: job.snapshot().state == "PAUSED")
    assert job.snapshot().reason.startswith("no space")
    subprocess.run(["mount", "-o", "remount,size=40m", str(disk)], check=True)
    assert job.wait(PATIENCE).state == "DONE"
    assert whole(disk / "out", content)


def all_numbers(disk: Path) -> Path:
    """Make another process's folder full of empty files, until no file can be created."""
    folder = disk / "somebody-elses"
    folder.mkdir()
    with contextlib.suppress(OSError):
        for number in range(1000):
            (folder / f"{number}").touch()
    return folder


@pytest.mark.needs("mounts")
def test_a_job_also_waits_for_free_inodes(put: Put, gate: Gate, tmp_path: Path, looks_often: None) -> None:
    with tmpfs(tmp_path / "few", size="20m,nr_inodes=64") as disk:
        job, filler, content = begun(put, gate, disk / "out", all_numbers)
        wait_until(lambda: job.snapshot().state == "PAUSED")
        assert "files and folders (inodes)" in job.snapshot().reason
        shutil.rmtree(filler)
        assert job.wait(PATIENCE).state == "DONE"
        assert whole(disk / "out", content)
