"""Write the head of an HTTP/1.1 request, and parse the head of a response (RFC 9112)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from nbdata.stores.http.dial import Closed, Origin, proxy_headers

__all__ = ["Head", "length_of", "parse_head", "request_head"]

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
    """Parse a response's head, without its empty last line. Raises Closed if it is not HTTP."""
    first, *lines = data.decode("latin-1").split("\r\n")
    parts = first.split(" ", 2)
    if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not _STATUS.fullmatch(parts[1]):
        raise Closed("the server does not speak HTTP")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip(" \t")  # nothing else: bytes of UTF-8 may look like other blanks
    return Head(int(parts[1]), headers, parts[0] == "HTTP/1.0")


def length_of(headers: dict[str, str]) -> int:
    """The length of a body that is not chunked; -1 if the head does not say."""
    length = headers.get("content-length", "")
    return int(length) if _LENGTH.fullmatch(length) else -1


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
