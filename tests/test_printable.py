"""Names may come from anyone: what terminals obey never reaches one."""

from __future__ import annotations

import pytest

from nbdata.rendering import printable
from nbdata.report import Plan, Report


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain näme 100%.txt", "plain näme 100%.txt"),
        ("red\x1b[31m", "red\\x1b[31m"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("c1\x9b", "c1\\x9b"),
        ("gpj.\u202eexe", "gpj.\\u202eexe"),
        ("not utf-8 \udcff", "not utf-8 \\udcff"),
    ],
)
def test_what_a_terminal_would_obey_is_spelt_out(name: str, shown: str) -> None:
    assert printable(name) == shown


def test_no_name_reaches_a_terminal_as_it_is() -> None:
    odd = "a\x1b]0;title\x07b\nc"
    report = Report("pull", source=odd, failures=[[odd, odd]], notes=[odd], state="FAILED")
    report.tables = [{"caption": "", "head": ["name"], "rows": [[odd]]}]
    plan = Plan("pull", odd, notes=[odd])
    for text in (report.text(), plan.text()):
        assert "\x1b" not in text
        assert "\x07" not in text
        assert not any(line == "c" for line in text.splitlines())


def test_a_job_that_was_refused_does_not_say_that_there_was_nothing_to_do() -> None:
    assert "nothing was done" in Report("pull", state="FAILED").line
    assert "nothing to do" in Report("pull").line


def test_one_folder_is_no_folders() -> None:
    assert ": 1 folder, 40 extracted" in Report("untar_volumes", counts={"folders": 1, "extracted": 40}).line
    assert ": 2 folders" in Report("untar_volumes", counts={"folders": 2}).line
