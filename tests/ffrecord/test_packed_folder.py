"""A folder packed into one FFRecord file, as the original library packs it; nothing is unpickled."""

import os
import pickle
from collections import OrderedDict
from pathlib import Path

import pytest

from nbdata import BadArchive, BadOption, NotFound
from nbdata.ffrecord import FileReader, FileWriter, PackedFolder, pack_folder

FILES = {"a.txt": b"1", "dir/b.txt": b"22", "dir/deep/c": b"", "dir2/z": b"333", "b": b"4"}
TREE = OrderedDict(
    [
        ("a.txt", 0), ("b", 1),
        ("dir", OrderedDict([("b.txt", 2), ("deep", OrderedDict([("c", 3)])), ("empty", OrderedDict())])),
        ("dir2", OrderedDict([("z", 4)])),
    ]
)  # fmt: skip


@pytest.fixture
def packed(tmp_path):
    for name, data in FILES.items():
        path = tmp_path / "folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (tmp_path / "folder/dir/empty").mkdir()
    pack_folder(tmp_path / "folder", tmp_path / "x.ffr")
    return tmp_path / "x.ffr"


def with_names(path, data):
    with FileWriter(path, 6) as writer:
        for content in (b"1", b"4", b"22", b"", b"333"):
            writer.write_one(content)
        writer.write_one(data)
    return path


def test_the_file_equals_that_of_the_original_library(packed):
    reader = FileReader(packed)
    *files, names = (bytes(sample) for sample in reader.read(range(reader.n)))
    assert files == [b"1", b"4", b"22", b"", b"333"]
    assert names.startswith(b"piouhjgbr")
    assert pickle.loads(names[9:]) == TREE


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_what_any_python_has_pickled_is_read(tmp_path, protocol):
    path = with_names(tmp_path / "x.ffr", b"piouhjgbr" + pickle.dumps(TREE, protocol))
    assert list(PackedFolder(path).files()) == ["a.txt", "b", "dir/b.txt", "dir/deep/c", "dir2/z"]


def test_files_are_read_by_their_paths(packed):
    folder = PackedFolder(packed)
    assert folder.num_files() == 5
    assert {name: bytes(folder.read_one(name)) for name in FILES} == FILES
    assert [bytes(data) for data in folder.read(["dir2/z", "a.txt", Path("dir2/z")])] == [
        b"333",
        b"1",
        b"333",
    ]
    assert folder.list() == ["a.txt", "b", "dir", "dir2"]
    assert folder.list("dir") == ["b.txt", "deep", "empty"]
    assert folder.list("dir", list_dir=False) == ["b.txt"]
    assert folder.list("dir", recursive=True) == ["b.txt", "deep", Path("deep/c"), "empty"]
    assert folder.exists("dir/empty")
    assert folder.is_dir("dir/empty")
    assert not folder.is_file("dir/empty")
    assert not folder.exists("a.txt/below")
    assert not folder.is_dir("missing")
    with pytest.raises(NotFound, match="no such file"):
        folder.read_one("missing")
    with pytest.raises(NotFound, match="is a folder"):
        folder.read_one("dir")
    with pytest.raises(BadOption, match="read_one"):
        folder.read("a.txt")


class Executes:
    def __reduce__(self):
        return os.system, ("touch executed",)


@pytest.mark.parametrize(
    "names",
    [
        b"piouhjgbr",
        b"something else",
        b"piouhjgbr" + pickle.dumps({"a": 0}),
        b"piouhjgbr" + pickle.dumps(OrderedDict(a=Executes())),
        b"piouhjgbr" + pickle.dumps(OrderedDict([("a", 5)])),
        b"piouhjgbr" + pickle.dumps(OrderedDict([("a", -1)])),
        b"piouhjgbr" + pickle.dumps(OrderedDict([("a", True)])),
        b"piouhjgbr" + pickle.dumps(OrderedDict([("../a", 0)])),
        b"piouhjgbr" + pickle.dumps(OrderedDict([("..", OrderedDict(a=0))])),
        b"piouhjgbr" + pickle.dumps(OrderedDict([("", 0)])),
        b"piouhjgbr" + pickle.dumps(OrderedDict([("a", "text")])),
        b"piouhjgbr" + pickle.dumps(TREE)[:-4],
        b"piouhjgbr\x80\x04ccollections\nOrderedDict\n)Rq\x00X\x01\x00\x00\x00ah\x00s.",  # contains itself
        b"piouhjgbr\x80\x04K\x01r\xff\xff\xff\x7f.",  # needs gigabytes of memo
    ],
)
def test_names_that_are_no_names_are_refused_and_nothing_is_executed(tmp_path, monkeypatch, names):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadArchive) as told:
        PackedFolder(with_names(tmp_path / "x.ffr", names))
    assert told.value.remedy
    assert not (tmp_path / "executed").exists()


def test_what_cannot_be_packed_is_told_and_leaves_nothing(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "loop").symlink_to(folder)
    with pytest.raises(BadOption, match="link to a folder"):
        pack_folder(folder, tmp_path / "x.ffr")
    (folder / "loop").unlink()
    (folder / "broken").symlink_to("nowhere")
    with pytest.raises(BadOption, match="broken link"):
        pack_folder(folder, tmp_path / "x.ffr")
    (folder / "broken").unlink()
    os.mkfifo(folder / "pipe")
    with pytest.raises(BadOption, match="named pipe"):
        pack_folder(folder, tmp_path / "x.ffr")
    with pytest.raises(BadOption, match="would lie in"):
        pack_folder(folder, folder / "x.ffr")
    assert os.listdir(tmp_path) == ["folder"]
