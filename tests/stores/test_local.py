"""Properties that only the local disk as a store must have."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path

import pytest

from nbdata.disk import QUOTA, disk_error, full_disk_told
from nbdata.errors import NotEnoughSpace, NotFound, SourceChanged
from nbdata.stores.local import LocalStore
from tests.agent.rig import fill, tmpfs


def test_a_named_pipe_is_no_object_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    key = str(tmp_path).lstrip("/")
    with pytest.raises(NotFound):
        LocalStore().read(f"{key}/pipe")
    with pytest.raises(NotFound):
        LocalStore().head(f"{key}/pipe")
    assert list(LocalStore().list(key + "/")) == []


def test_a_name_may_be_as_long_as_the_disk_allows(tmp_path: Path) -> None:
    key = f"{tmp_path}/{'x' * 255}".lstrip("/")
    LocalStore().write(key, io.BytesIO(b"1"), 1)
    assert LocalStore().read_bytes(key) == b"1"


def test_what_lies_in_our_own_folder_is_not_listed(tmp_path: Path) -> None:
    for name in (".nbdata", "deep/.NBData"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "x").write_bytes(b"x")
    (tmp_path / "deep/.0123.nbdata-partial").write_bytes(b"x")
    assert list(LocalStore().list(str(tmp_path).lstrip("/") + "/")) == []


def test_a_file_that_changes_while_it_is_read_is_not_taken_for_one_version(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"a" * 1000)
    os.utime(file, ns=(0, 0))
    store = LocalStore()
    body = store.read(str(file).lstrip("/"), match=store.head(str(file).lstrip("/")))
    half = memoryview(bytearray(500))
    assert body.readinto(half) == 500
    file.write_bytes(b"b" * 1000)
    with pytest.raises(SourceChanged, match="while it was read"):
        body.readinto(half)
    body.close()


@pytest.mark.needs("mounts")
def test_a_full_disk_is_told_wherever_it_is_met(tmp_path: Path) -> None:
    def too_much(disk: Path) -> None:
        with open(disk / "somebody-elses", "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, 2 << 20)

    with tmpfs(tmp_path / "disk", size="1m") as disk:
        fill(disk)
        with pytest.raises(NotEnoughSpace, match="became full") as caught, full_disk_told(str(disk)):
            too_much(disk)
        assert caught.value.path == str(disk)
        with pytest.raises(OSError, match="No space left") as raw, full_disk_told(None):
            too_much(disk)
        assert not isinstance(raw.value, NotEnoughSpace)


def test_a_quota_of_the_file_system_is_named_and_nothing_is_said_to_be_free() -> None:
    told = disk_error(OSError(errno.EDQUOT, "Disk quota exceeded"), "/x/y")
    assert isinstance(told, NotEnoughSpace)
    assert str(told).startswith("the disk quota is used up: /x/y")
    assert (told.details["free"], told.details["source"]) == (0, QUOTA)
