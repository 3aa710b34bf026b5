"""Read times, checksums, errors and bodies from HTTP responses, and make the header of a range request."""

from __future__ import annotations

import base64
import binascii
import calendar
import functools
import re
import time
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate
from typing import Any

from nbdata.algorithms import KNOWN
from nbdata.bounded import whole_number
from nbdata.errors import (
    AccessDenied,
    ChecksumMismatch,
    NbdataError,
    NotFound,
    SourceChanged,
    StoreUnavailable,
)
from nbdata.stores.base import ObjectInfo, Store
from nbdata.stores.http.client import Response
from nbdata.stores.http.heads import Head

__all__ = [
    "ResponseBody",
    "ais_checksum",
    "beyond_end",
    "differs",
    "digest_in",
    "goog_hashes",
    "http_time",
    "if_match",
    "in_base64",
    "iso_time",
    "range_header",
    "refuse_another",
    "refused",
    "start_of",
    "total_of",
    "wrong_bytes",
]

# Status codes that are worth another try, from any server.
BUSY = {408, 429, 500, 502, 503, 504, 509}
_HEX = re.compile(r"[0-9a-fA-F]+")
# The most characters of a time and of an ETag.
_TIME, _ETAG = 64, 1024


class ResponseBody:
    """A response as a Body. Without a response it is the empty body of a range beyond the end."""

    def __init__(self, response: Response | None, info: ObjectInfo, start: int) -> None:
        self._response = response
        self.info, self.start = info, start
        self.length = response.length if response else 0

    def readinto(self, buffer: memoryview, /) -> int:
        return self._response.readinto(buffer) if self._response else 0

    def close(self) -> None:
        if self._response:
            self._response.close()


def range_header(start: int, end: int | None) -> dict[str, str]:
    """The header that requests the bytes ``start:end``; none for a whole object."""
    if start <= 0 and end is None:
        return {}
    return {"range": f"bytes={start}-{'' if end is None else end - 1}"}


def start_of(response: Response | Head) -> int:
    """The offset at which a range response begins, or -1 if it does not say."""
    text = response.headers.get("content-range", "")
    return whole_number(text.removeprefix("bytes ").partition("-")[0])


def total_of(response: Response | Head) -> int:
    """The size of the whole object in bytes, or -1 if the response does not say."""
    total = response.headers.get("content-range", "").rpartition("/")[2]
    if response.status in (206, 416):
        return whole_number(total)
    return whole_number(response.headers.get("content-length"))


def digest_in(text: str, size: int) -> str:
    """Decode a base64 digest of `size` bytes to hex; '' if the text is not one."""
    try:
        digest = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return ""
    return digest.hex() if len(digest) == size else ""


def in_base64(digest: str) -> str:
    """Encode a hex digest in base64; the reverse of `digest_in`."""
    return base64.b64encode(bytes.fromhex(digest)).decode()


def goog_hashes(text: str) -> dict[str, str]:
    """Read the checksums of an ``x-goog-hash`` header: ``crc32c=n03x6A==,md5=Ojk9c3dhfxgoKVVHYwFbHQ==``."""
    found = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        digest = digest_in(value, {"md5": 16, "crc32c": 4}.get(name, -1))
        if digest:
            found[name] = digest
    return found


def differs(info: ObjectInfo, match: ObjectInfo) -> bool:
    """Whether a response is of another version than the listed one, although the store did not refuse it."""
    if match.size >= 0 and info.size >= 0 and match.size != info.size:
        return True
    if match.etag and info.etag:
        return match.etag.strip('"') != info.etag.strip('"')
    if match.modified is not None and info.modified is not None:
        return int(match.modified) != int(info.modified)
    return False


def refuse_another(path: str, info: ObjectInfo, match: ObjectInfo | None) -> None:
    """Raise SourceChanged if `info` is not the version in `match`."""
    if match is not None and differs(info, match):
        raise SourceChanged(
            "the object changed while it was read",
            path=path,
            expected=match.etag,
            got=info.etag,
            remedy="Run the command again: it takes the new version",
        )


