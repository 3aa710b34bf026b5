"""Volume sets are recognized by name, ordered by number, and complete."""

from __future__ import annotations

import random
import subprocess
import time
from itertools import product
from string import ascii_lowercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbdata.archives.volumes import VolumeSet, choose_set, guess_format, set_prefix, set_titles, volume_sets
from nbdata.errors import BadOption, MissingVolume, NotFound

LETTERS = ["".join(pair) for pair in product(ascii_lowercase, repeat=2)]


@pytest.mark.parametrize(
    ("scheme", "names"),
    [
        ("letters", ["a.tar.gz.aa", "a.tar.gz.ab", "a.tar.gz.ac"]),
        ("letters", ["vol-aa", "vol-ab"]),
        ("letters", ["vol_aaa", "vol_aab"]),
        ("letters", ["xaa", "xab", "xac"]),
        ("letters", ["a.tar.gzaa", "a.tar.gzab"]),
        ("numbers", ["vol-00", "vol-01"]),
        ("numbers", ["a.tar.gz.001", "a.tar.gz.002"]),
        ("numbers", ["a.00", "a.01"]),
        ("numbers", ["a_0", "a_1"]),
        ("numbers", ["x00", "x01"]),
        ("numbers", ["my.folder/a-b-1", "my.folder/a-b-2"]),
        ("part", ["a.part1", "a.part2"]),
        ("part", ["a.tar.part01", "a.tar.part02"]),
        ("part", ["a.tar.partaa", "a.tar.partab"]),
        ("part", ["x.tar.gz.part1of3", "x.tar.gz.part2of3", "x.tar.gz.part3of3"]),
        ("part", ["x.part1of2.tar.gz", "x.part2of2.tar.gz"]),
        ("part", ["a.part01.tar.gz", "a.part02.tar.gz"]),
        ("part", ["a-part-1-of-2.tgz", "a-part-2-of-2.tgz"]),
        ("part", ["a_part_0_of_2.tar.zst", "a_part_1_of_2.tar.zst"]),
        ("part", ["a.tar.gz.part01of03", "a.tar.gz.part02of03", "a.tar.gz.part03of03"]),
        ("part", ["a.part01of02.tar.xz", "a.part02of02.tar.xz"]),
        ("part", ["a.Part1.TAR", "a.Part2.TAR"]),
        ("part", ["data.v1.part1of2", "data.v1.part2of2"]),
        ("single", ["x.tar.lz"]),
        ("single", ["x.tar.Z"]),
        ("single", ["x.tar.lzo"]),
        ("zip", ["a.z01", "a.z02", "a.zip"]),
        ("gnu", ["a.tar", "a.tar-2", "a.tar-3"]),
        ("single", ["a.tar.gz"]),
        ("numbers", ["a.tar.gz.001"]),
        ("numbers", ["dump.sql.xz.00", "dump.sql.xz.01"]),
    ],
)
def test_every_scheme_is_recognised_in_any_order(scheme: str, names: list[str]) -> None:
    shuffled = random.Random(1).sample(names, len(names))
    (found,) = volume_sets(shuffled)
    assert (found.scheme, found.names) == (scheme, tuple(names))


