"""The expected digest of each file, and the result for files without one."""

from __future__ import annotations

import hashlib
import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbdata.errors import BadOption, NotFound
from nbdata.integrity import expectations
from nbdata.integrity.checksum_names import is_checksum_file
from nbdata.integrity.expectations import Expected, collect_expectations


def md5(text):
    return hashlib.md5(text.encode()).hexdigest()


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


A, B, C = md5("a"), md5("b"), md5("c")


def collect(data, files, **options):
    """Return the expectations for these data files, with the checksum files given as text."""
    return collect_expectations(data, files, lambda name: files[name].encode(), **options)


def digests(found):
    return {name: expected.digest for name, expected in found.expected.items()}


# -- sidecars


@pytest.mark.parametrize(
    "content", [A, f"{A}  a", f"{A} *./a", f"{A}  /home/x/a", rf"{A}  C:\x\a", f"MD5 (../q/a) = {A}"]
)
def test_a_sidecar_is_for_the_file_of_its_name_wherever_it_was_made(content):
    found = collect(["d/a"], {"d/a.md5": content})
    assert found.expected == {"d/a": Expected("md5", A, "d/a.md5")}
    assert (found.missing, found.unverifiable, found.extra, found.problems) == ([], [], [], [])


def test_a_sidecar_without_its_file_says_that_the_file_is_missing():
    found = collect(["a"], {"a.md5": A, "b.md5": f"{B}  /home/x/b"})
    assert found.missing == ["b"]


def test_a_file_of_one_entry_that_names_another_file_is_a_list():
    found = collect(["a", "volume-00"], {"a.md5": f"{B}  volume-00"})
    assert digests(found) == {"volume-00": B}
    assert found.unverifiable == ["a"]


def test_an_entry_that_leads_to_another_file_of_the_same_base_name_is_for_that_one():
    found = collect(["a", "sub/a"], {"a.md5": f"{B}  sub/a"})
    assert digests(found) == {"sub/a": B}
    assert found.unverifiable == ["a"]


def test_a_list_that_bears_a_data_files_name_is_read_as_a_list():
    found = collect(["a", "sub/a"], {"a.md5": f"{A}  a\n{B}  sub/a\n"})
    assert digests(found) == {"a": A, "sub/a": B}


def test_a_sidecar_that_cannot_be_read_leaves_its_file_unverifiable_and_says_so():
    found = collect(["a", "b"], {"a.md5": "<html>", "MD5SUMS": f"{B}  b"})
    assert found.unverifiable == ["a"]
    assert [problem.source for problem in found.problems] == ["a.md5"]


def test_an_empty_checksum_file_is_a_problem():
    found = collect(["a"], {"a.md5": "", "MD5SUMS": "# nothing yet\n"})
    assert [problem.source for problem in found.problems] == ["MD5SUMS", "a.md5"]


# -- manifests


def test_names_in_a_manifest_are_relative_to_its_folder():
    found = collect(["a", "d/a", "d/e/b"], {"d/MD5SUMS": f"{A}  ./a\n{B}  e//b\n"})
    assert digests(found) == {"d/a": A, "d/e/b": B}
    assert found.unverifiable == ["a"]


def test_a_manifest_beside_the_data_is_never_about_files_outside_its_folder():
    found = collect(["a", "b"], {"d/MD5SUMS": f"{A}  a\n{B}  b\n"})
    assert found.expected == {}
    assert found.missing == ["d/a", "d/b"]


@pytest.mark.in_ci("False")
@pytest.mark.parametrize("lost", [False, True])
def test_one_base_name_in_many_folders_takes_no_quadratic_time(lost):
    folders = [f"d{number}" for number in range(20_000)]
    sums = {f"{folder}/label.json.md5": f"{A}  label.json" for folder in folders}
    data = [f"{'e' if lost else ''}{folder}/label.json" for folder in folders]
    start = time.process_time()
    for separate in (False, True):
        collect(data, sums, separate_folder=separate)
    assert time.process_time() - start < 10


