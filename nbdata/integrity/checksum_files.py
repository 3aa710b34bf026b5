r"""Read and write checksum files, line by line.

==========  ==============================  ==========================================================
style       line                            written by
==========  ==============================  ==========================================================
GNU         ``HEX  name``, ``HEX *name``    md5sum, sha256sum …
reversed    ``HEX name``                    BSD's ``md5 -r``; also with a tab
BSD         ``MD5 (name) = HEX``            BSD's md5, ``md5sum --tag``, cksum
OpenSSL     ``MD5(name)= HEX``              ``openssl dgst``
bare        ``HEX``, ``HEX  -``             scripts, ``md5sum < name``
base64      any of them, ``BASE64`` for     ``cksum --base64``, ``rclone hashsum --base64``, ``openssl … | base64``
            ``HEX``
==========  ==============================  ==========================================================

GNU's tools put a backslash before a line whose name has a backslash, newline or carriage return, and write these as
``\\``, ``\n`` and ``\r`` (https://www.gnu.org/software/coreutils/manual/html_node/cksum-output-modes.html). With
``--zero``, lines end in NUL and nothing is escaped. Windows adds a byte order mark, CRLF or UTF-16. All of these are
read. Blank lines and lines that begin with ``#`` or ``;`` are comments. Every other line is an entry or a problem; none
is skipped.

Names are decoded as file names are (UTF-8 with surrogateescape). Encode the result of `format_checksums` the same way.
"""

from __future__ import annotations

import base64
import codecs
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nbdata.integrity.digests import DIGEST_LENGTHS, algorithm_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["MAX_SIZE", "ChecksumFile", "ChecksumFormat", "Entry", "format_checksums", "parse_checksums"]

MAX_SIZE = 64 << 20
"""Bytes of the largest checksum file that is read: about half a million names."""

_MAX_PROBLEMS = 1000  # listed one by one; a wrong file of millions of lines must not fill the memory

# A digest in base64 always ends in "=", as its length is no multiple of three bytes. So it never looks like hex.
_DIGEST = r"(?P<digest>[0-9a-fA-F]+|[A-Za-z0-9+/_-]+={1,2})"
_UNTAGGED = re.compile(_DIGEST + r"(?:(?: [ *]|[ \t])(?P<name>.+))?", re.DOTALL)
# The name is greedy: BSD's tools escape nothing in it, so the last parenthesis ends it.
_TAGGED = re.compile(r"(?P<tag>[A-Za-z0-9/-]+) ?\((?P<name>.+)\) ?= ?" + _DIGEST + r"\s*", re.DOTALL)
_TAGS = {
    "MD5": "md5",
    "SHA1": "sha1",
    "SHA-1": "sha1",
    "SHA256": "sha256",
    "SHA-256": "sha256",
    "SHA2-256": "sha256",  # OpenSSL 3
    "SHA512": "sha512",
    "SHA-512": "sha512",
    "SHA2-512": "sha512",
    "CRC32": "crc32",
    "CRC32C": "crc32c",
    "CRC64NVME": "crc64nvme",
}
_UNKNOWN = " is not a known algorithm"
# Algorithms that are not read, by the hexadecimal digits of their digests.
_UNREAD = {56: "SHA-224", 96: "SHA-384"}
_NEITHER = "neither a checksum nor a comment"
# A line that begins with so many hexadecimal digits is, or was, a checksum; another one is a title or a remark.
_DIGEST_FIRST = re.compile(r"\W*[0-9A-Fa-f]{16}")
# What gpg --clearsign puts around the lines (RFC 9580, section 7): a header, and a signature.
_SIGNED = re.compile(
    r"-----BEGIN PGP SIGNED MESSAGE-----\r?\n(?:[A-Za-z-]+: [^\r\n]*\r?\n)*"
    r"|-----BEGIN PGP SIGNATURE-----\r?\n(?:(?!-----)[^\n]*\n)*-----END PGP SIGNATURE-----"
)
# "-" is the standard input, whose name is unknown. A file with that name is written "./-".
_NAMELESS = ("", "-")
_ESCAPED_NAME = re.compile(r"(?:[^\\]|\\[\\nr])*")
_ESCAPE = re.compile(r"\\(.)")
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
        One of ``digests.ALGORITHMS``.
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


