"""Parse numbers, XML and JSON that come from a server or from a foreign file, within bounds.

Whoever wrote such bytes may want to harm their reader. So a number has few digits, and a document has limited bytes and
values: a short document can otherwise take gigabytes of memory once it is parsed. All errors are `Unreadable`.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from typing import Any

__all__ = ["DOCUMENT", "VALUES", "Unreadable", "parse_json", "parse_xml", "size_in", "whole_number"]

#: The most bytes of a document, unless its reader allows others. A page of a listing has some hundred kilobytes.
DOCUMENT = 64 << 20
#: The most values of a document: elements and attributes in XML, members and items in JSON.
VALUES = 1 << 20
# The most digits of a number, so that it fits into 63 bits.
_DIGITS = 18
# A document of up to this many bytes cannot have too many values for the memory, so they are not counted.
_SMALL = 1 << 20
# The most comments and instructions before the root of an XML document.
_BEFORE_ROOT = 16
# The beginning of the root. Nothing else is accepted there, which rules out a DTD and with it all entities.
_ROOT = re.compile(rb"<[A-Za-z_]")
_BLANK = re.compile(rb"[ \t\r\n]*")


class Unreadable(ValueError):
    """A document that is not well-formed, or that exceeds the bounds."""


def whole_number(text: str | None, default: int = -1) -> int:
    """Return the number that a text of at most 18 ASCII digits stands for; `default` for any other text.

    `int` accepts more, such as ``1_0`` and blanks, and `str.isdigit` is true for ``²``, which `int` does not accept.
    """
    if text and len(text) <= _DIGITS and text.isascii() and text.isdigit():
        return int(text)
    return default


def size_in(value: object) -> int:
    """Return a size in bytes that a library reports as a number or a text; -1 if it is neither."""
    if isinstance(value, str):
        return whole_number(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return int(value) if isinstance(value, int) and 0 <= value < 10**_DIGITS else -1


def parse_xml(data: bytes, *, limit: int = DOCUMENT) -> ET.Element:
    """Parse an XML document without a DTD. Its depth has no bound of its own, since nothing here is recursive.

    Raises
    ------
    Unreadable
        If it is not well-formed, has a DTD, or has more than `limit` bytes or `VALUES` values.
    """
    if len(data) > limit:
        raise Unreadable(f"more than {limit:,} bytes")
    if not _ROOT.match(data, _root_at(data)):
        raise Unreadable("no XML, or XML with a DTD")
    if len(data) > _SMALL and data.count(b"<") + data.count(b"=") > 2 * VALUES:
        raise Unreadable(f"more than {VALUES:,} elements")
    try:
        return ET.fromstring(data)  # noqa: S314  it has no DTD, so it has no entities
    except (ET.ParseError, ValueError, LookupError) as error:  # also an encoding that Python does not know
        raise Unreadable(str(error)) from error


def _root_at(data: bytes) -> int:
    """Return the offset of the root element: after the declaration, comments and instructions."""
    at = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    for _ in range(_BEFORE_ROOT):
        found = _BLANK.match(data, at)
        at = found.end() if found else at
        end = b"?>" if data.startswith(b"<?", at) else b"-->" if data.startswith(b"<!--", at) else b""
        if not end:
            break
        at = data.find(end, at + 2) + len(end)
        if at < len(end):
            return len(data)
    return at


def parse_json(data: bytes, *, limit: int = DOCUMENT, values: int = VALUES) -> Any:
    """Parse a JSON document.

    Raises
    ------
    Unreadable
        If it is not JSON, has more than `limit` bytes or about `values` values, is too deep for the interpreter, names
        a member twice, or has a number of more than 18 digits.
    """
    if len(data) > limit:
        raise Unreadable(f"more than {limit:,} bytes")
    if len(data) > _SMALL and sum(map(data.count, (b",", b":", b"[", b"{"))) > 2 * values:
        raise Unreadable(f"more than {values:,} values")
    try:
        return json.loads(data, object_pairs_hook=_members, parse_int=_integer, parse_constant=_no_number)
    except Unreadable:
        raise
    except RecursionError as error:
        raise Unreadable("JSON that is too deep") from error
    except ValueError as error:
        raise Unreadable("no JSON") from error


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):  # readers differ in which of them counts
        raise Unreadable("a member that is named twice")
    return found


def _integer(text: str) -> int:
    if len(text) > _DIGITS + text.startswith("-"):
        raise Unreadable(f"a number of {len(text):,} digits")
    return int(text)


def _no_number(text: str) -> float:
    raise Unreadable(f"{text}, which is no JSON")