@pytest.mark.parametrize("name", ["../x", "d/../../x", "/etc/passwd", "..", "d/../a"])
def test_a_name_that_could_lead_outside_is_a_problem_and_never_a_name(name):
    found = collect(["a", "b"], {"d/MD5SUMS": f"{A}  {name}\n", "MD5SUMS": f"{A}  {name}\n{B}  b\n"})
    assert digests(found) == {"b": B}
    assert found.missing == []
    assert len(found.problems) == 2
    assert all(repr(name) in problem.message and "relative" in problem.message for problem in found.problems)


def test_of_names_that_lead_elsewhere_a_thousand_are_told_and_the_others_are_counted():
    found = collect(["a"], dict.fromkeys(("MD5SUMS", "checksums.md5"), f"{A}  ../x\n" * 2500))
    told = [problem.message for problem in found.problems if problem.source == "MD5SUMS"]
    assert len(told) == 1_001
    assert told[-1] == "1,500 more digests are for no file here"
    assert len(found.problems) == 2 * len(told)


def test_a_digest_without_a_name_among_several_is_a_problem():
    found = collect(["a"], {"a.md5": f"{A}\n{B}\n"})
    assert found.expected == {}
    assert found.unverifiable == ["a"]
    assert "no file name" in found.problems[0].message


def test_a_list_is_not_asked_about_itself_nor_about_other_checksum_files():
    found = collect(["a", "MD5SUMS"], {"MD5SUMS": f"{A}  a\n{B}  MD5SUMS\n{C}  a.md5\n", "a.md5": A})
    assert digests(found) == {"a": A}
    assert (found.missing, found.problems) == ([], [])


def test_a_checksum_file_is_checked_if_it_is_asked_for_as_data():
    assert digests(collect(["a.md5"], {"SHA256SUMS": f"{sha256('a')}  a.md5", "a.md5": A})) == {
        "a.md5": sha256("a")
    }


def test_names_are_missing_once_however_many_name_them():
    found = collect([], {"MD5SUMS": f"{A}  a\n{B}  b\n", "SHA256SUMS": f"{sha256('a')}  a\n"})
    assert found.missing == ["a", "b"]


# -- several sources for one file


def test_the_strongest_known_algorithm_is_chosen():
    files = {"MD5SUMS": f"{A}  a\n{B}  b\n", "a.sha256": sha256("a")}
    found = collect(["a", "b"], files)
    assert found.expected == {
        "a": Expected("sha256", sha256("a"), "a.sha256"),
        "b": Expected("md5", B, "MD5SUMS"),
    }


def test_an_algorithm_that_is_asked_for_is_the_only_one():
    files = {"MD5SUMS": f"{A}  a\n", "a.sha256": sha256("a"), "b.sha256": sha256("b")}
    found = collect(["a", "b"], files, algorithm="md5")
    assert digests(found) == {"a": A}
    assert found.unverifiable == ["b"]  # a checksum file names it, so it is not extra


def test_an_unknown_algorithm_is_refused():
    with pytest.raises(BadOption, match="sha3"):
        collect([], {}, algorithm="sha3")


def test_sources_that_agree_are_no_problem():
    found = collect(["a"], {"MD5SUMS": f"{A.upper()}  a", "a.md5": A})
    assert found.expected == {"a": Expected("md5", A, "MD5SUMS")}
    assert found.problems == []


def test_sources_that_contradict_each_other_are_a_problem_and_none_is_picked():
    found = collect(
        ["a"], {"MD5SUMS": f"{B}  a", "a.md5": A, "a.sha1": hashlib.sha1(b"a").hexdigest()}, algorithm="md5"
    )
    assert found.expected == {}
    assert found.unverifiable == ["a"]
    (problem,) = found.problems
    assert (problem.source, problem.name) == ("MD5SUMS, a.md5", "a")


def test_a_weaker_digest_does_not_hide_that_the_strongest_is_disputed():
    found = collect(["a"], {"a.md5": A, "a.sha256": sha256("a"), "SHA256SUMS": f"{sha256('b')}  a"})
    assert found.expected == {}
    assert found.unverifiable == ["a"]


def test_a_dispute_about_a_weaker_digest_is_told_though_the_stronger_decides():
    found = collect(["a"], {"a.md5": A, "MD5SUMS": f"{B}  a", "a.sha256": sha256("a")})
    assert digests(found) == {"a": sha256("a")}
    assert len(found.problems) == 1