def parse_checksums(data: bytes, *, algorithm: str | None = None) -> ChecksumFile:
    """Parse a checksum file of any style. Raises no error for any content.

    Parameters
    ----------
    data : bytes
        The file. More than `MAX_SIZE` bytes are not read, and are a problem.
    algorithm : str or None
        The algorithm of digests without a tag, for example from the file's name. Digests of other algorithms are then
        problems. None derives it from the digest's length, except for CRC-32C (`digests.algorithm_of`).
    """
    if len(data) > MAX_SIZE:
        return ChecksumFile(
            [], [ChecksumFormat(0, f"{len(data)} bytes are too much for a checksum file ({MAX_SIZE})")]
        )
    found = ChecksumFile([], [])
    unlisted, harmless = 0, True
    for number, line in _lines(data):
        entry = _parse_line(line, algorithm)
        if isinstance(entry, Entry):
            found.entries.append(entry)
            continue
        text = entry.endswith(_UNKNOWN) or (entry == _NEITHER and not _DIGEST_FIRST.match(line))
        if len(found.problems) < _MAX_PROBLEMS:
            found.problems.append(ChecksumFormat(number, f"{entry}: {line[:80]!r}", text))
        else:
            unlisted, harmless = unlisted + 1, harmless and text
    if unlisted:
        found.problems.append(ChecksumFormat(0, f"{unlisted} more lines hold no checksum", harmless))
    return found


def format_checksums(entries: Iterable[Entry]) -> str:
    """Write entries in GNU style, as md5sum and similar tools do. An entry without a name is bare.

    Encode it with ``errors="surrogateescape"``.

    Raises
    ------
    ValueError
        If a name is empty or has a NUL: no file has such a name, and no line could hold it.
    """
    return "".join(map(_format_entry, entries))


def _lines(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield the lines that are no comments, with their numbers from 1."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = data.decode("utf-16", "replace")
    else:
        text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")
    text = _SIGNED.sub(lambda found: "\n" * found[0].count("\n"), text)  # keeps the numbers of the lines
    zero = "\0" in text  # no name has a NUL, so only --zero writes it
    for number, line in enumerate(text.split("\0" if zero else "\n"), start=1):
        line = line if zero else line.removesuffix("\r")
        if line.strip() and not line.lstrip().startswith(("#", ";")):
            yield number, line


def _parse_line(line: str, algorithm: str | None) -> Entry | str:
    """Parse a line. Returns its entry, or a description of the problem."""
    line = line.lstrip(" \t")
    escaped = line.startswith("\\")
    line = line[1:] if escaped else line
    if match := _TAGGED.fullmatch(line):
        algorithm = _TAGS.get(match["tag"].upper())
        if algorithm is None:
            return f"{match['tag']}{_UNKNOWN}"
        digest = _hex(match["digest"])
    elif match := _UNTAGGED.fullmatch(line) or _UNTAGGED.fullmatch(line.rstrip()):
        digest = _hex(match["digest"])
        algorithm = algorithm or algorithm_of(digest)
        if algorithm is None:
            if len(digest) in _UNREAD:
                return f"{_UNREAD[len(digest)]}{_UNKNOWN}"
            return f"{len(digest)} hexadecimal digits do not tell the algorithm"
    else:
        return _NEITHER
    if len(digest) != DIGEST_LENGTHS[algorithm]:
        return f"{len(digest)} hexadecimal digits are no digest of {algorithm}"
    name = match["name"]
    if name is not None and escaped:
        if not _ESCAPED_NAME.fullmatch(name):
            return "a backslash in it escapes nothing"
        name = _ESCAPE.sub(lambda escape: _UNESCAPED[escape[1]], name)
    name = name if name and name.strip() not in _NAMELESS else None
    return Entry(name, algorithm, digest)


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
