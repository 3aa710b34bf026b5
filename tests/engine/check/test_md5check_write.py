"""md5check --write writes manifests and sidecars that md5sum and related programs accept.

It never contradicts existing checksum files.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from tests.conftest import client_of
from tests.engine.changing import after_the_plan

from .test_md5check import check, flip, found, sums

pytestmark = pytest.mark.usefixtures("inline")

ODD = ("new\nline", "back\\slash", "-", " blanks ", "*star")


def verify(folder: Path, *files: str, program: str = "md5sum") -> None:
    """Let the real program check these checksum files, in `folder`."""
    subprocess.run([program, "--check", "--strict", "--quiet", "--", *files], cwd=folder, check=True)


# -- manifests -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "name", "program"),
    [("auto", "MD5SUMS", "md5sum"), ("sha1", "SHA1SUMS", "sha1sum"), ("sha256", "SHA256SUMS", "sha256sum")],
)
def test_a_written_manifest_is_what_the_real_program_writes_and_checks(
    tree: Path, algorithm: str, name: str, program: str
) -> None:
    (tree / "odd\nname\\").write_bytes(b"odd")
    names = sorted(str(p.relative_to(tree)) for p in tree.rglob("*") if p.is_file())
    report = check(tree, write=True, algorithm=algorithm)
    assert (report.counts, report.details["written"]) == ({"hashed": 6}, f"{tree}/{name}")
    assert (tree / name).read_text() == sums(tree, *names, program=program)
    subprocess.run([program, "--check", "--strict", "--quiet", name], cwd=tree, check=True)
    assert check(tree, algorithm=algorithm).counts == {"ok": 6}
    assert not list(tree.rglob("*partial*"))


def test_crc32c_goes_round_though_no_common_program_checks_it(tree: Path) -> None:
    check(tree, write=True, algorithm="crc32c")
    assert check(tree).counts == {"ok": 5}


def test_a_single_file_gets_a_sidecar(tree: Path) -> None:
    report = check(tree / "a.txt", write=True)
    assert report.details["written"] == f"{tree}/a.txt.md5"
    assert (tree / "a.txt.md5").read_text() == sums(tree, "a.txt")
    flip(tree / "a.txt")
    assert check(tree / "a.txt", write=True).counts == {"mismatch": 1}


def test_an_existing_manifest_is_extended_and_keeps_its_lines(tree: Path) -> None:
    check(tree, write=True, include="*.txt")
    first = (tree / "MD5SUMS").read_text()
    assert first.count("\n") == 3
    assert check(tree, write=True, include="*.bin").counts == {"hashed": 1}
    assert set(first.splitlines()) < set((tree / "MD5SUMS").read_text().splitlines())
    subprocess.run(["md5sum", "--check", "--strict", "--quiet", "MD5SUMS"], cwd=tree, check=True)
    report = check(tree, write=True)
    assert (report.counts, report.details["written"] != "") == ({"ok": 4, "hashed": 1}, True)
    before = (tree / "MD5SUMS").stat()
    report = check(tree, write=True)
    assert (report.counts, report.details["written"]) == ({"ok": 5}, "")
    assert (tree / "MD5SUMS").stat().st_ino == before.st_ino


@pytest.mark.parametrize("before", [False, True], ids=["new", "extended"])
@pytest.mark.parametrize("overwrite", ["never", "always"])
def test_a_manifest_that_another_program_has_written_meanwhile_is_left(
    overwrite: str, tree: Path, *, before: bool
) -> None:
    """Its lines may be the only evidence of damage."""
    if before:
        check(tree, write=True, include="*.bin")
    theirs = f"{'0' * 32}  d/theirs\n"
    with after_the_plan(lambda: (tree / "MD5SUMS").write_text(theirs)):
        report = check(tree, write=True, include="*.txt", overwrite=overwrite)
    assert (report.state, report.details["written"]) == ("FAILED", "")
    assert "written by another program" in str(report.failures)
    assert (tree / "MD5SUMS").read_text() == theirs


@pytest.mark.parametrize("damage", ["flipped", "missing"])
def test_an_existing_manifest_that_witnesses_damage_is_left_alone(tree: Path, damage: str) -> None:
    check(tree, write=True)
    before = (tree / "MD5SUMS").read_bytes()
    (tree / "new").write_bytes(b"new")
    if damage == "missing":
        (tree / "a.txt").unlink()
    else:
        flip(tree / "a.txt")
    report = check(tree, write=True)
    assert report.state == "FAILED"
    assert report.counts == {"ok": 4, "hashed": 1, "missing" if damage == "missing" else "mismatch": 1}
    assert "was not written" in report.notes[-1]
    assert (tree / "MD5SUMS").read_bytes() == before


@pytest.mark.parametrize(
    "line", ["what is this\n", f"SHA256 (a.txt) = {'0' * 64}\n", f"{'0' * 32}  ../out\n"]
)
def test_an_existing_manifest_with_lines_that_could_not_be_kept_is_left_alone(tree: Path, line: str) -> None:
    (tree / "MD5SUMS").write_text(line)
    with pytest.raises(nbdata.BadOption, match="cannot be kept"):
        check(tree, write=True)
    assert (tree / "MD5SUMS").read_text() == line


def test_nothing_is_written_while_a_file_cannot_be_read(tree: Path) -> None:
    with after_the_plan(lambda: (tree / "b/e.txt").write_bytes(b"later")):
        report = check(tree, write=True)
    assert report.counts == {"hashed": 4, "failed": 1}
    assert not (tree / "MD5SUMS").exists()


def test_a_written_manifest_has_the_permissions_of_its_writer_and_replaces_a_link(
    tree: Path, tmp_path: Path
) -> None:
    mask = os.umask(0o027)
    try:
        check(tree, write=True)
    finally:
        os.umask(mask)
    assert (tree / "MD5SUMS").stat().st_mode & 0o777 == 0o640
    (tree / "MD5SUMS").rename(tmp_path / "elsewhere")
    (tree / "MD5SUMS").symlink_to(tmp_path / "elsewhere")
    (tree / "new").write_bytes(b"new")
    check(tree, write=True)
    assert (tree / "MD5SUMS").read_text().count("\n") == 6
    assert not (tree / "MD5SUMS").is_symlink()
    assert (tmp_path / "elsewhere").read_text().count("\n") == 5


def test_a_manifest_may_have_another_name_which_the_next_check_knows(tree: Path) -> None:
    report = check(tree, write="checksums.txt")
    assert report.details["written"] == f"{tree}/checksums.txt"
    verify(tree, "checksums.txt")
    assert {row.detail["source"] for row in check(tree).rows} == {"checksums.txt"}
    check(tree, write="SHA512SUMS")  # the name selects the algorithm
    verify(tree, "SHA512SUMS", program="sha512sum")


@pytest.mark.parametrize(
    ("name", "algorithm", "words"),
    [
        ("hashes of monday.txt", "auto", "would treat it as data"),
        ("sub/MD5SUMS", "auto", "is a path, not a name"),
        ("MD5SUMS", "sha256", "means md5, but --algorithm says sha256"),
    ],
)
def test_a_name_that_no_check_would_find_is_refused(
    tree: Path, name: str, algorithm: str, words: str
) -> None:
    with pytest.raises(nbdata.BadOption, match=words):
        check(tree, write=name, algorithm=algorithm)
    assert sorted(p.name for p in tree.iterdir()) == ["a.txt", "b", "with space & ünï.txt"]


def test_a_single_file_may_go_into_a_manifest_that_keeps_the_lines_of_others(tree: Path) -> None:
    check(tree / "a.txt", write="MD5SUMS")
    check(tree / "with space & ünï.txt", write="MD5SUMS")
    assert (tree / "MD5SUMS").read_text() == sums(tree, "a.txt", "with space & ünï.txt")


@pytest.mark.parametrize("wrong", ["flipped", "missing", "unreadable"])
def test_with_overwrite_an_existing_manifest_is_replaced(tree: Path, wrong: str) -> None:
    check(tree, write=True)
    if wrong == "flipped":
        flip(tree / "a.txt")
    elif wrong == "missing":
        (tree / "a.txt").unlink()
    else:
        (tree / "MD5SUMS").write_text("what is this\n")
    report = check(tree, write=True, overwrite="always")
    assert report.state == "DONE"
    assert (
        report.counts
        == {
            "flipped": {"ok": 4, "replaced": 1},
            "missing": {"ok": 4, "dropped": 1},
            "unreadable": {"hashed": 5},
        }[wrong]
    )
    verify(tree, "MD5SUMS")


def test_with_overwrite_lines_of_files_that_filters_leave_out_are_kept(tree: Path) -> None:
    check(tree, write=True)
    flip(tree / "a.txt")
    flip(tree / "b/c.bin")
    check(tree, write=True, overwrite="always", include="*.txt")
    assert found(check(tree)) == dict.fromkeys(
        ("a.txt", "b/d/empty", "b/e.txt", "with space & ünï.txt"), "ok"
    ) | {"b/c.bin": "mismatch"}


def test_overwrite_alone_is_refused(tree: Path) -> None:
    with pytest.raises(nbdata.BadOption, match="goes with --write"):
        check(tree, overwrite="always")


# -- sidecars ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("algorithm", "program"), [("auto", "md5sum"), ("sha256", "sha256sum")])
def test_sidecars_are_what_the_real_program_writes_and_checks(
    tree: Path, algorithm: str, program: str
) -> None:
    for name in ODD:
        (tree / "b" / name).write_bytes(name.encode())
    suffix = program.removesuffix("sum")
    files = [p for p in sorted(tree.rglob("*")) if p.is_file()]
    report = check(tree, write="sidecars", algorithm=algorithm)
    assert (report.counts, report.details["written"]) == ({"hashed": 5 + len(ODD)}, f"{tree}/")
    for path in files:
        sidecar = path.with_name(f"{path.name}.{suffix}")
        verify(path.parent, sidecar.name, program=program)
        if path.name != "-":  # md5sum writes it as "./-", because "-" means standard input
            assert sidecar.read_text() == sums(path.parent, "--", path.name, program=program)
    assert len(list(tree.rglob(f"*.{suffix}"))) == len(files)
    assert not (tree / ".nbdata").exists()
    assert check(tree).counts == {"ok": len(files)}


def test_sidecars_that_are_there_and_right_stay_as_they_are(tree: Path) -> None:
    (tree / "a.txt.md5").write_text(sums(tree, "a.txt").split()[0])
    report = check(tree, write="sidecars")
    assert report.counts == {"ok": 1, "hashed": 4}
    assert (tree / "a.txt.md5").read_text() == sums(tree, "a.txt").split()[0]
    assert check(tree, write="sidecars").counts == {"ok": 5}


def test_a_sidecar_that_witnesses_damage_is_left_alone_and_the_others_are_written(tree: Path) -> None:
    check(tree / "a.txt", write="sidecars")
    before = (tree / "a.txt.md5").read_text()
    flip(tree / "a.txt")
    report = check(tree, write="sidecars")
    assert (report.state, report.counts) == ("FAILED", {"mismatch": 1, "hashed": 4})
    assert (tree / "a.txt.md5").read_text() == before
    assert "--overwrite always" in "".join(report.notes)
    report = check(tree, write="sidecars", overwrite="always")
    assert (report.state, report.counts) == ("DONE", {"replaced": 1, "ok": 4})
    assert (tree / "a.txt.md5").read_text() == sums(tree, "a.txt")


@pytest.mark.parametrize(
    "content", ["rubbish", f"{'0' * 32}  a.txt\n{'0' * 32}  b\n", f"{'0' * 32}  other\n"]
)
def test_what_is_no_sidecar_is_not_replaced_by_one(tree: Path, content: str) -> None:
    (tree / "a.txt.md5").write_text(content)
    report = check(tree, write="sidecars")
    assert (report.state, report.counts) == ("FAILED", {"conflict": 1, "hashed": 4})
    assert (tree / "a.txt.md5").read_text() == content
    assert check(tree, write="sidecars", overwrite="always").counts == {"replaced": 1, "ok": 4}
    assert (tree / "a.txt.md5").read_text() == sums(tree, "a.txt")


def test_with_stop_the_first_contradiction_ends_it_and_is_counted_once(tree: Path) -> None:
    check(tree, write="sidecars")
    flip(tree / "a.txt")
    with pytest.raises(nbdata.ChecksumMismatch, match=r"a\.txt"):
        nbdata.md5check(tree, write="sidecars", on_error="stop", quiet=True)


def test_sidecars_have_the_permissions_of_their_writer_not_of_the_agent(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NBDATA_HOST")
    mask = os.umask(0o027)
    try:
        check(tree, write="sidecars")
    finally:
        os.umask(mask)
    assert (tree / "b/c.bin.md5").stat().st_mode & 0o777 == 0o640


def test_a_name_that_leaves_no_room_for_the_suffix_is_told_and_the_rest_is_written(tree: Path) -> None:
    (tree / ("x" * 253)).write_bytes(b"long")
    report = check(tree, write="sidecars")
    assert report.counts == {"hashed": 5, "unrepresentable": 1}


def test_a_dry_run_writes_nothing(tree: Path) -> None:
    for form in (True, "sidecars"):
        plan = nbdata.md5check(tree, write=form, dry_run=True)
        assert {name: count for name, (count, _) in plan.actions.items()} == {"hash": 5}
    assert not list(tree.rglob("*MD5SUMS")) + list(tree.rglob("*.md5"))


@pytest.fixture
def client(s3: EmbeddedServer) -> Iterator[Any]:
    made = client_of(s3)
    yield made
    made.close()


def test_sidecars_of_objects_are_objects_beside_them(client: Any, bucket: str, tree: Path) -> None:
    for path in tree.rglob("*"):
        if path.is_file():
            client.put_object(Bucket=bucket, Key=f"data/{path.relative_to(tree)}", Body=path.read_bytes())
    report = check(f"s3://{bucket}/data", write="sidecars")
    assert (report.counts, report.details["written"]) == ({"hashed": 5}, f"s3://{bucket}/data/")
    body = client.get_object(Bucket=bucket, Key="data/b/c.bin.md5")["Body"].read()
    assert body.decode() == sums(tree / "b", "c.bin")
    client.put_object(Bucket=bucket, Key="data/a.txt", Body=b"ALPHA\n")
    assert check(f"s3://{bucket}/data", write="sidecars").counts == {"ok": 4, "mismatch": 1}
    assert check(f"s3://{bucket}/data", write="sidecars", overwrite="always").counts == {
        "ok": 4,
        "replaced": 1,
    }
    assert check(f"s3://{bucket}/data").counts == {"ok": 5}


def test_a_manifest_of_a_single_object_keeps_the_lines_of_others(
    client: Any, bucket: str, tree: Path
) -> None:
    for name in ("a.txt", "b/e.txt"):
        client.put_object(Bucket=bucket, Key=name.rpartition("/")[2], Body=(tree / name).read_bytes())
    for name in ("a.txt", "e.txt"):
        check(f"s3://{bucket}/{name}", write="list.md5")
    body = client.get_object(Bucket=bucket, Key="list.md5")["Body"].read().decode()
    assert body.split()[1::2] == ["a.txt", "e.txt"]
