"""Access control lists of folders: files end with those of a file that is made in its final folder."""

from __future__ import annotations

import os
import struct
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata import acls
from nbdata.guarded_folders import GuardedFolders
from nbdata.own_files import make_own_folder

pytestmark = pytest.mark.usefixtures("inline")

_ANYBODY = 2**32 - 1
ENEMY = 54_322


def listed(user: int, allowed: int, *, group: int = 7, other: int = 0) -> bytes:
    """Return a list that lets a user do something."""
    entries = [
        (1, 7, _ANYBODY),
        (2, allowed, user),
        (4, group, _ANYBODY),
        (16, 7, _ANYBODY),
        (32, other, _ANYBODY),
    ]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def give(folder: Path, acl: bytes) -> None:
    os.setxattr(folder, "system.posix_acl_default", acl)


def permissions(path: Path) -> tuple[int, bytes]:
    """Return the mode and the list of a file or folder."""
    try:
        acl = os.getxattr(path, "system.posix_acl_access")
    except OSError:
        acl = b""
    return path.stat().st_mode & 0o7777, acl


def made_there(folder: Path, verb: str) -> tuple[int, bytes]:
    """Return what a file has that is made in a folder; an archive says that nobody else writes it."""
    fd = os.open(folder / "probe", os.O_WRONLY | os.O_CREAT, 0o644 if verb == "untar" else 0o666)
    os.close(fd)
    try:
        return permissions(folder / "probe")
    finally:
        (folder / "probe").unlink()


@pytest.fixture(params=[0o002, 0o027])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def source(tmp_path: Path) -> str:
    for name, size in (("small", 10), ("sub/small", 10), ("whole", 1_000_000), ("parts", 17 << 20)):
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / name).write_bytes(bytes(size))
        (tmp_path / "source" / name).chmod(0o666)
    return f"{tmp_path}/source/"


FILES = ("small", "sub/small", "whole", "parts")


def fetched(verb: str, source: str, target: Path, tmp_path: Path) -> None:
    if verb == "pull":
        nbdata.pull(source, target, quiet=True)
    elif verb == "push":
        nbdata.push(source, f"{target}/", quiet=True)
    else:
        with tarfile.open(tmp_path / "t.tar", "w") as tar:
            for name in FILES:
                tar.add(f"{source}{name}", name)
        nbdata.untar_volumes(str(tmp_path / "t.tar"), target, quiet=True)


@pytest.mark.parametrize("verb", ["pull", "push", "untar"])
@pytest.mark.usefixtures("umask")
def test_a_list_of_a_prepared_own_folder_gets_onto_no_file(tmp_path: Path, source: str, verb: str) -> None:
    own = tmp_path / "target/.nbdata"
    own.mkdir(parents=True)
    own.chmod(0o700)
    (own / "keep").touch()
    give(own, listed(ENEMY, 7))
    fetched(verb, source, tmp_path / "target", tmp_path)
    expected = made_there(tmp_path / "target", verb)
    assert expected[1] == b""
    assert {permissions(tmp_path / "target" / name) for name in FILES} == {expected}


@pytest.mark.parametrize("verb", ["pull", "push", "untar"])
@pytest.mark.usefixtures("umask")
def test_files_get_the_list_of_their_final_folder(tmp_path: Path, source: str, verb: str) -> None:
    """A folder of a group has one on purpose; a folder below it may have another one, or none."""
    target = tmp_path / "target"
    (target / "sub").mkdir(parents=True)
    give(target, listed(ENEMY, 6))
    fetched(verb, source, target, tmp_path)
    assert {permissions(target / name) for name in ("small", "whole", "parts")} == {made_there(target, verb)}
    assert permissions(target / "small")[1] != b""
    assert permissions(target / "sub/small") == made_there(target / "sub", verb)
    assert permissions(target / "sub/small")[1] == b""


def test_a_replaced_file_stays_closed_below_a_list(tmp_path: Path, source: str) -> None:
    target = tmp_path / "target"
    target.mkdir()
    give(target, listed(ENEMY, 6))
    (target / "small").write_bytes(b"other")
    os.removexattr(target / "small", "system.posix_acl_access")
    (target / "small").chmod(0o600)
    nbdata.pull(source, target, quiet=True)
    assert (target / "small").stat().st_mode & 0o777 == 0o600


def own_list(*named: tuple[int, int, int], group: int, other: int) -> bytes:
    """Return the list of a file, with the named entries (tag, rights, id)."""
    entries = [(1, 6, _ANYBODY), *named, (4, group, _ANYBODY), (16, 6, _ANYBODY), (32, other, _ANYBODY)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in sorted(entries))


@pytest.mark.parametrize(
    ("named", "group", "other", "left"),
    [
        ([(2, 4, ENEMY)], 0, 0, 0o600),  # the mask is not a right of the group
        ([(2, 6, ENEMY)], 4, 4, 0o644),
        ([(2, 0, ENEMY)], 6, 4, 0o600),  # the user who may do nothing is one of the others, or of the group
        ([(8, 0, ENEMY)], 6, 4, 0o660),
        ([(8, 6, ENEMY)], 4, 0, 0o640),
    ],
)
@pytest.mark.parametrize("verb", ["pull", "push"])
def test_a_file_that_replaces_one_with_a_list_lets_nobody_do_more(
    tmp_path: Path,
    source: str,
    verb: str,
    named: list[tuple[int, int, int]],
    group: int,
    other: int,
    left: int,
) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "small").write_bytes(b"other")
    acl = own_list(*named, group=group, other=other)
    os.setxattr(target / "small", "system.posix_acl_access", acl)
    assert permissions(target / "small")[0] == 0o660 | other
    before = os.umask(0)
    try:
        if verb == "pull":
            nbdata.pull(source, target, overwrite="always", quiet=True)
        else:
            nbdata.push(source, f"{target}/", overwrite="always", quiet=True)
    finally:
        os.umask(before)
    assert permissions(target / "small") == (left, b"")


@pytest.mark.parametrize("verb", ["pull", "push"])
def test_a_file_that_replaces_one_with_the_list_of_its_folder_has_that_list(
    tmp_path: Path, source: str, verb: str
) -> None:
    target = tmp_path / "target"
    target.mkdir()
    give(target, listed(ENEMY, 6, group=4))
    for _ in range(2):
        if verb == "pull":
            nbdata.pull(source, target, overwrite="always", quiet=True)
        else:
            nbdata.push(source, f"{target}/", overwrite="always", quiet=True)
        assert permissions(target / "small") == made_there(target, verb)


@pytest.mark.usefixtures("umask")
def test_a_new_folder_keeps_the_mask_of_the_list_that_it_inherits(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    give(target, listed(ENEMY, 7))
    (target / "made").mkdir()
    os.close(GuardedFolders(str(target), umask=0o077).open_to_write(f"{target}/new"))
    assert permissions(target / "new") == permissions(target / "made")


def test_an_own_folder_keeps_only_the_list_of_the_folder_around_it(tmp_path: Path) -> None:
    own = Path(make_own_folder(str(tmp_path)))
    give(own, listed(ENEMY, 7))
    make_own_folder(str(tmp_path))
    assert acls.default_of(str(own)) is None
    give(tmp_path, listed(ENEMY, 5))
    give(own, listed(ENEMY, 5))
    make_own_folder(str(tmp_path))
    assert acls.default_of(str(own)) == listed(ENEMY, 5)
