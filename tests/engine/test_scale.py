"""Memory use and output stay constant with many objects, many failures and deep folders."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import tracemalloc
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pytest

import nbdata
from benchmarks.listing import Bucket, write_files
from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.engine.planning.existing_objects import ExistingObjects
from nbdata.engine.runner import Planning
from nbdata.errors import AccessDenied
from nbdata.operation import Context
from nbdata.report import Plan, Row, Rows
from nbdata.stores.base import ObjectInfo
from nbdata.verbs.pull import Pull
from tests.stores.servers import serving

LEVELS = 1000
DEEP = "d/" * LEVELS


def peak_of(work: Callable[[], object]) -> int:
    """Return the peak number of allocated bytes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.long
@pytest.mark.usefixtures("inline")
def test_a_plan_of_four_times_as_many_objects_takes_no_more_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peaks = {}
    for count in (3_000, 3_000, 13_000):  # the first run also loads modules
        with serving(Bucket(count, 1000, 0.0).serve) as port:
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
            plan = nbdata.Pull("s3://b/many/", tmp_path / "out", storage_options={"anon": True})
            planned = []
            peaks[count] = peak_of(lambda plan=plan, planned=planned: planned.append(plan.plan()))
        assert (planned[0].files, len(planned[0].rows)) == (count, count)
    assert peaks[13_000] < peaks[3_000] + 2_500_000


class Counting(Bucket):
    """Records the requests."""

    def __init__(self, objects: int) -> None:
        super().__init__(objects, 0, 0.0)
        self.asked: list[str] = []

    def answer(self, method: str, target: str) -> tuple[int, str, bytes | None]:
        self.asked.append(f"{method} {target.partition('?')[0]}")
        return super().answer(method, target)


@pytest.mark.usefixtures("inline", "state")
def test_unchanged_objects_cost_one_request_per_page_and_none_per_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 2_500
    bucket, folder = Counting(count), tmp_path / "many"
    write_files(folder, count)
    with serving(bucket.serve) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        for delete in (False, True):  # compared first by MD5, then by records
            lines: list[Callable[..., nbdata.Report]] = [nbdata.pull, nbdata.push]
            for line, places in zip(lines, [("s3://b/many/", folder), (folder, "s3://b/many/")], strict=True):
                options = {"anon": True}
                report = line(*places, delete=delete, storage_options=options, quiet=True)
                assert report.counts == {"unchanged": count}
                assert bucket.asked == ["GET /b/"] * 3
                bucket.asked.clear()


def test_little_memory_is_held_per_existing_object_of_the_target(tmp_path: Path) -> None:
    count = 30_000
    objects = (ObjectInfo(f"prefix/folder/object-{n:07d}", n, f'"{n:032x}"', 1.7e9 + n) for n in range(count))
    tracemalloc.start()
    try:
        there = ExistingObjects(str(tmp_path), objects)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held / count < 130
    there.keep("prefix/folder/object-0000001")
    assert there.get("prefix/folder/object-0000001") is None
    assert there.get("prefix/folder/object-0000002") == ObjectInfo(
        "prefix/folder/object-0000002", 2, f'"{2:032x}"', 1.7e9 + 2
    )
    assert sum(1 for _ in there.others()) == count - 1
    assert not list(tmp_path.iterdir())


def test_the_text_of_a_plan_reads_its_rows_only_where_it_names_some() -> None:
    read: list[int] = []

    def page(offset: int) -> tuple[list[Row], int | None]:
        read.append(offset)
        return [Row("gone", "delete", 1, {})] * 30, None

    plan = Plan("pull", actions={"fetch": [1_000_000, 1]})
    plan.rows = Rows(1_000_000, page)
    assert "fetch 1,000,000" in plan.text()
    assert not read
    plan.actions["delete"] = [30, 30]
    assert "delete gone" in plan.text()