def test_volume_nine_comes_before_volume_ten() -> None:
    names = [f"a-{number}" for number in range(1, 12)]
    assert choose_set(sorted(names)).names == tuple(names)


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["a.tar.aa", "a.tar.ac"], ["a.tar.ab"]),
        (["a.tar.ab", "a.tar.ac"], ["a.tar.aa"]),
        (["a.tar.gz.002", "a.tar.gz.003"], ["a.tar.gz.001"]),
        (["x.tar.gz.part1of3"], ["x.tar.gz.part2of3", "x.tar.gz.part3of3"]),
        (["x.part2of3.tar.gz", "x.part3of3.tar.gz"], ["x.part1of3.tar.gz"]),
        (["x.part0of3.tar.gz", "x.part1of3.tar.gz"], ["x.part2of3.tar.gz"]),
        (["a-part-01-of-03.tgz", "a-part-03-of-03.tgz"], ["a-part-02-of-03.tgz"]),
        (["a.part01.tar.gz", "a.part03.tar.gz"], ["a.part02.tar.gz"]),
        (["a.tar.gz.005"], ["a.tar.gz.001", "a.tar.gz.002", "a.tar.gz.003", "a.tar.gz.004"]),
        (["vol-0", "vol-2"], ["vol-1"]),
        (["vol-09", "vol-10", *(f"vol-{n:02}" for n in range(8))], ["vol-08"]),
        (["a.z01", "a.z03", "a.zip"], ["a.z02"]),
        (["a.z02", "a.zip"], ["a.z01"]),
        (["a.z01", "a.z02"], ["a.zip"]),
        (["a.tar", "a.tar-3"], ["a.tar-2"]),
        (["a.part1", "a.part3", "a.part4"], ["a.part2"]),
    ],
)
def test_a_hole_is_refused_and_named(names: list[str], missing: list[str]) -> None:
    with pytest.raises(MissingVolume) as caught:
        volume_sets(names)
    assert caught.value.details["missing"] == missing
    assert missing[0] in str(caught.value)
    assert caught.value.remedy


@given(st.data(), st.integers(2, 60), st.sampled_from(["letters", "numbers"]))
def test_any_one_missing_volume_but_the_last_is_named(data: st.DataObject, count: int, scheme: str) -> None:
    index = LETTERS if scheme == "letters" else [f"{number:03}" for number in range(1, count + 1)]
    names = [f"d/a.tar.xz.{index[number]}" for number in range(count)]
    gone = names.pop(data.draw(st.integers(0, count - 2)))
    with pytest.raises(MissingVolume) as caught:
        choose_set(data.draw(st.permutations(names)), first=names[-1])
    assert caught.value.details["missing"] == [gone]


def test_a_volume_that_is_there_twice_is_refused() -> None:
    with pytest.raises(BadOption, match=r"a-01 and a-1|a-1 and a-01"):
        volume_sets(["a-1", "a-01", "a-2"])


@pytest.mark.parametrize("flags", [["-d"], []], ids=["numbers", "letters"])
def test_indexes_that_split_widens_by_itself_keep_their_order(tmp_path, flags: list[str]) -> None:
    data = bytes(700)
    (tmp_path / "data").write_bytes(data)
    subprocess.run(["split", *flags, "-b1", "data"], cwd=tmp_path, check=True)
    names = sorted(path.name for path in tmp_path.iterdir() if path.name != "data")
    assert max(map(len, names)) == 5  # x9000, xzaaa
    shuffled = random.Random(2).sample(names, len(names))
    assert choose_set(shuffled).names == tuple(names)
    gone = names.pop(-3)
    with pytest.raises(MissingVolume, match=gone):
        choose_set(names)


def test_volume_gz_of_a_long_set_is_no_archive_of_its_own() -> None:
    names = [f"a.tar.{index}" for index in LETTERS[: LETTERS.index("gz") + 3]]
    assert choose_set(names).names == tuple(names)


@pytest.mark.parametrize(
    "names",
    [
        ["notes.md", "main.py"],
        ["data_2023", "data_2024"],
        ["libz.so.1"],
        ["a.part1.rar", "a.part2.rar"],
        ["backup.tmp.20240101"],
        ["train-000000.csv", "train-000001.csv"],
        [
            "q.tar.a\N{LATIN SMALL LETTER LONG S}",
            "q.tar.\N{KELVIN SIGN}a",
            "q.tar.part\N{ARABIC-INDIC DIGIT ONE}",
        ],
    ],
)
def test_other_names_with_numbers_or_short_endings_are_no_volumes(names: list[str]) -> None:
    assert volume_sets(names) == []


def test_numbered_shards_are_archives_each_of_its_own() -> None:
    assert [s.scheme for s in volume_sets(["train-000000.tar", "train-000001.tar"])] == ["single", "single"]


def test_all_volumes_of_a_set_begin_with_its_prefix() -> None:
    for names in (
        ["x.tar.gz.part1of3", "x.tar.gz.part3of3"],
        ["x.part1of2.tar.gz", "x.part2of2.tar.gz"],
        ["a-part-1-of-10.tgz", "a-part-10-of-10.tgz"],
        ["a.tar.gz.aa", "a.tar.gz.zz"],
        ["a.z01", "a.zip"],
    ):
        assert all(other.startswith(set_prefix(name)) for name in names for other in names)


