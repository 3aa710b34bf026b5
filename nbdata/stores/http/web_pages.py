"""Tell a web page that a server gives in the place of a file: a login, or a question whether somebody is human."""

from __future__ import annotations

import re
from collections.abc import Mapping

from nbdata.stores.http.client import Response

__all__ = ["BEGINNING", "begins_as_page", "is_of_store", "is_page", "names_no_page"]

# Names of web pages, which a server may also make.
_PAGES = (".html", ".htm", ".xhtml", ".shtml", ".php", ".asp", ".aspx", ".jsp", ".cgi")
# What may come before a page's first tag, and that tag ("Parsing HTML documents", HTML Living Standard).
_BEFORE = ((b"<?", b"?>"), (b"<!--", b"-->"))
_TAG = re.compile(rb"<(!doctype\s+html|html|head|body|title|meta|script|style)\b", re.IGNORECASE)
#: Bytes at the beginning of a file that tell whether it is a page.
BEGINNING = 1024
# Headers of object stores.
_OF_STORES = (
    "x-amz-request-id",
    "x-cos-request-id",
    "x-goog-hash",
    "x-guploader-uploadid",
    "x-ms-request-id",
    "x-obs-request-id",
    "x-oss-request-id",
    "x-tos-request-id",
)


def is_page(response: Response) -> bool:
    """Whether a response says that it is a web page."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind in ("text/html", "application/xhtml+xml")


def names_no_page(key: str) -> bool:
    """Whether a key is the name of a file that is no web page: it has another extension."""
    name = key.rpartition("/")[2]
    return "." in name and not name.lower().endswith(_PAGES)


def is_of_store(headers: Mapping[str, str]) -> bool:
    """Whether an object store answers: what type an object has there is up to who wrote it."""
    return any(name in headers for name in _OF_STORES)


def begins_as_page(response: Response) -> bool:
    """Whether the first bytes of a file are those of a web page; closes the response."""
    data, at = memoryview(bytearray(BEGINNING)), 0
    try:
        while response.status in (200, 206) and at < BEGINNING and (got := response.readinto(data[at:])):
            at += got
    finally:
        response.close()
    return _is_html(bytes(data[:at]).removeprefix(b"\xef\xbb\xbf").lstrip())


def _is_html(data: bytes) -> bool:
    """Whether bytes are the beginning of a page, behind declarations and comments."""
    while True:
        for begin, end in _BEFORE:
            if data.startswith(begin):
                _, _, rest = data.partition(end)
                data = rest.lstrip()
                break
        else:
            return _TAG.match(data) is not None
