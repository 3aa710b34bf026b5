"""The messages between the kernel and a program that serves a file system, as ``linux/fuse.h`` defines them.

Only what a file system that is read needs; all numbers are in the byte order of the machine. Version 7.31 of the
protocol (Linux 5.4) and later have all that is here, and kernels before that leave out what they do not know.
"""

from __future__ import annotations

import stat
import struct
import sys
from dataclasses import dataclass
from typing import NamedTuple

__all__ = [
    "BATCH_FORGET",
    "DESTROY",
    "DIRECT_IO",
    "FORGET",
    "GETATTR",
    "INIT",
    "INTERRUPT",
    "KEEP_CACHE",
    "LOOKUP",
    "OPEN",
    "OPENDIR",
    "READ",
    "READDIR",
    "READDIRPLUS",
    "RELEASE",
    "RELEASEDIR",
    "REQUEST",
    "ROOT",
    "STATFS",
    "Attributes",
    "Request",
    "attributes",
    "entry",
    "forgotten",
    "init",
    "listed",
    "no_entry",
    "opened",
    "reply",
    "space",
]

# What is asked for (``enum fuse_opcode``).
LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE = 1, 2, 3, 14, 15, 17, 18
INIT, OPENDIR, READDIR, RELEASEDIR, INTERRUPT, DESTROY = 26, 27, 28, 29, 36, 38
BATCH_FORGET, READDIRPLUS = 42, 44
#: The number of the top folder.
ROOT = 1
#: Flags of an open file: reads go around the kernel's cache, or what it holds of the file is still right.
DIRECT_IO, KEEP_CACHE = 1 << 0, 1 << 1

# What this program wants of the kernel (``FUSE_…``), by bit of the flags: reads ahead sent at once, stale pages dropped
# when a size or time changes, attributes in listings where they help, lookups side by side, reads of over 128 KiB.
_ASYNC_READ, _AUTO_INVAL_DATA, _DO_READDIRPLUS, _READDIRPLUS_AUTO = 1 << 0, 1 << 12, 1 << 13, 1 << 14
_PARALLEL_DIROPS, _MAX_PAGES = 1 << 18, 1 << 22
_WANTED = _ASYNC_READ | _AUTO_INVAL_DATA | _DO_READDIRPLUS | _READDIRPLUS_AUTO | _PARALLEL_DIROPS | _MAX_PAGES
_MAJOR, _MINOR = 7, 31
# Requests of the kernel that nobody waits for, such as reads ahead, at a time; and the most pages of a read (1 MiB).
_BACKGROUND, _PAGES = 64, 256
_MOST_WRITTEN = 4096
# The largest size of a file that the kernel takes.
_LARGEST = (1 << 63) - 1

#: ``fuse_in_header``: length, what is asked for, its number, the file, user, group, process, extensions.
REQUEST = struct.Struct("=IIQQIIIHH")
_REPLY = struct.Struct("=IiQ")  # fuse_out_header: length, error, number of the request
_INIT_IN = struct.Struct("=IIII")
_INIT_OUT = struct.Struct("=IIIIHHIIHH32x")
_ATTRIBUTES = "QQQQQQIIIIIIIIII"
_ENTRY = struct.Struct(f"=QQQQII{_ATTRIBUTES}")
_ATTR_OUT = struct.Struct(f"=QII{_ATTRIBUTES}")
_OPEN_OUT = struct.Struct("=QII")
_NAME = struct.Struct("=QQII")  # fuse_dirent: number, offset of the next one, length of the name, type
_SPACE = struct.Struct("=QQQQQIIII24x")
_FORGOTTEN = struct.Struct("=QQ")


class Request(NamedTuple):
    """A request of the kernel.

    Attributes
    ----------
    asked : int
        What is asked for, such as `LOOKUP`.
    number : int
        Of the request, for the reply.
    node : int
        The number of the file or folder.
    body : memoryview
        What comes after the header.
    """

    asked: int
    number: int
    node: int
    body: memoryview


