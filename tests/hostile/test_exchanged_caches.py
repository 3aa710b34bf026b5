"""The owner of the folder around a cache exchanges its ``.nbdata``: nothing is written, deleted or read elsewhere."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata import lock_files, own_files, runtime
from nbdata.cache import folder, kept_folder
from nbdata.cache.folder import CacheFolder
from nbdata.cache.kept_folder import KeptFolder
from nbdata.cache.kept_names import is_name
from nbdata.client.converting import conversion, layout
from nbdata.client.inline import inline_host
from nbdata.made_folders import MadeFolders
from nbdata.seals import Seals
from tests.stores.folder_server import folder_server
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("inline")

FILES = {f"{number:02}.bin": bytes([number]) * 5_000 for number in range(12)}


@pytest.fixture
def source(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "source").mkdir()
    for name, data in FILES.items():
        (tmp_path / "source" / name).write_bytes(data)
    with folder_server(tmp_path / "source") as running:
        yield running.url


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


@pytest.fixture
def private(tmp_path: Path) -> Path:
    (tmp_path / "private/sub").mkdir(parents=True)
    for name in ("about", "boot", "sealed", "thesis", "sub/file"):
        (tmp_path / "private" / name).write_text("mine")
    return tmp_path / "private"


@pytest.fixture
def _ended() -> Iterator[None]:
    """Jobs that keep caches open for the next reader have ended."""
    yield
    for job in inline_host()._jobs.unfinished():
        job.task.cancel()
    wait_until(lambda: not inline_host()._jobs.unfinished())


def content(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def exchange(disk: Path, prefix: str) -> Path:
    """Put another ``.nbdata`` in the place of the one with a cache; return the path of the cache in the new one."""
    (cache,) = (path.name for path in (disk / ".nbdata").glob(f"{prefix}-*") if path.is_dir())
    (disk / ".nbdata").rename(disk / "aside")
    (disk / ".nbdata").mkdir()
    return disk / ".nbdata" / cache


def test_no_item_of_a_stream_is_put_into_an_exchanged_folder(source: str, disk: Path, private: Path) -> None:
    before, paths = content(private), list[Path]()
    for path, _ in nbdata.cache_stream(source, max_size="64kB", by="file", cache_dir=disk, quiet=True):
        if not paths:
            assert Path(path).read_bytes() == FILES["00.bin"]
            cache = exchange(disk, "cache")
            cache.mkdir()
            for number in range(100):
                (cache / str(number)).symlink_to(private)
        paths.append(Path(path))
    assert len(paths) == len(FILES)
    assert content(private) == before
    assert len(os.listdir(cache)) == 100
    assert [path for path in (disk / "aside").rglob("*") if path.is_file()] == []


def test_a_cache_of_items_is_written_and_removed_only_where_it_was_made(disk: Path, private: Path) -> None:
    with CacheFolder(str(disk), 4096, Seals(runtime.state_folder())) as folder:
        exchange(disk, "cache").symlink_to(private)
        folder.make_slot(1, ["sub/deep", "sub"])
        assert (disk / "aside" / Path(folder.path).name / "1/sub/deep").is_dir()
        folder.remove(1)
        folder.make_slot(2, [])
    assert os.listdir(private / "sub") == ["file"]
    assert os.listdir(disk / "aside") == []


def test_a_kept_cache_is_filled_only_where_it_was_made(tmp_path: Path, disk: Path, private: Path) -> None:
    names = [f"{number:032x}" for number in range(4)]
    before = {**content(private), **dict.fromkeys(names, "mine")}
    for name in names:
        (private / name).write_text("mine")
    with KeptFolder(str(disk), "s3://bucket/x/", 4096, "boot", Seals(str(tmp_path))) as kept:
        assert list(kept.found()) == []
        exchange(disk, "kept").symlink_to(private)
        for name in names[:3]:
            fd = os.open(kept.part_name(name), os.O_WRONLY | os.O_CREAT, dir_fd=kept.fd)
            os.close(fd)
        for name in names[:2]:
            kept.land(name)
        kept.drop(names[2])
        kept.remove(names[0])
        kept.write_about("{}", durable=True)
        kept._delete(["thesis", "sub"])
        kept.sync()
        kept.refuse(names[3])
    assert content(private) == before
    assert sorted(os.listdir(next(disk.glob("aside/kept-*[0-9a-f]")))) == [
        ".made",
        names[1],
        "about",
        "boot",
        "sealed",
    ]


@pytest.mark.usefixtures("_ended")
def test_samples_are_read_only_from_the_folder_that_the_cache_fills(source: str, disk: Path) -> None:
    with nbdata.samples(source, cache="5MB", cache_dir=str(disk)) as samples:
        assert samples[0]["bin"] == FILES["00.bin"]
        cache = exchange(disk, "kept")
        shutil.copytree(disk / "aside" / cache.name, cache)
        for path in cache.iterdir():
            if is_name(path.name):
                path.write_bytes(b"x" * path.stat().st_size)
        assert [sample["bin"] for sample in samples] == list(FILES.values())
        with (
            nbdata.samples(source, cache="5MB", cache_dir=str(disk)) as others,
            pytest.raises(nbdata.NbdataError, match="the folder of the cache was exchanged by somebody else"),
        ):
            _ = others[0]


@pytest.mark.usefixtures("_ended")
def test_a_link_in_the_place_of_the_folder_that_a_cache_fills_is_not_read(source: str, disk: Path) -> None:
    with nbdata.samples(source, cache="5MB", cache_dir=str(disk)) as samples:
        assert samples[0]["bin"] == FILES["00.bin"]
        cache = exchange(disk, "kept")
        cache.symlink_to(disk / "aside" / cache.name)
        with (
            nbdata.samples(source, cache="5MB", cache_dir=str(disk)) as others,
            pytest.raises(nbdata.NbdataError),
        ):
            _ = others[0]


@pytest.fixture
def exchange_after(disk: Path, private: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Returns a function: ``.nbdata`` is exchanged for a link as soon as it was opened so many times."""
    real, left = own_files.open_own_folder, [0]

    def opened(folder: str) -> tuple[str, int]:
        path, fd = real(folder)
        left[0] -= 1
        if not left[0]:
            (disk / ".nbdata").rename(disk / "aside")
            (disk / ".nbdata").symlink_to(private)
        return path, fd

    for module in (folder, kept_folder, layout):
        monkeypatch.setattr(module, "open_own_folder", opened)
    return lambda count: left.__setitem__(0, count)


