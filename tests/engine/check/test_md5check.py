"""md5check in this process: its five results are never confused; checksum files come from the real md5sum."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest

import nbdata
from nbdata.report import Report
from nbdata.transfer.checksum_reader import ChecksumReader
from tests.waiting import PATIENCE

pytestmark = pytest.mark.usefixtures("inline")


def sums(folder: Path, *names: str, program: str = "md5sum") -> str:
    """Return the output of the real md5sum for files, run inside `folder`."""
    return subprocess.run([program, *names], cwd=folder, capture_output=True, text=True, check=True).stdout


def sidecars(tree: Path, into: Path | None = None) -> list[str]:
    """Create one sidecar per file with md5sum, run in the file's own folder."""
    names = [str(p.relative_to(tree)) for p in sorted(tree.rglob("*")) if p.is_file()]
    for name in names:
        target = (into or tree) / f"{name}.md5"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(sums((tree / name).parent, Path(name).name))
    return names


def manifest(tree: Path) -> str:
    return sums(tree, *[str(p.relative_to(tree)) for p in sorted(tree.rglob("*")) if p.is_file()])


def check(*args: object, **options: object) -> Report:
    report = nbdata.md5check(*args, quiet=True, on_error="report", **options)
    assert isinstance(report, Report)
    return report


def found(report: Report) -> dict[str, str]:
    return {row.path: row.action for row in report.rows}


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


# -- checksum files beside the data ---------------------------------------------------------------


def test_files_with_right_sidecars_are_ok_and_sidecars_are_no_data(tree: Path) -> None:
    names = sidecars(tree)
    report = check(tree)
    assert found(report) == dict.fromkeys(names, "ok")
    assert (report.state, report.counts, report.files) == ("DONE", {"ok": 5}, 5)
    assert report.bytes == sum((tree / name).stat().st_size for name in names)


def test_a_manifest_at_the_root_speaks_of_files_in_all_folders(tree: Path) -> None:
    (tree / "MD5SUMS").write_text(manifest(tree))
    report = check(tree)
    assert report.counts == {"ok": 5}
    assert {row.detail["source"] for row in report.rows} == {"MD5SUMS"}


def test_one_flipped_byte_is_a_mismatch_that_names_both_digests(tree: Path) -> None:
    (tree / "MD5SUMS").write_text(manifest(tree))
    before = hashlib.md5((tree / "b/c.bin").read_bytes()).hexdigest()
    flip(tree / "b/c.bin")
    after = hashlib.md5((tree / "b/c.bin").read_bytes()).hexdigest()
    report = check(tree)
    assert (report.state, report.counts) == ("FAILED", {"ok": 4, "mismatch": 1})
    (row,) = [row for row in report.rows if row.action == "mismatch"]
    assert (row.path, row.detail["expected"], row.detail["got"]) == ("b/c.bin", before, after)
    assert report.files == 5  # the manifest itself was read too


def test_a_truncated_and_a_grown_file_are_mismatches(tree: Path) -> None:
    sidecars(tree)
    os.truncate(tree / "b/c.bin", 99_999)
    with open(tree / "b/d/empty", "ab") as file:
        file.write(b"\n")
    report = check(tree)
    assert {name for name, verdict in found(report).items() if verdict == "mismatch"} == {
        "b/c.bin",
        "b/d/empty",
    }


def test_the_five_results_are_never_mixed_up(tree: Path) -> None:
    (tree / "b/MD5SUMS").write_text(sums(tree / "b", "c.bin", "e.txt", "d/empty"))
    flip(tree / "b/c.bin")
    (tree / "b/e.txt").unlink()
    (tree / "b/new").write_bytes(b"not listed, though others of its folder are")
    report = check(tree)
    assert found(report) == {
        "b/c.bin": "mismatch",
        "b/e.txt": "missing",
        "b/new": "extra",
        "a.txt": "unverifiable",
        "with space & ünï.txt": "unverifiable",
        "b/d/empty": "ok",
    }
    assert report.state == "FAILED"
    assert sorted(note.partition(":")[0] for note in report.notes) == ["1 extra", "2 unverifiable"]