@dataclass(frozen=True)
class Attributes:
    """What the kernel is told of a file or folder.

    Attributes
    ----------
    number : int
        The number by which the kernel asks for it, which is its inode number, too.
    mode : int
        Its type and rights.
    size : int
        Bytes.
    moment : int
        When it was changed, in nanoseconds since 1970.
    owner : tuple of int
        User and group.
    """

    number: int
    mode: int
    size: int
    moment: int
    owner: tuple[int, int]

    def values(self) -> tuple[int, ...]:
        """Return them in the order of ``fuse_attr``."""
        seconds, rest = divmod(max(0, self.moment), 10**9)  # stores may say anything
        size = min(max(0, self.size), _LARGEST)
        links = 2 if stat.S_ISDIR(self.mode) else 1
        blocks = -(-size // 512)
        times = (seconds,) * 3 + (rest,) * 3
        return (self.number, size, blocks, *times, self.mode, links, *self.owner, 0, 1 << 20, 0)


def _time(seconds: float) -> tuple[int, int]:
    return int(seconds), int(seconds % 1 * 1e9)


def reply(number: int, size: int, error: int = 0) -> bytes:
    """Return the header of a reply to a request, with `size` bytes behind it, or an error of `errno`."""
    return _REPLY.pack(_REPLY.size + size, -error, number)


def init(body: memoryview) -> bytes:
    """Return the reply to the kernel's first request, which agrees on version and abilities.

    Raises
    ------
    ValueError
        If the kernel speaks another version.
    """
    major, minor, ahead, offered = _INIT_IN.unpack_from(body)
    if major != _MAJOR or minor < 23:
        raise ValueError(f"the kernel's FUSE protocol is {major}.{minor}, and 7.23 or a later 7 is needed")
    wanted = _WANTED & offered
    return _INIT_OUT.pack(
        _MAJOR, _MINOR, ahead, wanted, _BACKGROUND, _BACKGROUND * 3 // 4, _MOST_WRITTEN, 1, _PAGES, 0
    )


def entry(found: Attributes, believed: float) -> bytes:
    """Return the reply to a lookup (``fuse_entry_out``), which holds for so many seconds."""
    whole, rest = _time(believed)
    return _ENTRY.pack(found.number, 0, whole, whole, rest, rest, *found.values())


def no_entry(believed: float) -> bytes:
    """Return the reply that there is no such name, which holds for so many seconds."""
    whole, rest = _time(believed)
    return _ENTRY.pack(0, 0, whole, 0, rest, 0, *(0,) * 16)


def attributes(found: Attributes, believed: float) -> bytes:
    """Return the reply to a question for attributes."""
    whole, rest = _time(believed)
    return _ATTR_OUT.pack(whole, rest, 0, *found.values())


def opened(handle: int, flags: int = 0) -> bytes:
    """Return the reply to an open."""
    return _OPEN_OUT.pack(handle, flags, 0)


def listed(number: int, name: bytes, mode: int, offset: int) -> bytes:
    """Return one name of a listing; `offset` is that of the next one."""
    fixed = _NAME.pack(number, offset, len(name), stat.S_IFMT(mode) >> 12)
    return fixed + name + bytes(-len(name) % 8)


def space() -> bytes:
    """Return the reply to the question for the room on the disk: there is none."""
    return _SPACE.pack(0, 0, 0, 0, 0, 4096, 255, 4096, 0)


def forgotten(request: Request) -> list[tuple[int, int]]:
    """Return the numbers that the kernel forgets, and how many lookups of each."""
    if request.asked == FORGET:
        return [(request.node, int.from_bytes(request.body[:8], sys.byteorder))]
    count = int.from_bytes(request.body[:4], sys.byteorder)
    return [(node, times) for node, times in _FORGOTTEN.iter_unpack(request.body[8 : 8 + 16 * count])]
