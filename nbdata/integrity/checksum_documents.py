r"""Read lists of checksums that are documents, not lines of a digest and a name.

=============  ==================================================  ===============================================
document       recognised by                                       written by
=============  ==================================================  ===============================================
JSON           its first character, ``{`` or ``[``                 Zenodo, Figshare, Dataverse; mappings of names
hashdeep       ``%%%% HASHDEEP-1.0`` at its start                  hashdeep
CSV            a first line that names columns                     ``Get-FileHash | Export-Csv``, spreadsheets
list           ``Algorithm :`` at its start                        ``Get-FileHash | Format-List``
table          ``Algorithm  Hash  Path`` at its start              ``Get-FileHash``
certutil       ``MD5 hash of``                                     ``certutil -hashfile``
=============  ==================================================  ===============================================

In JSON each object counts that has a name (``key``, ``path``, ``name`` …) and a digest (``checksum``, ``md5``,
``computed_md5`` …), at any depth.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from nbdata.bounded import Unreadable, parse_json

__all__ = ["Claim", "claims_of"]


class Claim(NamedTuple):
    """One digest that a document gives for a file.

    Attributes
    ----------
    line : int
        From 1; 0 where lines mean nothing.
    name : str
    tag : str
        The algorithm as the document calls it; empty if it does not say.
    digest : str
        As it is written. Empty if the document gives none that can be used, for the reason in `tag`.
    """

    line: int
    name: str
    tag: str
    digest: str


def claims_of(text: str) -> Iterable[Claim] | None:
    """Return what a document says; None if the text is none, but lines."""
    start = text.lstrip()[:400]
    if start[:1] in ("{", "["):
        return _of_json(text)
    if start.startswith("%%%% HASHDEEP-1.0"):
        return _of_hashdeep(text)
    for pattern, read in ((_LIST, _of_list), (_TABLE, _of_table), (_CERTUTIL, _of_certutil)):
        if pattern.match(start):
            return read(text)
    return _of_csv(text)


def _lines(text: str) -> list[str]:
    """Return the lines. Other than with `str.splitlines`, a name may have any character but a line break."""
    return [line.removesuffix("\r") for line in text.split("\n")]


# -- JSON -------------------------------------------------------------------------------------------

_NAMES = ("path", "key", "filename", "file_name", "rfilename", "name", "file")
_DIGESTS = ("checksum", "digest", "hash")
_ALGORITHM = re.compile(
    r"(?:(?:computed|supplied)_)?(md5|sha-?1|sha-?256|sha-?512|crc-?32c?)(?:sum)?", re.IGNORECASE
)
_HEX = re.compile(r"[0-9a-fA-F]{8,}")


def _of_json(text: str) -> Iterable[Claim] | None:
    try:
        document = parse_json(text.encode("utf-8", "surrogateescape"))
    except (Unreadable, ValueError):
        return None
    claims: dict[Claim, None] = {}  # Figshare says each MD5 twice
    left = [document]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left.extend(reversed(value))
        elif isinstance(value, dict):
            claims |= dict.fromkeys(_of_object(value))
            left.extend(reversed(value.values()))
    return claims


def _of_object(value: dict[str, Any]) -> Iterator[Claim]:
    name = next((value[one] for one in _NAMES if isinstance(value.get(one), str) and value[one]), None)
    if name is None:
        texts = {key: one for key, one in value.items() if isinstance(one, str) and _HEX.fullmatch(one)}
        if texts and len(texts) == len(value) and not any(map(_ALGORITHM.fullmatch, texts)):
            yield from (Claim(0, key, "", one) for key, one in texts.items())
        return
    for key, one in value.items():
        algorithm = _ALGORITHM.fullmatch(key)
        if algorithm and isinstance(one, str) and one:
            yield Claim(0, name, algorithm[1], one)
        elif key.lower() in _DIGESTS and isinstance(one, str) and one:
            tag, _, digest = one.rpartition(":")  # "md5:…"
            yield Claim(0, name, tag, digest)
        elif key.lower() in _DIGESTS and isinstance(one, dict):
            kind, value_of = one.get("type", one.get("algorithm", "")), one.get("value", "")
            if isinstance(kind, str) and isinstance(value_of, str) and value_of:
                yield Claim(0, name, kind, value_of)


# -- hashdeep ---------------------------------------------------------------------------------------


# The most columns; hashdeep has eight.
_MOST_COLUMNS = 64


def _of_hashdeep(text: str) -> Iterator[Claim]:
    """Read hashdeep's format: a line of columns; the last one is the name, which may hold commas."""
    columns: list[str] = []
    for number, line in enumerate(_lines(text), start=1):
        if line.startswith("%%%%"):
            columns = line.removeprefix("%%%%").strip().lower().split(",", _MOST_COLUMNS)
        elif line and not line.startswith("##"):
            parts = line.split(",", max(0, len(columns) - 1))
            if len(parts) != len(columns) or columns[-1:] != ["filename"]:
                yield Claim(number, line, "not in the columns of this file", "")
                continue
            for tag, digest in zip(columns[:-1], parts[:-1], strict=True):
                if tag != "size":
                    yield Claim(number, parts[-1], tag, digest)


# -- Windows ----------------------------------------------------------------------------------------

