"""Describes a file that is not an archive: most often a server's error page, saved under the archive's name."""

from __future__ import annotations

import re

__all__ = ["looks_like"]

_SHOWN = 60  # characters of a text
_LONG = 24  # words of this many characters may be keys
_SECRET = re.compile(
    r"pass(word|wd|phrase)|secret|token|credential|api.?key|access.?key|private|signature|login",
    re.IGNORECASE,
)
_BINARY = (
    (b"Rar!", "a RAR archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"LZIP", "lzip data (.lz)"),
    (b"\x04\x22\x4d\x18", "LZ4 data (.lz4)"),
    (b"\x1f\x9d", "data of compress (.Z)"),
    (b"\x5d\x00\x00", "LZMA data (.lzma)"),
    (b"\x89LZO", "lzop data (.lzo)"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ", "xz data"),
    (b"\x28\xb5\x2f\xfd", "Zstandard data"),
    (b"PK\x03\x04", "a zip archive"),
    (b"!<arch>\n", "an archive of ar (.a, .deb)"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"%PDF", "a PDF document"),
    (b"\x7fELF", "a program"),
    (b"\x89HDF", "HDF5 data"),
    (b"PAR1", "Parquet data"),
    (b"version https://git-lfs", "a pointer of Git LFS, not the file itself"),
)
_TITLE = re.compile(r"<title[^>]*>([^<]+)", re.IGNORECASE)
_CODE = re.compile(r"<Code>(\w{1,60})</Code>(?:\s*<Message>([^<]+))?")
_JSON = re.compile(r"\s*(\{\s*[\"}]|\[\s*[\[{\"\]\d-])")
_MESSAGE = re.compile(
    r"\"(?:message|error|error_description|detail|title|code|reason)\"\s*:\s*\"([^\"]*)\"", re.IGNORECASE
)
_TAGS = re.compile(r"<[^>]*>?")
_PAGE = re.compile(r"\s*<(!doctype html|html|head|body|title)", re.IGNORECASE)


def looks_like(head: bytes) -> str:
    """Describe a file, with its first words if it is text.

    Parameters
    ----------
    head : bytes
        The file's first bytes, about 512.
    """
    if not head:
        return "nothing: it is empty"
    if not any(head):
        return "only zeros, as a download leaves them that reserved the space and did not fill it"
    for magic, what in _BINARY:
        if head.startswith(magic):
            return what
    text = _text(head)
    if text is None:
        return f"bytes {head[:8].hex(' ')}"
    if _PAGE.match(text):
        return f"a web page (HTML){_quoted(_title(text))}"
    if text.lstrip().startswith("<"):
        said = _CODE.search(text)
        quoted = _quoted(_TAGS.sub(" ", text))
        if said is not None:
            quoted = _quoted(": ".join(filter(None, said.groups()))) or f' that begins "{said[1]}"'
        return f"XML, perhaps an error message of the server{quoted}"
    if _JSON.match(text):
        return f"JSON, perhaps an error message of the server{_quoted(', '.join(_MESSAGE.findall(text)))}"
    return f"text{_quoted(text)}"


def _title(page: str) -> str:
    found = _TITLE.search(page)
    return found[1] if found is not None else _TAGS.sub(" ", page)


def _text(head: bytes) -> str | None:
    """Decode the bytes as text; None if they are not text. The last character may be cut off."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) and head.count(0) * 3 > len(head):
        return head.decode("utf-16", "ignore")
    text = head.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").rstrip("\ufffd")
    odd = sum(not (c.isprintable() or c in "\t\r\n\f") or c == "\ufffd" for c in text)
    return text if text and odd * 20 <= len(text) else None


def _quoted(text: str) -> str:
    """Return the first words of a text on one line; empty if the text may hold a secret."""
    words = "".join(c if c.isprintable() else " " for c in text).split()
    if _SECRET.search(text) or any(len(word) > _LONG for word in words):
        return ""
    line = " ".join(words)
    shown = line[:_SHOWN] + ("…" if len(line) > _SHOWN else "")
    return f' that begins "{shown}"' if line else ""
