"""The files of the cache of mounts: whatever ends the writing, a block that is read is right, and the bound holds."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.errors import BadOption, NotFound, StoreUnavailable, UnsafeMember
from nbdata.files.blocks import writing
from nbdata.files.blocks.cache import BlockCache
from nbdata.files.blocks.folder import LEAST, BlockFolder
from nbdata.files.blocks.listings import keep_listing, kept_listing
from nbdata.files.blocks.reach import Reach
from nbdata.files.blocks.version_file import (
    BLOCK,
    MOST_SIZE,
    VersionFile,
    blocks_of,
    crc_of,
    name_of,
    size_of_block,
)
from nbdata.files.opening import filesystem
from nbdata.stores.base import ObjectInfo

SIZE = 2 * BLOCK + 5000
DATA = random.Random(7).randbytes(SIZE)
INFO = ObjectInfo("p/f", SIZE, '"abc"', 12.5, checksums={"md5": "0" * 32})
NAME = name_of("place", INFO)
BLOCKS = [DATA[at : at + BLOCK] for at in range(0, SIZE, BLOCK)]
CRCS = [crc_of(block) for block in BLOCKS]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[BlockFolder]:
    """A cache."""
    folder = BlockFolder(str(tmp_path / "c"), LEAST, str(tmp_path / "state"))
    yield folder
    folder.close()


def _fill(folder: BlockFolder) -> None:
    with folder.locked():
        made = folder.made(NAME, "place", INFO)
        assert made is not None
        for number, block in enumerate(BLOCKS):
            assert folder.take(len(block))
            made.write(number, block, CRCS[number])
        assert made.mark("auto", CRCS)
    made.close()


def _blocks(file: VersionFile) -> list[bytes | None]:
    """Return what can be read."""
    found = list[bytes | None]()
    for number in range(file.count):
        try:
            read = file.read(number)
        except ValueError:
            read = None
        found.append(None if read is None else read[0])
    return found


def _right(file: VersionFile) -> bool:
    """Whether nothing wrong can be read, and a mark says the truth; return whether all is there."""
    found = _blocks(file)
    assert all(one in (None, block) for one, block in zip(found, BLOCKS, strict=True))
    if file.is_marked("auto"):
        assert [file.known(number) for number in range(file.count)] == CRCS
    return None not in found


def test_a_version_is_found_again(folder: BlockFolder) -> None:
    assert folder.opened(NAME) is None
    _fill(folder)
    found = folder.opened(NAME)
    assert found is not None
    assert found.info == INFO
    assert _right(found)
    assert found.is_marked("auto")
    assert not found.is_marked("sha256")
    found.close()


@pytest.mark.parametrize(
    "info",
    [
        INFO._replace(etag=""),
        INFO._replace(etag='W/"abc"'),
        INFO._replace(size=-1),
        INFO._replace(size=0),
        INFO._replace(size=MOST_SIZE + 1),
    ],
)
def test_what_cannot_be_told_apart_or_is_too_large_has_no_name(info: ObjectInfo) -> None:
    assert name_of("place", info) == ""


def test_a_key_that_is_too_long_for_a_record_is_not_kept(folder: BlockFolder) -> None:
    info = INFO._replace(key="k" * 4000)
    with folder.locked(), pytest.raises(ValueError, match="too long"):
        folder.made(name_of("place", info), "place", info)
    assert sorted(os.listdir(folder.path)) == [".made", "room"]


# -- what a store claims ---------------------------------------------------------------------------


def _cache(folder: BlockFolder) -> BlockCache:
    """Return the cache of a mount whose store is not asked."""
    url = "https://127.0.0.1:9/p"
    return BlockCache(folder, filesystem(url).place(url), "auto", print)


def test_a_size_that_is_claimed_takes_no_memory(tmp_path: Path) -> None:
    folder = BlockFolder(str(tmp_path / "c"), 1 << 50, str(tmp_path / "state"))
    cache = _cache(folder)
    tracemalloc.start()
    try:
        for number in range(3):
            version = cache.enter(INFO._replace(key=f"p/{number}", size=MOST_SIZE))
            assert version is not None
            version.given(5_000_000, 7)
            assert version.crcs() is None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
    folder.close()


def test_a_size_that_is_claimed_does_not_empty_the_cache(folder: BlockFolder) -> None:
    _fill(folder)
    cache = _cache(folder)
    assert cache.enter(INFO._replace(key="p/huge", size=1 << 40)) is None
    large = cache.enter(INFO._replace(key="p/large", size=1 << 35))
    assert large is not None
    cache.keep(large, 0, BLOCKS[0])
    cache.close()
    assert _right(folder.opened(NAME) or pytest.fail("it is gone"))


def test_an_object_that_cannot_be_kept_holds_up_no_others(folder: BlockFolder) -> None:
    cache = _cache(folder)
    odd, other = cache.enter(INFO._replace(key="k" * 4000)), cache.enter(INFO)
    assert odd is not None
    assert other is not None
    for version in (odd, other):
        cache.keep(version, 0, BLOCKS[0])
    cache.close()
    assert odd.gone
    assert other.has(0)
    assert len(os.listdir(folder.path)) == 3  # with the seal and the room


# -- the end at any moment -------------------------------------------------------------------------

_CALLS = ("open", "pwrite", "write", "ftruncate", "replace", "close")


def _ends_at(call: int) -> None:
    """Have this process end at one of its calls of the system, which is perhaps done by half."""
    left = [call]

    def ending(plain: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **options: Any) -> Any:
            left[0] -= 1
            if not left[0]:
                if plain is pwrite:
                    pwrite(args[0], args[1][: len(args[1]) // 2], args[2])
                os._exit(9)
            return plain(*args, **options)

        return called

    pwrite = os.pwrite
    for name in _CALLS:
        setattr(os, name, ending(getattr(os, name)))


def test_a_kill_between_any_two_calls_leaves_right_bytes(tmp_path: Path) -> None:
    state, ended = str(tmp_path / "state"), False
    BlockFolder(str(tmp_path / "first"), LEAST, state).close()  # makes the key of seals
    whole = 0
    for call in range(1, 400):
        parent = str(tmp_path / f"c{call}")
        child = os.fork()
        if not child:
            status = 1
            try:
                _ends_at(call)
                folder = BlockFolder(parent, LEAST, state)
                _fill(folder)
                status = 0
            finally:
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in (0, 9)
        folder = BlockFolder(parent, LEAST, state)
        found = folder.opened(NAME)
        if found is not None:
            whole += _right(found)
            found.close()
        _fill_again(folder)
        folder.close()
        if ended := not status:
            break
    assert ended
    assert whole > 1


def _fill_again(folder: BlockFolder) -> None:
    """Write what is missing; then all is there."""
    with folder.locked():
        made = folder.made(NAME, "place", INFO)
        assert made is not None
        for number, block in enumerate(_blocks(made)):
            if block is None:
                made.write(number, BLOCKS[number], CRCS[number])
        assert made.mark("auto", CRCS)
    assert _right(made)
    made.close()


@pytest.mark.parametrize("seed", range(30))
def test_pages_that_a_power_cut_lost_are_noticed(folder: BlockFolder, seed: int) -> None:
    chance = random.Random(seed)
    _fill(folder)
    path = Path(folder.path, NAME)
    with open(path, "r+b") as file:
        for page in range(path.stat().st_size // 4096):
            if chance.random() < (0.01 if page else 0.2):
                file.seek(page * 4096)
                file.write(bytes(4096) if page else chance.randbytes(4096))
    found = folder.opened(NAME)
    if found is not None:
        _right(found)
        found.close()
    _fill_again(folder)


def test_a_damaged_block_keeps_its_crc(folder: BlockFolder) -> None:
    _fill(folder)
    found = folder.opened(NAME)
    assert found is not None
    found.damaged(1)
    assert not found.has(1)
    assert found.known(1) == CRCS[1]
    assert found.is_marked("auto")
    found.write(1, b"x" * size_of_block(SIZE, 1), 5)
    assert not found.is_marked("auto")
    found.close()


# -- several ---------------------------------------------------------------------------------------

_FILLS = """
import os, random, sys
from nbdata.files.blocks import writing
from nbdata.files.blocks.cache import BlockCache
from nbdata.files.blocks.folder import LEAST, BlockFolder
from nbdata.files.blocks.version_file import BLOCK, crc_of, name_of
from nbdata.stores.base import ObjectInfo

