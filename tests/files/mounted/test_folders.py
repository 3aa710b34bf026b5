"""Folders of many names and of odd ones, and a kernel that forgets what it was told."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from tests.conftest import client_of
from tests.files.mounted.test_wire import ODD_NAMES

pytestmark = [pytest.mark.needs("mount"), pytest.mark.long]

_DROP = "/proc/sys/vm/drop_caches"
NAMES = 5000
# SeaweedFS takes a backslash for a slash.
ODD = [name for name in ODD_NAMES if b"\\" not in name]


@pytest.fixture(scope="module")
def large(environment: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A mounted folder of many names, and one of odd names."""
    client, name = client_of(environment), f"large-{os.urandom(4).hex()}"
    client.create_bucket(Bucket=name)
    for number in range(NAMES):
        client.put_object(
            Bucket=name, Key=f"data/many/{number:05}{'x' * (number % 150)}", Body=b"%d" % number
        )
    for odd in ODD:
        client.put_object(Bucket=name, Key=f"data/odd/{odd.decode()}", Body=odd)
    with nbdata.mount(f"s3://{name}/data", str(tmp_path_factory.mktemp("large") / "m")) as mount:
        yield Path(mount.folder)
    client.delete_bucket(Bucket=name)
    client.close()


def test_a_large_folder_has_each_name_once_however_it_is_read(large: Path) -> None:
    for _ in range(2):  # the second time the kernel knows the names
        with os.scandir(large / "many") as entries:
            found = [(entry.name, entry.is_file(), entry.inode()) for entry in entries]
        assert (
            len(found)
            == len({name for name, _, _ in found})
            == len({number for _, _, number in found})
            == NAMES
        )
        assert all(is_file for _, is_file, _ in found)
    with os.scandir(large / "many") as first:  # two readers of one folder, one of which ends early
        some = [next(first).name for _ in range(100)]
        assert some == [name for name, _, _ in found[:100]]
        assert sorted(os.listdir(large / "many")) == sorted(name for name, _, _ in found)
        assert [entry.name for entry in first] == [name for name, _, _ in found[100:]]
    for name, _, number in random.Random(1).sample(found, 200):
        assert (large / "many" / name).read_bytes() == b"%d" % int(name[:5])
        assert os.stat(large / "many" / name).st_ino == number


def test_odd_names_are_files_like_others(large: Path) -> None:
    assert set(os.listdir(os.fsencode(large / "odd"))) == set(ODD)
    for odd in ODD:
        with open(os.fsencode(large / "odd") + b"/" + odd, "rb") as file:
            assert file.read() == odd


@pytest.mark.needs("mounts")  # which root has, who may have the kernel drop what it holds
def test_files_are_right_when_the_kernel_has_forgotten_them(large: Path) -> None:
    names = sorted(os.listdir(large / "many"))
    before = {name: os.stat(large / "many" / name).st_ino for name in names}
    with open(large / "many" / names[7], "rb", buffering=0) as held:
        for _ in range(3):
            Path(_DROP).write_text("2")
            for name in random.Random(2).sample(names, 300):
                assert (large / "many" / name).read_bytes() == b"%d" % int(name[:5])
                assert os.stat(large / "many" / name).st_ino == before[name]
            assert os.pread(held.fileno(), 10, 0) == b"7"
