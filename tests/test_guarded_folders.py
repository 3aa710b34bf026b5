"""Folders below a place that the user named: no link leads out of it, not even one that appears amid the work."""

from __future__ import annotations

import gc
import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nbdata import guarded_folders
from nbdata.errors import UnsafeMember
from nbdata.guarded_folders import GuardedFolders, NamedFolders, TargetLost
from nbdata.stores.local import LocalStore


@pytest.fixture
def named(tmp_path: Path) -> Path:
    (tmp_path / "named" / "sub").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(b"theirs")
    return tmp_path / "named"


def swap(folder: Path) -> None:
    """Put a link out of the named folder in the place of a folder."""
    folder.rename(folder.with_name("moved"))
    folder.symlink_to("../outside")


def made(folders: GuardedFolders, path: Path) -> None:
    """Make a file as a store does."""
    folder = folders.open_to_write(str(path.parent))
    try:
        os.close(os.open(path.name, os.O_WRONLY | os.O_CREAT, dir_fd=folder))
    finally:
        os.close(folder)


class _Swapping(io.BytesIO):
    """Bytes to write; once they are read, a folder is swapped for a link."""

    def __init__(self, data: bytes, folder: Path) -> None:
        super().__init__(data)
        self._folder = folder

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        if not self._folder.is_symlink():
            swap(self._folder)
        return super().readinto(buffer)


def test_a_folder_that_was_right_is_looked_at_again(named: Path, tmp_path: Path) -> None:
    folders = GuardedFolders(str(named))
    made(folders, named / "sub" / "one")
    swap(named / "sub")
    with pytest.raises(UnsafeMember, match="a symbolic link leads out of the target"):
        made(folders, named / "sub" / "two")
    assert os.listdir(tmp_path / "outside") == ["file"]


def test_a_link_to_a_folder_with_the_number_of_one_that_was_right_is_not_followed(
    named: Path, tmp_path: Path
) -> None:
    """A new folder elsewhere gets the number of a deleted one. Here it is the same folder, which was moved."""
    folders = GuardedFolders(str(named))
    made(folders, named / "sub" / "one")
    (named / "sub").rename(tmp_path / "outside" / "private")
    (named / "sub").symlink_to("../outside/private")
    with pytest.raises(UnsafeMember, match="a symbolic link leads out of the target"):
        made(folders, named / "sub" / "two")
    assert os.listdir(tmp_path / "outside" / "private") == ["one"]


@pytest.mark.parametrize("link", ["", "work"])
def test_a_link_to_a_folder_with_the_number_of_the_working_folder_is_not_followed(
    named: Path, tmp_path: Path, link: str
) -> None:
    (named / "work").mkdir()
    found = (named / "work").stat()
    folders = GuardedFolders(
        f"{named}/work/new", opened=NamedFolders((f"{named}/work", found.st_dev, found.st_ino))
    )
    away = tmp_path / "private" / link
    away.parent.mkdir(exist_ok=True)
    (named / link).rename(away)
    (named / link).symlink_to(away)
    with pytest.raises(TargetLost, match="exchanged"):
        made(folders, named / "work" / "new" / "f")
    assert os.listdir(tmp_path / "private" / "work") == []


def test_a_folder_that_is_swapped_amid_a_write_leads_nothing_astray(named: Path, tmp_path: Path) -> None:
    store = LocalStore(named=str(named))
    store.write(f"{named}/sub/other"[1:], io.BytesIO(b"new"), 3)
    store.write(f"{named}/sub/file"[1:], _Swapping(b"new", named / "sub"), 3)
    with pytest.raises(UnsafeMember):
        store.write(f"{named}/sub/file"[1:], io.BytesIO(b"new"), 3)
    assert (tmp_path / "outside" / "file").read_bytes() == b"theirs"
    assert (named / "moved" / "file").read_bytes() == b"new"


