"""Decodes the fields of tar headers: numbers, times and text."""

from __future__ import annotations

import re

__all__ = [
    "MANY_RECORDS",
    "MAX_SECONDS",
    "SECOND",
    "decimal",
    "decoded",
    "joined",
    "number",
    "text_of",
    "time_ns",
]

SECOND = 10**9
MAX_SECONDS = 1 << 40
#: Pax records of one member that are allowed in any number of members; each takes time.
MANY_RECORDS = 64
_TIME_BEGINS = re.compile(r"(-?)(\d{1,20})(?:\.(\d+))?")
_OCTAL = re.compile(rb"[ \0]*([0-7]*)[ \0]*")


def decimal(text: str) -> int:
    """Parse a non-negative decimal number."""
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError(f"{text[:20]!r} where a number should be")
    return int(text)


def number(field: bytes) -> int:
    """Parse a number in octal digits, or in base 256, as GNU tar writes large and negative numbers."""
    if field[0] & 0x80:
        sign = 1 << 8 * len(field) - 2
        return (int.from_bytes(field, "big") & (2 * sign - 1)) - (2 * sign if field[0] & 0x40 else 0)
    found = _OCTAL.match(field)
    if found is None or not (found.end() == len(field) or b"\0" in found[0].lstrip(b"\0 ")):
        raise ValueError("not an octal number")
    return int(found[1] or b"0", 8)


def time_ns(text: str) -> int | None:
    """Parse a time into nanoseconds; None if it does not begin with a number. Text after the number is ignored."""
    found = _TIME_BEGINS.match(text)
    if found is None or int(found[2]) > MAX_SECONDS:
        return None if found is None else 0
    whole = int(found[2]) * SECOND + int((found[3] or "")[:9].ljust(9, "0"))
    return -whole if found[1] else whole


def joined(name: bytes, prefix: bytes) -> str:
    return f"{text_of(prefix)}/{text_of(name)}" if prefix[0] else text_of(name)


def text_of(field: bytes) -> str:
    return decoded(field.partition(b"\0")[0])


def decoded(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")
