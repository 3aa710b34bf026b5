"""Selection of objects by globs, samples and limits."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nbdata.errors import BadOption
from nbdata.globs import glob_filter, glob_regex, may_match_below
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.selection import Entry, Filters, Looked, Selection, read_paths
from nbdata.verbs.pull import Pull


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.mp4", "a/b.mp4", False),
        ("**/*.mp4", "a/b.mp4", True),
        ("**/*.mp4", "b.mp4", True),
        ("a/*", "a/b/c", True),  # a matching folder includes everything below it
        ("a?c", "a/c", False),
        ("[!a]x", "bx", True),
        ("[!a]x", "ax", False),
        ("{a,b}/*", "b/x", True),
        ("t-{08..11}.tar", "t-09.tar", True),
        ("t-{08..11}.tar", "t-9.tar", False),
        ("a.b", "axb", False),
        ("**", "anything/at/all", True),
        ("a[{]b,c}.txt", "a{b,c}.txt", True),
        ("a[{]b,c[}].txt", "a{b,c}.txt", True),
        ("a[{]b[,]c[}].{txt,md}", "a{b,c}.md", True),
        ("{a[,]b,c}.txt", "a,b.txt", True),
        ("{a[,]b,c}.txt", "c.txt", True),
        ("[!{]x", "{x", False),
        ("[{}]x", "}x", True),
        ("a}.txt", "a}.txt", True),
        ("a[[]1].txt", "a[1].txt", True),
        ("[]a]x", "]x", True),
        ("[!]a]x", "]x", False),
        ("[^]a]x", "bx", True),
    ],
)
def test_globs_mean_what_a_shell_means(pattern: str, path: str, matches: bool) -> None:
    assert bool(glob_regex(pattern).fullmatch(path)) is matches


def _is_matched(pattern: str, path: str) -> bool:
    """Match as the rules say, trying each place for each wildcard."""
    if not pattern:
        return path[:1] in ("", "/")
    for wildcard, taken in (("**/", r"(?:.*/)?"), ("**", r".*"), ("*", r"[^/]*")):
        if pattern.startswith(wildcard):
            rest = pattern[len(wildcard) :]
            ends = (end for end in range(len(path) + 1) if re.fullmatch(taken, path[:end]))
            return any(_is_matched(rest, path[end:]) for end in ends)
    return path[:1] == pattern[0] and _is_matched(pattern[1:], path[1:])


@example("*a**/b", "aab")  # no second wildcard takes the second letter
@given(
    st.lists(st.sampled_from(["a", "b", "/", "*", "**/", "/**/", "**"]), max_size=7).map("".join),
    st.text("ab/", max_size=12),
)
def test_wildcards_mean_the_same_however_they_are_combined(pattern: str, path: str) -> None:
    assert bool(glob_regex(pattern).fullmatch(path)) is _is_matched(pattern, path)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("img_*_left*.png", "img_" + "_left" * 80_000),
        ("*_*_*.png", "_" * 5_000),
        ("**left*.png", "left" * 80_000),
        ("**/a/**/b/**/c", "a/b/" * 1_000),
        ("**/*a*/**/b*b*.c", "a/b/" * 60_000),
    ],
)
def test_many_wildcards_take_no_quadratic_time(pattern: str, path: str) -> None:
    start = time.process_time()
    assert glob_regex(pattern).fullmatch(path) is None
    assert time.process_time() - start < 5


@pytest.mark.parametrize("pattern", ["[z-a]", "[", "[!]", "[]", "{a,b", "{a,[}"])
def test_a_glob_that_means_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(BadOption, match="glob "):
        glob_regex(pattern)


def test_times_pass_from_a_moment_on_or_before_it() -> None:
    newer, older = (
        Filters(Pull("s3://b/x/", "x", **{name: "2026-11-20"})) for name in ("newer_than", "older_than")
    )
    moment = 1_795_132_800.0
    assert [newer.in_time("a", moment + by) for by in (-0.001, 0, 1)] == [False, True, True]
    assert [older.in_time("a", moment + by) for by in (-0.001, 0, 1)] == [True, False, False]


def test_an_object_of_unknown_time_is_an_error_not_left_out() -> None:
    with pytest.raises(BadOption, match="--older-than: the source does not say when this was changed: a/b"):
        Filters(Pull("s3://b/x/", "x", older_than="7d")).in_time("a/b", None)
    assert Filters(Pull("s3://b/x/", "x")).in_time("a/b", None)


def test_a_pattern_without_a_slash_matches_at_any_depth() -> None:
    passes = glob_filter(["*.txt"], ["secret.txt"])
    assert [passes(p) for p in ("a.txt", "b/c.txt", "b/secret.txt", "b/c.bin")] == [True, True, False, False]


def test_a_pattern_may_say_like_rsync_and_tar_where_it_starts_and_that_it_is_a_folder() -> None:
    for pattern in ("/sub", "/sub/", "./sub", "./sub/", "./sub/**"):
        passes = glob_filter([], [pattern])
        assert [passes(p) for p in ("sub/a", "b/sub/a", "a")] == [False, True, True], pattern
        assert may_match_below(pattern.rstrip("/") + "/a", "sub"), pattern


def test_a_slash_at_the_end_of_a_pattern_names_a_folder() -> None:
    passes = glob_filter([], ["a/tmp/", "cache/"])
    assert [passes(p) for p in ("a/tmp/x", "b/a/tmp/x", "b/cache/x", "a/x")] == [False, True, False, True]


def test_an_unfinished_bracket_is_a_mistake() -> None:
    with pytest.raises(BadOption, match="unfinished bracket"):
        glob_regex("a[b")
    with pytest.raises(BadOption, match=re.escape("glob '{x,y}[b' has")):
        glob_regex("**/{x,y}[b")


def selection(**options: Any) -> Selection:
    return Selection(Pull("s3://bucket/", "target", **options))


def entries(count: int) -> list[Entry]:
    return [Entry(f"{n:04d}", ObjectInfo(f"{n:04d}", 10)) for n in range(count)]


@given(st.integers(0, 200), st.integers(1, 50), st.integers(0, 5))
def test_a_sample_is_the_same_again_has_its_size_and_keeps_the_order(
    count: int, wanted: int, seed: int
) -> None:
    chosen = [e.path for e in selection(sample=str(wanted), seed=seed).apply(entries(count))]
    assert chosen == [e.path for e in selection(sample=str(wanted), seed=seed).apply(entries(count))]
    assert chosen == sorted(chosen)
    assert len(chosen) == min(count, wanted)


def test_a_share_is_about_that_share() -> None:
    assert 150 < len(list(selection(sample="10%").apply(entries(2000)))) < 250


def test_what_selects_nothing_does_not_count_what_it_did_not_look_at() -> None:
    for chosen, told in (
        (selection(max_files=0), "nothing was selected: --max-files is 0"),
        (selection(max_bytes=5), "nothing was selected by --max-bytes of the first 1 object: 0000;"),
    ):
        looked = Looked()
        assert not [*chosen.apply(looked.at(entries(4)))]
        assert chosen.none_left(looked).startswith(told)


def test_limits_stop_before_what_would_exceed_them() -> None:
    assert len(list(selection(max_bytes=25).apply(entries(10)))) == 2
    assert len(list(selection(max_bytes=5).apply(entries(10)))) == 0
    assert len(list(selection(max_files=3).apply(entries(10)))) == 3


def test_a_list_that_is_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadOption, match="no file"):
        read_paths(str(tmp_path / "pipe"))
