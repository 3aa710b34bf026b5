"""Which parameters ``make test`` takes: see `tests.in_ci`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import capabilities
from tests.in_ci import is_taken, taken, unmatched

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("patterns", "taken"),
    [
        (["tar"], {"tar"}),
        (["tar*"], {"tar", "tar.gz"}),
        (["!tar"], {"tar.gz", "zip"}),
        (["!tar", "!zip"], {"tar.gz"}),
        (["t*", "!*.gz"], {"tar"}),
    ],
)
def test_patterns_take_and_leave_out(patterns: list[str], taken: set[str]) -> None:
    assert {name for name in ("tar", "tar.gz", "zip") if is_taken(name, patterns)} == taken


@pytest.mark.parametrize(
    ("marked", "left"),
    [
        ((2,), "ac"),
        ((3,), "abd"),
        ((9,), "abcde"),
        (("!a", "!b", 2), "cd"),
        (("b", "c"), "bc"),
        ((), "abcde"),
    ],
)
def test_a_number_takes_so_many_spread_evenly(marked: tuple[str | int, ...], left: str) -> None:
    assert taken("abcde", marked) == set(left)


def test_a_pattern_that_matches_nothing_is_found() -> None:
    assert unmatched(["tar", "zip"], ["tar", "z*", "!7z", "rar"]) == ["!7z", "rar"]


def test_ci_must_be_able_to_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capabilities, "_is_there", lambda name: False)
    assert "/dev/fuse is missing" in capabilities.why_missing({"mount"})
    assert "/dev/fuse is missing" in capabilities.why_missing({"mount"}, in_ci=True)
    assert capabilities.why_missing({"btrfs"}, in_ci=True) == ""


@pytest.mark.long
def test_what_is_left_out_is_long_and_not_gone(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n"
        "@pytest.mark.in_ci('a')\n"
        "@pytest.mark.parametrize('name', ['a', 'b'])\n"
        "def test_it(name): pass\n"
    )

    def collected(*options: str, names: str = "") -> str:
        line = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--collect-only",
            "-p",
            "tests.in_ci",
            "-c",
            ROOT / "pyproject.toml",
        ]
        where = f"{tmp_path}/test_it.py{names}"
        done = subprocess.run([*line, *options, where], cwd=ROOT, capture_output=True, text=True)
        return done.stdout + done.stderr

    assert "test_it[b]" in collected()
    short = collected("-m", "not long")
    assert "test_it[a]" in short
    assert "test_it[b]" not in short
    assert "test_it[b]" in collected(names="::test_it[b]")
    text = (tmp_path / "test_it.py").read_text()
    (tmp_path / "test_it.py").write_text(text.replace("in_ci('a')", "in_ci('gone')"))
    assert "has no parameter gone, which its mark in_ci names" in collected()
