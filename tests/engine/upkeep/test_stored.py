"""cleanup --stored frees the disk of what a store has, and deletes nothing that is only here unless it is told to."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.engine.upkeep import cleanup as module
from nbdata.history import past_jobs
from nbdata.runtime import state_folder
from tests.agent.rig import tmpfs
from tests.engine.changing import after_the_plan
from tests.faults.gate import Gate
from tests.s3_client import S3Client
from tests.waiting import wait_until

Put = Callable[[dict[str, bytes]], str]

CONTENT = {f"d/{name}": os.urandom(20_000) for name in ("a/1", "a/2", "b/3", "b/4")}


def files(root: Path) -> set[str]:
    return {str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir() or p.is_symlink()}


def remembered(job: nbdata.Job) -> None:
    """Wait until the job is on record: its agent writes that in a thread of its own."""
    job.wait()
    wait_until(lambda: job.id in {past.snapshot.id for past in past_jobs(state_folder())})


def cleanup(path: Path, **options: object) -> nbdata.Report:
    report: nbdata.Report = nbdata.cleanup(path, stored=True, quiet=True, **options)
    return report


def planned(path: Path, **options: object) -> nbdata.Plan:
    plan: nbdata.Plan = nbdata.cleanup(path, stored=True, dry_run=True, **options)
    return plan


@pytest.fixture
def url(put: Put) -> str:
    return put(CONTENT) + "d/"


@pytest.fixture
def data(url: str, tmp_path: Path) -> Path:
    """Four files that were pulled, and one of the user."""
    root = tmp_path / "data"
    remembered(nbdata.Pull(url, root / "in").start())
    (root / "mine").write_bytes(os.urandom(9_000))
    return root


def test_the_plan_says_what_is_freed_and_what_is_only_here(data: Path) -> None:
    before = files(data)
    plan = planned(data)
    assert plan.notes[0] == "frees 81.9 kB; 81.9 kB can be fetched again; 12.3 kB only here stay"
    assert plan.details["frees"] == {"own": 0, "stored": 4 * 20_480, "only_here": 0}
    assert plan.details["stays"] == {"only_here": 12_288, "not_asked": 0}
    assert {row.path: row.action for row in plan.rows}["mine"] == "keep"
    assert "keep mine: only here; --only-here deletes it too" in plan.text()
    lost = planned(data, only_here=True).notes[0]
    assert lost == "frees 94.2 kB; 81.9 kB can be fetched again; 12.3 kB are only here and are lost"
    assert files(data) == before


def test_what_a_store_has_goes_and_is_fetched_again(data: Path, url: str) -> None:
    report = cleanup(data)
    assert files(data) == {"mine"}
    assert report.counts == {"deleted": 4, "kept": 1}
    assert report.details["freed"] == 4 * 20_480
    nbdata.pull(url, data / "in", quiet=True)
    assert {
        f"d/{p.relative_to(data / 'in')}": p.read_bytes() for p in (data / "in").rglob("*") if p.is_file()
    } == CONTENT


def test_what_was_pushed_counts_as_stored(bucket: str, s3: EmbeddedServer, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "deep").mkdir(parents=True)
    for name in ("deep/1", "2", "3"):
        (out / name).write_bytes(os.urandom(20_000))
    remembered(nbdata.Push(str(out), f"s3://{bucket}/out").start())
    (out / "2").write_bytes(os.urandom(20_000))
    with contextlib.closing(S3Client(s3)) as client:
        client.put_object(Bucket=bucket, Key="out/3", Body=b"another version")
    assert cleanup(tmp_path).counts == {"deleted": 1, "kept": 2}
    assert files(out) == {"2", "3"}


def test_what_was_edited_here_or_changed_or_deleted_there_is_only_here(
    data: Path, bucket: str, s3: EmbeddedServer
) -> None:
    at = os.stat(data / "in/a/1")
    (data / "in/a/1").write_bytes(b"x" * 20_000)
    os.utime(data / "in/a/1", ns=(at.st_atime_ns, at.st_mtime_ns))
    with contextlib.closing(S3Client(s3)) as client:
        client.put_object(Bucket=bucket, Key="d/a/2", Body=os.urandom(20_000))
        client.delete_object(Bucket=bucket, Key="d/b/3")
    plan = planned(data)
    assert plan.details["frees"]["stored"] == 20_480
    assert plan.details["stays"]["only_here"] == 3 * 20_480 + 12_288
    cleanup(data)
    assert files(data) == {"in/a/1", "in/a/2", "in/b/3", "mine"}


@pytest.mark.parametrize("only_here", [False, True])
def test_what_no_store_could_be_asked_for_stays(
    data: Path, monkeypatch: pytest.MonkeyPatch, *, only_here: bool
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    plan = planned(data, only_here=only_here)
    assert plan.details["stays"]["not_asked"] == 4 * 20_480
    assert any("could not be asked" in note for note in plan.notes)
    report = cleanup(data, only_here=only_here)
    assert files(data) == ({*(f"in/{key[2:]}" for key in CONTENT)} | ({"mine"} if not only_here else set()))
    assert report.counts["kept"] == 4 + (not only_here)


def test_a_listing_that_breaks_off_proves_what_it_has_told(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nbdata.engine.upkeep import stored

    monkeypatch.setenv("NBDATA_HOST", "inline")
    found = stored.find

    def broken(*args: object) -> object:
        told = found(*args)  # type: ignore[arg-type]
        first = next(told.entries)

        def entries() -> object:
            yield first
            raise nbdata.StoreUnavailable("no answer")

        return type(told)(told.location, None, entries())  # type: ignore[arg-type]

    monkeypatch.setattr(stored, "find", broken)
    report = cleanup(data, only_here=True)
    assert report.counts == {"deleted": 2, "kept": 3}
    assert files(data) == {"in/a/2", "in/b/3", "in/b/4"}


def test_the_options_of_the_job_are_used_again(
    put: Put, s3: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = put(CONTENT) + "d/"
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    job = nbdata.Pull(url, tmp_path / "data", storage_options={"endpoint_url": s3.url}).start()
    remembered(job)
    assert planned(tmp_path).details["frees"]["stored"] == 4 * 20_480


def test_only_here_deletes_the_rest_and_needs_to_be_told_twice(data: Path, url: str) -> None:
    with pytest.raises(nbdata.BadOption, match="--only-here needs --stored"):
        nbdata.cleanup(data, only_here=True)
    for wide in ("~", "/"):
        with pytest.raises(nbdata.BadOption, match="--only-here refuses"):
            cleanup(Path(os.path.expanduser(wide)), only_here=True)
    with pytest.raises(nbdata.BadOption, match="exclude each other"):
        cleanup(data, all=True)
    with pytest.raises(nbdata.BadOption, match="local folders"):
        nbdata.cleanup(url, stored=True)
    (data / "link").symlink_to(data.parent)
    report = cleanup(data, only_here=True)
    assert report.counts == {"deleted": 5}
    assert files(data) == {"link"}


@pytest.mark.parametrize("name", ["in/a/1", "mine"])
@pytest.mark.parametrize("change", ["written", "replaced", "deleted"])
def test_a_file_that_is_edited_after_the_plan_stays(
    data: Path, name: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBDATA_HOST", "inline")
    file, size = data / name, (data / name).stat().st_size

    def edit() -> None:
        if change == "written":
            file.write_bytes(b"x" * size)
        else:
            file.unlink()
        if change == "replaced":
            file.write_bytes(b"x" * size)

    with after_the_plan(edit):
        report = cleanup(data, only_here=True)
    assert files(data) == (set() if change == "deleted" else {name})
    assert report.counts == {"deleted": 4} | ({} if change == "deleted" else {"kept": 1})


def test_nothing_is_deleted_through_a_link_that_took_a_folders_place(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBDATA_HOST", "inline")
    (data / "own").mkdir()
    (data / "own/file").write_bytes(b"own")

    def exchange() -> None:
        for name in ("in/a", "own"):
            os.rename(data / name, tmp_path / os.path.basename(name))
            (data / name).symlink_to(tmp_path / os.path.basename(name))

    with after_the_plan(exchange):
        cleanup(data, only_here=True)
    assert files(tmp_path / "a") == {"1", "2"}
    assert files(tmp_path / "own") == {"file"}
    assert files(data) == {"in/a", "own"}


@pytest.mark.needs("mounts")
def test_another_file_system_is_left_alone(data: Path) -> None:
    with tmpfs(data / "disk", size="1m") as disk:
        (disk / "file").write_bytes(b"there")
        cleanup(data, only_here=True)
        assert files(data) == {"disk/file"}


def test_a_name_of_a_stored_file_that_lies_elsewhere_is_left_alone(data: Path, tmp_path: Path) -> None:
    os.link(data / "in/a/1", tmp_path / "again")  # its status changes, so its record does not hold any more
    assert planned(data).details["frees"]["stored"] == 3 * 20_480
    cleanup(data)
    assert files(data) == {"in/a/1", "mine"}


def test_what_a_job_works_on_stays(data: Path, put: Put, gate: Gate) -> None:
    more = put({f"more/{number}": bytes(400_000) for number in range(3)}) + "more/"
    gate.close(after=100_000)
    job = nbdata.Pull(more, data / "in" / "more", concurrency=1).start()
    gate.wait_until_it_holds()
    job.pause()
    gate.open()
    before = files(data / "in" / "a") | files(data / "in" / "b")
    report = cleanup(data, only_here=True)
    assert report.counts["in use"] >= 4
    assert "deleted" not in report.counts
    assert files(data / "in" / "a") | files(data / "in" / "b") == before
    assert (data / "mine").exists()
    job.resume()
    job.wait()


def test_a_kill_between_the_deletion_and_its_record_loses_nothing(
    data: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBDATA_HOST", "inline")

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(module, "_forget", killed)
        with pytest.raises(nbdata.NbdataError):
            cleanup(data)
    assert files(data) == {"mine"}
    assert planned(data).details["frees"]["stored"] == 0
    nbdata.pull(url, data / "in", quiet=True)
    assert len(files(data)) == 5
    shutil.rmtree(data / "in" / "a")
    assert cleanup(data).counts == {"deleted": 2, "kept": 1}


def test_files_go_in_batches(data: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBDATA_HOST", "inline")
    monkeypatch.setattr(module, "_TOGETHER", 2)
    assert cleanup(data).counts == {"deleted": 4, "kept": 1}
    nbdata.pull(url, data / "in", quiet=True)
    assert cleanup(data, only_here=True).counts == {"deleted": 5}
    assert files(data) == set()
