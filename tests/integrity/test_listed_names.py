"""Names in lists that another machine made lead to the files that they mean, and to no others."""

from __future__ import annotations

import hashlib
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nbdata.integrity.expectations import Expectations, collect_expectations
from nbdata.integrity.listed_names import DataNames, Resolved, beside, resolve

FILES = ["top.bin", "sub/f1.bin", "sub/f2.bin", "other/f2.bin", "other/deep/f3.bin"]


def found(names: list[str], files: list[str] = FILES, folder: str = "") -> Resolved:
    return resolve(names, DataNames(set(files)), folder, folder)


@pytest.mark.parametrize(
    ("names", "paths"),
    [
        (["sub/f1.bin", "gone"], ["sub/f1.bin", "gone"]),
        ([r"sub\f1.bin", r".\top.bin", r"other\gone"], ["sub/f1.bin", "top.bin", "other/gone"]),
        ([r"D:\data\sub\f1.bin", r"D:\data\other\gone"], ["sub/f1.bin", "other/gone"]),
        ([r"\\server\share\sub\f1.bin"], ["sub/f1.bin"]),
        (["C:/data/sub/f1.bin"], ["sub/f1.bin"]),
        (["/home/u/data/sub/f2.bin", "/home/u/data/top.bin"], ["sub/f2.bin", "top.bin"]),
        (["/home/u/data/deep/f3.bin"], ["other/deep/f3.bin"]),
        (["data/sub/f1.bin", "data/top.bin", "data/gone"], ["sub/f1.bin", "top.bin", "gone"]),
        (["../data/sub/f1.bin", "../data/top.bin"], ["sub/f1.bin", "top.bin"]),
    ],
)
def test_a_name_of_another_machine_means_the_file_with_its_longest_tail(
    names: list[str], paths: list[str]
) -> None:
    assert found(names).paths == paths


@pytest.mark.parametrize(
    ("names", "paths"),
    [
        (["/x/f2.bin"], [None]),  # two files have this tail
        (["/etc/passwd"], [None]),
        (["../top.bin", "sub/f1.bin"], [None, "sub/f1.bin"]),
        (["x/../top.bin"], [None]),
        ([r"D:\x\..\top.bin"], [None]),
        (["elsewhere/top.bin"], ["elsewhere/top.bin"]),  # one name alone does not show where a list was made
        (["a/sub/f1.bin", "a/deep/f3.bin", "top.bin"], ["a/sub/f1.bin", "a/deep/f3.bin", "top.bin"]),
        (["f1.bin", "f3.bin"], ["f1.bin", "f3.bin"]),  # deleted; those that lie deeper are others
        (["/v/top.bin", "/v/sub/f1.bin", "/w/top.bin"], ["top.bin", "sub/f1.bin", None]),
        (["/v/top.bin", "/w/top.bin"], [None, None]),
        (["top.bin", "/v/top.bin"], ["top.bin", None]),
        ([r"a:b\top.bin"], [r"a:b\top.bin"]),  # a colon is no drive
    ],
)
def test_nothing_is_guessed(names: list[str], paths: list[str | None]) -> None:
    assert found(names).paths == paths


def test_a_backslash_in_a_name_that_is_there_is_one() -> None:
    assert found([r"sub\f1.bin"], [r"sub\f1.bin", "sub/f1.bin"]).paths == [r"sub\f1.bin"]


def test_a_list_in_a_folder_means_files_below_it() -> None:
    files = ["a/f1.bin", "b/f1.bin", "b/c/f2.bin"]
    names = [r"D:\f1.bin", r"D:\c\f2.bin"]
    assert found(names, files, "b").paths == ["b/f1.bin", "b/c/f2.bin"]
    assert found(names[1:], files, "a").paths == [None]


def test_the_example_and_the_count_are_of_names_that_mean_another_path() -> None:
    resolved = found(["sub/f1.bin", r"C:\top.bin", r"C:\x\gone.bin", r"C:\other\f2.bin"])
    assert (resolved.moved, resolved.example) == (2, (r"C:\top.bin", "top.bin"))


