"""Samples in tar shards, grouped as by the WebDataset library.

A member ``a/0001.seg.JPG`` is the field ``seg.jpg`` of the sample ``a/0001``: the key ends at the first dot of the base
name. Adjacent members with one key make a sample; the same key later on starts another one. Links, and members whose
name is only a folder or a key, belong to no sample. Source: the WebDataset library, ``tariterators.py``
(``base_plus_ext``, ``group_by_keys``), which defines the format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field

from nbdata.archives.forward_reader import ForwardReader
from nbdata.archives.tar import MemberReader
from nbdata.archives.tar_headers import Header, Headers
from nbdata.errors import BadArchive

__all__ = ["LeftOut", "Sample", "is_meta", "samples_in", "split_member"]

_NAME = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$")
_META = re.compile(r"__[^/]*__($|/)")
_RESERVED = ("__key__", "__url__")
#: The reason for a member whose sample ended before it.
APART = "its sample came before, and others since: this is one more"
# Most names of left-out members that are kept.
_NAMED = 10
# Most bytes of a sparse file that is expanded in memory: its holes cost nothing in the shard.
_MOST_SPARSE = 1 << 30
# Replaces the remedy of archive readers, which is about unpacking.
_REMEDY = "The shard is damaged, or not whole: compare it with its checksum, and fetch it or make it again"

#: The key, the fields by name, and the start of each in the uncompressed shard (-1: not contiguous).
Sample = tuple[str, "dict[str, bytes]", "list[int]"]


def split_member(name: str) -> tuple[str, str] | None:
    """Return key and field of a member; None if it belongs to no sample.

    Examples
    --------
    >>> split_member("dir/a.seg.JPG")
    ('dir/a', 'seg.jpg')
    >>> split_member("README") is None
    True
    """
    found = _split(name)
    return (found[0], found[1].lower()) if found else None


def _split(name: str) -> tuple[str, str] | None:
    """Return key and field, with the field as written."""
    base = name[name.rfind("/") + 1 :]
    stem, dot, extension = base.partition(".")
    if stem and dot and "\n" not in name:
        return name[: len(name) - len(extension) - 1], extension
    found = _NAME.match(name)  # an unusual name
    return (found[1], found[2]) if found else None


def is_meta(name: str) -> bool:
    """True if a member describes the shard, such as ``__index__`` and ``__meta__/a.json``; it belongs to no sample."""
    return _META.match(name) is not None


@dataclass
class LeftOut:
    """Members of shards that belong to no sample, and notes on unusual members.

    Attributes
    ----------
    count : int
    names : list of str
        The first names, each with the reason.
    """

    count: int = 0
    names: list[str] = field(default_factory=list)

    def add(self, name: str, why: str) -> None:
        """Note a member and the reason."""
        self.count += 1
        if len(self.names) < _NAMED:
            self.names.append(f"{name} ({why})")


def samples_in(reader: ForwardReader, left_out: Callable[[str, str], None]) -> Generator[Sample, None, None]:
    """Yield the samples of a shard in its order.

    Parameters
    ----------
    reader : ForwardReader
        At the first header. The caller closes it.
    left_out : callable
        Receives the name of each member that belongs to no sample, and the reason.

    Raises
    ------
    BadArchive
        If the shard is damaged, is truncated, or has data after its end.
    """
    current, seen = "", set[int]()
    fields: dict[str, bytes] = {}
    places: list[int] = []
    split, lower, is_one_of_ours = _split, str.lower, _META.match
    try:
        for name, view, place, header in _members(reader):
            found = split(name)
            if (
                found is None
                or (name[0] == "_" and is_one_of_ours(name))
                or (header and header.kind != "file")
            ):
                if why := _why_not(name, "file" if header is None else header.kind, found is not None):
                    left_out(name, why)
                continue
            key, extension = found
            if key != current or not fields:
                if fields:
                    yield current, fields, places
                fields, places, current = {}, [], key
                before = len(seen)
                seen.add(hash(key))
                if len(seen) == before:
                    left_out(name, APART)
            extension = lower(extension)
            if extension in fields or extension in _RESERVED:
                left_out(name, "the sample has this field already")
            elif header is None:
                places.append(place)
                fields[extension] = bytes(view)
            elif header.data is None:
                places.append(reader.tell())
                fields[extension] = bytes(reader.content(header.size))
            else:
                places.append(-1)
                fields[extension] = _expanded(reader, header)
        if fields:
            yield current, fields, places
        reader.drain()
    except BadArchive as error:  # the remedy of archive readers is about unpacking
        error.remedy = _REMEDY
        raise


def _members(reader: ForwardReader) -> Iterator[tuple[str, memoryview, int, Header | None]]:
    """Yield all members: the name; for plain files in memory the content and its place; for others the header."""
    headers, nothing = Headers(reader, {}), memoryview(b"")
    while True:
        memory, begins, found = headers.plain_files()
        for name, at, size in found:
            yield name, memory[at : at + size], begins + at, None
        header = headers.following()
        if header is None:
            return
        yield header.name, nothing, -1, header


def _why_not(name: str, kind: str, named: bool) -> str:
    """Return why a member belongs to no sample; empty if no reader expects it in one."""
    if kind in ("folder", "label") or is_meta(name):
        return ""
    if kind != "file":
        return f"a {kind}"
    return "" if named else "no extension"


def _expanded(reader: ForwardReader, header: Header) -> bytes:
    if header.size > _MOST_SPARSE:
        raise BadArchive(
            "a sparse file is too large for a sample",
            path=header.name,
            expected=f"at most {_MOST_SPARSE:,} bytes",
            got=f"{header.size:,} bytes",
        )
    return bytes(MemberReader(reader, header.size, header.data).read())