def beyond_end(store: Store, path: str, key: str, start: int, match: ObjectInfo | None) -> ResponseBody:
    """Return the empty body of a range beyond the end of an object. `head` gives its metadata."""
    info = store.head(key)
    refuse_another(path, info, match)
    return ResponseBody(None, info, start)


def refused(
    status: int,
    headers: Mapping[str, str],
    *,
    path: str,
    identity: str,
    code: str = "",
    remedy: str = "",
) -> NbdataError:
    """Return the error for a response without success.

    Parameters
    ----------
    path : str
        The requested object, as users may see it.
    identity : str
        The origin of the credentials, shown in messages; never a key.
    code : str
        The store's own error code.
    remedy : str
        The advice if the store denies access.
    """
    details: dict[str, Any] = {"status": status, "code": code}
    if status in (404, 410):
        return NotFound("there is no such object", path=path, details=details)
    if status in (401, 403, 407):
        what = remedy or "Check that this identity may do this"
        return AccessDenied(
            "the store denies access", path=path, remedy=f"{what} (identity from {identity})", details=details
        )
    if status == 412:
        return SourceChanged(
            "the object changed while it was read",
            path=path,
            remedy="Run the command again: it takes the new version",
            details=details,
        )
    answer = f"status {status}{', ' + code if code else ''}"
    if status in BUSY:
        details["retry"] = True
        after = seconds_asked(headers.get("retry-after", ""))
        if after is not None:
            details["retry_after"] = after
        return StoreUnavailable(f"the store is busy or broken ({answer})", path=path, details=details)
    return NbdataError(f"the store refused ({answer})", path=path, details=details)


def wrong_bytes(path: str, status: int, code: str) -> ChecksumMismatch:
    """Return the error for a store that rejects the data because its MD5 is not the announced one."""
    return ChecksumMismatch(
        "what the store received is not what was sent, and it refused it",
        path=path,
        remedy="What stood there before still does; if it goes on, something on the way changes bytes",
        details={"status": status, "code": code},
    )


def seconds_asked(text: str) -> int | None:
    """Seconds to wait, from a Retry-After header with seconds or a date."""
    seconds = whole_number(text)
    if seconds >= 0:
        return seconds
    until = http_time(text)
    return None if until is None else max(0, round(until - time.time()))


def iso_time(text: str | None) -> float | None:
    """Convert a time such as 2026-01-31T12:00:00Z to seconds since the epoch."""
    try:
        return datetime.fromisoformat(f"{(text or '')[:19]}+00:00").timestamp()
    except ValueError:
        return None


def ais_checksum(kind: str, value: str) -> dict[str, str]:
    """Read a checksum of AIStore by the name of its type (``cmn/cos/cksum.go``); {} if it is none that is known.

    Both types of xxhash are XXH64.
    """
    name = {"xxhash": "xxh64", "xxhash2": "xxh64"}.get(kind.lower(), kind.lower())
    known = KNOWN.get(name)
    return {name: value.lower()} if known and _HEX.fullmatch(value) and len(value) == known.digits else {}


def http_time(text: str | None) -> float | None:
    """Convert a time such as Sat, 31 Jan 2026 12:00:00 GMT to seconds since the epoch."""
    return _http_time(text) if text and len(text) <= _TIME else None


@functools.lru_cache(maxsize=256)  # many objects have the same time, and parsing it costs most
def _http_time(text: str) -> float | None:
    try:
        parsed = parsedate(text)
        return float(calendar.timegm(parsed)) if parsed else None
    except (ValueError, OverflowError, LookupError, TypeError):  # parsedate fails in many ways
        return None


def if_match(etag: str, name: str = "if-match") -> dict[str, str]:
    """The header that requires an ETag; none for an ETag that no header can hold."""
    fits = etag.isascii() and etag.isprintable() and len(etag) <= _ETAG
    return {name: etag} if etag and fits else {}