@pytest.mark.parametrize("which", ["cache", "kept", "converting", "begun"])
def test_no_lock_is_made_where_an_exchanged_folder_leads(
    tmp_path: Path, disk: Path, private: Path, exchange_after: Callable[[int], None], which: str
) -> None:
    (disk / ".nbdata").mkdir(mode=0o700)
    exchange_after(2 if which == "begun" else 1)
    if which == "begun":
        (disk / ".nbdata/converting").mkdir(mode=0o700)
        (private / "converting").mkdir()
    before = sorted(private.rglob("*")), content(private)
    with contextlib.suppress(OSError, nbdata.NbdataError):
        if which == "cache":
            with CacheFolder(str(disk), 4096, Seals(runtime.state_folder())):
                pass
        elif which == "kept":
            with KeptFolder(str(disk), "s3://b", 4096, "", Seals(str(tmp_path / "state"))):
                pass
        else:
            conversion._locked(str(disk))
    assert (disk / "aside").is_dir(), "it was exchanged"
    assert (sorted(private.rglob("*")), content(private)) == before


def test_a_dead_cache_is_removed_only_where_the_folder_was_opened(disk: Path, private: Path) -> None:
    for place, name in ((disk / ".nbdata", "cache-" + "a" * 16), (private, "cache-" + "b" * 16)):
        (place / name).mkdir(parents=True)
        (place / f"{name}.lock").touch()
    (disk / ".nbdata").chmod(0o700)
    before = sorted(private.rglob("*"))
    fd = os.open(disk / ".nbdata", os.O_RDONLY)
    (disk / ".nbdata").rename(disk / "aside")
    (disk / ".nbdata").symlink_to(private)
    folder._remove_dead(str(disk / ".nbdata"), fd, MadeFolders(Seals(runtime.state_folder())))
    os.close(fd)
    assert os.listdir(disk / "aside") == []
    assert sorted(private.rglob("*")) == before


def test_a_look_for_the_holder_of_a_lock_makes_no_file(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_files, "is_lockable", lambda *_: True)  # it was removed since
    assert not lock_files.held(str(disk / "x.lock"))
    assert os.listdir(disk) == []
