"""The lines of ``docs/files-and-paths.md`` on `nbdata.open` and the file system run; ``large/`` tests the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nbdata.files.shifted import active
from tests.files.conftest import Home
from tests.files.page import blocks


def test_the_lines_on_open_and_the_file_system_run(s3_home: Home) -> None:
    opening, browsing = blocks("open", s3_home.path)
    found: dict[str, object] = {}
    exec(opening, found)
    assert found["settings"] == {"rate": 3}
    assert found["rate"] == b"3"
    exec(browsing, {})
    assert s3_home.files.find(s3_home.path) == []


def test_the_lines_on_shift_run(s3_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (lines,) = blocks("Shift", s3_home.path)
    found: dict[str, Any] = {}
    try:
        exec(lines, found)
    finally:
        for one in list(active):
            one.off()
    assert found["names"] == ["0.txt", "1.txt", "2.txt"]
    assert found["sizes"] == [0, 5, 10]
    assert sorted(path.name for path in (tmp_path / "in").iterdir()) == found["names"]
    assert s3_home.files.find(s3_home.path) == []
