"""No verb writes or deletes through a link that lies in its target or source; real folders, compared before and after.

Each way of writing ``sub/b.txt`` below a target meets each kind of link there. A link that the user names is followed.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nbdata
from tests.engine.changing import after_the_plan

pytestmark = pytest.mark.usefixtures("inline", "own_state")

FILES = {"a.txt": b"first", "sub/b.txt": b"second", "sub/deep/c.txt": b"third"}
# A verb that writes FILES, found below `source`, to a target folder.
Way = Callable[[Path, Path], Any]


def tree(folder: Path) -> dict[str, tuple[object, ...]]:
    """Describe everything below a folder: kinds, modes, inodes, times and contents."""
    found = {}
    for path in sorted(folder.rglob("*")):
        look = path.lstat()
        content: object = None
        if stat.S_ISLNK(look.st_mode):
            content = os.readlink(path)
        elif stat.S_ISREG(look.st_mode):
            content = path.read_bytes()
        changed = (look.st_ino, look.st_mtime_ns, look.st_ctime_ns) if not path.is_dir() else look.st_ino
        found[str(path.relative_to(folder))] = (look.st_mode, changed, content)
    return found


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def _push(source: Path, target: Path) -> Any:
    return nbdata.push(f"{source}/", f"{target}/", overwrite="always", quiet=True)


def _push_url(source: Path, target: Path) -> Any:
    return nbdata.push(f"{source}/", f"file://{target}/", overwrite="always", quiet=True)


def _push_local(source: Path, target: Path) -> Any:
    return nbdata.push(f"{source}/", f"local://{target}/", overwrite="always", quiet=True)


def _dir(source: Path, target: Path) -> Any:
    options = {"target_protocol": "file", "path": str(target.parent)}
    return nbdata.push(
        f"{source}/", f"dir://{target.name}/", storage_options=options, overwrite="always", quiet=True
    )


def _cached(source: Path, target: Path) -> Any:
    options = {"target_protocol": "file", "cache_storage": f"{target.parent}/cache"}
    return nbdata.push(
        f"{source}/", f"simplecache://{target}/", storage_options=options, overwrite="always", quiet=True
    )


def _object(source: Path, target: Path) -> Any:
    import fsspec

    fs = fsspec.filesystem("dir", path="/", target_protocol="local")
    return nbdata.push(f"{source}/", f"dir://{target}/", fs=fs, overwrite="always", quiet=True)


def _copy(source: Path, target: Path) -> Any:
    options = {"target_protocol": "file", "path": "/"}
    return nbdata.copy(
        f"dir:/{source}/", f"dir:/{target}/", storage_options=options, overwrite="always", quiet=True
    )


def _pull(source: Path, target: Path) -> Any:
    return nbdata.pull(f"{source}/", f"{target}/", overwrite="always", quiet=True)


def _pack(source: Path, target: Path) -> Any:
    packed = source.with_name("packed.ffr")
    nbdata.pack(f"{source}/", str(packed), by="file", quiet=True)
    return nbdata.pack(str(packed), f"{target}/", format="files", overwrite="always", quiet=True)


def _untar(source: Path, target: Path) -> Any:
    archive = source.with_name("packed.tar")
    nbdata.pack(f"{source}/", str(archive), format="tar", quiet=True)
    return nbdata.untar_volumes(str(archive), f"{target}/", overwrite="always", quiet=True)


def _repair(source: Path, target: Path) -> Any:
    nbdata.md5check(f"{source}/", write=True, quiet=True)
    return nbdata.md5check(f"{target}/", against=f"{source}/MD5SUMS", repair=f"{source}/", quiet=True)


WAYS = [_push, _push_url, _push_local, _dir, _cached, _object, _copy, _pull, _pack, _untar, _repair]
_each_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.strip("_"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "source", FILES)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Somebody's folder, with files of the same names."""
    return write(tmp_path / "outside", {"b.txt": b"theirs", "deep/c.txt": b"theirs too", "sums": b""})


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


def failed(way: Way, source: Path, target: Path) -> list[str]:
    """Return the paths that a run reports as failed."""
    try:
        report = way(source, target)
    except nbdata.TransferFailed as error:
        report = error.report
    return sorted(path for path, _ in report.failures)


