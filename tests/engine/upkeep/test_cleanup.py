"""cleanup removes what nbdata left behind, and never anything else."""

from __future__ import annotations

import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.client.records.writer import FileWriter
from nbdata.demo.server import EmbeddedServer
from nbdata.disk import write_file
from nbdata.operation import Context
from nbdata.stores.local import LocalStore
from nbdata.stores.resolve import open_place
from nbdata.transfer import uploads
from nbdata.transfer.index import written_below
from nbdata.transfer.locks import Claim, TargetLock
from nbdata.writing.growing_file import GrowingFile
from tests.engine.changing import after_the_plan
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.usefixtures("inline", "state")


# The names of two unfinished objects.
PART, OTHER = "abc" * 8, "ef" * 12


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with a user's files, and leftovers of killed jobs."""
    root = tmp_path / "data"
    for name in (
        "mine",
        f".nbdata/{PART}.part",
        f".nbdata/{PART}.parts",
        ".nbdata/0123456789ab1",
        f"deep/er/.nbdata/{OTHER}.part",
        "deep/mine",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * 10_000)
    (root / "empty/.nbdata").mkdir(parents=True)
    return root


def files(root: Path) -> set[str]:
    return {str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir() or p.is_symlink()}


def folders(root: Path) -> set[str]:
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_dir() and not p.is_symlink()}


def cleanup(path: object, **options: object) -> nbdata.Report:
    report: nbdata.Report = nbdata.cleanup(path, quiet=True, **options)
    return report


def test_a_link_in_the_place_of_a_cache_is_not_followed(data: Path, tmp_path: Path) -> None:
    link = tmp_path / "scratch/.nbdata/kept-0123456789abcdef"
    link.parent.mkdir(parents=True)
    link.symlink_to(data)
    before = files(data)
    with pytest.raises(nbdata.BadOption, match="a link to another folder"):
        cleanup(link, all=True)
    assert files(data) == before


def test_an_ffrecord_file_that_grows_slowly_is_left(tmp_path: Path) -> None:
    """Nothing is written to the disk while the program computes the next samples."""
    writer = FileWriter(tmp_path / "x.ffr", n=1)
    (partial,) = tmp_path.glob(".*.nbdata-partial")
    os.utime(partial, (0, 0))
    assert cleanup(tmp_path).counts == {"in use": 1}
    writer.write_one(b"sample")
    writer.close()
    assert files(tmp_path) == {"x.ffr"}


def test_a_file_that_a_push_or_a_checksum_list_writes_slowly_is_left(tmp_path: Path) -> None:
    """The source may stall, and cleanup of another user or container does not see the job."""
    seen = list[dict[str, int]]()

    def pieces() -> Iterator[bytes]:
        yield b"first, "
        (partial,) = tmp_path.glob(".*.nbdata-partial")
        os.utime(partial, (0, 0))
        seen.append(cleanup(tmp_path).counts)
        yield b"second"

    write_file(str(tmp_path / "x"), pieces())
    assert seen == [{"in use": 1}]
    assert (tmp_path / "x").read_bytes() == b"first, second"
    assert files(tmp_path) == {"x"}


def test_volumes_that_wait_for_their_names_are_left_while_the_next_one_grows(tmp_path: Path) -> None:
    names = ("x.zip.001", "x.zip.002")
    first, second = (GrowingFile(LocalStore(), f"{tmp_path}/"[1:], name, lambda _: None) for name in names)
    first.write(b"whole")
    first.end()
    for partial in tmp_path.iterdir():
        os.utime(partial, (0, 0))
    assert cleanup(tmp_path).counts == {"in use": 2}
    for file in (second, first):
        file.finish()
    assert files(tmp_path) == {*names}


# -- partial and temporary files --------------------------------------------------------------------


