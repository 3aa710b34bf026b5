"""Lines of a file, found by the key that each begins with: what is held of a line in memory is only where it is.

A line is one of `nbdata.sealed_lines`, and holds an array whose first value is its key. A key costs about 100 bytes
of memory, however long it and its line are. Who asks in the order of the lines, as who compares two listings does, has
the file read in large blocks.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator

__all__ = ["KeyedLines", "key_of"]

# Bytes that are read at a time, and how much of that lies before the line that is wanted.
_BLOCK, _BEFORE = 64 << 10, 8 << 10
# The same for who reads all.
_SCANNED = 1 << 20
# No line is longer; what has no line end for so long was not written here.
_LONGEST = 64 << 20
# Where the array of a line begins, and its key: CRC and space, bracket.
_ARRAY, _KEY = 9, 10

_key_text = json.JSONEncoder().encode


def key_of(name: str) -> bytes:
    """A key as it stands in a line."""
    return _key_text(name).encode()


def _key_in(line: bytes) -> bytes:
    end = line.find(b'"', _KEY + 1)
    if line.find(b"\\", _KEY, end) >= 0:  # a quote may be part of the key
        return key_of(json.loads(line[_ARRAY:])[0])
    return line[_KEY : end + 1]


class KeyedLines:
    """Places of lines in a file; `find` may be used from many threads, and all else from one at a time."""

    def __init__(self) -> None:
        self._at: dict[int, int] = {}  # hash of the key to the offset of its line
        self._others: dict[bytes, int] = {}  # keys whose hash another one has
        self._fd = -1
        self._block = (0, b"")

    def __del__(self) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._at) + len(self._others)

    def close(self) -> None:
        """Read no more."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def clear(self) -> None:
        """Forget all lines."""
        self._at.clear()
        self._others.clear()
        self._block = (0, b"")

    def read_from(self, path: str) -> None:
        """Which file it is; a file that takes its place later is another."""
        self.close()
        self._block = (0, b"")
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def scan(self, start: int = 0) -> Iterator[tuple[int, bytes]]:
        """All sound lines from an offset on, each with its offset, up to the first that is not."""
        rest, at = b"", start
        while len(rest) < _LONGEST and (data := self._read(_SCANNED, at + len(rest))):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line[:_ARRAY] != b"%08x " % zlib.crc32(line[_ARRAY:]):
                    return
                yield at, line + b"\n"
                at += len(line) + 1

    def take(self, offset: int, line: bytes) -> None:
        """Remember where a line is; one that holds nothing but its key forgets that key."""
        key = _key_in(line)
        if line.startswith(b"]", _KEY + len(key)):
            self.drop(key)
        else:
            self.add(key, offset)

    def add(self, key: bytes, offset: int) -> None:
        """The line of a key is there now."""
        number = hash(key)
        if key in self._others or (number in self._at and not self._has(self._at[number], key)):
            self._others[key] = offset
        else:
            self._at[number] = offset

    def drop(self, key: bytes) -> None:
        """There is no line of this key any more."""
        number = hash(key)
        if number in self._at and self._has(self._at[number], key):
            del self._at[number]
        else:
            self._others.pop(key, None)

    def find(self, key: bytes) -> bytes | None:
        """The line of a key; whether it still is sound is for who parses it to see."""
        offset = self._at.get(hash(key))
        if offset is not None:
            line = self._line(offset)
            if line.startswith(key, _KEY):
                return line
        offset = self._others.get(key) if self._others else None
        line = b"" if offset is None else self._line(offset)
        return line if line.startswith(key, _KEY) else None

    def live(self, end: int) -> Iterator[bytes]:
        """The lines that hold, in the order of the file, up to an offset."""
        for offset, line in self.scan():
            if offset >= end:
                return
            key = _key_in(line)
            if offset in (self._at.get(hash(key)), self._others.get(key)):
                yield line

    def _read(self, size: int, offset: int) -> bytes:
        return os.pread(self._fd, size, offset) if self._fd >= 0 else b""

    def _has(self, offset: int, key: bytes) -> bool:
        return self._line(offset).startswith(key, _KEY)

    def _line(self, offset: int) -> bytes:
        """The line at an offset; it ends without a line end where the file does."""
        start, block = self._block
        at = offset - start
        if 0 <= at < len(block):
            end = block.find(b"\n", at) + 1
            if end:
                return block[at:end]
        size = _BLOCK
        while True:
            start = max(0, offset - _BEFORE)
            block = self._read(size, start)
            end = block.find(b"\n", offset - start) + 1
            if end or len(block) < size:
                break
            size *= 4
        self._block = (start, block)
        return block[offset - start : end or len(block)]