def test_nothing_is_deleted_below_a_link_wherever_it_leads(named: Path, tmp_path: Path) -> None:
    folders = GuardedFolders(str(named))
    (named / "sub" / "file").write_bytes(b"ours")
    (named / "inner").symlink_to("sub")
    (named / "outer").symlink_to("../outside")
    for link in ("inner", "outer"):
        with pytest.raises(UnsafeMember, match="nothing below a symbolic link is deleted"):
            folders.unlink(f"{named}/{link}/file")
    assert (named / "sub" / "file").exists()
    assert (tmp_path / "outside" / "file").exists()
    assert not folders.unlink(f"{named}/sub/file", lambda found: found.st_size == 0)
    assert folders.unlink(f"{named}/sub/file")
    folders.unlink(f"{named}/outer")  # a link itself
    assert not (named / "outer").is_symlink()


@pytest.mark.parametrize("given", [lambda link: f"{link}", lambda link: f"{link}/", lambda link: f"{link}/f"])
def test_a_link_in_the_named_path_is_followed(
    named: Path, tmp_path: Path, given: Callable[[Path], str]
) -> None:
    link = tmp_path / "link"
    link.symlink_to("named")
    folders = GuardedFolders(given(link))
    made(folders, link / "f")
    assert (named / "f").exists()
    folders.unlink(f"{link}/f")
    assert not (named / "f").exists()


def test_the_place_that_was_named_is_made_with_the_modes_of_its_user(named: Path) -> None:
    folders = GuardedFolders(f"{named}/a/b", umask=0o027)
    made(folders, named / "a" / "b" / "c" / "d" / "e")
    modes = [(named / path).stat().st_mode & 0o777 for path in ("a", "a/b", "a/b/c", "a/b/c/d")]
    assert modes == [0o750] * 4


def test_a_loop_of_links_and_a_file_in_the_way_are_refused(named: Path) -> None:
    folders = GuardedFolders(str(named))
    (named / "loop").symlink_to("loop")
    (named / "file").touch()
    with pytest.raises(UnsafeMember):
        made(folders, named / "loop" / "f")
    with pytest.raises(NotADirectoryError):
        made(folders, named / "file" / "f")


def test_the_whole_disk_may_be_named(named: Path, tmp_path: Path) -> None:
    (named / "link").symlink_to(tmp_path / "outside")
    made(GuardedFolders("/"), named / "link" / "f")
    assert (tmp_path / "outside" / "f").exists()


@pytest.mark.parametrize("own", [".nbdata", ".nbdata-1000", ".nbdata/sub"])
def test_a_link_to_an_own_folder_of_nbdata_is_not_followed(named: Path, own: str) -> None:
    """What is in there is no data, and `cleanup` removes it."""
    (named / own).mkdir(parents=True)
    (named / "link").symlink_to(own)
    with pytest.raises(UnsafeMember, match="a symbolic link leads to nbdata's own folder"):
        made(GuardedFolders(str(named)), named / "link" / "x")
    assert os.listdir(named / own) == []


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_a_named_folder_that_is_exchanged_ends_the_work_and_leads_nothing_elsewhere(
    named: Path, tmp_path: Path, kind: str
) -> None:
    """As the owner of the folder above it can, also in a sticky one."""
    folders, outside = GuardedFolders(str(named)), tmp_path / "outside"
    (outside / "sub").mkdir()
    (outside / "sub" / "file").write_bytes(b"theirs")
    made(folders, named / "sub" / "file")
    named.rename(tmp_path / "moved")
    if kind == "link":
        named.symlink_to("outside")
    else:
        outside.rename(named)
    for work in (
        lambda: made(folders, named / "file"),
        lambda: made(folders, named / "sub" / "file"),
        lambda: folders.unlink(f"{named}/file"),
        lambda: folders.rmdir(f"{named}/sub"),
        lambda: folders.set_time(f"{named}/sub", 0),
        folders.check,
    ):
        with pytest.raises(TargetLost, match="the folder was exchanged while this job worked in it"):
            work()
    assert (named / "file").read_bytes() == (named / "sub" / "file").read_bytes() == b"theirs"
    assert sorted(os.listdir(named)) == ["file", "sub"]