def test_partials_at_any_depth_go_and_the_users_files_stay(data: Path) -> None:
    report = cleanup(data)
    assert files(data) == {"mine", "deep/mine"}
    assert folders(data) == {"deep", "deep/er", "empty"}
    assert report.counts["removed"] == 4
    assert report.details["freed"] == 4 * 12_288
    assert "4 removed" in report.line
    assert "49.2 kB freed" in report.line
    assert "nothing was left" in cleanup(data).line


def test_a_plan_lists_what_would_go_and_removes_nothing(data: Path) -> None:
    before = files(data)
    plan = nbdata.cleanup(data, dry_run=True)
    assert plan.actions["remove"] == [5, 4 * 12_288]  # includes nbdata's own empty folder
    assert {row.path for row in plan.rows} == {
        f".nbdata/{PART}.part", f".nbdata/{PART}.parts", ".nbdata/0123456789ab1", f"deep/er/.nbdata/{OTHER}.part",
        "empty/.nbdata",
    }  # fmt: skip
    assert files(data) == before


@pytest.mark.parametrize("locked", ["deep", "deep/er", "deep/er/below", ""])
def test_what_a_running_job_works_on_stays_and_the_job_is_named(data: Path, locked: str) -> None:
    lock = TargetLock(str(data / locked), "4a2f")
    assert lock.acquire() is None
    try:
        assert nbdata.cleanup(data, dry_run=True).actions["in use"][0] >= 1
        report = cleanup(data)
        assert f"deep/er/.nbdata/{OTHER}.part" in files(data)
        assert (f".nbdata/{PART}.part" in files(data)) is True  # the whole folder contains the locked one
        assert report.counts["in use"] == 4
        assert any("4a2f" in note for note in report.notes)
        assert report.ok
    finally:
        lock.release()
    assert cleanup(data).counts["removed"] == 4


def test_what_lies_beside_a_running_job_goes(data: Path) -> None:
    (data / "other/.nbdata").mkdir(parents=True)
    (data / f"other/.nbdata/{OTHER}.part").write_bytes(b"x")
    lock = TargetLock(str(data / "other"), "4a2f")
    assert lock.acquire() is None
    try:
        report = cleanup(data)
        assert files(data) >= {
            f"other/.nbdata/{OTHER}.part",
            f".nbdata/{PART}.part",
        }
        assert f"deep/er/.nbdata/{OTHER}.part" not in files(data)
        assert (data / "other/.nbdata").is_dir()
        assert report.counts["removed"] == 1
    finally:
        lock.release()


def test_a_job_that_begins_after_the_plan_keeps_its_files(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nbdata.engine.upkeep import cleanup as module

    lock = TargetLock(str(data), "4a2f")
    plan = module.plan

    def plan_and_lock(run: object) -> object:
        planned = plan(run)  # type: ignore[arg-type]
        assert lock.acquire() is None
        return planned

    monkeypatch.setattr(module, "plan", plan_and_lock)
    try:
        report = cleanup(data)
        assert len(files(data)) == 6
        assert (data / "empty/.nbdata").is_dir()
        assert "removed" not in report.counts
    finally:
        lock.release()


def test_a_nbdata_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/x").write_bytes(b"x")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/.nbdata").symlink_to(tmp_path / "precious")
    (tmp_path / "data/sub").symlink_to(tmp_path / "precious")
    (tmp_path / "precious/.nbdata").mkdir()
    (tmp_path / f"precious/.nbdata/{OTHER}.part").write_bytes(b"x")
    cleanup(tmp_path / "data")
    assert files(tmp_path / "precious") == {"x", f".nbdata/{OTHER}.part"}


def test_files_that_a_store_was_writing_go_when_they_are_old(data: Path) -> None:
    old, young = data / ".0123456701234567.nbdata-partial", data / "deep/.4567012345670123.nbdata-partial"
    for file in (old, young):
        file.write_bytes(b"x")
    os.utime(old, (time.time() - 100, time.time() - 100))
    cleanup(data)
    assert not old.exists()
    assert young.exists()