def test_what_is_only_unverifiable_or_extra_is_no_failure(tree: Path) -> None:
    (tree / "b/MD5SUMS").write_text(sums(tree / "b", "c.bin", "e.txt"))
    (tree / "b/new").write_bytes(b"new")
    report = check(tree)
    assert (report.state, report.failures) == ("DONE", [])
    assert report.counts == {"ok": 2, "unverifiable": 3, "extra": 1}


def test_files_with_contradicting_checksums_are_a_conflict(tree: Path) -> None:
    sidecars(tree)
    (tree / "MD5SUMS").write_text(f"{'0' * 32}  a.txt\n")
    report = check(tree)
    assert (report.state, report.counts) == ("FAILED", {"ok": 4, "conflict": 1})
    (row,) = [row for row in report.rows if row.action == "conflict"]
    assert f"different md5 digests for a.txt: {'0' * 32}" in row.detail["reason"]


def test_a_checksum_file_that_contradicts_itself_is_no_success(tree: Path) -> None:
    (tree / "MD5SUMS").write_text(manifest(tree) + f"{'0' * 32}  b/c.bin\n")
    with pytest.raises(
        nbdata.TransferFailed,
        match=r"1 of 5 is a conflict; first different md5 digests for b/c\.bin: .*MD5SUMS",
    ) as caught:
        nbdata.md5check(tree, quiet=True)
    assert caught.value.report.counts == {"ok": 4, "conflict": 1}


@pytest.mark.parametrize(
    "line", ["{}  b/c.bin".format("0" * 31), "?{}  b/c.bin".format("0" * 32), "{}  ../c.bin".format("0" * 32)]
)
def test_a_line_of_a_checksum_file_that_cannot_be_used_is_no_success(tree: Path, line: str) -> None:
    (tree / "MD5SUMS").write_text(sums(tree, "a.txt") + line + "\n")
    with pytest.raises(nbdata.TransferFailed, match=r"cannot be read; first MD5SUMS: ") as caught:
        nbdata.md5check(tree, quiet=True)
    assert caught.value.report.counts == {"ok": 1, "unreadable": 1, "unverifiable": 4}
    assert found(check(tree / "a.txt")) == {"a.txt": "ok"}
    plan = nbdata.md5check(tree, dry_run=True)
    assert plan.actions["unreadable"] == [1, 0]


SIGNED = """-----BEGIN PGP SIGNED MESSAGE-----
Hash: SHA256

{}-----BEGIN PGP SIGNATURE-----

iHUEARYKAB0WIQTVcSHC0123456789abcdef0123456789abcdef
=q7Gc
-----END PGP SIGNATURE-----
"""


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("text", "notes"),
    [
        (SIGNED, 0),
        (SIGNED.replace("Hash: SHA256\n\n", "Hash: SHA256\n"), 0),
        ("{}" + SIGNED.format(""), 0),
        (SIGNED.format("") + "{}", 0),
        ("{}Built from commit 0123456789abcdef0123456789abcdef01234567\n", 1),
        ("MD5 of release 1.2:\n{}", 1),
        ("{}total 5 files, 20261124\n", 1),
        ("# by md5sum\n\n{}", 0),
    ],
)
def test_text_around_the_lines_of_a_checksum_file_is_no_damage(
    tree: Path, text: str, notes: int, ends: str
) -> None:
    lines = sums(tree, "a.txt", "b/c.bin")
    (tree / "MD5SUMS").write_text(text.format(lines).replace("\n", ends), newline="")
    report = check(tree)
    assert (report.state, report.counts["ok"], "unreadable" in report.counts) == ("DONE", 2, False)
    assert len([note for note in report.notes if note.startswith("MD5SUMS")]) == notes


