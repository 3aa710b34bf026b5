"""The fields of a job: what the panel reads is what the server sends."""

from __future__ import annotations

import re
from pathlib import Path

from nbdata.report import Snapshot
from nbdata.server.shown import shown

MODEL = Path(__file__).parents[2] / "labextension/src/model.ts"


def test_the_server_sends_every_field_that_the_panel_reads() -> None:
    """A missing one would be 0 or empty in the panel, and nothing else would fail."""
    function = MODEL.read_text().partition("function parseJob(")[2].partition("\n}\n")[0]
    read = set(re.findall(r"\bjob\.(\w+)", function))
    assert "files_total" in read
    assert read <= shown(Snapshot("1", "pull"), "/", True).keys()
