"""A mount with a cache reads from the disk what it has fetched, also after a kill, and without the store."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import BadOption, StoreUnavailable
from nbdata.files.mounted.mounts import Mounted
from nbdata.space.mounts import Note
from tests.conftest import client_of
from tests.faults.proxy import BODY, Exchange, Fault, FaultProxy
from tests.waiting import wait_until

pytestmark = pytest.mark.needs("mount")
Put = Callable[[dict[str, bytes]], str]

MIB = 1 << 20


@pytest.fixture
def proxy(s3: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """SeaweedFS behind a proxy that counts what it carries, for mounts that give up soon."""
    monkeypatch.setenv("NBDATA_STALL_TIMEOUT", "1")
    with FaultProxy(s3.url) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        yield proxy


class Place:
    """A place that is mounted again and again with one cache."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder, self.cache = url, folder, folder / "disk"

    def mount(self, size: str = "200MB", name: str = "m", **options: object) -> Mounted:
        """Mount it."""
        return nbdata.mount(
            self.url, str(self.folder / name), cache=size, cache_dir=str(self.cache), **options
        )

    @property
    def files(self) -> list[Path]:
        """The files of versions in the cache."""
        return sorted(path for path in self.cache.glob(".nbdata/blocks-*/*") if len(path.name) == 32)


@pytest.fixture
def place(put: Put, tmp_path: Path) -> Place:
    """An empty place."""
    return Place(f"{put({})}p", tmp_path)


def _told(mount: Mounted) -> str:
    return Path(mount.folder, ".nbdata-mount").read_text()


def _number(mount: Mounted, what: str) -> int:
    found = re.search(rf"\b{what}: ([\d,]+)", _told(mount))
    assert found is not None
    return int(found[1].replace(",", ""))


def _written(mount: Mounted) -> None:
    """Wait until nothing waits to be written to the cache."""
    wait_until(lambda: not _number(mount, "waiting"), lambda: _told(mount))


def _read(mount: Mounted, name: str) -> bytes:
    with open(Path(mount.folder, name), "rb", buffering=0) as file:
        return b"".join(iter(lambda: file.read(1 << 18), b""))


def _process(mount: Mounted) -> int:
    (note,) = [one for one in Note.all() if one.folder == mount.folder and one.lives]
    return note.process


# -- reading ---------------------------------------------------------------------------------------


def test_what_was_read_is_read_from_the_disk_by_the_next_mount(
    proxy: FaultProxy, place: Place, put: Put
) -> None:
    files = {f"p/{size}": os.urandom(size) for size in (1, 3000, 200_000, MIB, MIB + 1, 5 * MIB + 77)}
    put({**files, "p/0": b""})
    for number in range(2):
        with place.mount() as mount:
            tally = proxy.begin()
            for key, data in files.items():
                assert _read(mount, key[2:]) == data
            assert _read(mount, "0") == b""
            tally.down.pop("p/0", None)  # the error that it has no bytes
            assert bool(tally.down) == (not number)
            _written(mount)
    with place.mount() as mount, open(Path(mount.folder, str(5 * MIB + 77)), "rb") as file:
        file.seek(4 * MIB - 10)
        assert file.read(MIB) == files[f"p/{5 * MIB + 77}"][4 * MIB - 10 : 5 * MIB - 10]


def test_random_reads_fetch_only_their_blocks(proxy: FaultProxy, place: Place, put: Put) -> None:
    data = os.urandom(8 * MIB)
    put({"p/f": data})
    for number in range(2):
        with place.mount() as mount:
            handle = os.open(Path(mount.folder, "f"), os.O_RDONLY)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)
            tally = proxy.begin()
            for start in (5 * MIB + 1000, 3 * MIB - 100, 5 * MIB + 90_000):
                assert os.pread(handle, 70_000, start) == data[start : start + 70_000]
            os.close(handle)
            assert tally.down["p/f"] <= (0 if number else 3 * MIB)
            assert number or tally.down["p/f"] >= 2 * MIB
            _written(mount)


def test_two_mounts_share_a_cache(proxy: FaultProxy, place: Place, put: Put) -> None:
    data = os.urandom(3 * MIB)
    put({"p/f": data})
    with place.mount() as one, place.mount(name="other") as other:
        assert _read(one, "f") == data
        _written(one)
        tally = proxy.begin()
        assert _read(other, "f") == data
        assert not tally.down