def test_an_archive_that_cannot_be_unpacked_is_none_where_there_are_others() -> None:
    assert choose_set(["a.tar.lz", "b.tlz", "x.tar.gz"]).names == ("x.tar.gz",)


def test_sidecars_hidden_files_and_our_own_records_are_passed_over() -> None:
    names = ["a.tar.aa", "a.tar.ab"]
    others = [
        "a.tar.aa.md5",
        "a.tar.ab.sha256",
        "MD5SUMS",
        "SHA256SUMS.txt",
        ".a.tar.ac",
        ".nbdata/b.tar",
        "deep/.NBDATA/x/c.tar",
    ]
    assert [found.names for found in volume_sets(names + others)] == [tuple(names)]


def test_sets_do_not_reach_over_folders() -> None:
    found = volume_sets(["one/a.aa", "one/a.ab", "two/a.aa", "two/a.ab"])
    assert [s.names for s in found] == [("one/a.aa", "one/a.ab"), ("two/a.aa", "two/a.ab")]


def test_the_named_volume_chooses_its_set_and_holes_elsewhere_do_not_matter() -> None:
    names = ["a.tar.aa", "a.tar.ab", "b.tar.001", "b.tar.003"]
    assert choose_set(names, first="a.tar.ab").names == ("a.tar.aa", "a.tar.ab")
    with pytest.raises(MissingVolume):
        choose_set(names, first="b.tar.001")


def test_several_sets_are_listed_for_a_choice() -> None:
    with pytest.raises(BadOption, match=r"a\.tar.*b\.tar"):
        choose_set(["a.tar", "b.tar.aa", "b.tar.ab"])


def test_one_volume_of_a_plain_name_counts_when_it_is_named() -> None:
    assert choose_set(["download"], first="download") == VolumeSet("download", "single", ("download",), None)
    with pytest.raises(MissingVolume, match="vol-aa"):
        choose_set(["vol-ac", "other"], first="vol-ac")


def test_nothing_to_choose_from_is_said() -> None:
    with pytest.raises(NotFound):
        choose_set(["readme.txt"])
    with pytest.raises(NotFound):
        choose_set(["a.tar"], first="b.tar")
    with pytest.raises(BadOption):
        choose_set(["a.tar", "a.tar.md5"], first="a.tar.md5")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.TGZ", "tar.gz"), ("a.tar.zst", "tar.zst"), ("a.gz", "gz"), ("a.tar", "tar"), ("a", None)],
)
def test_the_format_is_guessed_from_the_name(name: str, expected: str | None) -> None:
    assert guess_format(name) == expected


@given(st.lists(st.text(alphabet="ax.z-_01/p9tr", max_size=12), max_size=12))
def test_no_list_of_names_breaks_it(names: list[str]) -> None:
    try:
        found = volume_sets(names)
    except (MissingVolume, BadOption):
        return
    used = [name for volumes in found for name in volumes.names]
    assert len(used) == len(set(used))
    assert set(used) <= set(names)


def test_a_name_with_three_letters_at_its_end_is_an_archive_of_any_name() -> None:
    assert choose_set(["data.bin", "other.dat"], first="data.bin").names == ("data.bin",)
    with pytest.raises(MissingVolume):
        choose_set(["a.tar.gz.aac"], first="a.tar.gz.aac")


@pytest.mark.parametrize("name", ["a.tar.part1of{}", "a.tar-{}", "a.z{}", "a.tar.part{}", "a.tar.{}"])
def test_thousands_of_digits_are_no_index(name: str) -> None:
    assert set_titles(["b.tar", "a.tar", "a.zip", name.format("2" * 5000)]) == ["a.tar", "a.zip", "b.tar"]


def test_the_start_of_a_long_name_takes_no_quadratic_time() -> None:
    start = time.process_time()
    assert set_prefix("a" * 8000 + "_") == "a" * 8000 + "_"
    assert set_prefix("x." + "a" * 8000) == "x."
    assert time.process_time() - start < 5
