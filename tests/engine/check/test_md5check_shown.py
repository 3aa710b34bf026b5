"""md5check's output in cells and terminals, and its exit status."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE

from .test_md5check import check, flip, manifest

NBDATA = Path(sys.executable).with_name("nbdata")


def md5check(*words: object) -> subprocess.CompletedProcess[str]:
    """Run the command with NBDATA_HOST=inline, so the work happens in its own process."""
    env = os.environ | {"NBDATA_HOST": "inline"}
    return subprocess.run(
        [NBDATA, "md5check", *map(str, words)], env=env, capture_output=True, text=True, timeout=PATIENCE
    )


@pytest.mark.usefixtures("inline")
def test_the_table_has_what_is_wrong_first_with_both_digests_and_all_counts(tree: Path) -> None:
    (tree / "b/MD5SUMS").write_text(manifest(tree / "b"))
    flip(tree / "b/e.txt")
    (tree / "b/c.bin").unlink()
    (tree / "b/new").write_bytes(b"new")
    report = check(tree)
    assert list(report.counts) == ["ok", "mismatch", "missing", "unverifiable", "extra"]
    (table,) = report.tables
    assert [row[:2] for row in table["rows"]] == [
        ["mismatch", "b/e.txt"],
        ["missing", "b/c.bin"],
        ["unverifiable", "a.txt"],
        ["unverifiable", "with space & ünï.txt"],
        ["extra", "b/new"],
    ]
    before = hashlib.md5(b"e" * 5000).hexdigest()
    after = hashlib.md5((tree / "b/e.txt").read_bytes()).hexdigest()
    mismatch, missing = table["rows"][:2]
    assert mismatch[2:] == [f"{before[:16]}…", f"{after[:16]}…", "md5 of b/MD5SUMS"]
    assert missing[3:] == ["no file", "named by b/MD5SUMS"]
    html = report._repr_html_()
    assert html.index("b/e.txt") < html.index("b/c.bin") < html.index("b/new")
    assert html.count("b/e.txt") == 1  # a second list would repeat it
    assert f"{before[:16]}…  {after[:16]}…" in report.text()


@pytest.mark.usefixtures("inline")
def test_the_table_has_at_most_thirty_rows_and_says_of_how_many(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"f{number:02d}").write_bytes(b"%d" % number)
    (tmp_path / "MD5SUMS").write_text(manifest(tmp_path))
    for number in range(40):
        flip(tmp_path / f"f{number:02d}")
    (table,) = check(tmp_path).tables
    assert [row[1] for row in table["rows"]] == [f"f{number:02d}" for number in range(30)]
    assert table["caption"] == "files that are not ok; the first 30 of 40, the report's rows have all"


@pytest.mark.usefixtures("inline")
def test_names_cannot_command_a_terminal_and_long_ones_keep_their_end(tmp_path: Path) -> None:
    name = "x" * 100 + "\x1b[31m\n.end"
    (tmp_path / name).write_bytes(b"alpha")
    (tmp_path / "MD5SUMS").write_text(manifest(tmp_path))
    flip(tmp_path / name)
    (table,) = check(tmp_path).tables
    (row,) = table["rows"]
    assert row[1].startswith("…xxx")
    assert row[1].endswith("\\x1b[31m\\n.end")
    assert len(row[1]) == 60


@pytest.mark.usefixtures("inline")
def test_nothing_is_shown_where_all_is_right(tree: Path) -> None:
    (tree / "MD5SUMS").write_text(manifest(tree))
    assert check(tree).tables == []


@pytest.mark.long
def test_a_terminal_shows_the_table_and_the_status_tells_right_from_wrong(tree: Path) -> None:
    (tree / "MD5SUMS").write_text(manifest(tree))
    run = md5check(tree)
    assert (run.returncode, run.stderr) == (0, "")
    flip(tree / "a.txt")
    run = md5check(tree)
    assert run.returncode == 1
    assert "\n    mismatch  a.txt " in run.stdout
    assert "--repair" in run.stderr
    assert md5check(tree, "-q").stdout == ""


def test_the_status_never_says_success_where_nothing_was_verified(tree: Path, tmp_path: Path) -> None:
    run = md5check(tree)
    assert (run.returncode, run.stdout) == (1, "")
    assert "no checksum was found for any of the 5 files" in run.stderr
    (tmp_path / "empty").mkdir()
    assert md5check(tmp_path / "empty").returncode == 1
    (tree / "b/MD5SUMS").write_text("")
    assert md5check(tree).returncode == 1
    (tree / "b/MD5SUMS").unlink()
    # One verified file is enough for success; the others are named.
    (tree / "a.txt.md5").write_text(hashlib.md5(b"alpha\n").hexdigest())
    run = md5check(tree)
    assert run.returncode == 0
    assert "4 unverifiable" in run.stdout
    assert "if no file can be verified" in md5check("--help").stdout.replace("\n", " ")


def test_wrong_use_has_a_status_of_its_own(tree: Path) -> None:
    assert md5check(tree, "--write", "x y").returncode == 2
    assert md5check(tree, "--repair", tree).returncode == 2
