"""Tables in cells have what a click needs to sort them, and nothing that shows where scripts do not run."""

from __future__ import annotations

import html
import json
import re
import time

import pytest

from nbdata.rendering import html_table, text_table
from nbdata.sizes import format_duration, format_size
from nbdata.sortable import SCRIPT, sort_key
from nbdata.verbs.transfers import JobList
from tests.client.test_transfers import snapshot


def keys(text: str) -> list[list[object]]:
    """Return the keys of the rows of a table."""
    return [json.loads(html.unescape(found)) for found in re.findall(r'data-nbdata-k="([^"]*)"', text)]


def test_a_cell_is_sorted_by_the_number_that_it_shows() -> None:
    shown = ["–", "0 B", "999 B", "1.0 kB", "12.5 kB", "1.0 MB", "2.0 MB/s", "999.9 GB", "1.2 TB"]
    assert [sort_key(text) for text in shown] == [-1, 0, 999, 1e3, 12.5e3, 1e6, 2e6, 999.9e9, 1.2e12]
    assert [sort_key(text) for text in ("7", "12,345", "85%", "")] == [7, 12345, 85, -1]
    durations = [0.05, 0.5, 9.9, 59, 75, 3600, 7300]
    assert [sort_key(format_duration(seconds)) for seconds in durations[:5]] == [0, 0.5, 9.9, 59, 75]
    assert sorted(durations, key=lambda s: sort_key(format_duration(s)) or 0) == durations
    for size in (0, 1, 1000, 1_500, 2_345_678, 10**12):
        assert sort_key(format_size(size)) == pytest.approx(size, rel=0.05)
    for text in ("a", "1.jpg", "2026-11-27 18:13", "3 kB of 4 kB", "12 files", "s3://b/1"):
        assert sort_key(text) is None


def test_a_column_with_one_text_is_sorted_as_text_and_a_total_stays_last() -> None:
    table = html_table("", ["name", "size"], [["10", "3 B"], ["b", "20 B"]], [["total", "23 B"]])
    assert keys(table) == [[None, 3], [None, 20]]
    assert table.index("<tfoot>") > table.index("</tbody>")
    assert table.count("<script>") == 1
    assert text_table({"caption": "", "head": ["n"], "rows": [["1"]], "foot": [["total"]]})[-1] == "  total"


@pytest.mark.parametrize("rows", [[], [["a", "1"]]])
def test_a_table_that_cannot_be_sorted_has_no_script(rows: list[list[str]]) -> None:
    assert "script" not in html_table("", ["name", "size"], rows)


def test_a_name_cannot_leave_its_attribute() -> None:
    evil = """x' "><script>alert(1)</script>"""
    jobs = JobList([snapshot(1, target=f"/w/{evil}"), snapshot(2, target="/w/y")])
    shown = jobs._repr_html_()
    assert "<script>alert" not in shown
    assert shown.count("<script>") == 1
    assert len(keys(shown)) == 2
    assert "</script" not in SCRIPT.removesuffix("</script>")


def test_ended_and_running_jobs_are_sorted_each_and_the_offer_is_hidden_without_a_script() -> None:
    over = [snapshot(n, bytes=n, seconds=1.0) for n in range(3)]
    running = [snapshot(9, "RUNNING", eta=70.0, seconds=5.0), snapshot(8, "RUNNING")]
    moving, ended = JobList([*over, *running]).html_parts("live")
    assert 'data-nbdata-heads style="display:none' in moving
    assert [row[-1] for row in keys(moving)] == [70.0, -1]
    assert keys(ended)[0] == [pytest.approx(over[2].created), "done", "pull", 2, 1.0]
    assert over[2].created < time.time()
    assert ('data-nbdata="live"' in moving, 'data-nbdata="live-over"' in ended) == (True, True)


def test_a_single_job_has_nothing_to_sort_by() -> None:
    assert "data-nbdata-heads" not in JobList([snapshot(9, "RUNNING")])._repr_html_()