def test_a_new_version_is_fetched(proxy: FaultProxy, place: Place, put: Put) -> None:
    old, new = os.urandom(3 * MIB), os.urandom(3 * MIB)
    put({"p/f": old})
    with place.mount() as mount:
        assert _read(mount, "f") == old
        _written(mount)
        put({"p/f": new})
        assert _read(mount, "f") == new
        _written(mount)
    with place.mount() as mount:
        tally = proxy.begin()
        assert _read(mount, "f") == new
        assert not tally.down
    assert len(place.files) == 2


def test_small_files_that_are_opened_in_their_order_come_from_the_disk(
    proxy: FaultProxy, place: Place, put: Put
) -> None:
    files = {f"p/d/{number:03}": os.urandom(2000 + number) for number in range(50)}
    put(files)
    for number in range(2):
        with place.mount() as mount:
            tally = proxy.begin()
            for key, data in files.items():
                assert _read(mount, key[2:]) == data
            assert bool(tally.down) == (not number)
            _written(mount)


# -- what is wrong on the disk ---------------------------------------------------------------------


def _flip(path: Path, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


def test_a_damaged_block_is_noticed_and_fetched_again(proxy: FaultProxy, place: Place, put: Put) -> None:
    data = os.urandom(4 * MIB)
    put({"p/f": data})
    with place.mount() as mount:
        assert _read(mount, "f") == data
        _written(mount)
    (path,) = place.files
    _flip(path, path.stat().st_size - 3 * MIB + 5)
    for number in range(2):
        with place.mount() as mount:
            tally = proxy.begin()
            assert _read(mount, "f") == data
            assert tally.down["p/f"] == (0 if number else MIB)
            assert _number(mount, "damaged") == (0 if number else 1)
            _written(mount)


def test_wrong_bytes_in_place_of_a_damaged_block_are_an_error(
    proxy: FaultProxy, place: Place, put: Put
) -> None:
    """The object was compared before, so one block alone is compared with that."""
    data = os.urandom(4 * MIB)
    put({"p/f": data})
    with place.mount() as mount:
        assert _read(mount, "f") == data
        _written(mount)
    (path,) = place.files
    _flip(path, path.stat().st_size - 3 * MIB + 5)
    with place.mount() as mount, open(Path(mount.folder, "f"), "rb", buffering=0) as file:
        proxy.begin(lambda request, before: Fault("flip", BODY, 0.5) if request.download else None)
        file.seek(MIB)
        with pytest.raises(OSError, match="Input/output"):
            file.read(MIB)
        proxy.begin()
        assert _read(mount, "f") == data


def test_wrong_bytes_of_the_store_do_not_stay_in_the_cache(proxy: FaultProxy, place: Place, put: Put) -> None:
    data = os.urandom(4 * MIB)
    put({"p/f": data})
    with place.mount() as mount:
        proxy.begin(
            lambda request, before: Fault("flip", BODY, 0.5) if request.start and not before else None
        )
        with pytest.raises(OSError, match="Input/output"):
            _read(mount, "f")
        proxy.begin()
        assert _read(mount, "f") == data
        _written(mount)
    with place.mount() as mount:
        tally = proxy.begin()
        assert _read(mount, "f") == data
        assert not tally.down


def _link(path: Path) -> None:
    aside = path.with_name("aside")
    path.rename(aside)
    path.symlink_to(aside)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _other_size(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b'"size": ')] + b'"size": 9' + data[data.index(b'"size": ') + 9 :])