def test_a_report_of_many_failures_is_as_small_as_one_of_a_hundred(tmp_path: Path) -> None:
    count = 20_000
    task = Planning()
    context = Context(cwd=str(tmp_path), umask=0o22, state_dir=str(tmp_path))
    run = Run(Pull("s3://b/many/", str(tmp_path), on_error="report"), context, task, str(tmp_path))
    results = Results(run)
    for number in range(count):
        results.fail(f"folder/object-{number}", AccessDenied("the store denies access", path=f"o{number}"))
    report = results.report()
    assert (report.failed, len(report.rows), len(report.failures)) == (count, count, 100)
    assert sum(1 for _ in report.rows) == count
    assert len(report._repr_html_()) < 8_000
    assert len(json.dumps(report.to_dict())) < 20_000
    assert len(json.dumps(task.snapshot().to_dict())) < 2_000


@pytest.fixture
def removed(tmp_path: Path) -> Iterator[Path]:
    """A folder that rm deletes afterwards, because pytest cannot delete so deep a tree."""
    yield tmp_path
    subprocess.run(["rm", "-rf", *map(str, tmp_path.iterdir())], check=True)


def make_deep(root: Path, names: list[str]) -> None:
    """Make nested folders of any path length, with a file in every hundredth folder and in the last one."""
    root.mkdir()
    at = os.open(root, os.O_RDONLY)
    for number, name in enumerate(names, 1):
        os.mkdir(name, dir_fd=at)
        below = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
        if number % 100 == 0 or number == len(names):
            file = os.open(f"f{number}", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=at)
            os.write(file, b"%d" % number)
            os.close(file)
    os.close(at)


@pytest.mark.long
@pytest.mark.usefixtures("inline")
def test_a_thousand_folders_in_one_another_are_pulled_pushed_checked_and_cleaned_up(removed: Path) -> None:
    make_deep(removed / "deep", ["d"] * LEVELS)
    count = LEVELS // 100
    assert nbdata.pull(removed / "deep", removed / "pulled", quiet=True).counts == {"fetched": count}
    assert (removed / "pulled" / DEEP / f"f{LEVELS}").read_bytes() == b"%d" % LEVELS
    assert nbdata.pull(removed / "deep", removed / "pulled", quiet=True).counts == {"unchanged": count}
    assert nbdata.push(removed / "deep", removed / "pushed", quiet=True).counts == {"sent": count}
    assert nbdata.md5check(removed / "pushed", write="MD5SUMS", quiet=True).ok
    assert nbdata.md5check(removed / "pushed", quiet=True).counts == {"ok": count}
    assert nbdata.cleanup(removed / "pulled", all=True, quiet=True).counts["deleted"] == count


@pytest.mark.usefixtures("inline")
def test_a_member_a_thousand_folders_down_is_unpacked(removed: Path) -> None:
    with tarfile.open(removed / "a.tar", "w") as tar:
        info = tarfile.TarInfo(f"{DEEP}file")
        info.size = 5
        tar.addfile(info, BytesIO(b"there"))
    assert nbdata.untar_volumes(removed / "a.tar", removed / "out", quiet=True).ok
    assert (removed / "out" / DEEP / "file").read_bytes() == b"there"


@pytest.mark.usefixtures("inline")
def test_what_is_longer_than_a_path_can_be_is_told_and_the_rest_is_done(removed: Path) -> None:
    long = ["x" * 200] * 18
    make_deep(removed / "long", long)
    (removed / "long" / "short").write_text("short")
    target = removed.joinpath(*["y" * 100] * 5)
    report = nbdata.pull(removed / "long", target, on_error="report", quiet=True)
    assert report.counts == {"unrepresentable": 1, "fetched": 1}
    assert "and the system takes 4,095" in report.failures[0][1]
    make_deep(removed / "longer", ["x" * 200] * 22)
    with pytest.raises(nbdata.BadOption, match="longer than the disk takes"):
        nbdata.pull(removed / "longer", removed / "out", quiet=True)
