"""The server of a mount answers each request of a kernel, those that it does not know too, and forgets when told.

The kernel is one of the tests (`tests.files.mounted.kernel`), so nothing is mounted.
"""

from __future__ import annotations

import errno
import os
import random
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from nbdata.files.mounted import wire
from tests.files.mounted.kernel import Kernel, kernel

# Requests that a mount does not serve (``enum fuse_opcode``), and numbers that no kernel has yet.
UNSERVED = {
    "READLINK": 5, "MKNOD": 8, "WRITE": 16, "FSYNC": 20, "SETXATTR": 21, "GETXATTR": 22, "LISTXATTR": 23,
    "FLUSH": 25, "GETLK": 31, "SETLK": 32, "SETLKW": 33, "ACCESS": 34, "CREATE": 35, "BMAP": 37, "IOCTL": 39,
    "POLL": 40, "FALLOCATE": 43, "LSEEK": 46, "COPY_FILE_RANGE": 47, "STATX": 52, "none": 0, "new": 4096,
}  # fmt: skip
ODD_NAMES = (
    b"new\nline",
    b" blanks ",
    "ünïcode…".encode(),
    b"n" * 255,
    b"-rf",
    b"[x]*?",
    b"back\\slash",
    b"a:b%2F",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a few files."""
    (tmp_path / "served/sub").mkdir(parents=True)
    (tmp_path / "served/a").write_bytes(b"hello")
    (tmp_path / "served/sub/b").write_bytes(bytes(range(256)) * 4096)
    return tmp_path / "served"


@pytest.fixture
def served(folder: Path) -> Iterator[Kernel]:
    """The kernel's end of a server of that folder, which have agreed on the protocol."""
    with kernel(folder) as line:
        assert line.begin()[:2] == (7, 31)
        yield line


def test_a_kernel_of_another_protocol_is_refused(folder: Path) -> None:
    with kernel(folder) as line:
        for major, minor in ((6, 31), (8, 0), (7, 22)):
            with pytest.raises(OSError, match="Protocol error"):
                line.begin(major, minor)
        assert line.begin(7, 99)[:2] == (7, 31)  # a later one gets the version that is spoken here


def test_what_is_not_served_is_refused_and_does_not_hang(served: Kernel) -> None:
    node = served.look_up(wire.ROOT, b"a").node
    for name, asked in UNSERVED.items():
        assert served.error(asked, node) == errno.ENOSYS, name
    served.send(wire.INTERRUPT, node, bytes(8))  # has no reply
    handle = served.opened(node)
    assert served.read(node, handle, 0, 100) == b"hello"
    assert served.read(node, handle, 4, 100) == b"o"
    assert served.read(node, handle, 5, 100) == served.read(node, handle, 1 << 40, 100) == b""
    served.close(node, handle)


def test_what_is_not_there_is_an_error(served: Kernel) -> None:
    node = served.look_up(wire.ROOT, b"a").node
    assert served.look_up(wire.ROOT, b"none").node == 0
    assert served.look_up(node, b"below").node == 0
    for asked in (wire.GETATTR, wire.OPEN, wire.OPENDIR, wire.LOOKUP):
        assert served.error(asked, 12_345, b"x\0" + bytes(62)) == errno.ESTALE
    for asked in (wire.READ, wire.READDIR, wire.READDIRPLUS):  # a handle that nobody was given
        assert served.error(asked, node) == errno.EIO
    assert served.error(wire.OPEN, served.look_up(wire.ROOT, b"sub").node) == errno.EISDIR
    served.close(node, 99)
    assert len(served.ask(wire.STATFS)) == 80


def test_a_number_stays_until_all_that_was_told_is_forgotten(served: Kernel) -> None:
    nodes = {served.look_up(wire.ROOT, b"a").node for _ in range(3)}
    assert len(nodes) == 1
    (node,) = nodes
    handle = served.opened(wire.ROOT, folder=True)
    names = served.listed(wire.ROOT, handle, 0, 1 << 16, plus=True)  # tells it once more
    served.listed(wire.ROOT, handle, 0, 1 << 16, plus=False)  # and this does not
    assert [one.entry and one.entry.node for one in names if one.name == b"a"] == [node]
    served.forget((node, 2), (wire.ROOT, 99))
    served.forget_one(node, 1)
    served.ask(wire.GETATTR, node, bytes(16))
    handle = served.opened(node)
    served.forget_one(node, 1)
    assert served.error(wire.GETATTR, node) == errno.ESTALE
    assert served.read(node, handle, 0, 100) == b"hello"  # it is still open
    again = served.look_up(wire.ROOT, b"a")
    assert (again.node, again.size, stat.S_ISREG(again.mode)) == (node, 5, True)
    served.ask(wire.GETATTR, wire.ROOT, bytes(16))


def test_a_large_folder_comes_in_pieces_each_name_once(tmp_path: Path) -> None:
    expected = {b".", b".."}
    for number in range(5000):
        name = f"{number:05}-{'x' * (number % 200)}"
        (tmp_path / name).touch()
        expected.add(name.encode())
    with kernel(tmp_path) as line:
        line.begin()
        for plus, room in ((True, 65_536), (False, 4096)):
            found = line.all_names(wire.ROOT, room, plus=plus)
            assert len(found) == 5003
            assert {one.name for one in found} == expected | {b".nbdata-mount"}
            assert len({one.inode for one in found}) == 5002  # . and .. have one
        handle, chance = line.opened(wire.ROOT, folder=True), random.Random(7)
        for at in chance.sample(range(5002), 50):  # as after seekdir
            some = line.listed(wire.ROOT, handle, found[at].offset, 4096, plus=chance.random() < 0.5)
            assert [one.name for one in some] == [one.name for one in found[at + 1 : at + 1 + len(some)]]
        assert line.listed(wire.ROOT, handle, found[-1].offset, 4096, plus=True) == []


def test_odd_names_are_found_by_the_bytes_that_were_listed(tmp_path: Path) -> None:
    for number, name in enumerate(ODD_NAMES):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(bytes(number))
    with kernel(tmp_path) as line:
        line.begin()
        listed = {one.name: one for one in line.all_names(wire.ROOT, 4096, plus=True)}
        assert set(ODD_NAMES) == listed.keys() - {b".", b"..", b".nbdata-mount"}
        for number, name in enumerate(ODD_NAMES):
            found = line.look_up(wire.ROOT, name)
            assert (found.node, found.size) == (listed[name].inode, number)


def test_requests_that_come_all_at_once_are_each_answered_once(served: Kernel) -> None:
    above = served.look_up(wire.ROOT, b"sub").node
    node = served.look_up(above, b"b").node
    handle, chance = served.opened(node), random.Random(3)
    wanted = dict[int, tuple[int, int]]()
    for _ in range(400):
        start, size = chance.randrange(1 << 20), chance.randrange(1, 5000)
        wanted[served.send(wire.READ, node, struct.pack("=QQIIQII", handle, start, size, 0, 0, 0, 0))] = (
            start,
            size,
        )
    data = bytes(range(256)) * 4096
    for _ in range(400):
        number, error, found = served.receive()
        start, size = wanted.pop(number)
        assert (error, found) == (0, data[start : start + size])