@pytest.mark.parametrize("line", [f"SHA3-256 (b/c.bin) = {'0' * 64}", f"{'0' * 96}  b/c.bin"])
def test_a_line_of_an_unknown_algorithm_only_leaves_its_file_unverifiable(tree: Path, line: str) -> None:
    (tree / "checksums.txt").write_text(f"{sums(tree, 'a.txt')}{line}\n")
    report = check(tree)
    assert (report.state, report.counts) == ("DONE", {"ok": 1, "unverifiable": 4})
    assert "not a known algorithm" in report.notes[0]


def test_failures_come_worst_first(tree: Path) -> None:
    (tree / "MD5SUMS").write_text(manifest(tree))
    (tree / "a.txt").unlink()
    flip(tree / "with space & ünï.txt")
    (tree / "b/e.txt").chmod(0)
    report = check(tree)
    expected = ["with space & ünï.txt", "a.txt"]
    if os.geteuid():  # root may read any file
        expected.append("b/e.txt")
    assert [path for path, _ in report.failures] == expected


def test_the_error_says_how_many_do_not_match_and_shows_the_first(tree: Path) -> None:
    (tree / "MD5SUMS").write_text(manifest(tree))
    flip(tree / "b/c.bin")
    (tree / "a.txt").unlink()
    with pytest.raises(
        nbdata.TransferFailed, match=r"^md5check: 1 of 5 does not match, 1 is missing; first b/c.bin: "
    ) as caught:
        nbdata.md5check(tree, quiet=True)
    assert "expected" in str(caught.value)
    assert caught.value.report.counts == {"ok": 3, "mismatch": 1, "missing": 1}


def test_with_stop_the_first_mismatch_ends_the_check(tree: Path) -> None:
    sidecars(tree)
    for name in ("a.txt", "b/c.bin", "b/e.txt"):
        flip(tree / name)
    with pytest.raises(nbdata.ChecksumMismatch, match=r"a\.txt"):
        nbdata.md5check(tree, on_error="stop", concurrency=1, quiet=True)


def test_a_folder_without_any_checksums_is_not_called_good(tree: Path) -> None:
    with pytest.raises(
        nbdata.NotFound, match=r"any of the 5 files: looked for .*MD5SUMS.*--against.*--write"
    ):
        nbdata.md5check(tree, quiet=True)


def test_a_check_whose_filters_let_nothing_through_is_not_called_good(tree: Path) -> None:
    sidecars(tree)
    with pytest.raises(nbdata.NotFound, match="no file passes"):
        nbdata.md5check(tree, include="*.nothing", quiet=True)


def test_problems_of_checksum_files_are_told_but_bounded(tree: Path) -> None:
    sidecars(tree)
    (tree / "MD5SUMS").write_text("what is this\n" * 50)
    report = check(tree)
    assert report.counts == {"ok": 5}
    assert report.notes[0].startswith("MD5SUMS: line 1: neither a checksum nor a comment")
    assert len(report.notes) == 21
    assert report.notes[-1] == "and 30 more of this kind"


def test_only_the_algorithm_asked_for_counts(tree: Path) -> None:
    sidecars(tree)
    (tree / "SHA256SUMS").write_text(sums(tree, "a.txt", program="sha256sum"))
    assert {row.detail["algorithm"] for row in check(tree, include="a.txt").rows} == {"sha256"}
    assert {row.detail["algorithm"] for row in check(tree, algorithm="md5").rows} == {"md5"}
    assert check(tree, algorithm="sha256").counts == {"ok": 1, "unverifiable": 4}
    with pytest.raises(nbdata.NotFound, match="--algorithm auto"):
        check(tree, algorithm="sha1")


def test_a_single_file_is_checked_by_its_sidecar_or_the_manifest_of_its_folder(tree: Path) -> None:
    (tree / "b/MD5SUMS").write_text(sums(tree / "b", "c.bin", "e.txt") + f"{'0' * 32}  gone\n")
    (tree / "a.txt.md5").write_text(sums(tree, "a.txt"))
    (tree / "other.bin").write_bytes(b"other")
    (tree / "other.bin.md5").write_text("rubbish")
    assert found(check(tree / "b/c.bin")) == {"c.bin": "ok"}  # other files of the manifest are not checked
    report = check(tree / "a.txt")
    assert (found(report), report.notes) == ({"a.txt": "ok"}, [])
    flip(tree / "a.txt")
    assert found(check(tree / "a.txt")) == {"a.txt": "mismatch"}


