"""Lines with a checksum that shows whether they are whole: ``CRC32 of the rest in hex, space, JSON``.

Append-only files in the state folder consist of them. A kill or a full disk may tear the last line. A torn line counts
for nothing, and later lines are not affected.
"""

from __future__ import annotations

import json
import os
import zlib
from typing import Any

__all__ = ["append", "format_line", "parse_line", "seal", "value_of"]

# Offset of the JSON: after the CRC and the space.
_BODY = 9

_encode = json.JSONEncoder(separators=(",", ":")).encode
_decode = json.JSONDecoder().raw_decode


def format_line(value: object) -> bytes:
    """Return the line of a value, for example of an array."""
    return seal(_encode(value))


def seal(text: str) -> bytes:
    """Return the line of a text that is already JSON."""
    body = text.encode()
    return b"%08x %b\n" % (zlib.crc32(body), body)


def is_sound(line: bytes) -> bool:
    """True if a line is whole and unchanged."""
    return line[-1:] == b"\n" and line[:_BODY] == b"%08x " % zlib.crc32(line[_BODY:-1])


def parse_line(line: bytes) -> list[Any] | None:
    """Return the array that a line holds; None if it holds none."""
    if not is_sound(line):
        return None
    values, _ = _decode(line.decode(), _BODY)
    return values if isinstance(values, list) else None


def value_of(line: bytes) -> Any:
    """Return the value that a line holds, of any type; None if the line is not whole."""
    return _decode(line.decode(), _BODY)[0] if is_sound(line) else None


def append(fd: int, line: bytes) -> int:
    """Write a line after the last one, even if that is torn, and return the former size. The caller holds the lock."""
    size = os.fstat(fd).st_size
    torn = size and os.pread(fd, 1, size - 1) != b"\n"
    data = b"\n" + line if torn else line
    while data:  # a disk that is nearly full takes the beginning, and says so only at the rest
        data = data[os.write(fd, data) :]
    return size
