"""quota sets limits that hold, and its Report shows the room."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

import nbdata
from nbdata.engine.upkeep import quota as upkeep
from nbdata.report import Report
from nbdata.runtime import runtime_folder
from nbdata.space import ledger, limits
from nbdata.space.ledger import Ledger
from nbdata.space.limits import limited_folders

pytestmark = pytest.mark.usefixtures("inline", "state")

GB = 10**9


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with 1 MB in it."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "x").write_bytes(os.urandom(1_000_000))
    return folder


def test_a_limit_is_set_shown_and_removed(data: Path, state: str) -> None:
    report = nbdata.quota(data, limit="5GB", quiet=True)
    assert limited_folders(state, {}) == {str(data): (5 * 10**9, "%quota --limit")}
    pattern = rf"quota {data}: 1\.0 MB of 5\.0 GB used \(limit by %quota --limit on {data}\), 5\.0 GB free"
    assert re.fullmatch(pattern, report.line)
    assert report.ok
    assert report.counts == {}
    assert nbdata.quota(data / "deeper", quiet=True).details["rooms"][0]["root"] == str(data)
    report = nbdata.quota(data, limit="none", quiet=True)
    assert limited_folders(state, {}) == {}
    assert "the disk" in report.line
    with pytest.raises(nbdata.BadOption, match="no limit"):
        nbdata.quota(data, limit="none", quiet=True)


def test_what_running_jobs_have_reserved_is_shown(data: Path, state: str) -> None:
    nbdata.quota(data, limit="5GB", quiet=True)
    with Ledger().reserve(str(data), 300_000_000, 1, limited_folders(state, {})):
        report = nbdata.quota(data, quiet=True)
    assert ", 300.0 MB reserved, 4.7 GB free" in report.line
    assert report.details["rooms"][0]["reserved"] == 300_000_000


def test_a_folder_that_does_not_exist_and_a_limit_of_nothing_are_noted(data: Path, state: str) -> None:
    assert not any("does not exist" in note for note in nbdata.quota(data, quiet=True).notes)
    assert f"{data}/new does not exist" in nbdata.quota(data / "new", quiet=True).text()
    assert "nothing can be written there" in nbdata.quota(data, limit="0GB", quiet=True).text()


def test_a_limit_below_what_is_used_says_so_with_both_figures(data: Path, state: str) -> None:
    nbdata.quota(data, limit="5GB", quiet=True)
    (data / "y").write_bytes(bytes(500_000))  # after its files were counted for that limit
    told = "1.5 MB are used there already, and the limit allows 300.0 kB: nothing can be written there until"
    assert told in nbdata.quota(data, limit="300kB", quiet=True).text()
    (data / "y").unlink()
    notes = nbdata.quota(data, limit="999999B", quiet=True).notes
    assert re.search(r"^1,0\d\d,\d{3} B are used there already, and the limit allows 999,999 B: ", notes[0])
    assert len(nbdata.quota(data, limit="0GB", quiet=True).notes) == 1
    for enough in ("5GB", "none"):
        assert nbdata.quota(data, limit=enough, quiet=True).notes == []


def test_a_plan_sets_nothing(data: Path, state: str) -> None:
    plan = nbdata.quota(data, limit="5GB", dry_run=True)
    assert plan.actions == {"set limit": [1, 5 * 10**9]}
    assert nbdata.quota(data, limit="none", dry_run=True).actions == {"remove limit": [1, 0]}
    assert nbdata.quota(data, dry_run=True).actions == {}
    assert limited_folders(state, {}) == {}


def test_the_details_are_plain_data_with_every_room_and_disk(data: Path) -> None:
    nbdata.quota(data, limit="1GB", quiet=True)
    nbdata.quota(data.parent, limit="2GB", quiet=True)
    details = nbdata.quota(data, quiet=True).details
    assert json.loads(json.dumps(details)) == details
    assert details["path"] == str(data)
    assert details["kept"] is True
    assert [room["root"] for room in details["rooms"][:2]] == [str(data), str(data.parent)]
    for room in details["rooms"]:
        assert set(room) == {"source", "root", "limit", "used", "reserved", "free", "age"}
    assert details["rooms"][-1]["source"] == "the disk" or any(
        r["source"] == "the disk" for r in details["rooms"]
    )
    assert details["disks"]
    for disk in details["disks"]:
        assert set(disk) == {"path", "size", "used", "free", "inodes_free", "in_memory", "device"}


def test_a_limit_from_outside_is_named(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBDATA_QUOTA", f"3GB:{data}")
    report = nbdata.quota(data, quiet=True)
    assert f"(limit by NBDATA_QUOTA on {data})" in report.line


def test_a_report_says_that_a_limit_would_not_survive_a_reboot(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBDATA_STATE_DIR", os.path.join(runtime_folder(), "state"))
    assert nbdata.quota(data, quiet=True).notes == []  # there is no limit to keep
    report = nbdata.quota(data, limit="1GB", quiet=True)
    assert report.details["kept"] is False
    assert "not kept after a reboot" in report.notes[0]
    nbdata.quota(data, limit="none", quiet=True)


def test_the_report_is_shown_as_text_and_as_html(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = nbdata.quota(data, limit="5GB")
    shown = capsys.readouterr().err
    assert report.line in shown
    assert re.search(r"^ +folder +source +limit +used +reserved +free +counted$", shown, re.MULTILINE)
    assert re.search(rf"^ +{data} +%quota --limit +5\.0 GB", shown, re.MULTILINE)
    assert re.search(r"^ +disk +size +used +free +files free$", shown, re.MULTILINE)
    nbdata.quota()
    shown = capsys.readouterr().err
    assert all(disk["path"] in shown for disk in report.details["disks"])
    page = report._repr_html_()
    assert page.count("<table") == 2
    assert "outcome" not in page
    assert f">{data}</td>" in page
    assert report.line in repr(report)
    assert Report.from_dict(json.loads(json.dumps(report.to_dict()))).line == report.line


@pytest.mark.parametrize(
    ("limit", "level", "words"),
    [("10MB", "", ""), ("1.2MB", "high", "filling up: 84% of"), ("1010kB", "full", "nearly full: 99% of")],
)
def test_a_gauge_shows_how_full_it_is_and_warns_in_words(
    limit: str, level: str, words: str, data: Path
) -> None:
    report = nbdata.quota(data, limit=limit, quiet=True)
    (gauge,) = report.gauges
    room = report.details["rooms"][0]
    assert [gauge["total"], gauge["used"], gauge["free"]] == [room["limit"], room["used"], room["free"]]
    assert gauge["level"] == level
    assert words in gauge["warning"]
    assert bool(gauge["warning"]) == bool(level)
    for shown in (report.text(), report._repr_html_()):
        assert gauge["warning"] in shown
        assert "1.0 MB used" in shown
    assert "█" in report.text()
    assert "set by %quota --limit" in report._repr_html_()
    if level:
        assert "There is more room on /" in gauge["warning"]
        assert "cleanup" not in gauge["warning"], "nbdata wrote nothing there"


def test_with_much_free_it_does_not_warn_whatever_the_share(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An example is 53 GB free of 400 GB."""
    disk = limits.disk_of
    ample = replace(disk(str(data))[0], free=10**13)
    monkeypatch.setattr(ledger, "disk_of", lambda path: (ample, *disk(path)[1:]))
    for free, limit, level in [(53, 400, ""), (19, 400, "full"), (19, 110, "high"), (19, 90, "")]:
        total, left = limit * 10**9, free * 10**9
        monkeypatch.setattr(limits, "used_below", lambda _, used=total - left: used)
        monkeypatch.setattr(ledger, "used_below", lambda _, used=total - left: used)
        nbdata.quota(data, limit=f"{limit}GB", quiet=True)
        Ledger().freed(str(data))  # so that it is counted again
        (gauge,) = nbdata.quota(data, quiet=True).gauges
        assert (gauge["free"], gauge["level"]) == (left, level)


