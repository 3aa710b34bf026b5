"""Conditions of pack --select: what they select, and that invalid texts raise only BadOption."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbdata.errors import BadOption
from nbdata.formats.conditions import parse

SAMPLES: dict[str, Mapping[str, int]] = {
    "train/1": {"jpg": 5000, "cls": 1},
    "train/2": {"jpg": 2_000_000, "cls": 1, "seg.png": 300},
    "test/3": {"jpg": 900},
    "4": {"size": 0, "key": 7, "a b": 1},
}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("jpg", "123"),
        ("seg.png", "2"),
        ("png", ""),
        ("not jpg", "4"),
        ("not not jpg", "123"),
        ("jpg and cls", "12"),
        ("cls or key = 4", "124"),
        ("jpg and cls or 'size'", "124"),
        ("jpg and (cls or 'size')", "12"),
        ("not (jpg and cls)", "34"),
        ("size < 1MB", "134"),
        ("size(jpg) < 1MB", "13"),
        ("size(jpg)>=2MB", "2"),
        ("size(jpg) = 900 or size(jpg) != 900", "123"),
        ("size <= 5001", "134"),
        ("size > 1KiB", "12"),
        ("size(none) >= 0", ""),
        ("size('size') = 0", "4"),
        ("key = 'train/*'", "12"),
        ("key != 'train/*'", "34"),
        ("key=train", "12"),
        ("key = '{1,3}'", "13"),
        ("'key'", "4"),
        ('"a b"', "4"),
        ("  jpg  and\tcls ", "12"),
    ],
)
def test_conditions_select_as_documented(text: str, wanted: str) -> None:
    condition = parse(text)
    assert "".join(key[-1] for key, sizes in SAMPLES.items() if condition(key, sizes)) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "and", "jpg and", "jpg or or cls", "(jpg", "jpg)", "jpg cls", "not", "key", "key < 3", "key =",
        "key = 'a", "size", "size <", "size < big", "size(jpg", "size() < 3", "size(jpg)", "jpg == 3", "<", "()",
        "len(jpg) < 3", "__import__('os')", "key = '[a'", "(" * 60 + "jpg" + ")" * 60, "not " * 60 + "jpg", "x" * 5000,
    ],
)  # fmt: skip
def test_invalid_conditions_are_refused(text: str) -> None:
    with pytest.raises(BadOption, match=r"--select|glob"):
        parse(text)


@given(
    st.lists(
        st.sampled_from(
            ["and", "or", "not", "(", ")", "key", "size", "=", "!=", "<", "jpg", "'a b'", "1MB", "**", "'"]
        )
        | st.text(max_size=4),
        max_size=12,
    ).map(" ".join)
)
def test_any_text_is_a_condition_or_is_refused(text: str) -> None:
    with contextlib.suppress(BadOption):
        condition = parse(text)
        for key, sizes in SAMPLES.items():
            assert condition(key, sizes) in (True, False)
