"""Write the head of an HTTP/1.1 request, and parse the head of a response (RFC 9112)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from nbdata.bounded import whole_number
from nbdata.stores.http.dial import Closed, Malformed, Origin, proxy_headers

__all__ = ["Head", "length_of", "parse_head", "request_head", "unlike_http"]

# ASCII digits only: `int` and `str.isdigit` accept many more.
_STATUS, _LENGTH = re.compile(r"[1-5][0-9]{2}"), re.compile(r"[0-9]{1,18}")


class Head(NamedTuple):
    """The head of a response, with header names in lower case."""

    status: int
    headers: dict[str, str]
    http10: bool

    @property
    def keeps(self) -> bool:
        """Whether the connection can be reused after a body of known length."""
        return not self.http10 and "close" not in self.headers.get("connection", "").lower()


def parse_head(data: bytes) -> Head:
    """Parse a response's head, without its empty last line.

    Raises
    ------
    Closed
        If it is not HTTP.
    Malformed
        If it does not tell for certain where its body ends ("Message Body Length", RFC 9112), or if one of its lines
        holds a line break, which would begin a header of its own in a request that repeats the value.
    """
    text = data.decode("latin-1")
    first, *lines = text.split("\r\n")
    parts = first.split(" ", 2)
    if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not _STATUS.fullmatch(parts[1]):
        raise Closed("the server does not speak HTTP")
    if text.count("\n") != len(lines) or text.count("\r") != len(lines) or "\0" in text:
        raise Malformed("a line of its head holds a line break or a NUL")
    headers = dict[str, str]()
    lengths = dict[str, None]()
    for line in lines:
        name, _, value = line.partition(":")
        name = name.lower()
        headers[name] = value.strip(" \t")  # nothing else: bytes of UTF-8 may look like other blanks
        if name == "content-length":
            lengths[headers[name]] = None
    if "transfer-encoding" in headers:
        _refuse_unless_chunked(headers)
    if lengths:
        headers["content-length"] = _one_length(lengths)
    return Head(int(parts[1]), headers, parts[0] == "HTTP/1.0")


def _refuse_unless_chunked(headers: dict[str, str]) -> None:
    """Drop the encoding ``identity``, which is none; raise Malformed for any other that is not ``chunked``."""
    encoding = headers["transfer-encoding"].lower()
    if encoding == "identity":
        del headers["transfer-encoding"]
    elif encoding != "chunked":
        raise Malformed(f"the transfer encoding {encoding[:40]!r} is unknown")
    elif "content-length" in headers:
        raise Malformed("it gives its body both a length and chunks")


def _one_length(lengths: Iterable[str]) -> str:
    """Return the length in one or more headers, each perhaps a list; raise Malformed unless all are equal."""
    different = {one.strip(" \t") for length in lengths for one in length.split(",")}
    if len(different) > 1:
        raise Malformed(f"it gives its body different lengths: {', '.join(sorted(different))[:60]}")
    length = different.pop()
    if not _LENGTH.fullmatch(length):
        raise Malformed(f"its length {length[:40]!r} is no number of bytes")
    return length


def length_of(headers: dict[str, str]) -> int:
    """The length of a body that is not chunked; -1 if the head does not say."""
    return whole_number(headers.get("content-length"))


def request_head(
    origin: Origin, method: str, target: str, headers: Mapping[str, str], size: int | None = None
) -> bytes:
    """The head of a request, with a body of `size` bytes, or without one (None)."""
    plain_proxy = origin.proxy and origin.scheme == "http"
    lines = [f"{method} {f'{origin}{target}' if plain_proxy else target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if plain_proxy:
        lines += [f"{n}: {v}" for n, v in proxy_headers(origin).items()]
    if size is not None:
        lines.append(f"Content-Length: {size}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def unlike_http(received: bytes) -> str:
    """Explain from the received bytes why the server closed without sending a head."""
    if received.startswith(b"\x15\x03"):  # an alert of TLS ("Record Layer", RFC 8446)
        return "the server wants https there"
    if received and not received.startswith(b"HTTP/"):
        return "the server does not speak HTTP"
    return "the server closed the connection"