def test_what_a_disk_keeps_for_root_is_neither_used_nor_free(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = limits.disk_of
    kept = replace(disk(str(data))[0], size=270 * GB, used=50 * GB, free=50 * GB)
    for module in (ledger, limits, upkeep):
        monkeypatch.setattr(module, "disk_of", lambda path: (kept, *disk(path)[1:]))
    report = nbdata.quota(data, quiet=True)
    assert report.line.endswith("50.0 GB of 270.0 GB used (the disk), 50.0 GB free")
    assert "50%: 50.0 GB used, 50.0 GB free of 270.0 GB" in report.text()
    assert "<b>50%</b> · 50.0 GB used · 50.0 GB free of 270.0 GB" in report._repr_html_()


def test_cleanup_is_named_with_what_it_would_really_remove(data: Path, tmp_path: Path) -> None:
    nbdata.quota(data, limit="1.4MB", quiet=True)
    source, out = tmp_path / "source", data / "it's out"
    source.mkdir()
    (source / "y").write_bytes(bytes(200_000))
    assert "cleanup" not in nbdata.quota(data, quiet=True).gauges[0]["warning"]
    nbdata.pull(f"{source}/", out, quiet=True)
    warning = nbdata.quota(data, quiet=True).gauges[0]["warning"]
    assert f"cleanup {data} --all removes what nbdata wrote there" in warning
    (out / ".nbdata").mkdir()
    (out / ".nbdata" / "0123456789ab1").write_bytes(b"of an interrupted job")
    warning = nbdata.quota(out, quiet=True).gauges[0]["warning"]
    assert f"cleanup {data} removes what interrupted jobs left there" in warning
    nbdata.cleanup(data, quiet=True)
    assert "--all" in nbdata.quota(data, quiet=True).gauges[0]["warning"]
    nbdata.cleanup(data, all=True, quiet=True)
    assert not list(data.rglob("y"))
    assert "cleanup" not in nbdata.quota(data, quiet=True).gauges[0]["warning"]


def test_what_is_reserved_has_its_own_part_of_the_gauge(data: Path, state: str) -> None:
    nbdata.quota(data, limit="4MB", quiet=True)
    with Ledger().reserve(str(data), 1_000_000, 1, limited_folders(state, {})):
        report = nbdata.quota(data, quiet=True)
    assert "█" * 8 + "▒" * 8 + "░" * 16 in report.text()
    assert "1.0 MB reserved" in report._repr_html_()


def test_a_report_of_tables_is_escaped_and_aligned() -> None:
    table = {"caption": "a & b", "head": ["x", "long head"], "rows": [["<b>", "1"], ["22", "3"]]}
    report = Report("verb", "place", headline="<i>fine</i>", tables=[table], notes=["<note>"])
    assert "<b>" not in report._repr_html_()
    assert "<i>" not in report._repr_html_()
    assert "&lt;note&gt;" in report._repr_html_()
    assert report.line == "verb place: <i>fine</i>"
    assert report.table_lines == ["a & b", "  x    long head", "  <b>  1", "  22   3"]
    assert report.text().endswith("\n  <note>")


@pytest.mark.parametrize("path", ["s3://bucket/x", "memory://x"])
def test_only_disks_have_a_quota(path: str) -> None:
    with pytest.raises(nbdata.BadOption, match="URL"):
        nbdata.quota(path)


def test_a_limit_that_is_no_size_is_refused(data: Path) -> None:
    with pytest.raises(nbdata.BadOption, match="--limit"):
        nbdata.quota(data, limit="much")


def test_a_number_without_a_unit_is_no_limit_of_a_few_bytes(data: Path, state: str) -> None:
    with pytest.raises(
        nbdata.BadOption, match=r"--limit 40 would be 40 bytes\. Write the unit, such as 40GB"
    ):
        nbdata.quota(data, limit="40")
    assert limited_folders(state, {}) == {}
    nbdata.quota(data, limit="40B", quiet=True)
    assert limited_folders(state, {})[str(data)][0] == 40


def test_only_the_disk_and_the_caches_of_a_folder_are_shown(
    data: Path, tmp_path: Path, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    home, folder = nbdata.quota(quiet=True), nbdata.quota(data, quiet=True)
    disks = [
        table["rows"] for report in (home, folder) for table in report.tables if "disks" in table["caption"]
    ]
    assert len(disks[0]) == len(home.details["disks"])
    assert len(disks[1]) == 1
