r"""Read and write checksum files.

==========  ==============================  ==========================================================
style       line                            written by
==========  ==============================  ==========================================================
GNU         ``HEX  name``, ``HEX *name``    md5sum, sha256sum …
reversed    ``HEX name``                    BSD's ``md5 -r``; also with a tab
BSD         ``MD5 (name) = HEX``            BSD's md5, ``md5sum --tag``, cksum, ``rhash --bsd``
OpenSSL     ``MD5(name)= HEX``              ``openssl dgst``
bare        ``HEX``, ``HEX  -``             scripts, ``md5sum < name``
base64      any of them, ``BASE64`` for     ``cksum --base64``, ``rclone hashsum --base64``, ``openssl … | base64``
            ``HEX``
SFV         ``name HEX``, in ``.sfv``       cksfv and others for Usenet and archives of releases
==========  ==============================  ==========================================================

GNU's tools put a backslash before a line whose name has a backslash, newline or carriage return, and write these as
``\\``, ``\n`` and ``\r`` (https://www.gnu.org/software/coreutils/manual/html_node/cksum-output-modes.html). With
``--zero``, lines end in NUL and nothing is escaped. Windows adds a byte order mark, CRLF or UTF-16. gzip compresses
them. All of these are read. Blank lines and lines that begin with ``#`` or ``;`` are comments. Every other line is an
entry or a problem; none is skipped. `nbdata.integrity.checksum_documents` reads what has other lines.

Names are decoded as file names are (UTF-8 with surrogateescape). Encode the result of `format_checksums` the same way.
"""

from __future__ import annotations

import base64
import codecs
import gzip
import io
import re
import zlib
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from nbdata.algorithms import ALGORITHMS
from nbdata.integrity.checksum_documents import Claim, claims_of
from nbdata.integrity.checksum_names import algorithm_in, is_sfv
from nbdata.integrity.digests import algorithms_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["MAX_SIZE", "ChecksumFile", "ChecksumFormat", "Entry", "format_checksums", "parse_checksums"]

MAX_SIZE = 64 << 20
"""Bytes of the largest checksum file that is read: about half a million names."""

# The most lines of a list, and the most digests in it. 100 KB of gzip could otherwise become a gigabyte of names.
_MOST_LINES = 2_000_000
_TOO_MANY = f"more than {_MOST_LINES:,} lines or digests"
# The most characters of a name. No store of nbdata has longer keys.
_LONGEST_NAME = 32 << 10
_MAX_PROBLEMS = 1000  # listed one by one; a wrong file of millions of lines must not fill the memory