def _longer(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(b"x")


def _emptied(path: Path) -> None:
    os.truncate(path, 0)


def _second_name(path: Path) -> None:
    os.link(path, path.parents[3] / "another name")


@pytest.mark.parametrize("spoil", [_link, _pipe, _folder, _other_size, _longer, _emptied, _second_name])
@pytest.mark.in_ci("_link", "_other_size")
def test_a_file_that_is_not_what_its_name_says_is_not_used(
    proxy: FaultProxy, place: Place, put: Put, spoil: Callable[[Path], None]
) -> None:
    data = os.urandom(2 * MIB)
    put({"p/f": data})
    with place.mount() as mount:
        assert _read(mount, "f") == data
        _written(mount)
    (path,) = place.files
    spoil(path)
    with place.mount() as mount:
        tally = proxy.begin()
        assert _read(mount, "f") == data
        assert tally.down["p/f"] == 2 * MIB


def test_a_cache_that_was_copied_from_elsewhere_is_emptied(proxy: FaultProxy, place: Place, put: Put) -> None:
    data = os.urandom(2 * MIB)
    put({"p/f": data})
    with place.mount() as mount:
        assert _read(mount, "f") == data
        _written(mount)
    place.cache.rename(place.cache.with_name("aside"))
    subprocess.run(["cp", "-a", place.cache.with_name("aside"), place.cache], check=True)
    with place.mount() as mount:
        tally = proxy.begin()
        assert _read(mount, "f") == data
        assert tally.down["p/f"] == 2 * MIB


# -- its bound -------------------------------------------------------------------------------------


def _disk_use(place: Place) -> int:
    return sum(path.lstat().st_blocks * 512 for path in place.cache.rglob("*"))


@pytest.mark.long
def test_the_cache_keeps_to_its_size_and_forgets_what_was_used_longest_ago(
    proxy: FaultProxy, place: Place, put: Put
) -> None:
    files = {f"p/{number}": os.urandom(5 * MIB) for number in range(5)}
    put(files)
    with place.mount("16MiB") as mount:
        for key, data in files.items():
            assert _read(mount, key[2:]) == data
            _written(mount)
            assert _disk_use(place) <= 16 * MIB
    with place.mount("16MiB") as mount:
        tally = proxy.begin()
        assert _read(mount, "4") == files["p/4"]
        assert not tally.down
        assert _read(mount, "0") == files["p/0"]
        assert tally.down["p/0"] == 5 * MIB


def test_a_file_that_is_larger_than_the_cache_is_read(place: Place, put: Put) -> None:
    data = os.urandom(24 * MIB)
    put({"p/f": data})
    with place.mount("16MiB") as mount:
        assert _read(mount, "f") == data
        _written(mount)
        assert _disk_use(place) <= 16 * MIB
        assert "there is no room" in _told(mount)


def test_a_limit_on_the_folder_holds_for_the_cache(
    place: Place, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(12 * MIB)
    put({"p/f": data})
    monkeypatch.setenv("NBDATA_QUOTA", f"4MiB:{place.folder}")
    with place.mount() as mount:
        assert _read(mount, "f") == data
        _written(mount)
        assert _disk_use(place) <= 4 * MIB
        assert "there is no room" in _told(mount)


def test_a_cache_that_is_too_small_is_refused(place: Place, put: Put) -> None:
    put({"p/f": b"f"})
    with pytest.raises(BadOption, match="is too little"):
        place.mount("1MB")


def test_cleanup_removes_the_cache_once_no_mount_uses_it(place: Place, put: Put) -> None:
    put({"p/f": os.urandom(MIB)})
    with place.mount() as mount:
        _read(mount, "f")
        _written(mount)
        nbdata.cleanup(str(place.cache), caches=True, quiet=True)
        assert place.files
    nbdata.cleanup(str(place.cache), quiet=True)
    assert place.files
    assert nbdata.du(str(place.cache), quiet=True).details["caches"] >= MIB
    nbdata.cleanup(str(place.cache), caches=True, quiet=True)
    assert not list(place.cache.iterdir())


@pytest.mark.long
def test_many_threads_read_at_random_through_two_mounts_with_a_cache_that_is_too_small(
    place: Place, put: Put
) -> None:
    files = {f"{number}": os.urandom(7 * MIB + number) for number in range(4)}
    put({f"p/{name}": data for name, data in files.items()})
    with place.mount("16MiB") as one, place.mount("16MiB", "other") as other:

        def read(seed: int) -> int:
            chance, wrong = random.Random(seed), 0
            for _ in range(120):
                name, folder = chance.choice(list(files)), chance.choice((one, other)).folder
                start, size = chance.randrange(7 * MIB), chance.choice((100, 70_000, 2 * MIB))
                with open(f"{folder}/{name}", "rb", buffering=0) as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
                    wrong += os.pread(file.fileno(), size, start) != files[name][start : start + size]
            return wrong

        with ThreadPoolExecutor(12) as pool:
            assert list(pool.map(read, range(12))) == [0] * 12
        for mount in (one, other):
            _written(mount)
            assert "damaged: 0" in _told(mount)
            assert "errors: 0" in _told(mount)
        assert _disk_use(place) <= 16 * MIB + 64 * 1024


# -- kills -----------------------------------------------------------------------------------------

_READS = """
import sys
try:
    with open(sys.argv[1], "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass
except OSError:
    pass
"""


@pytest.mark.parametrize("at", [1_500_000, 5_000_000, pytest.param(9_000_000, marks=pytest.mark.long)])
def test_a_mount_that_was_killed_while_it_filled_the_cache_leaves_right_bytes(
    proxy: FaultProxy, place: Place, put: Put, at: int
) -> None:
    data = os.urandom(10 * MIB)
    put({"p/f": data})
    mount = place.mount()
    process = _process(mount)
    proxy.begin(at=at, then=lambda: os.kill(process, signal.SIGKILL))
    subprocess.run([sys.executable, "-c", _READS, f"{mount.folder}/f"], check=True)
    mount.unmount()
    with place.mount() as mount:
        proxy.begin()
        assert _read(mount, "f") == data
        _written(mount)
    with place.mount() as mount:
        tally = proxy.begin()
        assert _read(mount, "f") == data
        assert not tally.down


# -- without the store -----------------------------------------------------------------------------


@pytest.fixture
def leaving(s3: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """SeaweedFS behind a proxy that the test ends."""
    proxy = FaultProxy(s3.url).__enter__()
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    yield proxy
    proxy.__exit__(None, None, None)


def test_what_is_in_the_cache_is_read_without_the_store(leaving: FaultProxy, place: Place, put: Put) -> None:
    large, small = os.urandom(3 * MIB), os.urandom(1000)
    put({"p/large": large, "p/d/small": small, "p/part": large, "p/never": large, "p/empty": b""})
    with place.mount() as mount:
        assert _read(mount, "large") == large
        assert _read(mount, "d/small") == small
        handle = os.open(Path(mount.folder, "part"), os.O_RDONLY)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)
        assert os.pread(handle, 1000, 2 * MIB) == large[2 * MIB : 2 * MIB + 1000]
        os.close(handle)
        assert "store: answers" in _told(mount)
        _written(mount)
    leaving.__exit__(None, None, None)
    with place.mount() as mount:
        names = [".nbdata-mount", "d", "empty", "large", "never", "part"]
        assert sorted(os.listdir(mount.folder)) == names
        assert os.stat(f"{mount.folder}/never").st_size == 3 * MIB
        assert _read(mount, "large") == large
        assert _read(mount, "d/small") == small
        assert _read(mount, "empty") == b""
        with open(f"{mount.folder}/part", "rb", buffering=0) as file:
            file.seek(2 * MIB)
            assert file.read(1000) == large[2 * MIB : 2 * MIB + 1000]
            file.seek(0)
            with pytest.raises(OSError, match="Input/output"):
                file.read(1000)
        with pytest.raises(OSError, match="Input/output"):
            _read(mount, "never")
        with pytest.raises(FileNotFoundError):
            os.stat(f"{mount.folder}/none")
        assert "store: does not answer" in _told(mount)
        assert "listings from the cache: up to" in _told(mount)


def test_some_of_a_file_that_was_sent_in_parts_is_read_without_the_store(
    leaving: FaultProxy, s3: EmbeddedServer, place: Place, bucket: str
) -> None:
    """Its checksum is one of the parts, and only the store knows how long they are."""
    data = os.urandom(10 * MIB)
    client = client_of(s3)
    of = {"Bucket": bucket, "Key": "p/f"}
    upload = {**of, "UploadId": client.create_multipart_upload(**of)["UploadId"]}
    parts = list[dict[str, object]]()
    for number, start in enumerate(range(0, len(data), 5 * MIB), 1):
        told = client.upload_part(**upload, PartNumber=number, Body=data[start : start + 5 * MIB])
        parts.append({"PartNumber": number, "ETag": told["ETag"]})
    client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    client.close()
    with place.mount() as mount, open(f"{mount.folder}/f", "rb", buffering=0) as file:
        assert file.read(1000) == data[:1000]
        _written(mount)
    leaving.__exit__(None, None, None)
    for _ in range(2):
        with place.mount() as mount, open(f"{mount.folder}/f", "rb", buffering=0) as file:
            assert file.read(1000) == data[:1000]


def test_a_place_that_was_never_listed_cannot_be_mounted_without_the_store(
    leaving: FaultProxy, place: Place, put: Put
) -> None:
    put({"p/f": b"f"})
    leaving.__exit__(None, None, None)
    with pytest.raises(StoreUnavailable):
        place.mount()


@pytest.mark.long
def test_a_store_that_comes_back_is_used_again(proxy: FaultProxy, place: Place, put: Put) -> None:
    old, new = os.urandom(2 * MIB), os.urandom(2 * MIB)
    put({"p/f": old, "p/g": old})

    def down(request: Exchange, before: int) -> Fault:
        return Fault("refuse", "before the answer")

    with place.mount(max_age=0) as mount:
        assert _read(mount, "f") == old
        _written(mount)
        proxy.begin(down)
        assert _read(mount, "f") == old  # after the retries
        for _ in range(3):
            assert _read(mount, "f") == old
            with pytest.raises(OSError, match="Input/output"):
                _read(mount, "g")
        assert "store: does not answer" in _told(mount)
        proxy.begin()
        put({"p/f": new})
        wait_until(lambda: _read(mount, "f") == new)
        wait_until(lambda: "store: answers" in _told(mount))
        assert _read(mount, "g") == old
