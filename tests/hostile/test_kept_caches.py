"""An object of a kept cache counts only if this user's nbdata made it, or the store proves its bytes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata import seals
from nbdata.cache.kept_folder import KeptFolder
from nbdata.cache.kept_names import is_name
from nbdata.client.inline import inline_host
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import AccessDenied
from tests.conftest import client_of
from tests.faults.proxy import FaultProxy
from tests.faults.test_lines import proxy
from tests.waiting import wait_until

__all__ = ["proxy"]

FILES = {f"{n:02}.bin": os.urandom(5_000 + n) for n in range(12)}


@pytest.fixture(autouse=True)
def _one_state(tmp_path: Path, inline: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("NBDATA_STATE_DIR", str(tmp_path / "state"))
    yield
    end()


def end() -> None:
    """End the jobs that keep caches open for the next reader."""
    for job in inline_host()._jobs.unfinished():
        job.task.cancel()
    wait_until(lambda: not inline_host()._jobs.unfinished())
    seals._key.cache_clear()  # the next reader is as another process


@pytest.fixture
def source(s3: EmbeddedServer, bucket: str) -> str:
    client = client_of(s3)
    for name, data in FILES.items():
        client.put_object(Bucket=bucket, Key=name, Body=data)
    client.close()
    return f"s3://{bucket}/"


@pytest.fixture
def read(source: str, tmp_path: Path, proxy: FaultProxy) -> Callable[[], int]:
    """Read all samples through the cache, in a new job; return how many bytes came from the store."""

    def read_all(**options: Any) -> int:
        tally = proxy.begin()
        with nbdata.samples(source, cache="5MB", cache_dir=str(tmp_path / "disk"), **options) as samples:
            assert [sample["bin"] for sample in samples] == list(FILES.values())
        end()
        return sum(tally.down.values())

    return read_all


def kept(tmp_path: Path) -> Path:
    (folder,) = (path for path in tmp_path.glob("disk/.nbdata/kept-*") if path.is_dir())
    return folder


def objects(tmp_path: Path) -> list[Path]:
    return sorted(path for path in kept(tmp_path).iterdir() if is_name(path.name))


ALL = sum(map(len, FILES.values()))


def spoil(path: Path) -> None:
    """Put other bytes of the same length into a file, at a later time by the disk's coarse clock."""
    found = path.stat()
    path.write_bytes(os.urandom(found.st_size))
    os.utime(path, ns=(found.st_mtime_ns + 1, found.st_mtime_ns + 1))


def test_what_this_user_has_fetched_is_not_fetched_again(tmp_path: Path, read: Callable[[], int]) -> None:
    assert read() == ALL
    assert read() == 0


def test_objects_that_a_stranger_left_are_compared_and_fetched_anew(
    tmp_path: Path, read: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is as a stranger's nbdata left it, with seals of the stranger's key."""
    assert read() == ALL
    for path in objects(tmp_path):
        spoil(path)
    shutil.rmtree(tmp_path / "state")
    assert read() == ALL
    assert read() == 0, "now they are this user's"


def test_objects_whose_seals_are_gone_are_compared_and_kept(tmp_path: Path, read: Callable[[], int]) -> None:
    """As in a container that has lost its home folder and kept the disk: nothing is fetched again."""
    assert read() == ALL
    shutil.rmtree(tmp_path / "state")
    assert read() == 0
    assert read() == 0


def test_an_object_that_was_replaced_is_found_out(tmp_path: Path, read: Callable[[], int]) -> None:
    assert read() == ALL
    wrong = objects(tmp_path)[3]
    spoil(wrong)
    assert read() == wrong.stat().st_size


def test_an_object_that_was_put_in_the_place_of_another_is_found_out(
    tmp_path: Path, read: Callable[[], int]
) -> None:
    """Each is as this user's nbdata made it, but under the name of the other."""
    assert read() == ALL
    one, other = objects(tmp_path)[:2]
    data = other.read_bytes()
    before, found = os.stat(one), os.stat(other)
    os.replace(one, other)
    one.write_bytes(data)
    os.utime(one, ns=(found.st_mtime_ns, found.st_mtime_ns))
    os.utime(other, ns=(before.st_mtime_ns, before.st_mtime_ns))
    assert read() > 0


def forge(path: Path) -> None:
    """Let another user put a file of the same size and time in the place of one."""
    found = path.stat()
    path.unlink()
    path.write_bytes(os.urandom(found.st_size))
    os.chown(path, 54_321, 54_321)
    os.utime(path, ns=(found.st_mtime_ns, found.st_mtime_ns))


@pytest.mark.needs("other users")
def test_an_object_of_another_owner_is_found_out(tmp_path: Path, read: Callable[[], int]) -> None:
    assert read() == ALL
    wrong = objects(tmp_path)[3]
    forge(wrong)
    assert read() == wrong.stat().st_size
    assert wrong.stat().st_uid == os.geteuid()
    assert read() == 0


@pytest.mark.needs("other users")
def test_an_object_of_another_owner_is_compared_each_time(tmp_path: Path, read: Callable[[], int]) -> None:
    """Its owner can change it later, and set its time."""
    assert read() == ALL
    theirs = objects(tmp_path)[3]
    os.chown(theirs, 54_321, 54_321)
    assert read() == 0
    forge(theirs)
    assert read() == theirs.stat().st_size


@pytest.mark.needs("other users")
def test_a_new_object_that_another_user_exchanges_is_not_sealed(
    tmp_path: Path, read: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = KeptFolder._seal

    def exchanged(folder: KeptFolder, name: str) -> None:
        forge(Path(folder.file_of(name)))
        real(folder, name)

    monkeypatch.setattr(KeptFolder, "_seal", exchanged)
    with pytest.raises(AccessDenied, match="exchanged by somebody else"):
        read()
    end()
    assert objects(tmp_path) == []


def test_lines_that_somebody_adds_have_no_seal(tmp_path: Path, read: Callable[[], int]) -> None:
    assert read() == ALL
    wrong = objects(tmp_path)[0]
    spoil(wrong)
    found = wrong.stat()
    with (kept(tmp_path) / "sealed").open("a") as lines:
        lines.write(f"{wrong.name} {found.st_size} {found.st_mtime_ns} {'0' * 32}\n")
    assert read() == found.st_size