# A digest in base64 always ends in "=", as its length is no multiple of three bytes. So it never looks like hex.
_DIGEST = r"(?P<digest>[0-9a-fA-F]+|[A-Za-z0-9+/_-]+={1,2})"
_CRC = re.compile(r"[0-9a-fA-F]{8}")
_DIGEST_ALONE = re.compile(_DIGEST)
_GZIP = b"\x1f\x8b"
_UNTAGGED = re.compile(_DIGEST + r"(?:(?: [ *]|[ \t])(?P<name>.+))?", re.DOTALL)
# The name is greedy: BSD's tools escape nothing in it, so the last parenthesis ends it.
_TAGGED = re.compile(r"(?P<tag>[A-Za-z0-9/-]+) *\((?P<name>.+)\) ?= ?" + _DIGEST + r"\s*", re.DOTALL)
_TAGS = {tag.upper(): one.name for one in ALGORITHMS.values() for tag in (one.name, *one.tags)}
_UNKNOWN = " is not a known algorithm"
# The most characters of an algorithm's name, and of the reason why a claim cannot be used.
_LONGEST_TAG, _LONGEST_REASON = 32, 100
# Algorithms that are not read, by the hexadecimal digits of their digests.
_UNREAD = {56: "SHA-224", 96: "SHA-384"}
_NEITHER = "neither a checksum nor a comment"
# A line that begins with so many hexadecimal digits is, or was, a checksum; another one is a title or a remark.
_DIGEST_FIRST = re.compile(r"\W*[0-9A-Fa-f]{16}")
# What gpg --clearsign puts around the lines (RFC 9580, section 7): a beginning with headers, and a signature.
_SIGNED = "-----BEGIN PGP SIGNED MESSAGE-----"
_SIGNATURE, _SIGNATURE_END = "-----BEGIN PGP SIGNATURE-----", "-----END PGP SIGNATURE-----"
_SIGNED_HEADER = re.compile(r"[A-Za-z-]+: ")
# "-" is the standard input, whose name is unknown. A file with that name is written "./-".
_NAMELESS = ("", "-")
_ESCAPE = re.compile(r"\\([\\nr])")
_UNESCAPED = {"\\": "\\", "n": "\n", "r": "\r"}
_STANDARD = str.maketrans("-_", "+/")
_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", "\r": r"\r"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One digest in a checksum file.

    Attributes
    ----------
    name : str or None
        The file's name, as written in the line; None if the line holds only the digest.
    algorithm : str
        One of `nbdata.algorithms.ALGORITHMS`.
    digest : str
        The digest in lower-case hex, of the algorithm's length.
    """

    name: str | None
    algorithm: str
    digest: str


@dataclass(frozen=True)
class ChecksumFormat:
    """A problem in one line. Line 0 means the whole file.

    It is `harmless` if no checksum is lost by it: the line is plain text, or of an algorithm that nbdata does not know.
    """

    line: int
    message: str
    harmless: bool = False


@dataclass(frozen=True)
class ChecksumFile:
    """The content of a checksum file. Each line except comments is an entry or a problem."""

    entries: list[Entry]
    problems: list[ChecksumFormat]


def parse_checksums(data: bytes, *, name: str = "", algorithm: str | None = None) -> ChecksumFile:
    """Parse a checksum file of any style. Raises no error for any content.

    Parameters
    ----------
    data : bytes
        The file. More than `MAX_SIZE` bytes, also once decompressed, or more than two million lines are not read, and
        are a problem.
    name : str, optional
        The file's name, which may tell the algorithm, and tells SFV.
    algorithm : str or None
        The algorithm of digests without a tag; digests of other algorithms are then problems. None takes that in the
        file's name, else derives it from the digest's length, unless several have that (`digests.algorithms_of`).
    """
    try:
        data = _decompressed(data)
    except (ValueError, OSError, zlib.error) as error:
        return ChecksumFile([], [ChecksumFormat(0, str(error))])
    algorithm = algorithm or algorithm_in(name)
    found = _Found()
    text = _decoded(data)
    if max(text.count("\n"), text.count("\0")) >= _MOST_LINES:
        return ChecksumFile([], [ChecksumFormat(0, _TOO_MANY)])
    claims = None if is_sfv(name) else claims_of(text)
    if claims is None:
        for number, line in _lines(text):
            entry = _parse_line(line, algorithm, name_first=is_sfv(name))
            plain = entry == _NEITHER and not _DIGEST_FIRST.match(line)
            found.add(number, entry, line, plain=plain)
    else:
        for count, claim in enumerate(claims):
            if count == _MOST_LINES:
                return ChecksumFile([], [ChecksumFormat(0, _TOO_MANY)])
            found.add(claim.line, _claimed(claim, algorithm), claim.name)
    return found.file()


class _Found:
    """The entries of a file, and its problems."""

    def __init__(self) -> None:
        self._file = ChecksumFile([], [])
        self._unlisted, self._harmless = 0, True

    def add(self, number: int, entry: Entry | str, line: str, *, plain: bool = False) -> None:
        """Add an entry, or say what is wrong with a line; `plain` if it is a title or a remark."""
        if isinstance(entry, Entry):
            self._file.entries.append(entry)
            return
        harmless = plain or entry.endswith(_UNKNOWN)
        if len(self._file.problems) < _MAX_PROBLEMS:
            self._file.problems.append(ChecksumFormat(number, f"{entry}: {line[:80]!r}", harmless))
        else:
            self._unlisted, self._harmless = self._unlisted + 1, self._harmless and harmless

    def file(self) -> ChecksumFile:
        """Return all of it."""
        if self._unlisted:
            more = ChecksumFormat(0, f"{self._unlisted} more lines hold no checksum", self._harmless)
            self._file.problems.append(more)
        return self._file


def format_checksums(entries: Iterable[Entry]) -> str:
    """Write entries in GNU style, as md5sum and similar tools do. An entry without a name is bare.

    Encode it with ``errors="surrogateescape"``.

    Raises
    ------
    ValueError
        If a name is empty or has a NUL: no file has such a name, and no line could hold it.
    """
    return "".join(map(_format_entry, entries))


def _decompressed(data: bytes) -> bytes:
    """Return the bytes of a file that gzip may have compressed (RFC 1952).

    Raises ValueError, OSError or zlib.error if they are damaged or too many.
    """
    if data.startswith(_GZIP):
        try:
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(MAX_SIZE + 1)
        except EOFError:
            raise ValueError("the compressed file is cut short") from None
    if len(data) > MAX_SIZE:
        raise ValueError(f"{len(data)} bytes are too much for a checksum file ({MAX_SIZE})")
    return data


def _decoded(data: bytes) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are no comments, with their numbers from 1."""
    zero = "\0" in text  # no name has a NUL, so only --zero writes it
    lines = text.split("\0" if zero else "\n")
    if "-----BEGIN PGP" in text:
        _blank_signatures(lines)
    for number, line in enumerate(lines, start=1):
        line = line if zero else line.removesuffix("\r")
        if line.strip() and not line.lstrip().startswith(("#", ";")):
            yield number, line


