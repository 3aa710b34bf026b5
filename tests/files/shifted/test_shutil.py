"""shutil between a store and the disk: space, verification and resuming of pull and push, with shutil's own rules."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import BadOption
from nbdata.files.shifted.places import target
from nbdata.files.shifted.trees import tree_of
from tests.files.shifted.test_as_on_the_disk import _make, _tree


def _below(root: str) -> dict[str, bytes]:
    found = {}
    for top, _, files in os.walk(root):
        for name in files:
            with open(f"{top}/{name}", "rb") as file:
                found[f"{top}/{name}"[len(root) + 1 :]] = file.read()
    return found


def test_a_tree_goes_to_the_disk_and_back(folder: str, tmp_path: Path) -> None:
    _make(f"{folder}/in")
    os.makedirs(f"{folder}/in/empty/inside")
    assert shutil.copytree(f"{folder}/in", tmp_path / "out") == tmp_path / "out"
    assert _below(f"{tmp_path}/out") == _below(f"{folder}/in")
    assert (tmp_path / "out/empty/inside").is_dir()
    (tmp_path / "out/bare").mkdir()
    shutil.copytree(tmp_path / "out", f"{folder}/again")
    assert _below(f"{folder}/again") == _below(f"{folder}/in")
    assert os.path.isdir(f"{folder}/again/bare")
    assert os.path.isdir(f"{folder}/again/empty/inside")


def test_folders_count_towards_what_is_held_of_a_tree(folder: str) -> None:
    for number in range(2):
        with open(f"{folder}/{number}/{'a/' * 20}f", "w"):
            pass
    place = target(folder)
    assert place is not None
    assert tree_of(place, 40) is None
    found = tree_of(place, 50)
    assert found is not None
    assert list(found.folders) == ["0", "1"]


@pytest.mark.long
def test_an_empty_folder_is_copied_both_ways(folder: str, tmp_path: Path) -> None:
    os.makedirs(f"{folder}/in")
    shutil.copytree(f"{folder}/in", tmp_path / "out")
    assert os.listdir(tmp_path / "out") == []
    shutil.copytree(tmp_path / "out", f"{folder}/back")
    assert os.path.isdir(f"{folder}/back")


def test_what_both_sides_changed_is_replaced_and_never_a_conflict(folder: str, tmp_path: Path) -> None:
    _make(f"{folder}/in")
    out = tmp_path / "out"
    shutil.copytree(f"{folder}/in", out)
    (out / "a.txt").write_text("edited here")
    (out / "mine.txt").write_text("mine")
    with open(f"{folder}/in/a.txt", "w") as file:
        file.write("edited there")
    shutil.copytree(f"{folder}/in", out, dirs_exist_ok=True)
    assert (out / "a.txt").read_text() == "edited there"
    assert (out / "mine.txt").read_text() == "mine"
    (out / "a.txt").write_text("here again")
    with open(f"{folder}/in/a.txt", "w") as file:
        file.write("there again")
    shutil.copytree(out, f"{folder}/in", dirs_exist_ok=True)
    assert _below(f"{folder}/in")["a.txt"] == b"here again"


@pytest.mark.long
def test_a_second_copy_fetches_only_what_is_new(folder: str, tmp_path: Path, capfd: Any) -> None:
    _make(f"{folder}/in")
    shutil.copytree(f"{folder}/in", tmp_path / "out")
    capfd.readouterr()
    shutil.copytree(f"{folder}/in", tmp_path / "out", dirs_exist_ok=True)
    assert "9 unchanged" in capfd.readouterr().err


def test_what_cannot_be_copied_is_in_shutils_error_with_the_report(folder: str, tmp_path: Path) -> None:
    for name in ("a/../../escaped.txt", "fine.txt", "z//twice"):
        _put(f"{folder}/in", name, b"x")
    with pytest.raises(shutil.Error) as caught:
        shutil.copytree(f"{folder}/in", tmp_path / "out")
    assert {Path(source).name for source, _, _ in caught.value.args[0]} == {"escaped.txt", "twice"}
    assert caught.value.report.counts["unrepresentable"] == 2
    assert _below(str(tmp_path)) == {"out/fine.txt": b"x"}


def _put(folder: str, name: str, data: bytes) -> None:
    """Write an object whose key no path means."""
    import io

    found = target(folder)
    assert found is not None
    place = found.place
    place.store.write(place.prefix + name, io.BytesIO(data), len(data))


def test_a_marker_that_leads_out_of_the_folder_makes_none(folder: str, tmp_path: Path) -> None:
    for name in ("../../out/", "fine/", "fine/file"):
        _put(f"{folder}/in", name, b"" if name.endswith("/") else b"x")
    (tmp_path / "dst").mkdir()
    os.symlink(tmp_path, tmp_path / "dst/link")
    _put(f"{folder}/in", "link/made/", b"")
    shutil.copytree(f"{folder}/in", tmp_path / "dst", dirs_exist_ok=True)
    assert sorted(os.listdir(tmp_path)) == ["dst"]
    assert sorted(os.listdir(tmp_path / "dst")) == ["fine", "link"]


def test_a_disk_that_is_too_small_is_said_before_a_byte_comes(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(f"{folder}/big", "wb") as file:
        file.write(bytes(3 << 20))
    with open(f"{folder}/small", "wb") as file:
        file.write(bytes(900_000))
    monkeypatch.setenv("NBDATA_QUOTA", f"100kB:{tmp_path}")
    for name in ("big", "small"):
        with pytest.raises(OSError, match="space") as caught:
            shutil.copy(f"{folder}/{name}", tmp_path)
        assert caught.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="space"):
        shutil.copytree(folder, tmp_path / "out")
    assert _below(str(tmp_path)) == {}


@pytest.mark.parametrize("size", [0, 5, 3 << 20])
def test_a_file_goes_there_and_back(size: int, folder: str, tmp_path: Path) -> None:
    data = os.urandom(size)
    (tmp_path / "f").write_bytes(data)
    (tmp_path / "f").chmod(0o640)
    assert shutil.copy(tmp_path / "f", f"{folder}/f") == f"{folder}/f"
    assert _below(folder) == {"f": data}
    os.makedirs(f"{folder}/in")
    assert shutil.copy2(tmp_path / "f", f"{folder}/in") == f"{folder}/in/f"
    (tmp_path / "g").write_text("before")
    os.symlink(tmp_path / "g", tmp_path / "link")
    shutil.copy2(f"{folder}/f", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "g").read_bytes() == data
    assert (tmp_path / "g").stat().st_mtime_ns == os.stat(f"{folder}/f").st_mtime_ns
    (tmp_path / "g").write_text("changed")
    shutil.copyfile(f"{folder}/f", tmp_path / "g")
    (tmp_path / "g").write_text("changed again")
    with open(f"{folder}/f", "w") as file:
        file.write("changed, too")
    shutil.copyfile(f"{folder}/f", tmp_path / "g")
    assert (tmp_path / "g").read_text() == "changed, too"


@pytest.mark.long
def test_files_with_the_signs_of_patterns_in_their_names_are_copied(folder: str, tmp_path: Path) -> None:
    for size in (5, 2 << 20):
        for name in ("[a]*.bin", "{a,b}.bin", "what?.bin"):
            (tmp_path / name).write_bytes(data := os.urandom(size))
            shutil.copy(tmp_path / name, f"{folder}/{name}")
            shutil.copy(f"{folder}/{name}", tmp_path / "back")
            assert (tmp_path / "back").read_bytes() == data
    shutil.copytree(folder, tmp_path / "[tree]*")
    assert _below(str(tmp_path / "[tree]*")) == _below(folder)
    shutil.copytree(tmp_path / "[tree]*", f"{folder}/[tree]*")
    assert len(_below(f"{folder}/[tree]*")) == 3


@pytest.mark.long
def test_errors_of_copyfile_are_those_of_the_disk(folder: str, tmp_path: Path) -> None:
    with open(f"{folder}/f", "w") as file:
        file.write("x")
    (tmp_path / "f").write_text("y")
    os.mkfifo(tmp_path / "pipe")
    for source, there, kind in (
        (f"{folder}/f", tmp_path / "no/f", FileNotFoundError),
        (f"{folder}/f", tmp_path / "f/f", NotADirectoryError),
        (f"{folder}/f", tmp_path, IsADirectoryError),
        (f"{folder}/none", tmp_path / "g", FileNotFoundError),
        (folder, tmp_path / "g", IsADirectoryError),
        (tmp_path / "none", f"{folder}/g", FileNotFoundError),
        (tmp_path / "f", folder, IsADirectoryError),
        (tmp_path, f"{folder}/g", IsADirectoryError),
        (tmp_path / "pipe", f"{folder}/g", shutil.SpecialFileError),
        (f"{folder}/f", tmp_path / "pipe", shutil.SpecialFileError),
        (f"{folder}/f", f"{folder}/f", shutil.SameFileError),
    ):
        with pytest.raises(kind):
            shutil.copyfile(source, there)
    shutil.copyfile(f"{folder}/f", os.devnull)
    assert sorted(os.listdir(tmp_path)) == ["f", "pipe"]
    assert _tree(folder) == [(folder, [], ["f"])]


@pytest.mark.long
def test_a_function_to_copy_with_is_called_for_each_file(folder: str, tmp_path: Path) -> None:
    _make(f"{folder}/in")
    copied = []

    def copy(source: Any, there: Any) -> Any:
        copied.append((os.fspath(source), os.fspath(there)))
        return shutil.copy2(source, there)

    shutil.copytree(f"{folder}/in", tmp_path / "out", copy_function=copy)
    assert _below(f"{tmp_path}/out") == _below(f"{folder}/in")
    assert len(copied) == 9


def test_move_between_a_store_and_the_disk(folder: str, tmp_path: Path) -> None:
    _make(str(tmp_path / "in"))
    expected = _below(str(tmp_path / "in"))
    assert shutil.move(str(tmp_path / "in"), f"{folder}/there") == f"{folder}/there"
    assert not (tmp_path / "in").exists()
    assert _below(f"{folder}/there") == expected
    assert shutil.move(f"{folder}/there/a.txt", tmp_path) == os.path.join(tmp_path, "a.txt")
    assert not os.path.exists(f"{folder}/there/a.txt")
    assert shutil.move(f"{folder}/there", tmp_path / "back") == tmp_path / "back"
    assert _below(str(tmp_path / "back")) == {k: v for k, v in expected.items() if k != "a.txt"}
    assert not os.path.exists(f"{folder}/there")
    with pytest.raises(OSError, match="device"):
        os.rename(tmp_path / "back", f"{folder}/x")


def test_what_came_while_a_folder_was_renamed_stays(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from nbdata.files.shifted import trees

    _make(f"{folder}/in")
    copy = trees.copy_folder

    def slowly(*args: Any) -> None:
        copy(*args)
        for name in ("new.txt", "a.txt"):
            with open(f"{folder}/in/{name}", "w") as file:
                file.write("came meanwhile")

    monkeypatch.setattr(trees, "copy_folder", slowly)
    with pytest.raises(nbdata.SourceChanged, match="2 objects came"):
        os.rename(f"{folder}/in", f"{folder}/out")
    assert sorted(_below(f"{folder}/in")) == ["a.txt", "new.txt"]
    assert len(_below(f"{folder}/out")) == 9


def test_a_whole_bucket_is_not_deleted(folder: str) -> None:
    _make(folder)
    with pytest.raises(PermissionError, match="whole bucket"):
        shutil.rmtree(folder.rpartition("/")[0])
    told = []
    shutil.rmtree(f"{folder}/none", onerror=lambda *found: told.append(found[1]))
    assert told == [f"{folder}/none"]
    shutil.rmtree(folder)
    assert not os.path.exists(folder)


def test_a_store_never_fills(folder: str) -> None:
    os.mkdir(folder)
    assert shutil.disk_usage(folder).free > 1 << 60
    with pytest.raises(FileNotFoundError):
        shutil.disk_usage(f"{folder}/none")


@pytest.mark.in_ci(1)
@pytest.mark.parametrize("size", [5, 3 << 20])
def test_the_options_of_one_store_are_not_those_of_another(
    size: int, folder: str, seaweedfs: EmbeddedServer
) -> None:
    own = f"s3://{secrets.token_hex(6)}"
    seaweedfs.create_bucket(own.removeprefix("s3://"))
    with contextlib.suppress(BadOption):  # another test may have made it
        seaweedfs.create_bucket(folder.split("/")[2])
    data = os.urandom(size)
    with nbdata.shift(own, storage_options=seaweedfs.storage_options()):
        with open(f"{own}/in/f", "wb") as file:
            file.write(data)
        shutil.copytree(f"{own}/in", f"{folder}/tree")
        shutil.copy(f"{own}/in/f", f"{folder}/f")
        shutil.move(f"{own}/in", f"{folder}/moved")
        assert _below(folder) == {"f": data, "tree/f": data, "moved/f": data}
        shutil.copytree(f"{folder}/tree", f"{own}/back")
        assert _below(f"{own}/back") == {"f": data}


def test_files_for_a_folder_that_is_not_there_do_not_replace_each_other(folder: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
        for act in (shutil.copy, shutil.copy2, shutil.copyfile, shutil.move):
            with pytest.raises(FileNotFoundError):
                act(tmp_path / name, f"{folder}/none/")
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
    assert not os.path.exists(f"{folder}/none")


@pytest.mark.long
def test_what_is_no_file_or_folder_of_the_disk_is_copied_as_by_shutil(folder: str, tmp_path: Path) -> None:
    _make(str(tmp_path / "in"))
    os.symlink("a.txt", tmp_path / "in/link")
    os.symlink("deep", tmp_path / "in/other/folder")
    os.symlink(tmp_path / "in/deep", tmp_path / "in/linked")
    (tmp_path / "in/bare").mkdir()
    os.symlink("../bare", tmp_path / "in/other/empty")
    os.unlink(tmp_path / "in/other/folder")
    shutil.copytree(tmp_path / "in", tmp_path / "expected")
    for ignore in (None, shutil.ignore_patterns("nothing")):
        shutil.copytree(tmp_path / "in", f"{folder}/{ignore is None}", ignore=ignore)
        assert _below(f"{folder}/{ignore is None}") == _below(str(tmp_path / "expected"))
        assert os.path.isdir(f"{folder}/{ignore is None}/other/empty")


@pytest.mark.long
def test_what_shutil_cannot_copy_is_told(folder: str, tmp_path: Path) -> None:
    (tmp_path / "in/below").mkdir(parents=True)
    (tmp_path / "in/fine").write_text("x")
    os.mkfifo(tmp_path / "in/pipe")
    os.symlink("none", tmp_path / "in/below/dangling")
    os.symlink("..", tmp_path / "in/below/circle")
    for ignore in (None, shutil.ignore_patterns("nothing")):
        with pytest.raises(shutil.Error) as caught:
            shutil.copytree(tmp_path / "in", f"{folder}/{ignore is None}", ignore=ignore)
        told = {os.path.basename(source) for source, _, _ in caught.value.args[0]}
        assert told == {"pipe", "dangling", "circle"}
        assert _below(f"{folder}/{ignore is None}") == {"fine": b"x"}


@pytest.mark.long
def test_large_files_that_both_sides_changed_are_replaced(folder: str, tmp_path: Path) -> None:
    def write(path: Any) -> bytes:
        data = os.urandom(2 << 20)
        with open(path, "wb") as file:
            file.write(data)
        return data

    write(f"{folder}/f")
    shutil.copy(f"{folder}/f", tmp_path)
    for changed in ((tmp_path / "f",), (tmp_path / "f", f"{folder}/f")):
        expected = [write(path) for path in changed][-1]
        shutil.copy(f"{folder}/f", tmp_path)
        assert changed == (tmp_path / "f",) or (tmp_path / "f").read_bytes() == expected
        assert _below(folder) == {"f": (tmp_path / "f").read_bytes()}
    for changed in ((f"{folder}/f",), (f"{folder}/f", tmp_path / "f")):
        for path in changed:
            write(path)
        shutil.copy(tmp_path / "f", folder)
        assert _below(folder) == {"f": (tmp_path / "f").read_bytes()}


@pytest.mark.long
def test_a_tree_of_empty_folders_is_moved_to_the_disk(folder: str, tmp_path: Path) -> None:
    os.makedirs(f"{folder}/in/side")
    os.makedirs(f"{folder}/in/deep/er")
    shutil.move(f"{folder}/in", tmp_path / "out")
    assert sorted(os.listdir(tmp_path / "out")) == ["deep", "side"]
    assert os.path.isdir(tmp_path / "out/deep/er")


@pytest.mark.long
def test_names_with_line_breaks_are_not_taken_for_two(folder: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a", "b", "a\nb"):
        (tmp_path / "in" / name).write_text(name)
    with pytest.raises(shutil.Error) as caught:  # moto keeps no such name
        shutil.copytree(tmp_path / "in", f"{folder}/out", ignore=lambda *_: ["a", "b"])
    assert [source for source, _, _ in caught.value.args[0]] == [str(tmp_path / "in/a\nb")]
    assert _below(f"{folder}/out") == {}


def test_names_that_are_not_utf_8_are_refused_and_stay_on_the_disk(folder: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("\udcff", "\udcfe"):  # moto would keep both under one name
        (tmp_path / "in" / name).write_text("x")
        for act in (shutil.copy, shutil.move):
            with pytest.raises(OSError, match="not UTF-8"):
                act(tmp_path / "in" / name, f"{folder}/{name}")
        with pytest.raises(OSError, match="not UTF-8"), open(f"{folder}/{name}", "w"):
            pass
        assert not os.path.exists(f"{folder}/{name}")
    with pytest.raises(shutil.Error, match="not UTF-8"):
        shutil.move(tmp_path / "in", f"{folder}/in")
    assert len(os.listdir(tmp_path / "in")) == 2


def test_what_replaced_a_file_without_an_etag_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    from nbdata.files.shifted import trees

    folder, copy = f"memory://{secrets.token_hex(6)}", trees.copy_folder

    def slowly(*args: Any) -> None:
        copy(*args)
        with open(f"{folder}/in/a.txt", "w") as file:
            file.write("two")

    with nbdata.shift():
        _make(f"{folder}/in")
        monkeypatch.setattr(trees, "copy_folder", slowly)
        with pytest.raises(nbdata.SourceChanged, match="1 objects came"):
            os.rename(f"{folder}/in", f"{folder}/out")
        assert _below(f"{folder}/in") == {"a.txt": b"two"}
        shutil.rmtree(folder)


def test_a_folder_named_like_the_home_folder_is_not_that(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for name in ("home/.ssh", "~"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "f").write_text(name)
    shutil.copytree("~", f"{folder}/in")
    assert _below(f"{folder}/in") == {"f": b"~"}
    shutil.copytree(f"{folder}/in", "~/below")
    assert _below(str(tmp_path)) == {"home/.ssh/f": b"home/.ssh", "~/f": b"~", "~/below/f": b"~"}


@pytest.mark.long
def test_a_key_with_dots_leads_to_no_other_file(folder: str) -> None:
    with open(f"{folder}/precious", "w") as file:
        file.write("x")
    for name in ("in/../../precious", "in/fine", "../precious"):
        _put(f"{folder}/made", name, b"y")
    for top, _, files in os.walk(f"{folder}/made"):
        for name in files:
            os.remove(f"{top}/{name}")
    assert _below(folder) == {"precious": b"x"}
    shutil.rmtree(f"{folder}/made")
    assert os.listdir(folder) == ["precious"]


@pytest.mark.long
def test_what_was_not_copied_stays_under_the_old_name(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from nbdata.files.shifted import trees

    _make(f"{folder}/in")
    copy = trees.copy_folder

    def incompletely(*args: Any) -> None:
        copy(*args)  # as a job that was begun before a.txt came
        os.remove(f"{folder}/out/a.txt")

    monkeypatch.setattr(trees, "copy_folder", incompletely)
    with pytest.raises(nbdata.SourceChanged, match="1 objects came"):
        os.rename(f"{folder}/in", f"{folder}/out")
    assert sorted(_below(f"{folder}/in")) == ["a.txt"]
    assert len(_below(f"{folder}/out")) == 8
