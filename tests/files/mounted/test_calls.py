"""Calls of programs beyond opening and reading: attributes, locks, large folders, and a kernel that forgets."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from tests.conftest import client_of
from tests.files.mounted.conftest import Scene
from tests.files.mounted.test_wire import ODD_NAMES

pytestmark = pytest.mark.needs("mount")

_DROP = "/proc/sys/vm/drop_caches"
NAMES = 5000
# SeaweedFS takes a backslash for a slash.
ODD = [name for name in ODD_NAMES if b"\\" not in name]


def _error(act: Callable[[], object]) -> int:
    try:
        act()
    except OSError as error:
        return error.errno or -1
    return 0


def test_what_a_mount_lacks_is_refused_at_once(scene: Scene, tmp_path: Path) -> None:
    path = scene.folder / "big.bin"
    assert _error(lambda: os.listxattr(path)) == errno.EOPNOTSUPP
    assert _error(lambda: os.getxattr(path, "user.x")) == errno.EOPNOTSUPP
    assert _error(lambda: os.setxattr(path, "user.x", b"")) == errno.EROFS
    assert _error(lambda: os.truncate(path, 1)) == _error(lambda: os.utime(path)) == errno.EROFS
    assert not os.access(path, os.W_OK)
    assert not os.access(path, os.X_OK)
    disk = os.statvfs(path)
    assert (disk.f_bavail, disk.f_namemax) == (0, 255)
    with open(path, "rb", buffering=0) as file, open(tmp_path / "copy", "wb") as copy:
        assert _error(lambda: fcntl.ioctl(file, termios.TIOCGWINSZ, bytes(8))) == errno.ENOTTY
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        assert os.lseek(file.fileno(), 10, os.SEEK_DATA) == 10
        assert os.lseek(file.fileno(), 10, os.SEEK_HOLE) == 9_000_001
        assert os.sendfile(copy.fileno(), file.fileno(), 4000, 500) == 500
        far = _error(lambda: os.copy_file_range(file.fileno(), copy.fileno(), 500, offset_src=4500))
        assert far == errno.EXDEV  # then programs copy by themselves
    assert (tmp_path / "copy").read_bytes() == (scene.disk / "big.bin").read_bytes()[4000:4500]


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


@pytest.mark.long
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


@pytest.mark.long
def test_odd_names_are_files_like_others(large: Path) -> None:
    assert set(os.listdir(os.fsencode(large / "odd"))) == set(ODD)
    for odd in ODD:
        with open(os.fsencode(large / "odd") + b"/" + odd, "rb") as file:
            assert file.read() == odd


@pytest.mark.long
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
