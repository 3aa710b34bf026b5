"""The lines of ``docs/files-and-paths.md`` on `nbdata.open` and the file system run; ``large/`` tests the others."""

from __future__ import annotations

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
