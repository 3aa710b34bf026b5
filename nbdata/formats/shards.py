"""Samples in tar shards, grouped as the WebDataset library groups them.

A member ``a/0001.seg.JPG`` is the field ``seg.jpg`` of the sample ``a/0001``: the key ends at the first dot of the
base name. Neighbours with one key make a sample; the same key further on begins another one. Links, and members of
which only a folder or a key is left, are in no sample. Source: the WebDataset library, ``tariterators.py``
(``base_plus_ext``, ``group_by_keys``), which is what the format is defined by.
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
# Names of what was left out that are kept.
_NAMED = 10
# Bytes of the largest sparse file that is expanded in memory: its holes cost nothing in the shard.
_MOST_SPARSE = 1 << 30
# In place of what readers of archives advise, which is about unpacking.
_REMEDY = "The shard is damaged, or not whole: compare it with its checksum, and fetch it or make it again"

#: The key, the fields by name, and where each of them begins in the uncompressed shard (-1: not in one piece).
Sample = tuple[str, "dict[str, bytes]", "list[int]"]


def split_member(name: str) -> tuple[str, str] | None:
    """Key and field of a member; None if it is in no sample.

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
    """The same with the field as it is written."""
    base = name[name.rfind("/") + 1 :]
    stem, dot, extension = base.partition(".")
    if stem and dot and "\n" not in name:
        return name[: len(name) - len(extension) - 1], extension
    found = _NAME.match(name)  # an odd one
    return (found[1], found[2]) if found else None


def is_meta(name: str) -> bool:
    """Whether a member tells of the shard, as ``__index__`` and ``__meta__/a.json`` do; it is in no sample."""
    return _META.match(name) is not None


@dataclass
class LeftOut:
    """Members of shards that are in no sample, and what is odd about others.

    Attributes
    ----------
    count : int
    names : list of str
        The first of them, each with the reason.
    """

    count: int = 0
    names: list[str] = field(default_factory=list)

    def add(self, name: str, why: str) -> None:
        """Note one."""
        self.count += 1
        if len(self.names) < _NAMED:
            self.names.append(f"{name} ({why})")


def samples_in(reader: ForwardReader, left_out: Callable[[str, str], None]) -> Generator[Sample, None, None]:
    """The samples of a shard in its order.

    Parameters
    ----------
    reader : ForwardReader
        Stands at the first header. Whoever calls closes it.
    left_out : callable
        Told the name of each member that is in no sample, and why.

    Raises
    ------
    BadArchive
        If the shard is damaged, ends too early, or goes on after its end.
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
                    left_out(name, "its sample came before, and others since: this is one more")
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
    except BadArchive as error:  # what a reader of archives advises is about unpacking
        error.remedy = _REMEDY
        raise


def _members(reader: ForwardReader) -> Iterator[tuple[str, memoryview, int, Header | None]]:
    """All members: the name, and of plain files in memory the content and where it lies; of others the header."""
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
    """Why a member is in no sample; empty where nobody would expect it in one."""
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
