"""--list prints bare names for other programs, and sizes and times for people."""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

import pytest

from nbdata import cli
from nbdata.rendering import member_cells
from tests.engine.unpack.unpacking import untar

pytestmark = pytest.mark.usefixtures("inline")


@pytest.fixture
def made(tmp_path: Path) -> Path:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name, size, at in (("one", 1500, 1_700_000_000), ("d/two", 3, 0)):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = size, at
            tar.addfile(info, io.BytesIO(bytes(size)))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "one"
        tar.addfile(link)
    return tmp_path / "a.tar"


def test_a_report_has_sizes_and_times(made: Path) -> None:
    assert untar(made, list=True).tables == [
        {
            "caption": "members",
            "head": ["name", "size", "time"],
            "rows": [
                ["one", "1.5 kB", "2023-11-14 22:13:20Z"],
                ["d/two", "3 B", "1970-01-01 00:00:00Z"],
                ["link", "symlink", "1970-01-01 00:00:00Z"],
            ],
        }
    ]


@pytest.mark.parametrize("people", [True, False])
def test_a_terminal_gets_them_too_and_a_pipe_bare_names(
    made: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, people: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: people)
    assert cli.main(["untar_volumes", str(made), "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    if people:
        assert lines[0] == "   1.5 kB  2023-11-14 22:13:20Z  one"
        assert len(lines) == 3
    else:
        assert lines == ["one", "d/two", "link"]


def test_a_time_that_no_calendar_has_is_no_error() -> None:
    assert member_cells(5, "file", 1e30) == ("5 B", "–")
    assert member_cells(-1, "file", 0)[0] == "–"
