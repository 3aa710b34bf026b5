"""pack --format files: no sample is torn apart, nothing is replaced by mistake or written outside the target."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.engine.pack.paths import Clashes
from nbdata.errors import BadOption, TransferFailed
from nbdata.formats.packed_folder import names_bytes
from nbdata.stores.base import ObjectInfo
from nbdata.stores.fsspec_store import FsspecStore
from tests.engine.pack.test_pack import plain, there
from tests.faults.scene import files_of as files_in

__all__ = ["there"]

pytestmark = pytest.mark.usefixtures("inline")

Put = Callable[[dict[str, bytes]], str]


def written(folder: Path, files: dict[str, bytes]) -> str:
    """Write files below a folder, and return its path with a slash."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return f"{folder}/"


def as_files(source: object, target: str, **options: Any) -> Any:
    return nbdata.pack(source, target, format="files", quiet=True, **options)  # type: ignore[arg-type]


def test_a_renamed_field_stays_with_its_sample(tmp_path: Path) -> None:
    files = {"d/a.jpg": b"1", "d/a.cls": b"2", "b.jpg": b"3", "b.cls": b"4", "plain": b"5"}
    source = written(tmp_path / "in", files)
    wanted = {"d/a.png": b"1", "d/a.cls": b"2", "b.png": b"3", "b.cls": b"4", "plain": b"5"}
    as_files(source, f"{tmp_path}/out/", rename="jpg=png")
    assert files_in(tmp_path / "out") == wanted
    nbdata.pack(source, f"{tmp_path}/x.ffr", by="file", quiet=True)
    as_files(f"{tmp_path}/x.ffr", f"{tmp_path}/back/", rename="jpg=png")
    assert files_in(tmp_path / "back") == wanted
    nbdata.pack(source, f"{tmp_path}/y.ffr", by="file", rename="jpg=png", quiet=True)
    with nbdata.samples(f"{tmp_path}/y.ffr") as samples:
        assert plain(samples) == [
            {"__key__": "b", "cls": b"4", "png": b"3"},
            {"__key__": "d/a", "cls": b"2", "png": b"1"},
        ]
    written(tmp_path / "in", {"b.png": b"6"})
    with pytest.raises(BadOption, match=r"two files would be called 'b.png'"):
        as_files(source, f"{tmp_path}/twice/", rename="jpg=png")


def test_files_of_the_source_are_not_replaced(put: Put, there: Any, tmp_path: Path) -> None:
    files = {"y/y/a.jpg": b"inner", "y/a.jpg": b"outer"}
    source = written(tmp_path / "p", files)
    url = put({f"p/{name}": data for name, data in files.items()})
    (tmp_path / "link").symlink_to(tmp_path / "p")
    for place in (source, url + "p/"):
        with pytest.raises(BadOption, match=r"'y/a.jpg' would lie among the files that are read"):
            as_files(f"{place}y/", place)
    with pytest.raises(BadOption, match="among the files that are read"):
        as_files(f"{source}y/", f"{tmp_path}/link/")
    with pytest.raises(BadOption, match="among the files that are read"):
        as_files(f"{tmp_path}/link/y/", source)
    assert files_in(tmp_path / "p") == files
    assert there("p/") == files
    # With a glob as source, a target that the glob does not match is allowed.
    assert as_files(f"{source}y/*.jpg", f"{source}y/out/").counts == {"packed": 1}
    assert (tmp_path / "p/y/out/a.jpg").read_bytes() == b"outer"
    with pytest.raises(BadOption, match="would replace what it is read from"):
        as_files(f"{source}y/*.jpg", f"{source}y/")
    # A shard that contains a member with the shard's own name.
    (tmp_path / "p/y/b.txt").write_bytes(b"another")
    nbdata.pack(f"{source}y/", f"{tmp_path}/tar/", by="file", rename="jpg=tar", quiet=True)
    (tmp_path / "tar" / "index.json").unlink(missing_ok=True)
    (tmp_path / "tar" / "shard-000000.tar").rename(tmp_path / "tar" / "a.tar")
    (tmp_path / "tar-link").symlink_to(tmp_path / "tar")
    with pytest.raises(BadOption, match="would replace what it is read from"):
        as_files(f"{tmp_path}/tar/a.tar", f"{tmp_path}/tar-link/")


def test_no_link_leads_a_file_out_of_the_target(tmp_path: Path) -> None:
    files = {"sub/a.jpg": b"1", "b.jpg": b"2", "sub/deep/c.jpg": b"3"}
    nbdata.pack(written(tmp_path / "in", files), f"{tmp_path}/x.ffr", quiet=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "tgt").mkdir()
    (tmp_path / "tgt" / "sub").symlink_to(tmp_path / "out")
    with pytest.raises(TransferFailed, match="a symbolic link leads out of the target"):
        as_files(f"{tmp_path}/x.ffr", f"{tmp_path}/tgt/")
    assert files_in(tmp_path / "out") == {}
    assert (tmp_path / "tgt" / "b.jpg").read_bytes() == b"2"
    # A link to a folder inside the target is allowed, and so is a link to the target.
    (tmp_path / "tgt" / "sub").unlink()
    (tmp_path / "tgt" / "real").mkdir()
    (tmp_path / "tgt" / "sub").symlink_to(tmp_path / "tgt" / "real")
    (tmp_path / "link").symlink_to(tmp_path / "tgt")
    assert as_files(f"{tmp_path}/x.ffr", f"{tmp_path}/link/", overwrite="always").ok
    assert (tmp_path / "tgt" / "real" / "deep" / "c.jpg").read_bytes() == b"3"