# -- extra and unverifiable


def test_a_file_that_a_complete_manifest_of_its_folder_leaves_out_is_extra():
    found = collect(["a", "new", "d/b", "d/new", "e/c"], {"MD5SUMS": f"{A}  a\n{B}  d/b\n"})
    assert found.extra == ["d/new", "new"]
    assert found.unverifiable == ["e/c"]  # no manifest covers e


@pytest.mark.parametrize("content", [f"{A}  a\n<junk>\n", f"{A}  a\n{B}  ../b\n"])
def test_a_manifest_that_could_not_be_used_in_full_makes_nothing_extra(content):
    found = collect(["a", "new"], {"MD5SUMS": content})
    assert (found.extra, found.unverifiable) == ([], ["new"])


def test_sidecars_and_lists_of_one_file_make_nothing_extra():
    found = collect(["a", "b", "new"], {"a.md5": A, "other.md5": f"{B}  b"})
    assert (found.extra, found.unverifiable) == ([], ["new"])


def test_a_list_of_several_files_under_any_name_makes_the_others_extra():
    found = collect(["a", "b", "new"], {"volumes.md5": f"{A}  a\n{B}  b\n"})
    assert found.extra == ["new"]


def test_without_checksum_files_everything_is_unverifiable():
    found = collect(["b", "a"], {})
    assert found.unverifiable == ["a", "b"]


# -- checksum files in a folder of their own


def against(data, files):
    return collect(data, files, separate_folder=True)


def test_sidecars_that_mirror_the_data_are_for_the_file_at_their_own_path():
    found = against(["a", "d/a"], {"a.md5": f"{A}  a", "d/a.md5": f"{B}  a"})
    assert digests(found) == {"a": A, "d/a": B}


def test_sidecars_that_lie_flat_are_for_the_only_file_of_that_name():
    found = against(["d/a", "e/b"], {"a.md5": A, "sums/b.md5": f"{B}  e/b"})
    assert digests(found) == {"d/a": A, "e/b": B}


def test_a_sidecar_with_a_file_at_its_own_path_is_for_no_namesake_of_it():
    found = against(["a", "d/a"], {"a.md5": A})
    assert digests(found) == {"a": A}
    assert found.unverifiable == ["d/a"]


def test_a_flat_sidecar_is_not_confused_by_namesakes_that_have_their_own():
    found = against(["d/a", "e/a"], {"d/a.md5": A, "a.md5": B})
    assert digests(found) == {"d/a": A, "e/a": B}


@pytest.mark.parametrize(
    ("data", "files"),
    [(["d/a", "e/a"], {"a.md5": A}), (["d/a"], {"x/a.md5": A, "y/a.md5": B})],
)
def test_a_flat_sidecar_that_could_be_for_several_is_a_problem(data, files):
    found = against(data, files)
    assert found.expected == {}
    assert found.unverifiable == data
    assert len(found.problems) == len(files)


def test_a_mirroring_sidecar_of_a_lost_file_is_not_taken_for_its_namesake():
    found = against(["d/a", "e/other"], {"d/a.md5": A, "e/a.md5": B})
    assert digests(found) == {"d/a": A}
    assert found.missing == ["e/a"]
    assert against(["d/a", "e/other"], {"e/a.md5": B}).missing == ["e/a"]
    assert against(["d/a"], {"d/a.md5": A, "a.md5": B}).missing == ["a"]


def test_a_manifest_of_another_folder_names_files_from_the_data_root():
    found = against(["a", "d/b"], {"MD5SUMS": f"{A}  a\n{B}  d/b\n"})
    assert digests(found) == {"a": A, "d/b": B}
    found = against(["a", "d/b"], {"sums/MD5SUMS": f"{A}  a\n{B}  d/b\n{C}  lost\n"})
    assert digests(found) == {"a": A, "d/b": B}
    assert found.missing == ["lost"]


def test_a_manifest_that_mirrors_a_folder_is_about_that_folder():
    found = against(["a", "d/a", "d/b"], {"d/MD5SUMS": f"{A}  a\n{B}  b\n"})
    assert digests(found) == {"d/a": A, "d/b": B}
    assert digests(against(["a", "d/a"], {"d/MD5SUMS": f"{A}  a"})) == {"d/a": A}


