"""Plays the kernel for a mount's server, over a pair of sockets: sends requests, and reads the replies.

So tests can ask for what no program can make the kernel ask for, and see each reply as it is. The server is a process
of its own, because its threads end with it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nbdata.files.mounted import wire
from tests.waiting import PATIENCE

__all__ = ["Entry", "Kernel", "Name", "kernel"]

_PROGRAM = """
import sys
from nbdata.files.mounted.calls import Calls
from nbdata.files.mounted.folders import Folders
from nbdata.files.mounted.open_files import OpenFiles
from nbdata.files.mounted.serving import Server
from nbdata.files.opening import filesystem

def say(line):
    print(line, file=sys.stderr, flush=True)

place = filesystem(sys.argv[1]).place(sys.argv[1])
folders = Folders(place, 60)
calls = Calls(sys.argv[1], folders, OpenFiles(place, folders, "auto"), 60, say)
Server(0, calls.answer, lambda: say("began"), say).run()
"""
_ENTRY = struct.Struct("=QQQQIIQQQQQQIIIIIIIIII")
_NAME = struct.Struct("=QQII")
_LARGEST = 2 << 20


class Entry(NamedTuple):
    """What a lookup found: its number (0 for nothing), mode, and size."""

    node: int
    mode: int
    size: int

    @classmethod
    def of(cls, data: bytes) -> Entry:
        """Read a reply."""
        values = _ENTRY.unpack(data)
        return cls(values[0], values[15], values[7])


class Name(NamedTuple):
    """A name of a listing: inode number, offset of the next one, and what came with it, if anything did."""

    name: bytes
    inode: int
    offset: int
    entry: Entry | None


class Kernel:
    """The kernel's end.

    Parameters
    ----------
    sock : socket
        Keeps the boundaries of messages.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._last = 0

    def send(self, asked: int, node: int = wire.ROOT, body: bytes = b"") -> int:
        """Send a request, and return its number."""
        self._last += 1
        head = wire.REQUEST.pack(wire.REQUEST.size + len(body), asked, self._last, node, 0, 0, 0, 0, 0)
        self._sock.sendall(head + body)
        return self._last

    def receive(self) -> tuple[int, int, bytes]:
        """Return the next reply: the number of its request, its error, and the rest."""
        data = self._sock.recv(_LARGEST)
        size, error, number = struct.unpack_from("=IiQ", data)
        assert size == len(data)
        return number, -error, data[16:]

    def ask(self, asked: int, node: int = wire.ROOT, body: bytes = b"") -> bytes:
        """Send a request, and return what comes; an error is raised."""
        number = self.send(asked, node, body)
        answered, error, data = self.receive()
        assert answered == number
        if error:
            raise OSError(error, os.strerror(error))
        return data

    def error(self, asked: int, node: int = wire.ROOT, body: bytes = bytes(64)) -> int:
        """Send a request, and return the number of the error that comes, 0 for none."""
        number = self.send(asked, node, body)
        answered, error, _ = self.receive()
        assert answered == number
        return error

    def begin(self, major: int = 7, minor: int = 31) -> tuple[int, ...]:
        """Agree on the protocol, as a kernel with all abilities; return the numbers of the reply."""
        reply = self.ask(wire.INIT, 0, struct.pack("=IIII", major, minor, 1 << 20, 0xFFFF_FFFF))
        return struct.unpack_from("=IIIIHHIIHH", reply)

    def look_up(self, above: int, name: bytes) -> Entry:
        """Ask for a name in a folder."""
        return Entry.of(self.ask(wire.LOOKUP, above, name + b"\0"))

    def opened(self, node: int, *, folder: bool = False) -> int:
        """Open a file or folder, and return its handle."""
        data = self.ask(wire.OPENDIR if folder else wire.OPEN, node, struct.pack("=II", 0, 0))
        return int(struct.unpack_from("=Q", data)[0])

    def read(self, node: int, handle: int, offset: int, size: int) -> bytes:
        """Read from an open file."""
        return self.ask(wire.READ, node, _reading(handle, offset, size))

    def listed(self, node: int, handle: int, offset: int, size: int, *, plus: bool) -> list[Name]:
        """Read some names of an open folder."""
        asked = wire.READDIRPLUS if plus else wire.READDIR
        data = self.ask(asked, node, _reading(handle, offset, size))
        assert len(data) <= size
        found = list[Name]()
        while data:
            entry = None
            if plus:
                entry, data = Entry.of(data[: _ENTRY.size]), data[_ENTRY.size :]
            inode, after, length, _ = _NAME.unpack_from(data)
            found.append(Name(data[_NAME.size : _NAME.size + length], inode, after, entry))
            data = data[_NAME.size + -(-length // 8) * 8 :]
        return found

    def all_names(self, node: int, room: int, *, plus: bool) -> list[Name]:
        """Read a folder from its first name to its last, with replies of so many bytes at most."""
        handle, found = self.opened(node, folder=True), list[Name]()
        while some := self.listed(node, handle, found[-1].offset if found else 0, room, plus=plus):
            found += some
        self.close(node, handle, folder=True)
        return found

    def close(self, node: int, handle: int, *, folder: bool = False) -> None:
        """Close an open file or folder."""
        asked = wire.RELEASEDIR if folder else wire.RELEASE
        self.ask(asked, node, struct.pack("=QIIQ", handle, 0, 0, 0))

    def forget(self, *gone: tuple[int, int]) -> None:
        """Forget numbers that were told so many times; there is no reply."""
        pairs = b"".join(struct.pack("=QQ", *one) for one in gone)
        self.send(wire.BATCH_FORGET, 0, struct.pack("=II", len(gone), 0) + pairs)

    def forget_one(self, node: int, times: int) -> None:
        """Forget one number by a request of its own; there is no reply."""
        self.send(wire.FORGET, node, struct.pack("=Q", times))


def _reading(handle: int, offset: int, size: int) -> bytes:
    return struct.pack("=QQIIQII", handle, offset, size, 0, 0, 0, 0)


@contextlib.contextmanager
def kernel(place: Path) -> Iterator[Kernel]:
    """Serve a folder of the disk, and yield the kernel's end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:  # its end alone does not end the server, as that of a real kernel would
        ours.settimeout(PATIENCE)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2 * _LARGEST)
        with theirs:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _LARGEST)
            served = subprocess.Popen([sys.executable, "-c", _PROGRAM, place], stdin=theirs)
        with served:
            try:
                yield Kernel(ours)
            finally:
                served.kill()
