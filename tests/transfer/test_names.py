"""Names that a disk cannot hold, and the file names that such keys get."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nbdata.transfer.names import LocalNames, decoded, encoded, folds_case, unrepresentable


@pytest.mark.parametrize(
    "path",
    ["a//b", "/a", "a/", "../a", "a/..", "./a", "a\0b", "x" * 256, ".nbdata/a", "a/.NBData/b", "a/.nbdata"],
)
def test_what_a_disk_cannot_hold_or_must_not_is_unrepresentable(path: str) -> None:
    assert unrepresentable(path)


@given(st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=60))
def test_any_other_name_is_representable(name: str) -> None:
    if name not in (".", "..") and name.lower() != ".nbdata":
        assert unrepresentable(f"folder/{name}") is None


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("plain/ünï code 100%.txt", "plain/ünï code 100%.txt"),
        ("a//b", "a/%_/b"),
        ("/a/", "%_/a/%_"),
        ("./../a", "%2E/%2E%2E/a"),
        ("a/.nbData/b", "a/%2EnbData/b"),
        ("a\0b", "a%00b"),
        ("50%41", "50%2541"),
        ("50%e4", "50%e4"),
        ("%_", "%25_"),
        ("a%+/b%.", "a%25+/b%25."),
        ("x" * 300, "x" * 253 + "%+/" + "x" * 47),
    ],
)
def test_a_key_gets_the_name_that_the_manual_says(key: str, name: str) -> None:
    assert encoded(key) == name
    assert decoded(name) == key


ODD = [
    "",
    ".",
    "..",
    ".nbdata",
    ".NBDATA",
    "%",
    "%_",
    "%+",
    "%.",
    "%2",
    "%41",
    "41",
    "ä" * 200,
    "\U0001f600" * 70,
]
PIECES = st.one_of(
    st.sampled_from(ODD),
    st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), max_size=6),
)
KEYS = st.lists(st.lists(PIECES, min_size=1, max_size=3).map("".join), min_size=1, max_size=4).map("/".join)


@given(KEYS)
@example("%" * 300)
@example("/" * 20)
def test_every_key_has_a_name_that_can_be_and_gives_it_back(key: str) -> None:
    assert unrepresentable(encoded(key)) is None
    assert decoded(encoded(key)) == key


@given(st.lists(KEYS, max_size=12))
@example(["a", "a/b", "a/b/c", "a/", "a//b", "a-b", "a/b-c"])
def test_all_keys_of_a_listing_can_be_on_one_disk(keys: list[str]) -> None:
    listing = sorted(set(keys), key=str.encode)
    names = LocalNames(encode=True)
    given_names = {}
    for key in listing:
        name, reason = names.name(key)
        assert reason is None
        assert unrepresentable(name) is None
        assert decoded(name) == key
        given_names[name] = key
    assert len(given_names) == len(listing)
    for name in given_names:  # no file is also another file's folder
        above = name
        while "/" in above:
            above = above.rpartition("/")[0]
            assert above not in given_names


def test_without_encoding_what_cannot_be_is_said() -> None:
    names = LocalNames(encode=False)
    reasons = [names.name(key)[1] for key in ("a", "a-b", "a/b", "a/b/c", "b//c", "c")]
    assert [reason is None for reason in reasons] == [True, True, False, False, False, True]


def test_a_case_insensitive_disk_cannot_hold_both_names() -> None:
    names = LocalNames(encode=False, blind=True)
    assert names.name("Read.me")[1] is None
    assert "only in case" in (names.name("read.ME")[1] or "")


def test_this_disk_is_case_sensitive(tmp_path: Path) -> None:
    (tmp_path / "Name").touch()
    assert folds_case(str(tmp_path)) is False
    (tmp_path / "nAME").touch()
    assert folds_case(str(tmp_path)) is False
    assert folds_case(os.path.join(tmp_path, "none")) is False