@pytest.mark.in_ci(8)
@_each_way
@pytest.mark.parametrize("leads_to", ["outside", "outside/missing/folder"], ids=["a folder", "nothing"])
def test_no_file_is_written_below_a_link_that_leads_out_of_the_target(
    way: Way, source: Path, target: Path, outside: Path, leads_to: str
) -> None:
    (target / "sub").symlink_to(target.parent / leads_to)
    before = tree(outside)
    try:
        names = failed(way, source, target)
    except nbdata.UnsafeMember:  # untar_volumes ends at the first
        names = []
    assert names in ([], ["sub/b.txt", "sub/deep/c.txt"])
    assert tree(outside) == before
    assert (target / "sub").is_symlink()
    if names:
        assert (target / "a.txt").read_bytes() == b"first"


@_each_way
def test_a_link_further_below_is_not_followed_either(
    way: Way, source: Path, target: Path, outside: Path
) -> None:
    (target / "sub").mkdir()
    (target / "sub" / "deep").symlink_to(os.path.relpath(outside / "deep", target / "sub"))
    before = tree(outside)
    try:
        names = failed(way, source, target)
    except nbdata.UnsafeMember:
        names = []
    assert names in ([], ["sub/deep/c.txt"])
    assert tree(outside) == before


@pytest.mark.in_ci(8)
@_each_way
@pytest.mark.parametrize("leads_to", ["outside/b.txt", "outside/new"], ids=["a file", "nothing"])
def test_a_link_in_the_place_of_a_file_is_replaced_itself(
    way: Way, source: Path, target: Path, outside: Path, leads_to: str
) -> None:
    (target / "sub").mkdir()
    (target / "sub" / "b.txt").symlink_to(target.parent / leads_to)
    (outside / "b.txt").chmod(0o666)
    before = tree(outside)
    assert failed(way, source, target) == []
    assert tree(outside) == before
    written = target / "sub" / "b.txt"
    assert (written.is_symlink(), written.read_bytes()) == (False, b"second")
    assert not written.stat().st_mode & 0o022  # the mode is not that of the file to which the link led


@_each_way
def test_a_link_that_the_user_names_is_followed(way: Way, source: Path, target: Path) -> None:
    link = target.with_name("named")
    link.symlink_to(target)
    assert failed(way, source, link) == []
    assert {path: (target / path).read_bytes() for path in FILES} == FILES


@pytest.mark.parametrize(
    "way",
    [way for way in WAYS if way is not _untar],  # which unpacks through no link at all
    ids=lambda way: way.__name__.strip("_"),
)
def test_a_link_that_stays_in_the_target_is_followed(way: Way, source: Path, target: Path) -> None:
    (target / "real").mkdir()
    (target / "sub").symlink_to("real")
    assert failed(way, source, target) == []
    assert (target / "real" / "deep" / "c.txt").read_bytes() == b"third"


# -- files with names of nbdata's own ---------------------------------------------------------


def _as_shards(source: Path, target: Path) -> list[str]:
    nbdata.pack(f"{source}/", f"{target}/x-%06d.tar", overwrite="always", quiet=True)
    return ["x-000000.tar", "x.json"]


def _from_program(source: Path, target: Path) -> list[str]:
    with nbdata.write_shards(f"{target}/x-%06d.tar", overwrite=True) as writer:
        writer.write({"__key__": "a", "txt": source.joinpath("a.txt").read_bytes()})
    return ["x-000000.tar", "x.json"]


def _as_records(source: Path, target: Path) -> list[str]:
    nbdata.pack(f"{source}/", f"{target}/x.ffr", by="file", overwrite="always", quiet=True)
    return ["x.ffr"]


def _records_of_program(source: Path, target: Path) -> list[str]:
    from nbdata.ffrecord import FileWriter

    with FileWriter(target / "x.ffr", 1) as writer:
        writer.write_one(source.joinpath("a.txt").read_bytes())
    return ["x.ffr"]


def _as_archive(source: Path, target: Path) -> list[str]:
    nbdata.pack(
        f"{source}/", f"{target}/x.tar", format="tar", volume_size="1MB", overwrite="always", quiet=True
    )
    return [name for name in os.listdir(target) if name.startswith("x.")]


