"""What replaces a file or a folder that its owner has closed lets nobody do more with it."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.transfer import target_folder
from tests.client.converting.data import BYTES, module

pytestmark = pytest.mark.usefixtures("inline")


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_a_target_that_is_exchanged_for_a_moment_does_not_open_what_is_replaced_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exchange the target for an empty folder while the replaced file is looked at, and back again."""
    source, target = tmp_path / "source", tmp_path / "target"
    for folder, text in ((source, "new"), (target, "old"), (tmp_path / "empty", "")):
        folder.mkdir()
        if text:
            (folder / "a").write_text(text)
    (target / "a").chmod(0o600)
    real = target_folder.acls.replaced_file

    def looked(*args: Any, **more: Any) -> object:
        target.rename(tmp_path / "aside")
        (tmp_path / "empty").rename(target)
        try:
            return real(*args, **more)
        finally:
            target.rename(tmp_path / "empty")
            (tmp_path / "aside").rename(target)

    monkeypatch.setattr(target_folder.acls, "replaced_file", looked)
    nbdata.pull(f"{source}/", target, overwrite="always", quiet=True)
    assert (target / "a").read_text() == "new"
    assert (target / "a").stat().st_mode & 0o777 == 0o600


def _split(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the mode and the group of a split and of all that is in it."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mode & 0o7777, path.stat().st_gid)
        for path in (folder, *folder.rglob("*"))
    }


@pytest.mark.in_ci(1)
@pytest.mark.parametrize("mode", [0o700, 0o750])
def test_a_split_that_replaces_a_closed_one_is_as_closed(tmp_path: Path, mode: int) -> None:
    dataset, out = module(tmp_path, BYTES), tmp_path / "out"
    nbdata.convert(dataset, tmp_path / "in", out, quiet=True)
    for path in (out / "train", out / "train/ffrdata"):
        path.chmod(mode)
    for path in (out / "train").rglob("*"):
        if path.is_file():
            path.chmod(mode & 0o666)
    # More files, of which some have no predecessor.
    nbdata.convert(dataset, tmp_path / "in", out, file_size="4KiB", overwrite="always", quiet=True)
    found = _split(out / "train")
    assert len(found) > 5
    for path, (bits, _) in found.items():
        assert bits == (mode if (out / "train" / path).is_dir() else mode & 0o666), path
    # That of an open one is open.
    assert {bits for bits, _ in _split(out / "val").values()} == {0o755, 0o644}


@pytest.mark.in_ci(1)
@pytest.mark.needs("other users")
@pytest.mark.parametrize("all_alike", [True, False])
def test_a_split_keeps_the_group_of_the_one_that_it_replaces(tmp_path: Path, all_alike: bool) -> None:
    dataset, out = module(tmp_path, BYTES), tmp_path / "out"
    nbdata.convert(dataset, tmp_path / "in", out, quiet=True)
    for path in (out / "train", *(out / "train").rglob("*")):
        if all_alike or path.name != "nbdata.json":
            os.chown(path, -1, 54_331)
        path.chmod(0o750 if path.is_dir() else 0o640)
    nbdata.convert(dataset, tmp_path / "in", out, overwrite="always", quiet=True)
    for path, (bits, group) in _split(out / "train").items():
        is_folder = (out / "train" / path).is_dir()
        if all_alike or is_folder:
            assert (bits, group) == (0o750 if is_folder else 0o640, 54_331), path
        else:
            assert bits == 0o600, path


@pytest.mark.parametrize(("old", "new"), [(0o600, 0o700), (0o640, 0o750), (0o644, 0o755), (0o666, 0o755)])
def test_an_unpacked_file_is_no_more_open_than_the_one_that_it_replaces(
    tmp_path: Path, old: int, new: int
) -> None:
    """Who may read it may execute it, if the archive says so."""
    (tmp_path / "program").write_text("new")
    (tmp_path / "program").chmod(0o755)
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        tar.add(tmp_path / "program", "program")
    target = tmp_path / "target"
    target.mkdir()
    (target / "program").write_text("old")
    (target / "program").chmod(old)
    nbdata.untar_volumes(str(tmp_path / "x.tar"), target, overwrite="always", quiet=True)
    assert (target / "program").read_text() == "new"
    assert (target / "program").stat().st_mode & 0o777 == new