def _blank_signatures(lines: list[str]) -> None:
    """Empty the lines that a signature added. A signature ends at the next line of dashes, or it is none."""
    dashed = [number for number, line in enumerate(lines) if line.startswith("-----")]
    for begin, end in pairwise([*dashed, len(lines)]):
        behind = begin
        if lines[begin].rstrip() == _SIGNED:
            behind = next((n for n in range(begin + 1, end) if not _SIGNED_HEADER.match(lines[n])), end)
        elif (
            lines[begin].rstrip() == _SIGNATURE
            and lines[end : end + 1]
            and lines[end].rstrip() == _SIGNATURE_END
        ):
            behind = end + 1
        lines[begin:behind] = [""] * (behind - begin)


def _parse_line(line: str, algorithm: str | None, *, name_first: bool) -> Entry | str:
    """Parse a line. Returns its entry, or a description of the problem."""
    if name_first:
        line = line.rstrip()
        name, digest = line[:-8].rstrip(" \t"), line[-8:]
        if not name or name[0].isspace() or line[-9] not in " \t" or not _CRC.fullmatch(digest):
            return _NEITHER
        return _entry(name, "CRC32", digest, None)
    line = line.lstrip(" \t")
    escaped = line.startswith("\\")
    line = line[1:] if escaped else line
    if match := _TAGGED.fullmatch(line):
        tag = match["tag"]
    elif match := _UNTAGGED.fullmatch(line) or _UNTAGGED.fullmatch(line.rstrip()):
        tag = ""
    else:
        return _NEITHER
    name = match["name"]
    if name is not None and escaped:
        if "\\" in _ESCAPE.sub("", name):
            return "a backslash in it escapes nothing"
        name = _ESCAPE.sub(lambda escape: _UNESCAPED[escape[1]], name)
    return _entry(name, tag, match["digest"], algorithm)


def _claimed(claim: Claim, algorithm: str | None) -> Entry | str:
    if not claim.digest:
        return claim.tag[:_LONGEST_REASON]
    if not _DIGEST_ALONE.fullmatch(claim.digest):
        return f"{claim.digest[:80]!r} is no digest"
    return _entry(claim.name, claim.tag, claim.digest, algorithm)


def _entry(name: str | None, tag: str, digest: str, algorithm: str | None) -> Entry | str:
    """Return what a digest says; a description of the problem if it is none."""
    if name is not None and len(name) > _LONGEST_NAME:
        return f"a name of {len(name):,} characters, which may have at most {_LONGEST_NAME:,}"
    digest = _hex(digest)
    if tag:
        algorithm = _TAGS.get(tag[: _LONGEST_TAG + 1].upper())
        if algorithm is None:
            return f"{tag[:_LONGEST_TAG]}{_UNKNOWN}"
    if algorithm is None:
        fitting = algorithms_of(digest)
        if len(fitting) > 1:
            return f"{len(digest)} hexadecimal digits may be {' or '.join(fitting)}; {fitting[0].upper()}SUMS tells it"
        algorithm = fitting[0] if fitting else None
    if algorithm is None:
        if len(digest) in _UNREAD:
            return f"{_UNREAD[len(digest)]}{_UNKNOWN}"
        return f"{len(digest)} hexadecimal digits do not tell the algorithm"
    if len(digest) != ALGORITHMS[algorithm].digits:
        return f"{len(digest)} hexadecimal digits are no digest of {algorithm}"
    return Entry(name if name and name.strip() not in _NAMELESS else None, algorithm, digest)


def _hex(digest: str) -> str:
    """A digest in lower-case hex; empty if it is no valid base64."""
    if not digest.endswith("="):
        return digest.lower()
    try:
        # Accept both alphabets: rclone writes the one for URLs.
        return base64.b64decode(digest.translate(_STANDARD), validate=True).hex()
    except ValueError:
        return ""


def _format_entry(entry: Entry) -> str:
    if entry.name is None:
        return f"{entry.digest}\n"
    if not entry.name or "\0" in entry.name:
        raise ValueError(f"{entry.name!r} is not a file name")
    name = f"./{entry.name}" if entry.name.strip() in _NAMELESS else entry.name
    escaped = name.translate(_ESCAPED)
    return f"{'' if escaped == name else chr(92)}{entry.digest}  {escaped}\n"
