"""Find lines of a file by the key that each begins with. Memory holds only the offset of each line.

A line is one of `nbdata.sealed_lines`. It holds an array whose first value is its key. A key costs about 100 bytes of
memory, however long it and its line are. Lookups in the order of the lines, as when comparing two listings, read the
file in large blocks.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator

from nbdata.own_files import through_no_link

__all__ = ["KeyedLines", "key_of"]

# Bytes per read, and how many of them lie before the wanted line.
_BLOCK, _BEFORE = 64 << 10, 8 << 10
# Bytes per read of a scan of the whole file.
_SCANNED = 1 << 20
# The longest line. nbdata did not write text that has no line end for so long.
_LONGEST = 64 << 20
# Offsets in a line: of the array (after CRC and space), and of its key (after the bracket).
_ARRAY, _KEY = 9, 10

_key_text = json.JSONEncoder().encode


def key_of(name: str) -> bytes:
    """A key as written in a line."""
    return _key_text(name).encode()


def _key_in(line: bytes) -> bytes:
    end = line.find(b'"', _KEY + 1)
    if line.find(b"\\", _KEY, end) >= 0:  # a quote may be part of the key
        return key_of(json.loads(line[_ARRAY:])[0])
    return line[_KEY : end + 1]


class KeyedLines:
    """Offsets of lines in a file. Many threads may call `find`; only one at a time may call anything else."""

    def __init__(self) -> None:
        self._at: dict[int, int] = {}  # hash of the key to the offset of its line
        self._others: dict[bytes, int] = {}  # keys whose hash another key has
        self._fd = -1
        self._block = (0, b"")

    def __del__(self, _close: Callable[[int], None] = os.close) -> None:
        if self._fd >= 0:
            _close(self._fd)

    def __len__(self) -> int:
        return len(self._at) + len(self._others)

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def clear(self) -> None:
        """Forget all lines."""
        self._at.clear()
        self._others.clear()
        self._block = (0, b"")

    def read_from(self, path: str) -> None:
        """Open the file to read. It stays the same file even if another one replaces it."""
        self.close()
        self._block = (0, b"")
        self._fd = through_no_link(path, os.O_RDONLY)

    def scan(self, start: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield each valid line from an offset on, with its offset, up to the first invalid line."""
        rest, at = b"", start
        while len(rest) < _LONGEST and (data := self._read(_SCANNED, at + len(rest))):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line[:_ARRAY] != b"%08x " % zlib.crc32(line[_ARRAY:]):
                    return
                yield at, line + b"\n"
                at += len(line) + 1

    def take(self, offset: int, line: bytes) -> None:
        """Remember the offset of a line. A line with only a key removes that key."""
        key = _key_in(line)
        if line.startswith(b"]", _KEY + len(key)):
            self.drop(key)
        else:
            self.add(key, offset)

    def add(self, key: bytes, offset: int) -> None:
        """Set the offset of a key's line."""
        number = hash(key)
        if key in self._others or (number in self._at and not self._has(self._at[number], key)):
            self._others[key] = offset
        else:
            self._at[number] = offset

    def drop(self, key: bytes) -> None:
        """Remove a key."""
        number = hash(key)
        if number in self._at and self._has(self._at[number], key):
            del self._at[number]
        else:
            self._others.pop(key, None)

    def find(self, key: bytes) -> bytes | None:
        """Return the line of a key, or None. The caller's parser checks whether the line is still valid."""
        offset = self._at.get(hash(key))
        if offset is not None:
            line = self._line(offset)
            if line.startswith(key, _KEY):
                return line
        offset = self._others.get(key) if self._others else None
        line = b"" if offset is None else self._line(offset)
        return line if line.startswith(key, _KEY) else None

    def live(self, end: int) -> Iterator[bytes]:
        """Yield the current lines, in the file's order, up to an offset."""
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
        """Return the line at an offset. At the end of the file it may lack its line end."""
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
