"""Parse numbers, XML and JSON that come from a server or from a foreign file, within bounds.

Whoever wrote such bytes may want to harm their reader. So a number has few digits, and a document has limited bytes and
values: a short document can otherwise take gigabytes of memory once it is parsed. All errors are `Unreadable`.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from functools import partial
from typing import Any, NoReturn
from xml.parsers import expat

__all__ = ["DOCUMENT", "VALUES", "Unreadable", "parse_json", "parse_xml", "size_in", "whole_number"]

#: The most bytes of a document, unless its reader allows others. A page of a listing has some hundred kilobytes.
DOCUMENT = 64 << 20
#: The most values of a document: elements and attributes in XML, members and items in JSON.
VALUES = 1 << 20
# The most digits of a number, so that it fits into 63 bits.
_DIGITS = 18
# A document of up to this many bytes cannot have too many values for the memory, so they are not counted.
_SMALL = 1 << 20
# The root of an XML document begins within so many bytes.
_PROLOG = 64 << 10
# What declares a namespace. A search for it by `re` takes half the time of one by `in`.
_NAMESPACE = re.compile(b"xmlns")


class Unreadable(ValueError):
    """A document that is not well-formed, or that exceeds the bounds."""


class _Root(Exception):
    """Raised at the root of an XML document, to stop its parser."""


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
    """Parse an XML document without a DTD; its names have no namespace.

    Its depth has no bound of its own, since nothing here is recursive.

    Raises
    ------
    Unreadable
        If it is not well-formed, has a DTD, has more than `limit` bytes or `VALUES` values, or does not begin its root
        within 64 KiB.
    """
    if len(data) > limit:
        raise Unreadable(f"more than {limit:,} bytes")
    _refuse_dtd(data)
    if len(data) > _SMALL and data.count(b"<") + data.count(b"=") > 2 * VALUES:
        raise Unreadable(f"more than {VALUES:,} elements")
    try:
        in_utf_16 = b"\0" in data[:4]  # in all other encodings that the parser knows, ASCII is ASCII
        if not in_utf_16 and not _NAMESPACE.search(data):
            return ET.fromstring(data)  # noqa: S314  it has no DTD, so it has no entities
        return _without_namespaces(data)
    except (ET.ParseError, expat.ExpatError, ValueError, LookupError) as error:  # also an unknown encoding
        raise Unreadable(str(error)) from error


def _without_namespaces(data: bytes) -> ET.Element:
    """Parse a document and drop the prefixes of its names.

    ElementTree's own parser puts the namespace in front of each name. It is up to twice as fast, but a namespace of
    400,000 characters then takes as many for each of 2,500 names.
    """
    builder = ET.TreeBuilder()

    def start(name: str, attributes: dict[str, str]) -> None:
        builder.start(name.rpartition(":")[2], attributes)

    parser = expat.ParserCreate()  # without a separator, it leaves names as they are
    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.Parse(data, True)
    return builder.close()


def _refuse_dtd(data: bytes) -> None:
    """Raise `Unreadable` unless the root of an XML document begins without a DTD before it.

    The parser of the document itself decides. Another one could differ from it: in where a comment ends, for example.
    """
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = _at_dtd
    parser.StartElementHandler = _at_root
    try:
        parser.Parse(data[:_PROLOG], False)
    except _Root:
        return
    except (expat.ExpatError, ValueError, LookupError) as error:  # also an encoding that Python does not know
        raise Unreadable(str(error)) from error
    raise Unreadable(f"no XML, or more than {_PROLOG:,} bytes before its root")


def _at_dtd(*_: object) -> NoReturn:
    raise Unreadable("XML with a DTD")


def _at_root(*_: object) -> NoReturn:
    raise _Root


def parse_json(data: bytes, *, limit: int = DOCUMENT, values: int = VALUES, digits: int = _DIGITS) -> Any:
    """Parse a JSON document.

    Raises
    ------
    Unreadable
        If it is not JSON, has more than `limit` bytes or about `values` values, is too deep for the interpreter, names
        a member twice, or has a number of more than `digits` digits.
    """
    if len(data) > limit:
        raise Unreadable(f"more than {limit:,} bytes")
    if len(data) > _SMALL and sum(map(data.count, (b",", b":", b"[", b"{"))) > 2 * values:
        raise Unreadable(f"more than {values:,} values")
    try:
        integer = _integer if digits == _DIGITS else partial(_integer, digits=digits)
        return json.loads(data, object_pairs_hook=_members, parse_int=integer, parse_constant=_no_number)
    except Unreadable:
        raise
    except RecursionError as error:
        raise Unreadable("JSON that is too deep") from error
    except ValueError as error:
        raise Unreadable("no JSON") from error


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):  # readers differ in which of them counts
        raise Unreadable("a member that is named twice")
    return members


def _integer(text: str, digits: int = _DIGITS) -> int:
    if len(text) > digits + text.startswith("-"):
        raise Unreadable(f"a number of {len(text):,} digits")
    return int(text)


def _no_number(text: str) -> float:
    raise Unreadable(f"{text}, which is no JSON")