@pytest.fixture
def unversioned(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], None]]:
    """A function that writes bytes to ``memory://unversioned/in/a.jpg``.

    That store reports no versions of its files.
    """
    import fsspec

    info = FsspecStore._info

    def bare(self: FsspecStore, path: str, found: dict[str, Any]) -> ObjectInfo:
        return info(self, path, found)._replace(etag="", modified=None)

    monkeypatch.setattr(FsspecStore, "_info", bare)
    memory = fsspec.filesystem("memory")
    yield lambda data: memory.pipe("/unversioned/in/a.jpg", data)
    memory.rm("/unversioned", recursive=True)


@pytest.mark.parametrize("made", ["files", "ffrecord", "shards"])
def test_nothing_counts_as_unchanged_in_a_store_without_versions(
    made: str, unversioned: Callable[[bytes], None], tmp_path: Path
) -> None:
    line = nbdata.Pack("memory://unversioned/in/", f"{tmp_path}/out/", format=made)
    unversioned(b"first")
    report = line.run(quiet=True)
    assert report.counts == {"packed": 1}
    assert any("1 field comes without version" in note for note in report.notes)
    unversioned(b"other")
    assert line.run(quiet=True).counts == {"packed": 1}
    assert any(b"other" in data for data in files_in(tmp_path / "out").values())


@pytest.mark.parametrize("name", ["x.ffr", "x.tar"])
def test_known_indexes_and_headers_of_a_store_without_versions_are_read_again(
    name: str, unversioned: Callable[[bytes], None], tmp_path: Path
) -> None:
    import fsspec

    unversioned(b"")
    line = nbdata.Pack(f"memory://unversioned/{name}", f"{tmp_path}/out/", format="files")
    for data in (b"first", b"other"):
        source = written(tmp_path / "in", {"a.jpg": data})
        target = f"{tmp_path}/x.ffr" if name == "x.ffr" else f"{tmp_path}/x%d.tar"
        nbdata.pack(source, target, overwrite="always", quiet=True)
        made = (tmp_path / name.replace("x.tar", "x0.tar")).read_bytes()
        fsspec.filesystem("memory").pipe(f"/unversioned/{name}", made)
        assert line.run(quiet=True).counts == {"packed": 1}
        assert files_in(tmp_path / "out") == {"a.jpg": data}


def test_a_file_where_a_folder_is_to_be_is_told_before_anything_is_written(
    put: Put, there: Any, tmp_path: Path
) -> None:
    url = put({"in/a.jpg": b"1", "in/a.jpg/b.jpg": b"2", "in/c.jpg": b"3"})
    with pytest.raises(BadOption, match=r"'a.jpg' is a file, and a folder with 'a.jpg/b.jpg'"):
        as_files(f"{url}in/", f"{tmp_path}/out/")
    assert not (tmp_path / "out").exists() or files_in(tmp_path / "out") == {}
    assert as_files(f"{url}in/", f"{url}out/").counts == {"packed": 3}  # valid as keys
    assert there("out/") == {"a.jpg": b"1", "a.jpg/b.jpg": b"2", "c.jpg": b"3"}
    for options in ({}, {"shard_count": 3}):
        with pytest.raises(BadOption, match=r"'a.jpg' is a file, and a folder with 'a.jpg/b.jpg'"):
            nbdata.pack(f"{url}in/", f"{url}x.ffr/", quiet=True, **options)
    assert there("x.ffr/") == {}


def test_clashes_are_found_in_any_order() -> None:
    def refused(*paths: str, folders: bool = True) -> str:
        clashes = Clashes(folders=folders, remedy="")
        for path in paths:
            clashes.add(path)
        try:
            clashes.refuse(lambda: paths)
        except BadOption as error:
            return str(error)
        return ""

    assert refused("a/b/c", "x", "a") == refused("a", "a/b/c") != ""
    assert "'a/b' is a file" in refused("a/b/c", "a/b/d", "e", "a/b")
    assert "two files would be called 'x'" in refused("x", "y", "x", folders=False)
    assert refused("a", "a/b", folders=False) == refused("a/b", "a/c", "ab", "b/a") == refused() == ""
    with pytest.raises(BadOption, match="is a file, and a folder"):
        names_bytes(["a", "a/b"])


def test_a_folder_called_ffr_gets_ffrecord_files(tmp_path: Path) -> None:
    source = written(tmp_path / "in", {"a.jpg": b"1"})
    assert nbdata.Pack(source, "d.ffr/").made == "ffrecord"
    assert nbdata.Pack(source, "d.ffr/", format="shards").made == "shards"
    nbdata.pack(source, f"{tmp_path}/d.ffr/", quiet=True)
    assert list(files_in(tmp_path / "d.ffr")) == ["PART_00000.ffr"]
