"""Folders below a place that the user named: no link leads out of it, not even one that appears amid the work."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nbdata import guarded_folders
from nbdata.errors import UnsafeMember
from nbdata.guarded_folders import GuardedFolders
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


def test_only_so_many_folders_are_remembered(named: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_folders, "_KNOWN", 3)
    folders = GuardedFolders(str(named))
    for number in range(10):
        made(folders, named / str(number) / "f")
        assert len(folders._known) <= 3


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