def test_a_checksum_file_as_path_is_refused_with_the_remedy(tree: Path) -> None:
    (tree / "MD5SUMS").write_text(manifest(tree))
    with pytest.raises(nbdata.BadOption, match=r"--against .*/MD5SUMS"):
        nbdata.md5check(tree / "MD5SUMS", quiet=True)


def test_a_glob_checks_what_it_matches_and_misses_only_that(tree: Path) -> None:
    (tree / "MD5SUMS").write_text(manifest(tree))
    (tree / "a.txt").unlink()
    (tree / "b/c.bin").unlink()
    assert found(check(f"{tree}/b/*.bin", against=tree / "MD5SUMS")) == {"c.bin": "missing"}
    assert found(check(f"{tree}/*.txt")) == {"a.txt": "missing", "with space & ünï.txt": "ok"}


def test_what_filters_leave_out_is_neither_missing_nor_read(tree: Path) -> None:
    (tree / "MD5SUMS").write_text(manifest(tree))
    (tree / "a.txt").unlink()
    flip(tree / "b/e.txt")
    assert found(check(tree, include="*.bin")) == {"b/c.bin": "ok"}
    assert found(check(tree, exclude=("b/*.txt", "with*"))) == {
        "a.txt": "missing",
        "b/c.bin": "ok",
        "b/d/empty": "ok",
    }
    assert found(check(tree, max_files=1)) == {"a.txt": "missing", "b/c.bin": "ok"}
    assert check(tree, include="b/", sample=1).files == 1


def test_a_file_list_may_name_missing_files_but_no_unknown_ones(tree: Path, tmp_path: Path) -> None:
    (tree / "MD5SUMS").write_text(manifest(tree))
    (tree / "a.txt").unlink()
    (tmp_path / "list").write_text("a.txt\nb/c.bin\n")
    assert found(check(tree, files_from=tmp_path / "list")) == {"a.txt": "missing", "b/c.bin": "ok"}
    (tmp_path / "list").write_text("b/c.bin\nnever there\n")
    with pytest.raises(nbdata.NotFound, match="never there"):
        check(tree, files_from=tmp_path / "list")


def test_a_plan_counts_what_would_be_read_and_reads_no_data(tree: Path) -> None:
    (tree / "MD5SUMS").write_text(sums(tree, "a.txt", "b/c.bin") + f"{'0' * 32}  gone\n")
    os.truncate(tree / "b/c.bin", 1 << 40)
    plan = nbdata.md5check(tree, dry_run=True)
    assert {name: count for name, (count, _) in plan.actions.items()} == {
        "check": 2,
        "extra": 2,
        "unverifiable": 1,
        "missing": 1,
    }
    assert (plan.files, plan.bytes, plan.needed) == (2, (1 << 40) + 6, 0)
    assert [row.path for row in plan.rows if row.action == "unverifiable"] == ["b/d/empty"]