def _unpacked_to_shards(source: Path, target: Path) -> list[str]:
    archive = source.with_name("packed.tar")
    nbdata.pack(f"{source}/", str(archive), format="tar", quiet=True)
    nbdata.untar_volumes(str(archive), f"{target}/x-%06d.tar", overwrite="always", quiet=True)
    return ["x-000000.tar", "x.json"]


def _manifest(source: Path, target: Path) -> list[str]:
    write(target, {"a.txt": source.joinpath("a.txt").read_bytes()})
    nbdata.md5check(f"{target}/", write=True, overwrite="always", quiet=True)
    return ["MD5SUMS"]


def _sidecars(source: Path, target: Path) -> list[str]:
    write(target, {"a.txt": source.joinpath("a.txt").read_bytes()})
    nbdata.md5check(f"{target}/", write="sidecars", overwrite="always", quiet=True)
    return ["a.txt.md5"]


OUTPUTS = [
    _as_shards, _from_program, _as_records, _records_of_program, _as_archive, _unpacked_to_shards, _manifest,
    _sidecars,
]  # fmt: skip


@pytest.mark.in_ci(6)
@pytest.mark.parametrize("way", OUTPUTS, ids=lambda way: way.__name__.strip("_"))
@pytest.mark.parametrize("leads_to", ["outside/b.txt", "outside/new"], ids=["a file", "nothing"])
def test_a_link_in_the_place_of_an_output_is_replaced_itself(
    way: Callable[[Path, Path], list[str]],
    source: Path,
    target: Path,
    outside: Path,
    leads_to: str,
    tmp_path: Path,
) -> None:
    (tmp_path / "first").mkdir()
    names = way(source, tmp_path / "first")
    expected = {name: (tmp_path / "first" / name).read_bytes() for name in names}
    for name in names:
        if name != "x.json":  # a file there that is no index of shards is refused
            (target / name).symlink_to(target.parent / leads_to)
    before = tree(outside)
    way(source, target)
    assert tree(outside) == before
    assert not [name for name in names if (target / name).is_symlink()]
    assert {name: (target / name).read_bytes() for name in names} == expected


@pytest.mark.parametrize("leads_to", ["sums", "new"])
def test_a_manifest_that_the_user_names_is_followed_when_it_is_read_and_not_when_it_is_written(
    target: Path, outside: Path, leads_to: str
) -> None:
    write(target, {"a.txt": b"first"})
    (target / "MD5SUMS").symlink_to(outside / leads_to)
    before = tree(outside)
    nbdata.md5check(f"{target}/", write="MD5SUMS", overwrite="always", quiet=True)
    assert tree(outside) == before
    assert not (target / "MD5SUMS").is_symlink()
    (target / "MD5SUMS").rename(outside / "sums")
    (target / "MD5SUMS").symlink_to(outside / "sums")
    report = nbdata.md5check(f"{target}/", against=f"{target}/MD5SUMS", quiet=True)
    assert report.counts == {"ok": 1}


# -- deletions --------------------------------------------------------------------------------


def swapped(folder: Path) -> Callable[[], None]:
    """Return a function that puts a link to a copy of a folder in its place; inodes and times stay the same."""

    def swap() -> None:
        away = folder.parent.parent / "away"
        if not away.exists():
            folder.rename(away)
            folder.symlink_to(away)

    return swap


@pytest.mark.parametrize("verb", ["push", "pull"])
def test_a_mirror_deletes_nothing_below_a_link(verb: str, source: Path, target: Path) -> None:
    mirror = getattr(nbdata, verb)
    mirror(f"{source}/", f"{target}/", quiet=True)
    (source / "sub" / "b.txt").unlink()
    with after_the_plan(swapped(target / "sub")), pytest.raises(nbdata.NbdataError) as caught:
        mirror(f"{source}/", f"{target}/", delete=True, quiet=True)
    assert "nothing below a symbolic link is deleted" in str(caught.value)
    assert (target.parent / "away" / "b.txt").read_bytes() == b"second"