_LIST = re.compile(r"Algorithm\s*:\s*\w+", re.IGNORECASE)
_TABLE = re.compile(r"Algorithm\s+Hash\s+Path\s*\n\s*-+\s+-+\s+-+", re.IGNORECASE)
_CERTUTIL = re.compile(r"[\w-]+ hash of (?:file )?.+:\s*\n", re.IGNORECASE)
_MEMBER = re.compile(r"(\w+)\s*: ?(.*)")
_INDENT = " " * len("Algorithm : ")
_ROW = re.compile(r"([\w-]+)\s+([0-9A-Fa-f]+)\s+(\S.*)")


def _of_list(text: str) -> Iterator[Claim]:
    """Read what Format-List writes: members, and lines that go on where the window of the terminal ended."""
    members: dict[str, list[str]] = {}
    begin, last = 0, ""
    for number, line in enumerate([*_lines(text), ""], start=1):
        match = _MEMBER.fullmatch(line)
        if match and not line[:1].isspace():
            begin, last = begin or number, match[1].lower()
            members[last] = [match[2]]
        elif line.strip() and last:
            members[last].append(line.strip() if last == "hash" else line.removeprefix(_INDENT))
        elif members and not line.strip():
            path, tag, digest = ("".join(members.get(one, ())) for one in ("path", "algorithm", "hash"))
            if path:
                yield Claim(begin, path.rstrip(), tag, digest)
            members, begin, last = {}, 0, ""


def _of_table(text: str) -> Iterator[Claim]:
    lines = _lines(text)
    first = next(number for number, line in enumerate(lines) if line.strip())
    for number, line in enumerate(lines[first + 2 :], start=first + 3):
        if not line.strip():
            continue
        match = _ROW.fullmatch(line.strip())
        if match is None:
            yield Claim(number, line.strip(), "no algorithm, hash and path", "")
        elif match[3].endswith(("...", "…")):
            yield Claim(
                number, match[3], "the path is cut short; write it with Get-FileHash | Export-Csv", ""
            )
        else:
            yield Claim(number, match[3], match[1], match[2])


def _of_certutil(text: str) -> Iterator[Claim]:
    tag = name = ""
    for number, line in enumerate(_lines(text), start=1):
        head = re.fullmatch(r"([\w-]+) hash of (?:file )?(.+):\s*", line, re.IGNORECASE)
        digest = line.replace(" ", "")
        if head:
            tag, name = head[1], head[2]
        elif name and _HEX.fullmatch(digest):
            yield Claim(number, name, tag, digest)
            name = ""
        elif line.strip() and not line.startswith("CertUtil:"):
            yield Claim(number, line.strip(), "neither a file nor its hash", "")


# -- CSV --------------------------------------------------------------------------------------------

# What Export-Csv puts before the columns, and blank lines.
_TYPE = re.compile(r"(?:#TYPE [^\n]*\n|\s*\n)*")
# Characters in which the columns are named.
_LONGEST_HEAD = 4096
# Characters of a row.
_LONGEST_ROW = 1 << 20
_PATH_COLUMNS = (
    "path",
    "filepath",
    "file path",
    "relative path",
    "file",
    "filename",
    "file name",
    "name",
    "key",
)
_HASH_COLUMNS = ("hash", "checksum", "digest")


def _of_csv(text: str) -> Iterable[Claim] | None:
    """Read a table of columns between commas, semicolons or tabs; None if the first line names none that we know."""
    begin = _TYPE.match(text, 0, _LONGEST_HEAD)
    first = text[begin.end() if begin else 0 :][:_LONGEST_HEAD].split("\n", 1)[0]
    delimiter = max(",;\t", key=first.count)
    head = [one.strip(' "\r').lower() for one in first.split(delimiter)]
    name = next((head.index(one) for one in _PATH_COLUMNS if one in head), None)
    digests = {
        at: "" if one in _HASH_COLUMNS else one
        for at, one in enumerate(head)
        if one in _HASH_COLUMNS or _ALGORITHM.fullmatch(one)
    }
    if name is None or not digests:
        return None
    skipped = begin[0].count("\n") if begin else 0
    lines = io.StringIO(text[begin.end() if begin else 0 :], newline="")
    rows = csv.reader(_short(lines), delimiter=delimiter)
    return _rows(rows, skipped, name, digests, head.index("algorithm") if "algorithm" in head else None)


def _short(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if len(line) > _LONGEST_ROW:
            raise csv.Error(f"a row of {len(line):,} characters")
        yield line


def _rows(
    rows: Any, skipped: int, name: int, digests: dict[int, str], algorithm: int | None
) -> Iterator[Claim]:
    last = max(name, *digests)
    try:
        for row in rows:
            if rows.line_num == 1 or not any(one.strip() for one in row):
                continue
            number = skipped + rows.line_num
            if last >= len(row):
                yield Claim(number, ",".join(row), "has not the columns of the first line", "")
                continue
            for at, tag in digests.items():
                if row[at].strip():
                    kind = row[algorithm] if algorithm is not None and algorithm < len(row) else ""
                    yield Claim(number, row[name], tag or kind.strip(), row[at].strip())
    except csv.Error as error:
        yield Claim(skipped + rows.line_num, "", f"no CSV ({error})", "")
