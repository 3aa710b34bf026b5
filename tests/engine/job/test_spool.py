"""`Spool` keeps rows on the disk: all come back in order, page by page, and take little memory."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbdata.engine.job.spool import RowFile, read_page
from nbdata.errors import NotEnoughSpace
from nbdata.report import Row, Rows
from nbdata.space.limits import disk_of
from tests.agent.rig import tmpfs

TEXTS = st.text(st.characters(exclude_categories=()), max_size=60)  # with lone surrogates and line separators
ROWS = st.lists(
    st.builds(Row, TEXTS, TEXTS, st.integers(0, 1 << 60), st.dictionaries(TEXTS, TEXTS, max_size=3))
)


def written(path: Path, rows: list[Row]) -> RowFile:
    file = RowFile(str(path))
    for row in rows:
        file.add(row)
    file.close()
    return file


def paged(path: Path) -> list[list[Row]]:
    pages, offset = [], 0
    while offset is not None:
        rows, offset = read_page(str(path), offset)
        pages.append(rows)
    return pages


@given(ROWS)
def test_rows_come_back_as_they_were(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("rows") / "report.rows"
    assert list(written(path, rows)) == rows
    assert joined(paged(path)) == rows


def joined(pages: list[list[Row]]) -> list[Row]:
    return list(chain.from_iterable(pages))


def many() -> list[Row]:
    return [Row(f"train/{n // 100:04}/frame-{n:06}.jpg", "fetched", n, {"mtime": n}) for n in range(50_000)]


def test_pages_hold_each_row_once_and_are_bounded(tmp_path):
    rows = many()
    written(tmp_path / "plan.rows", rows)
    pages = paged(tmp_path / "plan.rows")
    assert joined(pages) == rows
    assert len(pages) > 5
    assert max(len(json.dumps(page)) for page in pages) < 1 << 20  # the limit of a wire frame


def test_rows_take_a_fraction_of_their_json(tmp_path):
    rows = many()
    written(tmp_path / "plan.rows", rows)
    assert (tmp_path / "plan.rows").stat().st_size < len(json.dumps(rows)) / 5


@pytest.mark.long
def test_a_file_that_ends_within_a_block_has_the_rows_before_it(tmp_path):
    rows, path = many(), tmp_path / "plan.rows"
    written(path, rows)
    path.write_bytes(path.read_bytes()[:-1])
    found = joined(paged(path))
    assert found == rows[: len(found)]
    assert 40_000 < len(found) < 50_000


def test_rows_of_a_job_that_is_gone_are_empty(tmp_path):
    assert read_page(str(tmp_path / "gone.rows"), 0) == ([], None)


def test_rows_can_be_indexed_and_sliced_as_a_list() -> None:
    every = [Row(str(n), "x", n, {}) for n in range(10)]
    asked = []

    def page(offset: int) -> tuple[list[Row], int | None]:
        asked.append(offset)
        return every[offset : offset + 3], offset + 3 if offset < 9 else None

    rows = Rows(10, page)
    assert rows[:2] == every[:2]
    assert asked == [0], "no more pages than are needed"
    for part in (
        slice(None),
        slice(3, 8, 2),
        slice(-2, None),
        slice(None, None, -1),
        slice(8, 2, -3),
        slice(5, 2),
    ):
        assert rows[part] == every[part]
    assert (rows[0], rows[-1], rows[4]) == (every[0], every[-1], every[4])
    assert [*reversed(rows)] == every[::-1]
    assert isinstance(rows, Sequence)
    for number in (10, -11):
        with pytest.raises(IndexError):
            rows[number]
    with pytest.raises(IndexError):
        Rows()[0]


@pytest.mark.needs("mounts")
def test_a_listing_without_end_leaves_some_of_the_disk_free(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", size="8m") as disk:
        file = RowFile(str(disk / "plan.rows"))
        endless = (Row(f"{number}-{os.urandom(512).hex()}", "fetch", 1, {}) for number in count())
        with pytest.raises(NotEnoughSpace, match="NBDATA_RUNTIME_DIR") as caught:
            deque(map(file.add, endless), maxlen=0)
        file.close()
        assert f"{file.count:,} rows" in str(caught.value)
        assert disk_of(str(disk))[0].free > 0