def test_locks_and_holders_of_dead_processes_are_removed(data: Path) -> None:
    code = (
        "from nbdata.transfer.locks import TargetLock\nfrom nbdata.space.holders import this_process\nimport os\n"
        "assert TargetLock('/nonexistent/a', 'dead').acquire() is None\nthis_process()\nos._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert nbdata.cleanup(data, dry_run=True).details["dead"] == 2
    assert nbdata.cleanup(data, dry_run=True).details["dead"] == 2
    assert cleanup(data).counts["dead locks"] == 2
    assert "dead locks" not in cleanup(data).counts


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(nbdata.NotFound):
        cleanup(tmp_path / "missing")


# -- --all ----------------------------------------------------------------------------------------


@pytest.fixture
def pulled(tree: Path, tmp_path: Path) -> Path:
    """A pulled folder that also contains files of the user."""
    out = tmp_path / "out"
    nbdata.pull(tree, out, quiet=True)
    (out / "mine").write_bytes(b"mine")
    (out / "empty of mine").mkdir()
    return out


def test_without_all_nothing_that_was_fetched_goes(pulled: Path) -> None:
    before = files(pulled)
    cleanup(pulled)
    assert files(pulled) == before


def test_all_deletes_what_was_fetched_and_the_folders_that_it_empties(pulled: Path, state: str) -> None:
    plan = nbdata.cleanup(pulled, all=True, dry_run=True)
    assert plan.actions["delete"][0] == 5
    assert len(files(pulled)) == 6
    report = cleanup(pulled, all=True)
    assert report.counts == {"deleted": 5}
    assert report.details["freed"] > 100_000
    assert files(pulled) == {"mine"}
    assert folders(pulled) == {"empty of mine"}
    assert list(written_below(state, str(pulled))) == []
    assert "nothing was left" in cleanup(pulled, all=True).line


@pytest.mark.parametrize("change", ["bytes", "time", "touched", "replaced", "link", "folder"])
def test_all_keeps_a_file_that_changed_since(pulled: Path, change: str) -> None:
    file = pulled / "a.txt"
    found = file.stat()
    if change == "bytes":
        file.write_bytes(b"ALPHA\n")
        os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))
    elif change == "time":
        os.utime(file)
    elif change == "touched":
        os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))
    elif change == "replaced":
        shutil.copy2(file, pulled / "copy")
        os.replace(pulled / "copy", file)
    elif change == "link":
        file.unlink()
        file.symlink_to(pulled / "mine")
    else:
        file.unlink()
        file.mkdir()
    plan = nbdata.cleanup(pulled, all=True, dry_run=True)
    assert (plan.actions["delete"][0], plan.actions["keep"][0]) == (4, 1)
    report = cleanup(pulled, all=True)
    assert os.path.lexists(file)
    assert report.counts == {"deleted": 4, "kept": 1}
    assert (pulled / "mine").read_bytes() == b"mine"


