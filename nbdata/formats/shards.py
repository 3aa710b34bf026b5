"""Samples in tar shards, grouped as by the WebDataset library.

A member ``a/0001.seg.JPG`` is the field ``seg.jpg`` of the sample ``a/0001``: the key ends at the first dot of the base
name. Adjacent members with one key make a sample; the same key later on starts another one. Links, and members whose
name is only a folder or a key, belong to no sample. Source: the WebDataset library, ``tariterators.py``
(``base_plus_ext``, ``group_by_keys``), which defines the format.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Generator, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from isal.isal_zlib import crc32

from nbdata.archives.forward_reader import ForwardReader
from nbdata.archives.safety import shortened
from nbdata.archives.tar import MemberReader
from nbdata.archives.tar_headers import Header, Headers
from nbdata.errors import BadArchive, BadOption
from nbdata.formats.samples import is_hidden_key

__all__ = [
    "MAX_SAMPLE",
    "FieldSum",
    "LeftOut",
    "Sample",
    "SummedSample",
    "is_archive",
    "is_meta",
    "samples_in",
    "split_member",
    "sums_in",
]

#: Bytes of a sample that is held in memory, by default: more than any batch of such samples has room for, and with four
#: open shards still less than a notebook's machine has.
MAX_SAMPLE = 1 << 30
# Bytes that each field counts for beside its content and name, so that empty fields are bounded too.
_EACH_FIELD = 256
# Bytes of the names and sums of a sample whose content is not held.
_MOST_SUMS = 64 << 20
# Longest name of a member in a sample: the longest path of Linux.
_LONGEST_NAME = 4096
_BLOCK = 256 << 10

_META = re.compile(r"__[^/]*__($|/)")
_RESERVED = ("__key__", "__url__")
# Fields that are tar archives.
_TARS = frozenset(("tar", "tgz", "tzst", "txz", "tbz", "tbz2", "tar.gz", "tar.zst", "tar.xz", "tar.bz2"))
#: The reason for a member whose sample ended before it.
APART = "its sample came before, and others since: this is one more"
#: The remark on a hidden file of macOS, of which WebDataset makes a sample.
HIDDEN = "a hidden file, which is one more sample, as in WebDataset"
# Most names of left-out members that are kept.
_NAMED = 10
# Most bytes of a sparse file that is expanded: its holes cost nothing in the shard.
_MOST_SPARSE = 1 << 30
# Replaces the remedy of archive readers, which is about unpacking.
_REMEDY = "The shard is damaged, or not whole: compare it with its checksum, and fetch it or make it again"

#: The key, the fields by name, and the start of each in the uncompressed shard (-1: not contiguous).
Sample = tuple[str, "dict[str, bytes]", "list[int]"]


class FieldSum(NamedTuple):
    """The size and CRC-32 of a field."""

    size: int
    crc: int


#: As `Sample`, with the sums of the fields in place of their content.
SummedSample = tuple[str, "dict[str, FieldSum]", "list[int]"]
_Value = TypeVar("_Value")


def split_member(name: str) -> tuple[str, str] | None:
    """Return key and field of a member; None if it belongs to no sample.

    Examples
    --------
    >>> split_member("dir/a.seg.JPG")
    ('dir/a', 'seg.jpg')
    >>> split_member("README") is None
    True
    """
    parts = _split(name)
    return (parts[0], parts[1].lower()) if parts else None


def _split(name: str) -> tuple[str, str] | None:
    """Return key and field, with the field as written."""
    base = name[name.rfind("/") + 1 :]
    stem, dot, extension = base.partition(".")
    if stem and dot and "\n" not in name:
        return name[: len(name) - len(extension) - 1], extension
    return _split_unusual(name)


def _split_unusual(name: str) -> tuple[str, str] | None:
    """Split as WebDataset's pattern does, ``^((?:.*/|)[^.]+)[.]([^/]*)$``, which takes quadratic time for some names.

    The extension begins at the first dot of the last component. Before it stands a character or more, without a dot,
    from the beginning or a slash on; and before that slash there is no line end.
    """
    dot = name.find(".", name.rfind("/") + 1)
    if dot < 0:
        return None
    line = name.find("\n", 0, dot)
    begin = name.rfind("/", 0, dot - 1 if line < 0 else min(dot - 1, line)) + 1
    return (name[:dot], name[dot + 1 :]) if name.rfind(".", 0, dot) < begin < dot else None


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

    def take(self, other: LeftOut) -> None:
        """Add what was noted elsewhere."""
        self.count += other.count
        self.names += other.names[: _NAMED - len(self.names)]


def samples_in(
    reader: ForwardReader, left_out: Callable[[str, str], None], *, max_sample: int | None = None
) -> Generator[Sample, None, None]:
    """Yield the samples of a shard in its order. Each is held in memory as a whole.

    Parameters
    ----------
    reader : ForwardReader
        At the first header. The caller closes it.
    left_out : callable
        Receives the name of each member that belongs to no sample, and the reason.
    max_sample : int, optional
        Largest sample in bytes (default: `MAX_SAMPLE`), with the names of its fields and 256 bytes for each.

    Raises
    ------
    BadOption
        If it is a tar of shards.
    BadArchive
        If the shard is damaged, is truncated, or has data after its end; or if a sample is larger than `max_sample`.
        Then the member that would exceed it is not read.
    """
    found = _grouped(reader, left_out, bytes, _content, max_sample or MAX_SAMPLE, holds_content=True)
    return _no_archives(reader, found)


def sums_in(
    reader: ForwardReader, left_out: Callable[[str, str], None]
) -> Generator[SummedSample, None, None]:
    """Yield the samples of a shard as `samples_in`, with sums in place of content.

    Content is read in blocks and may have any size. The names and sums of one sample are limited to 64 MiB.
    """
    found = _grouped(reader, left_out, _sum, _summed, _MOST_SUMS, holds_content=False)
    return _no_archives(reader, found)


def _grouped(
    reader: ForwardReader,
    left_out: Callable[[str, str], None],
    of_view: Callable[[memoryview], _Value],
    of_member: Callable[[ForwardReader, Header], _Value],
    most: int,
    *,
    holds_content: bool,
) -> Generator[tuple[str, dict[str, _Value], list[int]], None, None]:
    """Yield the samples; the value of a field comes from its content in memory, or from its member."""
    current, seen, held = "", set[int](), 0
    fields: dict[str, _Value] = {}
    places: list[int] = []
    split, lower, is_one_of_ours = _split, str.lower, _META.match
    try:
        for name, view, place, header in _members(reader):
            parts = split(name) if len(name) <= _LONGEST_NAME else None
            if (
                parts is None
                or (name[0] == "_" and is_one_of_ours(name))
                or (header and header.kind != "file")
            ):
                if why := _why_not(name, "file" if header is None else header.kind, parts is not None):
                    left_out(shortened(name) if len(name) > _LONGEST_NAME else name, why)
                continue
            key, extension = parts
            if key != current or not fields:
                if fields:
                    yield current, fields, places
                fields, places, current, held = {}, [], key, 0
                before = len(seen)
                seen.add(hash(key))
                if key[-1] == "/" or ("__MACOSX" in key and is_hidden_key(key)):
                    left_out(name, HIDDEN)
                elif len(seen) == before:
                    left_out(name, APART)
            extension = lower(extension)
            if extension in fields or extension in _RESERVED:
                left_out(name, "the sample has this field already")
                continue
            size = len(view) if header is None else header.size
            named = len(name) if name.isascii() else 4 * len(name)
            held += named + _EACH_FIELD + (size if holds_content else 0)
            if held > most:
                raise _too_large(reader, name, size, most)
            if header is None:
                places.append(place)
                fields[extension] = of_view(view)
            else:
                places.append(reader.tell() if header.data is None else -1)
                fields[extension] = of_member(reader, header)
        if fields:
            yield current, fields, places
        reader.drain()
    except BadArchive as error:
        if fields:
            error.details["sample"] = current  # the one that was not read to its end
        if "limit" not in error.details:  # the remedy of archive readers is about unpacking
            error.remedy = _REMEDY
        raise


def is_archive(fields: Collection[str]) -> bool:
    """True if a sample is nothing but a tar archive. If a shard begins with two, it is a tar of shards, by a slip.

    Examples
    --------
    >>> is_archive(["tar"]), is_archive(["tar", "json"]), is_archive(["frames.tar"])
    (True, False, False)
    """
    return len(fields) == 1 and next(iter(fields)) in _TARS


def _no_archives(
    reader: ForwardReader, samples: Generator[tuple[str, dict[str, _Value], list[int]], None, None]
) -> Generator[tuple[str, dict[str, _Value], list[int]], None, None]:
    """Yield samples; BadOption if the first two, or the only one, are archives."""
    with contextlib.closing(samples):
        first = next(samples, None)
        if first is None:
            return
        if is_archive(first[1]):
            second = next(samples, None)
            if second is None or is_archive(second[1]):
                name = f"{first[0]}.{next(iter(first[1]))}"
                raise BadOption(
                    f"the members of this archive are archives themselves, such as {shortened(name)}",
                    path=reader.name,
                    expected="a shard: a tar of the files of samples",
                    remedy="Unpack it with untar_volumes, and name the shards that were in it",
                )
            held = [first, second]
            del second
        else:
            held = [first]
        del first
        while held:  # none is held while later ones are read
            yield held.pop(0)
        yield from samples


def _too_large(reader: ForwardReader, name: str, size: int, most: int) -> BadArchive:
    return BadArchive(
        f"a sample is too large to hold in memory by its member {shortened(name)} of {size:,} bytes",
        path=reader.name,
        expected=f"at most {most:,} in all its fields",
        remedy="Raise --max-sample (max_sample=) if you have the memory, or use untar_volumes",
        details={"limit": most},
    )


def _content(reader: ForwardReader, header: Header) -> bytes:
    """Return the content of a member."""
    if header.data is None:
        return bytes(reader.content(header.size))
    _refuse_sparse(header)
    return bytes(MemberReader(reader, header.size, header.data).read())


def _sum(view: memoryview) -> FieldSum:
    return FieldSum(len(view), crc32(view))


def _summed(reader: ForwardReader, header: Header) -> FieldSum:
    """Return the sum of a member, which is read in blocks."""
    if header.data is not None:
        _refuse_sparse(header)
    member, crc = MemberReader(reader, header.size, header.data), 0
    block = memoryview(bytearray(min(header.size, _BLOCK)))
    while count := member.readinto(block):
        crc = crc32(block[:count], crc)
    return FieldSum(header.size, crc)


def _refuse_sparse(header: Header) -> None:
    if header.size > _MOST_SPARSE:
        raise BadArchive(
            "a sparse file is too large for a sample",
            path=header.name,
            expected=f"at most {_MOST_SPARSE:,} bytes",
            got=f"{header.size:,} bytes",
        )


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
    if len(name) > _LONGEST_NAME:
        return f"a name of {len(name):,} characters"
    if kind != "file":
        return f"a {kind}"
    return "" if named else "no extension"
