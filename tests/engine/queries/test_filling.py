"""du of a folder of the disk: what fills it, and what nbdata knows of the files."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import nbdata
from nbdata.cli import main
from nbdata.client.context import capture
from nbdata.engine.job.run import Run
from nbdata.engine.queries import du, filling
from nbdata.engine.runner import Planning
from nbdata.errors import Cancelled
from nbdata.report import Report, Row
from nbdata.verbs.listing import Du
from tests.agent.rig import tmpfs
from tests.engine.test_scale import peak_of
from tests.faults.gate import Gate
from tests.waiting import wait_until

Put = Callable[[dict[str, bytes]], str]

FILLS = ("known", "caches", "partial", "only_here")


def blocks(*paths: Path) -> int:
    return sum(os.lstat(path).st_blocks * 512 for path in paths)


def looked(folder: Path, **options: object) -> tuple[Report, dict[str, Row]]:
    report = nbdata.du(str(folder), quiet=True, **options)
    return report, {row.path or "total": row for row in report.rows}


def fills(row: Row) -> dict[str, int]:
    return {name: row.detail[name] for name in FILLS if row.detail[name]}


def test_what_was_pulled_or_pushed_is_known_until_it_is_edited(put: Put, bucket: str, tmp_path: Path) -> None:
    url = put({f"d/{name}": os.urandom(20_000) for name in ("a/1", "a/2", "b/3")}) + "d/"
    data = tmp_path / "data"
    nbdata.pull(url, data / "in", quiet=True)
    for name in ("out/sent", "own"):
        (data / name).parent.mkdir(exist_ok=True)
        (data / name).write_bytes(os.urandom(9_000))
    nbdata.push(data / "out", f"s3://{bucket}/out/", quiet=True)
    report, rows = looked(data, depth=2)
    assert fills(rows["in/"]) == {"known": blocks(*(data / "in" / n for n in ("a/1", "a/2", "b/3")))}
    assert fills(rows["out/"]) == {"known": blocks(data / "out/sent")}
    assert fills(rows["total"])["only_here"] == blocks(data / "own")
    assert rows["total"].size == 78_000
    assert report.details["disk"] >= report.details["known"] + report.details["only_here"]
    with open(data / "in/a/1", "r+b") as file:
        file.write(b"edited")
    (data / "in/a/2").write_bytes(b"")
    _, rows = looked(data, depth=2)
    assert fills(rows["in/a/"]) == {"only_here": blocks(data / "in/a/1")}
    assert fills(rows["in/b/"]) == {"known": blocks(data / "in/b/3")}
    # Also if only a part of the target is looked at.
    assert fills(looked(data / "in" / "b")[1]["total"]) == {"known": blocks(data / "in/b/3")}


def test_unfinished_files_and_caches_have_parts_of_their_own(put: Put, gate: Gate, tmp_path: Path) -> None:
    url = put({"d/a": os.urandom(400_000)}) + "d/"
    data = tmp_path / "data"
    with nbdata.samples(url, by="file", cache="10MB", cache_dir=str(data)) as samples:
        assert samples[0]
    gate.close(after=200_000)
    job = nbdata.Pull(url, data / "in").start()
    gate.wait_until_it_holds()
    wait_until(lambda: looked(data)[1]["total"].detail["partial"])
    _, rows = looked(data)
    assert rows["total"].detail["caches"] >= 400_000
    assert rows[".nbdata/"].detail["caches"] == rows["total"].detail["caches"]
    assert (rows["total"].size, rows["total"].detail["objects"]) == (0, 0), "nbdata's own files are nobody's"
    gate.open()
    job.wait()
    assert fills(looked(data)[1]["in/"]) == {"known": blocks(data / "in" / "a")}


def test_names_of_one_file_count_once_and_links_lead_nowhere(tmp_path: Path) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    for folder in (data / "a", data / "b", other):
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(os.urandom(50_000))
    os.link(data / "a/file", data / "b/again")
    (data / "b/out").symlink_to(other)
    (data / "b/loop").symlink_to(data)
    (data / "b/to-file").symlink_to(other / "file")
    (data / "sparse").touch()
    os.truncate(data / "sparse", 10_000_000)
    report, rows = looked(data)
    assert [rows[name].size for name in ("a/", "b/", "total")] == [50_000, 50_000, 10_100_000]
    assert rows["total"].detail["only_here"] == blocks(data / "a/file", data / "b/file", data / "sparse")
    assert rows["total"].detail["only_here"] < 10_000_000
    told = "\n".join(report.notes)
    assert "1 further name of files that have several: counted once" in told
    assert "3 links not followed" in told


@pytest.mark.needs("mounts")
def test_another_file_system_is_not_entered(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "here").mkdir(parents=True)
    (data / "here/file").write_bytes(b"x" * 5_000)
    (data / "again").mkdir()
    with tmpfs(data / "disk", size="1m") as disk:
        (disk / "file").write_bytes(b"x" * 10_000)
        subprocess.run(["mount", "--bind", str(data / "here"), str(data / "again")], check=True)
        try:
            report, rows = looked(data)
        finally:
            subprocess.run(["umount", str(data / "again")], check=True)
    assert rows.keys() == {"here/", "total"}
    assert rows["total"].size == 5_000
    assert "another file system is mounted there: 2 folders: again/, disk/" in "\n".join(report.notes)


def test_a_folder_that_cannot_be_read_is_told_and_passed_over(tmp_path: Path) -> None:
    at = os.open(tmp_path, os.O_RDONLY)
    for _ in range(20):  # longer than any path may be
        os.mkdir("n" * 250, dir_fd=at)
        inner = os.open("n" * 250, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)
    (tmp_path / "z").mkdir()
    (tmp_path / "z/file").write_bytes(b"x" * 5_000)
    report, rows = looked(tmp_path)
    assert report.ok
    assert rows["z/"].size == rows["total"].size == 5_000
    assert "not counted, because the disk refuses to read it: 1 folder: nnn" in "\n".join(report.notes)


@pytest.mark.usefixtures("inline")
def test_the_table_has_the_largest_folders_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling, "_SHOWN", 2)
    for name, size in (("a", 10_000), ("b", 200_000), ("c", 90_000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(os.urandom(size))
    report = nbdata.du(str(tmp_path), quiet=True)
    (table,) = report.tables
    assert [row[-1] for row in table["rows"]] == ["b/", "c/"]
    assert [row[-1] for row in table["foot"]] == ["total"]
    assert table["head"] == ["disk", "only here", "size", "objects", "folder"], (
        "what is nothing has no column"
    )
    assert table["caption"] == "the largest 2 of 3; report.rows has all"


def test_a_look_can_be_stopped(tmp_path: Path) -> None:
    for number in range(600):
        (tmp_path / f"{number}").touch()
    operation, control = Du(str(tmp_path)), Planning()
    (tmp_path / "rows").mkdir()
    run = Run(operation, capture(operation), control, str(tmp_path / "rows"))
    control.cancel()
    with pytest.raises(Cancelled):
        du.perform(run, du.plan(run))
    run.close()


@pytest.mark.long
@pytest.mark.usefixtures("inline")
def test_four_times_as_many_files_take_no_more_memory(tmp_path: Path) -> None:
    peaks = {}
    for count in (1_000, 1_000, 4_000):  # the first run also loads modules
        for number in range(count):
            at = tmp_path / f"{number // 100}"
            at.mkdir(exist_ok=True)
            (at / f"{number}").touch()
        peaks[count] = peak_of(lambda: nbdata.du(str(tmp_path), quiet=True))
    assert peaks[4_000] < peaks[1_000] + 200_000


def test_programs_get_the_parts_in_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/file").write_bytes(b"x" * 5_000)
    assert main(["du", str(tmp_path), "--json"]) == 0
    row = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (row["path"], row["size"], row["only_here"]) == ("a/", 5_000, blocks(tmp_path / "a/file"))
    assert (row["known"], row["caches"], row["partial"]) == (0, 0, 0)
    assert row["disk"] == blocks(tmp_path / "a", tmp_path / "a/file")
    assert main(["du", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == ["5000\ta/", "5000\ttotal"]
