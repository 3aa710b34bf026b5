"""Groups of files: new ones have that of their final folder, and no group may do more with a successor than before."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata.acls import without_group
from nbdata.client.records.writer import FileWriter
from tests.hostile.users import ANNA, BERT, User, anna, reachable

__all__ = ["anna", "reachable"]

pytestmark = [pytest.mark.usefixtures("inline"), pytest.mark.needs("other users")]

# Two groups beside those of the users.
STAFF, PAYROLL = 54_331, 54_332
FILES = ("small", "sub/small", "whole", "parts")


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o007)
    yield
    os.umask(before)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name, size in zip(FILES, (10, 10, 1_000_000, 17 << 20), strict=True):
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / name).write_bytes(bytes(size))
        (tmp_path / "source" / name).chmod(0o755)
    return tmp_path / "source"


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder of one group, with a folder of another one in it."""
    shared = tmp_path / "shared"
    (shared / "sub").mkdir(parents=True)
    for path, group in ((shared, STAFF), (shared / "sub", PAYROLL)):
        os.chown(path, -1, group)
        path.chmod(0o2775)
    return shared


def write(verb: str, source: Path, target: Path) -> None:
    """Write all files to a folder."""
    if verb == "pull":
        nbdata.pull(f"{source}/", target, overwrite="always", quiet=True)
    elif verb == "push":
        nbdata.push(f"{source}/", f"{target}/", overwrite="always", quiet=True)
    elif verb == "repair":
        nbdata.md5check(source, write=True, quiet=True)
        (target / "MD5SUMS").write_bytes((source / "MD5SUMS").read_bytes())
        nbdata.md5check(target, repair=f"{source}/", quiet=True)
    else:
        with tarfile.open(target.parent / "t.tar", "w") as tar:
            for name in FILES:
                tar.add(source / name, name)
        nbdata.untar_volumes(str(target.parent / "t.tar"), target, overwrite="always", quiet=True)


def groups(target: Path) -> dict[str, tuple[int, int]]:
    """Return the group and the permissions of all files."""
    found = {name: (target / name).stat() for name in FILES}
    return {name: (status.st_gid, status.st_mode & 0o777) for name, status in found.items()}


@pytest.mark.parametrize("verb", ["pull", "push", "untar"])
def test_a_new_file_gets_the_group_of_its_final_folder(source: Path, shared: Path, verb: str) -> None:
    write(verb, source, shared)
    mode = 0o750 if verb == "untar" else 0o660
    assert groups(shared) == {name: (PAYROLL if "/" in name else STAFF, mode) for name in FILES}


def test_a_folder_that_gives_no_group_gets_files_of_the_users_own(source: Path, shared: Path) -> None:
    (shared / "sub").chmod(0o755)
    write("pull", source, shared)
    assert groups(shared)["sub/small"] == (os.getegid(), 0o660)


@pytest.mark.parametrize("verb", ["pull", "push", "untar", "repair"])
def test_a_file_that_replaces_another_keeps_its_group(source: Path, shared: Path, verb: str) -> None:
    for name in FILES:
        (shared / name).write_text("old")
        os.chown(shared / name, -1, PAYROLL)
        (shared / name).chmod(0o640)
    write(verb, source, shared)
    assert (shared / "small").read_bytes() == bytes(10)
    mode = 0o750 if verb == "untar" else 0o640
    assert groups(shared) == dict.fromkeys(FILES, (PAYROLL, mode))


def test_what_is_written_by_pack_and_by_a_writer_keeps_the_group(source: Path, shared: Path) -> None:
    names = ("x.tar", "r-000.ffr", "n.ffr", "unknown.ffr")
    for name in names:
        (shared / name).write_text("old")
        os.chown(shared / name, -1, PAYROLL)
        (shared / name).chmod(0o640)
    nbdata.pack(f"{source}/", f"{shared}/x.tar", format="tar", overwrite="always", quiet=True)
    ffrecord = f"{shared}/r-%03d.ffr"
    nbdata.pack(f"{source}/", ffrecord, format="ffrecord", by="file", overwrite="always", quiet=True)
    for name, n in (("n.ffr", 1), ("unknown.ffr", None)):
        with FileWriter(shared / name, n) as writer:
            writer.write_one(b"sample")
    for name in names:
        found = (shared / name).stat()
        assert found.st_size > 3
        assert (found.st_gid, found.st_mode & 0o777) == (PAYROLL, 0o640), name


@pytest.mark.in_ci(1)
@pytest.mark.parametrize("verb", ["pull", "push", "untar_volumes", "repair", "writer"])
def test_a_group_that_the_user_cannot_give_lets_no_other_group_in(
    anna: User, tmp_path: Path, source: Path, verb: str
) -> None:
    """Anna is no member of the group whose file she replaces."""
    target = anna.root / "target"
    target.mkdir()
    os.chown(target, ANNA, BERT)
    target.chmod(0o2775)
    name = "x.ffr" if verb == "writer" else "small"
    (target / name).write_text("old")
    os.chown(target / name, ANNA, PAYROLL)
    (target / name).chmod(0o640)
    if verb == "writer":
        anna.python(
            "import sys; from nbdata.ffrecord import FileWriter\n"
            "with FileWriter(sys.argv[1]) as writer: writer.write_one(b'sample')",
            target / name,
        )
    else:
        place = tmp_path / "t.tar"
        with tarfile.open(place, "w") as tar:
            os.chmod(source / "small", 0o640)
            tar.add(source / "small", "small")
        place.chmod(0o644)
        source.chmod(0o755)
        (source / "small").chmod(0o644)
        (source / "small.md5").write_text("a63c90cc3684ad8b0a2176a6a8fe9005  small\n")
        (target / "small.md5").write_bytes((source / "small.md5").read_bytes())
        words = {
            "repair": ("md5check", f"{target}/small", "--repair", f"{source}/"),
            "untar_volumes": ("untar_volumes", place, target, "--overwrite", "always"),
        }.get(verb, (verb, f"{source}/small", f"{target}/", "--overwrite", "always"))
        done = anna.nbdata(*words)
        assert done.returncode == 0, done.stdout
    found = (target / name).stat()
    assert found.st_size != 3
    assert (found.st_gid, found.st_mode & 0o777) == (BERT, 0o600)


@pytest.mark.parametrize(("mode", "wanted"), [(0o640, 0o600), (0o664, 0o644), (0o604, 0o600), (0o755, 0o755)])
def test_a_file_of_the_wrong_group_lets_it_do_what_others_may(mode: int, wanted: int) -> None:
    assert without_group(mode) == wanted