def test_a_data_file_that_is_called_like_the_other_folders_manifest_is_data():
    found = against(["MD5SUMS"], {"MD5SUMS": f"{A}  MD5SUMS\n"})
    assert digests(found) == {"MD5SUMS": A}


# -- in general


def test_each_checksum_file_is_read_once_and_errors_of_reading_pass_through():
    reads = []

    def read(name):
        reads.append(name)
        return A.encode()

    collect_expectations(["a"], ["a.md5", "b.md5", "a.md5"], read)
    assert reads == ["a.md5", "b.md5"]

    def fail(name):
        raise NotFound("gone", path=name)

    with pytest.raises(NotFound):
        collect_expectations(["a"], ["a.md5"], fail)


_NAMES = st.sampled_from(["a", "b", "d/a", "d/b", "d/e/a", "x.md5"])
_LINES = st.builds(
    "{}{}".format,
    st.sampled_from([A, B, sha256("a"), "junk"]),
    st.sampled_from(["", "  a", "  b", "  d/a", "  ../a", "  e/a", "  /x/a", "  MD5SUMS"]),
)
_FILES = st.dictionaries(
    st.sampled_from(["a.md5", "d/a.md5", "b.sha256", "MD5SUMS", "d/MD5SUMS", "checksums.txt", "x.md5"]),
    st.lists(_LINES, max_size=4).map("\n".join),
)


@given(st.sets(_NAMES), _FILES, st.booleans(), st.sampled_from(["auto", "md5", "sha256"]))
def test_each_file_is_in_exactly_one_place_and_no_name_leads_outside(data, files, separate, algorithm):
    found = collect(data, files, separate_folder=separate, algorithm=algorithm)
    assert sorted([*found.expected, *found.extra, *found.unverifiable]) == sorted(data)
    assert not set(found.missing) & data
    assert all(name[0] not in "./" for name in found.missing)
    assert all(algorithm in ("auto", expected.algorithm) for expected in found.expected.values())
    for name, expected in found.expected.items():
        assert expected.digest in files[expected.source], name


@pytest.mark.needs("coreutils")
def test_a_data_set_with_a_manifest_by_md5sum_is_known_in_full(tmp_path):
    names = ["plain", "with space", "new\nline", "back\\slash", "d/größe"]
    (tmp_path / "d").mkdir()
    for name in names:
        (tmp_path / name).write_text(name)
    command = "find . -type f -exec md5sum {} + > MD5SUMS; sha256sum plain > plain.sha256"
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    files = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    sums = [name for name in files if is_checksum_file(name)]
    found = collect_expectations(set(files) - set(sums), sums, lambda name: (tmp_path / name).read_bytes())
    assert digests(found) == {name: sha256(name) if name == "plain" else md5(name) for name in names}
    assert (found.missing, found.unverifiable, found.extra, found.problems) == ([], [], [], [])


def test_lists_of_too_many_digests_together_leave_the_others_unread(monkeypatch):
    monkeypatch.setattr(expectations, "_MOST_DIGESTS", 2)
    lists = {f"{name}/MD5SUMS": f"{A}  gone1\n{A}  gone2\n{A}  gone3\n{A}  gone4\n" for name in "abcde"}
    found = collect_expectations(["x"], lists, lambda name: lists[name].encode())
    assert len(found.missing) == 12
    assert [(problem.source, problem.harmless) for problem in found.problems] == [
        ("d/MD5SUMS", False),
        ("e/MD5SUMS", False),
    ]
    assert "too many digests" in found.problems[0].message


def test_a_checksum_file_that_is_too_large_is_a_problem_of_its_own() -> None:
    def read(name: str) -> bytes:
        if name == "a.md5":
            raise BadOption("too large to be read as a whole")
        return b"0" * 32

    found = collect_expectations(["a", "b"], ["a.md5", "b.md5"], read)
    assert list(found.expected) == ["b"]
    assert [(problem.source, problem.message) for problem in found.problems] == [
        ("a.md5", "too large for a checksum file, not read")
    ]
