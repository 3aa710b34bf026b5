"""The five possible results of a check."""

from __future__ import annotations

import json

import pytest

from nbdata.integrity.expectations import Expected
from nbdata.integrity.verdicts import Verdict, verdict_of, worst_first

EXPECTED = Expected("md5", "0" * 31 + "a", "MD5SUMS")
GUESS = Expected("md5", "0" * 31 + "a", "ETag", conclusive=False)


@pytest.mark.parametrize(
    ("expected", "got", "verdict"),
    [
        (EXPECTED, "0" * 31 + "a", Verdict.OK),
        (EXPECTED, "0" * 31 + "A", Verdict.OK),
        (EXPECTED, "1" * 32, Verdict.MISMATCH),
        (EXPECTED, "", Verdict.MISMATCH),
        (EXPECTED, None, Verdict.MISSING),
        (None, "1" * 32, Verdict.UNVERIFIABLE),
        (GUESS, "0" * 31 + "a", Verdict.OK),
        (GUESS, "1" * 32, Verdict.UNVERIFIABLE),
    ],
)
def test_each_case_has_one_verdict(expected, got, verdict):
    assert verdict_of(expected, got) is verdict


def test_a_file_that_nothing_names_and_that_is_not_there_has_no_verdict():
    with pytest.raises(ValueError, match="no verdict"):
        verdict_of(None, None)


def test_a_verdict_is_json_and_text_as_it_is():
    assert f"{Verdict.OK}" == str(Verdict.OK) == "ok"
    assert json.dumps([Verdict.OK, Verdict.EXTRA]) == '["ok", "extra"]'


def test_rows_with_what_is_wrong_come_first_and_by_name():
    rows = [
        ("b", "ok"),
        ("a", "ok"),
        ("e", "extra"),
        ("u", "unverifiable"),
        ("m", "missing"),
        ("z", "mismatch"),
    ]
    ordered = worst_first(rows, key=lambda row: (Verdict(row[1]), row[0]))
    assert [name for name, _ in ordered] == ["z", "m", "u", "e", "a", "b"]