folder = BlockFolder(sys.argv[1], LEAST, sys.argv[2])
chance = random.Random(int(sys.argv[3]))
for _ in range(40):
    number = chance.randrange(30)
    data = random.Random(number).randbytes(BLOCK)
    info = ObjectInfo(f"k{number}", 2 * BLOCK, '"e"')
    with folder.locked():
        made = folder.made(name_of("p", info), "p", info)
        for block in range(2):
            if made is not None and not made.has(block) and folder.take(BLOCK):
                made.write(block, data, crc_of(data))
    for block in range(2):
        found = None if made is None else made.read(block)
        assert found is None or found[0] == data
    with folder.locked():
        files = [os.path.join(folder.path, one) for one in os.listdir(folder.path)]
        used = sum(os.lstat(one).st_blocks * 512 for one in files if len(os.path.basename(one)) == 32)
    assert used <= LEAST, used
    if made is not None:
        made.close()
folder.close()
"""


def test_processes_fill_a_cache_together_within_its_bound(tmp_path: Path) -> None:
    words = [sys.executable, "-c", _FILLS, str(tmp_path / "c"), str(tmp_path / "state")]
    started = [subprocess.Popen([*words, str(seed)]) for seed in range(3)]
    assert [one.wait() for one in started] == [0, 0, 0]


def test_an_open_version_stays_and_the_others_go(folder: BlockFolder) -> None:
    _fill(folder)
    kept = folder.opened(NAME)
    assert kept is not None
    others = [INFO._replace(key=f"p/{number}") for number in range(3)]
    with folder.locked():
        for info in others:
            made = folder.made(name_of("place", info), "place", info)
            assert made is not None
            assert folder.take(BLOCK)
            made.write(0, BLOCKS[0], CRCS[0])
            made.close()
        assert folder.take(LEAST - 3 * BLOCK)
        assert [folder.opened(name_of("place", info)) for info in others] == [None] * 3
        assert not folder.take(LEAST)
    assert _right(kept)
    again = folder.opened(NAME)
    assert again is not None
    again.close()
    kept.close()


# -- what is found ---------------------------------------------------------------------------------


def test_odd_files_in_the_folder_are_deleted_and_links_not_followed(tmp_path: Path) -> None:
    aside = tmp_path / "aside"
    aside.mkdir()
    (aside / "thesis").write_text("thesis")
    state = str(tmp_path / "state")
    folder = BlockFolder(str(tmp_path / "c"), LEAST, state)
    folder.close()
    place = Path(folder.path)
    (place / "new-0123").write_bytes(b"x")
    (place / ("a" * 32)).symlink_to(aside / "thesis")
    (place / ("b" * 32)).symlink_to(aside)
    (place / ("c" * 32)).mkdir()
    (place / ("c" * 32) / "inner").symlink_to(aside)
    os.mkfifo(place / ("d" * 32))
    BlockFolder(str(tmp_path / "c"), LEAST, state).close()
    assert sorted(os.listdir(place)) == [".made", "room"]
    assert (aside / "thesis").read_text() == "thesis"


def test_a_file_with_the_name_of_another_version_is_not_used(folder: BlockFolder) -> None:
    _fill(folder)
    for other in (INFO._replace(key="p/g"), INFO._replace(etag='"new"')):
        name = name_of("place", other)
        os.rename(Path(folder.path, NAME), Path(folder.path, name))
        assert folder.opened(name) is None
        os.rename(Path(folder.path, name), Path(folder.path, NAME))
    found = folder.opened(NAME)
    assert found is not None
    found.close()


def test_a_folder_with_another_seal_is_emptied(tmp_path: Path) -> None:
    folder = BlockFolder(str(tmp_path / "c"), LEAST, str(tmp_path / "state"))
    _fill(folder)
    folder.close()
    other = BlockFolder(str(tmp_path / "c"), LEAST, str(tmp_path / "other"))
    assert other.opened(NAME) is None
    other.close()


def test_a_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    folder = BlockFolder(str(tmp_path / "c"), LEAST, str(tmp_path / "state"))
    folder.close()
    os.chmod(folder.path, 0o777)
    os.chmod(os.path.dirname(folder.path), 0o755)
    with pytest.raises(UnsafeMember):
        BlockFolder(str(tmp_path / "c"), LEAST, str(tmp_path / "state"))


@pytest.mark.parametrize("what", ["room", "room of nothing"])
def test_a_wrong_total_is_found_out(tmp_path: Path, what: str) -> None:
    state = str(tmp_path / "state")
    folder = BlockFolder(str(tmp_path / "c"), LEAST, state)
    _fill(folder)
    used = folder.used
    Path(folder.path, "room").write_bytes(b"" if what != "room" else b"\xff" * 12)
    with folder.locked():
        assert folder.take(0)
    assert SIZE < folder.used <= used
    folder.close()


def test_a_cache_of_too_few_bytes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="is too little"):
        BlockFolder(str(tmp_path / "c"), LEAST - 1, str(tmp_path / "state"))


# -- whether the store answers ---------------------------------------------------------------------


def test_a_store_that_does_not_answer_is_not_waited_for_until_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = nbdata.filesystem(str(tmp_path)).place(str(tmp_path))
    reach = Reach(place)
    tried, answers = list[int](), False

    def attempt() -> str:
        tried.append(1)
        if not answers:
            raise StoreUnavailable("it is away")
        return "answer"

    def head(key: str) -> ObjectInfo:
        if not answers:
            raise StoreUnavailable("it is away")
        raise NotFound("no such file", path=key)

    monkeypatch.setattr(place.store, "head", head)
    for _ in range(10):
        with pytest.raises(StoreUnavailable):
            reach.run(attempt)
    assert len(tried) == 1
    assert reach.down is not None
    monkeypatch.setattr("nbdata.files.blocks.reach.AGAIN", 0.0)
    answers = True
    assert reach.run(attempt) == "answer"
    assert reach.down is None


def test_one_object_that_fails_is_not_the_store(tmp_path: Path) -> None:
    reach = Reach(nbdata.filesystem(str(tmp_path)).place(str(tmp_path)))

    def fails() -> str:
        raise StoreUnavailable("this object has no server")

    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            reach.run(fails)
        assert reach.down is None
        assert reach.run(lambda: "another") == "another"


# -- listings --------------------------------------------------------------------------------------


def test_a_listing_is_found_again_and_a_damaged_one_is_not(folder: BlockFolder) -> None:
    names = {"b": ObjectInfo("p/b", 3, '"e"', 1.5, "v"), "a": None, "c": ObjectInfo("p/c", -1)}
    with folder.locked():
        assert keep_listing(folder, "place", "p/", names)
        assert keep_listing(folder, "place", "p/", names)
    found = kept_listing(folder, "place", "p/")
    assert found is not None
    assert (list(found.names.items()), found.at > 0) == (list(names.items()), True)
    assert kept_listing(folder, "place", "q/") is None
    assert kept_listing(folder, "elsewhere", "p/") is None
    (path,) = Path(folder.path).glob("*.list")
    data = path.read_bytes()
    for at in (0, 10, len(data) - 1):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert kept_listing(folder, "place", "p/") is None
    path.write_bytes(data[:9])
    assert kept_listing(folder, "place", "p/") is None
    path.write_bytes(data)
    path.rename(path.with_name("f" * 32 + ".list"))
    assert kept_listing(folder, "place", "p/") is None


def test_listings_that_wait_for_a_slow_disk_are_bounded(
    folder: BlockFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_PATIENCE", 0.01)
    place = nbdata.filesystem(str(tmp_path)).place(str(tmp_path))
    cache = BlockCache(folder, place, "auto", lambda _: None)
    with folder.locked():  # so nothing is written
        for number in range(40):
            cache.keep_names(f"{number}/", {"f": INFO}, 1 << 20)
        assert cache._writer.waiting == 32
    cache.close()


def test_sizes_of_blocks() -> None:
    assert [blocks_of(size) for size in (1, BLOCK, BLOCK + 1)] == [1, 1, 2]
    assert [size_of_block(SIZE, number) for number in range(3)] == [BLOCK, BLOCK, 5000]