def test_all_keeps_a_file_that_changes_after_the_plan(pulled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nbdata.engine.upkeep import cleanup as module

    plan = module.plan

    def plan_and_change(run: object) -> object:
        planned = plan(run)  # type: ignore[arg-type]
        (pulled / "a.txt").write_bytes(b"new\n")
        return planned

    monkeypatch.setattr(module, "plan", plan_and_change)
    assert cleanup(pulled, all=True).counts == {"deleted": 4, "kept": 1}
    assert (pulled / "a.txt").read_bytes() == b"new\n"


def test_all_stays_below_the_path(pulled: Path, state: str) -> None:
    report = cleanup(pulled / "b", all=True)
    assert report.counts == {"deleted": 3}
    assert files(pulled) == {"a.txt", "with space & ünï.txt", "mine"}
    assert (pulled / "b").is_dir()  # the named folder itself stays
    (index,) = written_below(state, str(pulled))
    assert sorted(index.paths()) == ["a.txt", "with space & ünï.txt"]
    assert cleanup(pulled / "a.txt", all=True).counts == {"deleted": 1}
    assert files(pulled) == {"with space & ünï.txt", "mine"}
    assert cleanup(pulled.parent, all=True).counts["deleted"] == 1


def test_all_finds_what_was_fetched_by_way_of_a_link(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    nbdata.pull(tree, tmp_path / "link/out", quiet=True)
    assert cleanup(tmp_path / "real/out", all=True).counts == {"deleted": 5}
    nbdata.pull(tree, tmp_path / "real/out", quiet=True)
    assert cleanup(tmp_path / "link/out", all=True).counts == {"deleted": 5}


def test_all_does_not_follow_a_link_that_took_a_folders_place(pulled: Path, tmp_path: Path) -> None:
    shutil.move(pulled / "b", tmp_path / "elsewhere")
    (pulled / "b").symlink_to(tmp_path / "elsewhere")
    assert nbdata.cleanup(pulled, all=True, dry_run=True).actions["keep"][0] == 3
    report = cleanup(pulled, all=True)
    assert files(tmp_path / "elsewhere") == {"c.bin", "d/empty", "e.txt"}
    assert report.counts == {"deleted": 2, "kept": 3}


def test_all_keeps_a_folder_that_was_replaced_by_another(
    pulled: Path, state: str, tree: Path, tmp_path: Path
) -> None:
    shutil.move(pulled, tmp_path / "moved")
    assert list(written_below(state, str(tmp_path))) == []
    shutil.copytree(tree, pulled)
    assert list(written_below(state, str(tmp_path))) == []
    before = files(pulled)
    cleanup(pulled, all=True)
    assert files(pulled) == before


def test_all_leaves_the_sources_of_a_push(tree: Path, tmp_path: Path) -> None:
    nbdata.push(tree, "memory://somewhere/else/", quiet=True)
    nbdata.push(tree, str(tmp_path / "copy") + "/", quiet=True)
    before = files(tree)
    cleanup(tree, all=True)
    assert files(tree) == before


def test_all_leaves_what_a_running_job_works_on(pulled: Path) -> None:
    lock = TargetLock(str(pulled / "b"), "4a2f")
    assert lock.acquire() is None
    try:
        assert cleanup(pulled, all=True).counts == {"in use": 5}
        assert len(files(pulled)) == 6
    finally:
        lock.release()


@pytest.mark.parametrize("reads", [False, True])
def test_a_job_that_waits_for_space_keeps_its_folders(
    reads: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, volumes = tmp_path / "root", tmp_path / "volumes"
    (tmp_path / "source").mkdir()
    with tarfile.open(tmp_path / "source/a.tar.gz", "w:gz") as archive:
        for number in range(16):
            entry = tarfile.TarInfo(f"{number}")
            entry.size = 10**6
            archive.addfile(entry, io.BytesIO(bytes(10**6)))
    nbdata.pull(tmp_path / "source", volumes, quiet=True)
    monkeypatch.setenv("NBDATA_QUOTA", f"6MB:{root}")
    job = nbdata.UntarVolumes(str(volumes), root / "out").start()
    try:
        wait_until(lambda: job.snapshot().state == "PAUSED")
        place = volumes if reads else root
        before = files(place)
        assert len(before) > (0 if reads else 3)
        plan = nbdata.cleanup(place, all=True, dry_run=True)
        assert set(plan.actions) == {"in use"}
        assert f"job {job.id} works there" in plan.text()
        report = cleanup(place, all=True)
        assert files(place) == before
        assert set(report.counts) == {"in use"}
        assert any(f"job {job.id} works there" in note for note in report.notes)
    finally:
        job.cancel()
    with pytest.raises(nbdata.Cancelled):
        job.wait(PATIENCE)
    assert set(cleanup(place, all=True).counts) >= {"deleted"}


def test_a_claim_made_after_the_plan_keeps_the_folder(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nbdata.engine.upkeep import cleanup as module

    plan, claims = module.plan, list[Claim]()

    def plan_and_claim(run: object) -> object:
        planned = plan(run)  # type: ignore[arg-type]
        claims.append(Claim([str(data)], "4a2f"))
        return planned

    monkeypatch.setattr(module, "plan", plan_and_claim)
    before = files(data)
    try:
        report = cleanup(data)
        assert set(report.counts) == {"in use"}
        assert files(data) == before
        lock = TargetLock(str(data), "job")
        assert lock.acquire() is None, "a claim blocks cleanup alone"
        lock.release()
    finally:
        claims[0].release()


def test_what_was_deleted_is_fetched_again(pulled: Path, tree: Path) -> None:
    cleanup(pulled / "b", all=True)
    assert nbdata.pull(tree, pulled, quiet=True).counts == {"fetched": 3, "unchanged": 2}


@pytest.mark.parametrize("path", ["/", "~", "~/", "/home/..", "home's parent", "a link to it"])
def test_all_refuses_the_home_folder_and_what_encloses_it(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "people/me"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    (tmp_path / "link").symlink_to(home)
    path = {"home's parent": str(home.parent), "a link to it": str(tmp_path / "link")}.get(path, path)
    with pytest.raises(nbdata.BadOption, match="refuses"):
        nbdata.cleanup(path, all=True)
    (home / "data").mkdir()
    nbdata.cleanup(home / "data", all=True, dry_run=True)


def test_all_is_for_local_folders() -> None:
    with pytest.raises(nbdata.BadOption, match="local"):
        nbdata.cleanup("s3://bucket/x", all=True)


# -- unfinished uploads ---------------------------------------------------------------------------


class Uploading:
    """A bucket with unfinished uploads."""

    def __init__(self, bucket: str, server: EmbeddedServer, state: str) -> None:
        self.bucket, self.state = bucket, state
        self.url = f"s3://{bucket}"
        context = Context(cwd="/", env={"HOME": "/nonexistent"}, storage_options=server.storage_options())
        self.store = open_place(self.url, context).store

    def begin(self, key: str, *, remember: bool = True, **changes: object) -> str:
        upload = self.store.upload(key, 10)
        upload.part(1, io.BytesIO(b"1234567890"), 10)
        if remember:
            begun = uploads.Begun(
                uploads._hash(self.url), key, upload.id, time.time(), platform.node(), "holder-gone"
            )
            uploads._append(self.state, [1, *begun._replace(**changes)])  # type: ignore[arg-type]
        return upload.id

    def pending(self) -> list[str]:
        return sorted(key for key, _ in self.store.pending(""))


@pytest.fixture
def uploading(bucket: str, s3: EmbeddedServer, state: str) -> Uploading:
    return Uploading(bucket, s3, state)


def test_uploads_that_nbdata_began_are_aborted_and_others_counted(uploading: Uploading) -> None:
    for key in ("results/a", "results/deep/b"):
        uploading.begin(key)
    for key in ("results/theirs", "results2/beside"):
        uploading.begin(key, remember=key.endswith("beside"))
    plan = nbdata.cleanup(f"{uploading.url}/results/", dry_run=True)
    assert plan.actions == {"abort": [2, 0]}
    assert plan.line.endswith(": abort 2"), "nobody knows the size of their parts"
    assert uploading.pending() == ["results/a", "results/deep/b", "results/theirs", "results2/beside"]
    report = cleanup(f"{uploading.url}/results")
    assert report.counts == {"aborted": 2}
    assert uploading.pending() == ["results/theirs", "results2/beside"]
    assert "left alone: 1 unfinished upload that nbdata did not begin" in report.notes
    assert [begun.key for begun in uploads.remembered(uploading.state).values()] == ["results2/beside"]
    assert cleanup(uploading.url).counts == {"aborted": 1}
    assert uploading.pending() == ["results/theirs"]


def test_an_upload_whose_process_still_runs_is_left(uploading: Uploading) -> None:
    from nbdata.space.holders import this_process

    uploading.begin("mine", process=this_process())
    report = cleanup(uploading.url)
    assert report.counts == {"in use": 1}
    assert uploading.pending() == ["mine"]


def test_an_upload_that_was_resumed_after_the_plan_is_left(uploading: Uploading) -> None:
    upload_id = uploading.begin("mine")
    with after_the_plan(lambda: uploads.remember(uploading.state, uploading.url, "mine", upload_id)):
        assert cleanup(uploading.url).counts == {"in use": 1}
    assert uploading.pending() == ["mine"]


def test_an_upload_of_another_machine_is_left_for_a_day(uploading: Uploading) -> None:
    uploading.begin("young", host="elsewhere")
    uploading.begin("old", host="elsewhere", at=time.time() - 25 * 3600)
    assert cleanup(uploading.url).counts == {"in use": 1, "aborted": 1}
    assert uploading.pending() == ["young"]


def test_an_upload_with_a_known_id_and_another_key_is_not_ours(uploading: Uploading) -> None:
    upload_id = uploading.begin("theirs", remember=False)
    uploads.remember(uploading.state, uploading.url, "other", upload_id)
    report = cleanup(uploading.url)
    assert report.counts == {}
    assert uploading.pending() == ["theirs"]


def test_a_store_without_such_uploads_says_so() -> None:
    assert "no unfinished uploads" in cleanup("memory://nothing/here").notes[0]


def test_what_was_cleaned_up_counts_no_more_against_a_limit(tmp_path: Path) -> None:
    source, data = tmp_path / "in", tmp_path / "data"
    source.mkdir()
    (source / "x").write_bytes(bytes(3_000_000))
    data.mkdir()
    nbdata.quota(str(data), limit="4MB", quiet=True)
    nbdata.pull(str(source), f"{data}/x", quiet=True)
    nbdata.quota(str(data), quiet=True)  # counts the use and caches it
    assert cleanup(data, all=True).counts["deleted"] == 1
    rooms = nbdata.quota(str(data), quiet=True).details["rooms"]
    assert [room["used"] < 100_000 for room in rooms if room["limit"] == 4_000_000] == [True]
    with nbdata.cache_stream(str(source), by="file", cache_dir=str(data), quiet=True) as stream:
        assert [size for _, size in stream] == [3_000_000]


def test_links_are_looked_up_for_each_folder_and_not_for_each_file(
    inline: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{number % 3}/{number}" for number in range(300)]
    for name in names:
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(b"x")
    nbdata.pull(tmp_path / "in", tmp_path / "out", quiet=True)
    looked: list[str] = []
    plain = os.path.realpath

    def counted(path: str, **options: Any) -> str:
        looked.append(path)
        return plain(path, **options)

    monkeypatch.setattr(os.path, "realpath", counted)
    report = nbdata.cleanup(tmp_path / "out", all=True, quiet=True)
    assert report.counts["deleted"] == 300
    assert len(looked) < 100


def test_a_plan_names_what_goes_and_what_stays_and_why(data: Path, tmp_path: Path) -> None:
    for number in range(25):
        (data / f".nbdata/{number:024}.part").write_bytes(b"x")
    source = tmp_path / "source"
    source.mkdir()
    for name in ("same", "changed"):
        (source / name).write_bytes(b"1")
    nbdata.pull(source, data / "pulled", quiet=True)
    (data / "pulled/changed").write_bytes(b"mine")
    said = nbdata.cleanup(data, all=True, dry_run=True).text()
    assert said.count("\n  remove ") == 20
    assert "\n  … and 10 more\n" in said
    assert "\n  delete pulled/same" in said
    assert "\n  keep pulled/changed: changed since nbdata wrote it" in said
    assert "keep pulled/changed" in nbdata.cleanup(data, all=True, dry_run=True)._repr_html_()