def test_many_names_with_one_base_name_take_no_quadratic_time() -> None:
    files = [f"{number:05}/label.txt" for number in range(20_000)]
    start = time.process_time()
    paths = found([f"/home/u/data/{name}" for name in files], files).paths
    paths += found([f"D:\\x\\no{number}\\label.txt" for number in range(20_000)], files).paths
    assert time.process_time() - start < 10
    assert paths == [*files, *[None] * 20_000]


PARTS = st.sampled_from(["a", "b", "..", ".", "", "C:", "a\\b", "\\"])
NAMES = st.lists(PARTS, min_size=1, max_size=5).map("/".join) | st.lists(PARTS, min_size=1, max_size=5).map(
    "\\".join
)


@given(st.lists(NAMES, max_size=5), st.sampled_from(["", "a", "a/b"]))
@example(["C:/b", "/b/a"], "a/b")
def test_no_name_leads_outside(names: list[str], folder: str) -> None:
    files = ["a/b", "b/a", "a/a/b", "a/b/a"]
    for path in found(names, files, folder).paths:
        if path is not None:
            assert not path.startswith("/")
            assert ".." not in path.split("/")
            assert not folder or path == folder or path.startswith(f"{folder}/")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["x.aa", "x.ab"], ["x.aa", "x.ab"]),
        (["sub/x.aa", "sub/x.ab"], ["sub/x.aa", "sub/x.ab"]),
        ([r"D:\v\x.aa", r"D:\v\x.ab"], ["x.aa", "x.ab"]),
        ([r"D:\v\s\x.aa", r"D:\v\t\x.ab"], ["s/x.aa", "t/x.ab"]),
        (["/v/x.aa", "/v/x.ab"], ["x.aa", "x.ab"]),
        ([r"s\x.aa", r"s\x.ab"], ["s/x.aa", "s/x.ab"]),
        (["/etc/passwd", "x.aa"], ["/etc/passwd", "x.aa"]),
        (["/v/../x.aa"], ["/v/../x.aa"]),
    ],
)
def test_volumes_in_a_list_of_another_machine_lie_beside_it(names: list[str], expected: list[str]) -> None:
    assert beside(names) == expected


# -- a digest without a name

DIGEST = hashlib.md5(b"a").hexdigest()


def known(data: list[str], sources: dict[str, str], others: list[str] | None = None) -> Expectations:
    return collect_expectations(
        data, sources, lambda name: sources[name].encode(), others=lambda: others or ()
    )


@pytest.mark.parametrize(
    ("data", "source", "owner"),
    [
        (["f1.bin", "f2.bin"], "f1.md5", "f1.bin"),
        (["d/f1.tar.gz", "d/f2.bin", "f1.bin"], "d/f1.md5", "d/f1.tar.gz"),
        (["data.bin"], "checksum.md5", "data.bin"),
        (["data.bin", "d/x"], "MD5SUMS", "data.bin"),
    ],
)
def test_a_digest_is_for_the_only_file_that_fits(data: list[str], source: str, owner: str) -> None:
    found = known(data, {source: DIGEST})
    assert {name: one.digest for name, one in found.expected.items()} == {owner: DIGEST}
    assert found.missing == found.problems == []
    assert found.notes == [f"{source}: its digest has no name, and was taken for that of {owner}"]


@pytest.mark.parametrize(
    ("data", "source", "others"),
    [
        (["f1.bin", "f1.txt"], "f1.md5", []),
        (["f1.bin"], "f1.md5", ["f1.txt"]),
        (["a.bin", "b.bin"], "f1.md5", []),
        (["d/f1.bin"], "f1.md5", []),
        (["a", "b"], "MD5SUMS", []),
    ],
)
def test_a_digest_that_fits_several_files_is_for_none(
    data: list[str], source: str, others: list[str]
) -> None:
    assert known(data, {source: DIGEST}, others).expected == {}


def test_a_file_with_a_sidecar_of_its_own_needs_no_other() -> None:
    found = known(["f1.bin", "f1.txt"], {"f1.md5": DIGEST, "f1.txt.md5": "0" * 32})
    assert {name: one.digest for name, one in found.expected.items()} == {
        "f1.bin": DIGEST,
        "f1.txt": "0" * 32,
    }


def test_where_the_other_files_are_not_known_a_digest_without_a_name_is_for_none() -> None:
    found = collect_expectations(["f1.bin"], ["f1.md5"], lambda _: DIGEST.encode(), others=lambda: None)
    assert found.expected == {}