def test_a_source_is_not_deleted_below_a_link(source: Path, bucket: str) -> None:
    with after_the_plan(swapped(source / "sub")):
        report = nbdata.push(f"{source}/", f"s3://{bucket}/", delete_source=True, quiet=True)
    assert not (source / "a.txt").exists()
    assert (source.parent / "away" / "b.txt").exists()
    assert "2 kept: below a link; nothing there is deleted" in report.notes


def test_volumes_are_not_deleted_below_a_link_but_those_that_are_named_are(
    source: Path, target: Path, tmp_path: Path
) -> None:
    archive = tmp_path / "volumes" / "sub" / "x.tar"
    archive.parent.mkdir(parents=True)
    nbdata.pack(f"{source}/", str(archive), format="tar", quiet=True)
    with after_the_plan(swapped(archive.parent)):
        report = nbdata.untar_volumes(
            f"{tmp_path}/volumes/*/x.tar", f"{target}/", delete_volumes=True, quiet=True
        )
    assert report.counts["kept"] == 1
    assert archive.exists()
    nbdata.untar_volumes(str(archive), f"{target}/", delete_volumes=True, quiet=True)
    assert not archive.exists()


@pytest.mark.parametrize("scheme", ["", "file://", "local://"])
@pytest.mark.parametrize("name", ["MD5SUMS", "x.lst"])
@pytest.mark.parametrize("again", [False, True], ids=["at once", "once more"])
def test_volumes_of_a_list_are_not_deleted_below_a_link(
    source: Path, target: Path, tmp_path: Path, scheme: str, name: str, again: bool
) -> None:
    """The user named the folder of the list, and not what the list names."""
    victim, data = tmp_path / "victim", tmp_path / "data"
    for folder in (victim, data):
        folder.mkdir()
    write(source, {"large": bytes(2_500_000)})
    nbdata.pack(f"{source}/", f"{victim}/x.tar", format="tar", volume_size="1MB", quiet=True)
    volumes = sorted(path.name for path in victim.glob("x.tar*"))
    (data / "sub").symlink_to("../victim")
    listed = [f"sub/{each}" for each in volumes]
    beside = name == "x.lst"  # a checksum file lists the volumes of one folder
    if beside:
        (data / volumes[0]).write_bytes((victim / volumes[0]).read_bytes())
        listed[0] = volumes.pop(0)
    digests = [hashlib.md5((data / each).read_bytes()).hexdigest() for each in listed]
    lines = [f"{digest}  {each}" for digest, each in zip(digests, listed, strict=True)]
    (data / name).write_text("\n".join(listed if beside else lines))
    before, theirs = tree(victim), tree(data)
    for delete in (not again, True):
        with pytest.raises(nbdata.BadOption, match="which a link leads out of the folder of the list"):
            nbdata.untar_volumes(f"{scheme}{data}/{name}", f"{target}/", delete_volumes=delete, quiet=True)
    assert (tree(victim), tree(data)) == (before, theirs)


def test_volumes_below_a_link_that_comes_after_the_check_are_not_deleted(
    source: Path, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, data = tmp_path / "victim", tmp_path / "data"
    for folder in (victim, data):
        folder.mkdir()
    write(source, {"large": bytes(2_500_000)})
    nbdata.pack(f"{source}/", f"{victim}/x.tar", format="tar", volume_size="1MB", quiet=True)
    (data / "sub").symlink_to("../victim")
    (data / "x.lst").write_text("\n".join(f"sub/{path.name}" for path in sorted(victim.glob("x.tar*"))))
    before = tree(victim)
    # The check sees a folder, and what reads and deletes sees a link.
    monkeypatch.setattr("nbdata.engine.unpack.volumes.in_file.leads_out", lambda *_: False)
    nbdata.untar_volumes(f"{data}/x.lst", f"{target}/", delete_volumes=True, quiet=True)
    assert tree(victim) == before


def test_cleanup_deletes_nothing_below_a_link(source: Path, target: Path, tmp_path: Path) -> None:
    nbdata.pull(f"{source}/", f"{target}/", quiet=True)
    with after_the_plan(swapped(target / "sub")):
        nbdata.cleanup(f"{target}/", all=True, quiet=True)
    assert not (target / "a.txt").exists()
    assert (tmp_path / "away" / "b.txt").exists()
