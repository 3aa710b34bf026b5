"""An index that is opened again keeps its earlier records."""

from __future__ import annotations

from pathlib import Path

from nbdata.transfer.index import Index, Record


def test_records_from_before_and_after_reopening_exist(tmp_path: Path) -> None:
    index = Index(str(tmp_path), "source", "target", (1, 2))
    for name in "ab":
        index.open((1, 2))
        index.put({name: Record("tag", 1, 1, 1, 1)})
        index.close()
    assert sorted(Index(str(tmp_path), "source", "target", (1, 2)).paths()) == ["a", "b"]
