"""Members of archives in the cache on the disk, and those of a zip in memory: each is its archive's own."""

from __future__ import annotations

import functools
import io
import tarfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbdata.archives.member_budget import FREE
from nbdata.files.blocks.cache import BlockCache
from nbdata.files.blocks.folder import LEAST, BlockFolder
from nbdata.files.blocks.window import open_kept
from nbdata.files.connections import Place
from nbdata.files.mounted import unpacked
from nbdata.files.mounted.archived import ArchiveStore, archived
from nbdata.files.mounted.members import Member, Members
from nbdata.files.mounted.unpacked import Unpacked
from nbdata.files.opening import filesystem
from tests.hostile.web import Site, served
from tests.stores.folder_server import _Handler, folder_server


class _Alike(bytes):
    """The content of a file whose ETag another one has, too: those of nginx are its time and its size."""

    def __hash__(self) -> int:
        return 1


class _Weak(_Handler):
    """Answers with weak ETags."""

    def send_header(self, keyword: str, value: str) -> None:
        super().send_header(keyword, f"W/{value}" if keyword == "ETag" else value)


def _tar(content: bytes) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        member = tarfile.TarInfo("000.bin")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return data.getvalue()


def _archived(url: str) -> Place:
    return archived(filesystem(url).place(url), url, "auto", lambda at, size: None)


@pytest.fixture
def site() -> Iterator[Site]:
    """A web server."""
    with served() as site:
        yield site


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[BlockFolder]:
    """A cache that mounts share."""
    folder = BlockFolder(str(tmp_path / "c"), LEAST, str(tmp_path / "state"))
    yield folder
    folder.close()


def test_members_of_archives_that_have_one_etag_are_kept_apart(site: Site, folder: BlockFolder) -> None:
    for name, content in (("a", b"A" * 300_000), ("b", b"B" * 300_000)):
        site.files[f"/{name}.tar"] = _Alike(_tar(content))
        place = _archived(f"{site.url}/{name}.tar")
        cache = BlockCache(folder, place, "auto", print)
        listed = place.store.head("000.bin")
        file = open_kept(cache, place._replace(key="000.bin"), "000.bin", "auto", listed).file
        assert file.read() == content
        file.close()
        cache.close()


def test_the_listing_of_an_archive_is_not_that_of_its_server(site: Site, folder: BlockFolder) -> None:
    site.files["/a.tar"] = _tar(b"A")
    place, top = _archived(f"{site.url}/a.tar"), filesystem(site.url).place(site.url)
    cache, other = (BlockCache(folder, one, "auto", print) for one in (place, top))
    assert place.prefix == top.prefix
    cache.keep_names("", {"000.bin": place.store.head("000.bin")}, 0)
    cache.close()
    assert cache.kept_names("") is not None
    assert other.kept_names("") is None


def test_members_of_an_archive_with_a_weak_etag_are_not_kept(tmp_path: Path, folder: BlockFolder) -> None:
    (tmp_path / "a.tar").write_bytes(_tar(b"A"))
    with folder_server(tmp_path, _Weak) as server:
        place = _archived(f"{server.url}a.tar")
        member = place.store.head("000.bin")
        assert member.etag.startswith("W/")
        assert BlockCache(folder, place, "auto", print).enter(member) is None


def test_small_members_are_kept_within_a_bound_that_counts_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacked, "_KEPT", 100 * unpacked._EACH)
    kept, asked = Unpacked(), list[int]()

    def unpack(number: int) -> bytes:
        asked.append(number)
        return b"x"

    for number in range(1000):
        assert kept.get(f"{number}", functools.partial(unpack, number)) == b"x"
    for number in (999, 950, 100):
        kept.get(f"{number}", functools.partial(unpack, number))
    assert asked == [*range(1000), 100]
    assert len(kept._kept) < 100
    assert kept._size == sum(len(data) + unpacked._EACH for data in kept._kept.values())


def test_a_member_is_remembered_as_it_was_found() -> None:
    members = Members()
    found = {
        "tar": Member(512, 1 << 40, 1.5, 0xFFFF_FFFF),
        "zip": Member(1 << 40, 7, -1.5, 0, (99, 11_000_000), True, 1 << 41),
    }
    for name, member in found.items():
        members.add(name, member)
    members.add("gone", found["tar"])
    members.leave_out("gone", "is encrypted")
    assert {name: members[name] for name in members} == found
    assert "gone" not in members


@pytest.mark.long
@pytest.mark.parametrize("form", ["%x", "d/%040d", "%d/f"])
def test_members_take_no_more_memory_than_is_counted(form: str) -> None:
    source: Any = None
    tracemalloc.start()
    try:
        members = Members()
        for number in range(20_000):
            members.add(form % number, Member(512 * number, 7 + number, 1.5 + number, number, (0, number)))
        members.end()
        store = ArchiveStore(source, "a.zip", members, [])
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken < FREE - members._budget._left
    assert store.notes() == []
