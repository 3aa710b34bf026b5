"""An index that is opened again keeps its earlier records; one that cannot be read is no empty one."""

from __future__ import annotations

from pathlib import Path

import pytest

import nbdata
from nbdata.transfer.index import Index, Record, index_file


def test_records_from_before_and_after_reopening_exist(tmp_path: Path) -> None:
    index = Index(str(tmp_path), "source", "target", (1, 2))
    for name in "ab":
        index.open((1, 2))
        index.put({name: Record("tag", 1, 1, 1, 1)})
        index.close()
    assert sorted(Index(str(tmp_path), "source", "target", (1, 2)).paths()) == ["a", "b"]


def test_an_index_that_the_disk_cannot_read_does_not_count_as_empty(tmp_path: Path) -> None:
    path = Path(index_file(str(tmp_path), "source", "target"))
    path.mkdir(parents=True)
    with pytest.raises(nbdata.NbdataError, match="something else has the place") as raised:
        Index(str(tmp_path), "source", "target", (1, 2))
    assert raised.value.path == str(path)