def test_a_file_that_changes_after_it_was_listed_has_no_verdict(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sidecars(tree)
    read = ChecksumReader.__call__

    def meddling(self: ChecksumReader, name: str) -> bytes:
        (tree / "a.txt").write_bytes(b"ALPHA\n")
        return read(self, name)

    monkeypatch.setattr(ChecksumReader, "__call__", meddling)
    report = check(tree)
    assert found(report)["a.txt"] == "failed"
    assert report.counts == {"ok": 4, "failed": 1}
    assert "changed" in report.failures[0][1]


def test_a_check_is_cancelled_in_the_middle(tmp_path: Path) -> None:
    with open(tmp_path / "big", "wb") as file:
        file.truncate(64 << 30)  # hashing this hole takes a minute
    (tmp_path / "big.md5").write_text(f"{'0' * 32}  big\n")
    job = nbdata.Md5check(str(tmp_path)).start()
    for snapshot in job.watch():
        if snapshot.bytes:
            assert snapshot.bytes_total == 64 << 30
            job.cancel()
            break
    with pytest.raises(nbdata.Cancelled):
        job.wait(timeout=PATIENCE)
    assert job.report().counts.get("failed", 0) == 0


def test_nbdatas_own_folder_does_not_count_as_data(tree: Path) -> None:
    sidecars(tree)
    (tree / ".nbdata").mkdir()
    (tree / ".nbdata/partial").write_bytes(b"half")
    assert check(tree).counts == {"ok": 5}


# -- lists that another machine or program made ---------------------------------------------------


def windows(tree: Path, start: str = "", end: str = "\r\n") -> str:
    """Return a list of all files, with the names that Windows writes."""
    return manifest(tree).replace("/", "\\").replace("  ", f"  {start}").replace("\n", end)


@pytest.mark.parametrize("start", ["", ".\\", "D:\\data\\set\\", "\\\\nas\\share\\set\\"])
def test_a_list_of_windows_is_for_the_same_files(tree: Path, start: str) -> None:
    (tree / "MD5SUMS").write_bytes(windows(tree, start).encode("utf-16"))
    (tree / "b/e.txt").unlink()
    flip(tree / "b/c.bin")
    report = check(tree)
    assert report.counts == {"ok": 3, "mismatch": 1, "missing": 1}
    assert {row.path for row in report.rows if row.action == "missing"} == {"b/e.txt"}
    assert len([note for note in report.notes if "was taken for" in note]) == 1


def test_a_list_with_absolute_names_of_another_machine_is_for_the_same_files(
    tree: Path, tmp_path: Path
) -> None:
    """And --repair knows what a missing file is called here."""
    (tree / "MD5SUMS").write_text(manifest(tree).replace("  ", "  /home/someone/set/"))
    nbdata.pull(str(tree), str(tmp_path / "copy"), quiet=True)
    (tree / "b/e.txt").unlink()
    assert check(tree).counts == {"ok": 4, "missing": 1}
    assert check(tree, repair=str(tmp_path / "copy")).counts == {"ok": 4, "repaired": 1}


def test_a_list_of_a_folder_above_is_for_the_same_files(tree: Path, tmp_path: Path) -> None:
    (tree / "MD5SUMS").write_text(manifest(tree).replace("  ", "  set/"))
    assert check(tree).counts == {"ok": 5}


def test_a_deleted_file_is_missing_though_a_copy_lies_elsewhere(tree: Path) -> None:
    (tree / "MD5SUMS").write_text(sums(tree, "a.txt", "b/c.bin"))
    for name in ("a.txt", "b/c.bin"):
        (tree / "old" / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).rename(tree / "old" / name)
    assert {path for path, action in found(check(tree)).items() if action == "missing"} == {
        "a.txt",
        "b/c.bin",
    }


@pytest.mark.needs("hashdeep")
def test_a_list_of_hashdeep_is_for_the_files(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "set.txt").write_text(sums(tree, "-r", ".", program="hashdeep"))
    flip(tree / "b/c.bin")
    assert check(tree, against=tmp_path / "set.txt").counts == {"ok": 4, "mismatch": 1}


def test_what_a_repository_says_of_its_files_is_for_them(tree: Path, tmp_path: Path) -> None:
    digest = hashlib.md5((tree / "a.txt").read_bytes()).hexdigest()
    (tmp_path / "record.json").write_text(
        json.dumps(
            {
                "files": [
                    {"key": "a.txt", "checksum": f"md5:{digest}"},
                    {"key": "b.zip", "checksum": f"md5:{digest}"},
                ]
            }
        )
    )
    assert found(check(tree, against=tmp_path / "record.json"))["a.txt"] == "ok"
    assert found(check(tree / "a.txt", against=tmp_path / "record.json")) == {"a.txt": "ok"}
    assert found(check(tree, against=tmp_path / "record.json"))["b.zip"] == "missing"


def test_a_digest_without_a_name_is_for_the_file_that_it_fits(tree: Path) -> None:
    (tree / "a.md5").write_text(hashlib.md5((tree / "a.txt").read_bytes()).hexdigest())
    for place in (tree, tree / "a.txt"):
        report = check(place)
        assert found(report)["a.txt"] == "ok"
        assert "a.md5: its digest has no name, and was taken for that of a.txt" in report.notes
    (tree / "a.json").write_text("{}")
    assert "ok" not in found(check(tree)).values()
    with pytest.raises(nbdata.NotFound):
        nbdata.md5check(tree / "a.txt", quiet=True)


# -- checksum files in another place --------------------------------------------------------------


def test_sidecars_in_a_folder_of_their_own_are_found_by_name(tree: Path, tmp_path: Path) -> None:
    sidecars(tree, tmp_path / "md5")
    assert check(tree, against=tmp_path / "md5").counts == {"ok": 5}
    flip(tree / "a.txt")
    (tree / "b/e.txt").unlink()
    assert check(tree, against=tmp_path / "md5").counts == {"ok": 3, "mismatch": 1, "missing": 1}
    assert found(check(tree / "b/c.bin", against=tmp_path / "md5/b")) == {"c.bin": "ok"}
    assert found(check(tree, against=f"{tmp_path}/md5/*.md5", include="*.txt"))["a.txt"] == "mismatch"


@pytest.mark.long
def test_more_sidecars_than_are_read_at_once_are_all_read(tmp_path: Path) -> None:
    for number in range(600):
        (tmp_path / f"f{number}").write_bytes(b"%d" % number)
    for name in sidecars(tmp_path)[:3]:
        flip(tmp_path / name)
    assert check(tmp_path).counts == {"ok": 597, "mismatch": 3}


@pytest.mark.parametrize("name", ["MD5SUMS", "hashes of monday.txt"])
def test_one_manifest_of_any_name_is_taken(tree: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "sums").mkdir()
    (tmp_path / "sums" / name).write_text(manifest(tree))
    assert check(tree, against=tmp_path / "sums" / name).counts == {"ok": 5}
    assert found(check(tree / "a.txt", against=tmp_path / "sums" / name)) == {"a.txt": "ok"}


def test_a_manifest_above_the_files_may_name_them_from_there_or_from_within(
    tree: Path, tmp_path: Path
) -> None:
    names = sorted(p.name for p in (tree / "b").iterdir() if p.is_file())
    for lines in (sums(tmp_path, *[f"tree/b/{n}" for n in names], "tree/a.txt"), sums(tree / "b", *names)):
        (tmp_path / "data.md5").write_text(lines)
        assert found(check(tree / "b", against=tmp_path / "data.md5", exclude="d/")) == dict.fromkeys(
            names, "ok"
        )
    (tmp_path / "data.md5").write_text(sums(tmp_path, "tree/b/c.bin", "tree/b/e.txt", "tree/a.txt"))
    (tree / "b/e.txt").unlink()
    assert found(check(tree / "b", against=tmp_path / "data.md5", include="*.*")) == {
        "c.bin": "ok",
        "e.txt": "missing",
    }


def test_checksum_files_of_the_data_that_a_list_elsewhere_names_are_not_missing(
    tree: Path, tmp_path: Path
) -> None:
    sidecars(tree)
    (tmp_path / "MD5SUMS").write_text(manifest(tree))
    report = check(tree, against=tmp_path / "MD5SUMS")
    assert report.counts == {"ok": 10}


def test_a_folder_without_checksum_files_is_not_used_as_a_folder_of_checksums(
    tree: Path, tmp_path: Path
) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy/a.txt").write_bytes(b"alpha\n")
    with pytest.raises(nbdata.NotFound, match="looked for checksum files in"):
        check(tree, against=tmp_path / "copy")