def test_a_named_folder_that_is_exchanged_between_two_looks_leads_nothing_elsewhere(
    named: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders, check = GuardedFolders(str(named)), guarded_folders._Named.check

    def late(folder: guarded_folders._Named, **more: bool) -> None:
        check(folder, **more)
        if not named.is_symlink():
            named.rename(tmp_path / "moved")
            named.symlink_to("outside")

    made(folders, named / "one")
    monkeypatch.setattr(guarded_folders._Named, "check", late)
    made(folders, named / "two")
    assert sorted(os.listdir(tmp_path / "moved")) == ["one", "sub", "two"]
    assert os.listdir(tmp_path / "outside") == ["file"]


def test_a_link_that_appears_where_a_missing_place_was_named_is_not_followed(
    named: Path, tmp_path: Path
) -> None:
    for path in ("new", "new/deep"):
        folders = GuardedFolders(str(tmp_path / path))
        folders.hold()
        (tmp_path / "new").symlink_to("outside")
        with pytest.raises(TargetLost, match="exchanged"):
            made(folders, tmp_path / path / "f")
        (tmp_path / "new").unlink()
    assert os.listdir(tmp_path / "outside") == ["file"]
    made(folders, tmp_path / "new/deep/f")
    assert (tmp_path / "new/deep/f").exists()


def test_a_named_folder_that_is_deleted_ends_the_work(named: Path) -> None:
    folders = GuardedFolders(str(named))
    (named / "sub").rmdir()
    made(folders, named / "one")
    (named / "one").unlink()
    named.rmdir()
    folders.check()  # the job's mark tells that it is gone
    with pytest.raises(TargetLost, match="the folder was deleted while this job worked in it"):
        made(folders, named / "one")
    named.mkdir()
    with pytest.raises(TargetLost, match="exchanged"):
        made(folders, named / "one")


def test_a_disk_that_numbers_an_open_folder_anew_is_no_exchange(
    named: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = GuardedFolders(str(named))
    made(folders, named / "one")
    monkeypatch.setattr(next(iter(folders._opened._open.values())), "_identity", (1, 1))
    made(folders, named / "two")


def test_descriptors_are_closed_with_their_folders(named: Path) -> None:
    gc.collect()  # what earlier tests have left has no descriptor that is closed meanwhile
    before = len(os.listdir("/proc/self/fd"))
    folders = GuardedFolders(f"{named}/a/b/c")
    folders.hold()
    made(folders, named / "a/b/c/f")
    folders.unlink(f"{named}/a/b/c/f")
    assert len(os.listdir("/proc/self/fd")) == before + 2
    del folders
    assert len(os.listdir("/proc/self/fd")) == before


def test_only_so_many_named_folders_are_open(named: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_folders, "_MOST_NAMED", 3)
    opened = guarded_folders.NamedFolders()
    for number in range(3):
        made(GuardedFolders(f"{named}/{number}", opened=opened), named / str(number) / "f")
    with pytest.raises(OSError, match="Too many open files"):
        made(GuardedFolders(f"{named}/3", opened=opened), named / "3" / "f")


@pytest.mark.parametrize("exists", [False, True])
def test_the_folder_of_a_single_file_is_held_from_the_beginning(tmp_path: Path, exists: bool) -> None:
    named, private = tmp_path / "named", tmp_path / "private"
    named.mkdir()
    private.mkdir()
    if exists:
        (named / "file").touch()
    opened = NamedFolders()
    opened.hold(str(named / "file"))
    named.rename(tmp_path / "away")
    named.symlink_to(private)
    with pytest.raises(TargetLost):
        GuardedFolders(str(named), opened=opened).open_to_write(str(named))
