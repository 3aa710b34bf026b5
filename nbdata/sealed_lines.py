"""Lines that say themselves whether they are whole: ``CRC32 of the rest in hex, space, JSON``.

They are what append-only files in the state folder are made of. What was written last may be torn by a kill or a full
disk; such a line is no line, and spoils none that comes after it.
"""

from __future__ import annotations

import json
import os
import zlib
from typing import Any

__all__ = ["append", "format_line", "parse_line", "seal", "value_of"]

# Where the JSON begins: behind CRC and space.
_BODY = 9

_encode = json.JSONEncoder(separators=(",", ":")).encode
_decode = json.JSONDecoder().raw_decode


def format_line(value: object) -> bytes:
    """A line of this value, an array say."""
    return seal(_encode(value))


def seal(text: str) -> bytes:
    """A line of what is JSON already."""
    body = text.encode()
    return b"%08x %b\n" % (zlib.crc32(body), body)


def is_sound(line: bytes) -> bool:
    """Whether a line is whole, and as it was written."""
    return line[-1:] == b"\n" and line[:_BODY] == b"%08x " % zlib.crc32(line[_BODY:-1])


def parse_line(line: bytes) -> list[Any] | None:
    """The values of a line that holds an array; None if it does not."""
    if not is_sound(line):
        return None
    values, _ = _decode(line.decode(), _BODY)
    return values if isinstance(values, list) else None


def value_of(line: bytes) -> Any:
    """What a line holds, whatever that is; None if it is not whole."""
    return _decode(line.decode(), _BODY)[0] if is_sound(line) else None


def append(fd: int, line: bytes) -> int:
    """Write a line behind the last one, even if that is torn; who calls keeps others out. The bytes that there were."""
    size = os.fstat(fd).st_size
    torn = size and os.pread(fd, 1, size - 1) != b"\n"
    os.write(fd, b"\n" * bool(torn) + line)
    return size
