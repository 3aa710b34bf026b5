"""What stores over HTTP read from an answer: times, checksums, errors, the body; and how a range is asked for."""

from __future__ import annotations

import base64
import binascii
import calendar
import functools
import time
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate
from typing import Any

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
    "beyond_end",
    "differs",
    "digest_in",
    "goog_hashes",
    "http_time",
    "in_base64",
    "iso_time",
    "range_header",
    "refuse_another",
    "refused",
    "start_of",
    "total_of",
    "wrong_bytes",
]

# What is worth another try, whoever answers it.
BUSY = {408, 429, 500, 502, 503, 504, 509}


class ResponseBody:
    """A response as a Body; without one, the empty body of a range beyond the end."""

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
    """The header that asks for the bytes ``start:end``; none for a whole object."""
    if start <= 0 and end is None:
        return {}
    return {"range": f"bytes={start}-{'' if end is None else end - 1}"}


def start_of(response: Response | Head) -> int:
    """Where the bytes of an answer to a range begin, or -1 if it does not say."""
    text = response.headers.get("content-range", "")
    start = text.removeprefix("bytes ").partition("-")[0]
    return int(start) if start.isdigit() else -1


def total_of(response: Response | Head) -> int:
    """Bytes of the whole object, or -1 if the answer does not say."""
    total = response.headers.get("content-range", "").rpartition("/")[2]
    if response.status in (206, 416):
        return int(total) if total.isdigit() else -1
    size = response.headers.get("content-length", "")
    return int(size) if size.isdigit() else -1


def digest_in(text: str, size: int) -> str:
    """A digest of `size` bytes written in base64, as hex; '' if it is none."""
    try:
        digest = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return ""
    return digest.hex() if len(digest) == size else ""


def in_base64(digest: str) -> str:
    """The counterpart of `digest_in`."""
    return base64.b64encode(bytes.fromhex(digest)).decode()


def goog_hashes(text: str) -> dict[str, str]:
    """The checksums of an ``x-goog-hash`` header: ``crc32c=n03x6A==,md5=Ojk9c3dhfxgoKVVHYwFbHQ==``."""
    found = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        digest = digest_in(value, {"md5": 16, "crc32c": 4}.get(name, -1))
        if digest:
            found[name] = digest
    return found


def differs(info: ObjectInfo, match: ObjectInfo) -> bool:
    """Whether an answer is of another version than was listed, although the store let it pass."""
    if match.size >= 0 and info.size >= 0 and match.size != info.size:
        return True
    if match.etag and info.etag:
        return match.etag.strip('"') != info.etag.strip('"')
    if match.modified is not None and info.modified is not None:
        return int(match.modified) != int(info.modified)
    return False


def refuse_another(path: str, info: ObjectInfo, match: ObjectInfo | None) -> None:
    """SourceChanged if `info` is not the version that `match` describes."""
    if match is not None and differs(info, match):
        raise SourceChanged(
            "the object changed while it was read",
            path=path,
            expected=match.etag,
            got=info.etag,
            remedy="Run the command again: it takes the new version",
        )


def beyond_end(store: Store, path: str, key: str, start: int, match: ObjectInfo | None) -> ResponseBody:
    """The empty body of a range beyond the end of an object, of which `head` tells the rest."""
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
    """The error that an answer means which is no success.

    Parameters
    ----------
    path : str
        What was asked for, as users may see it.
    identity : str
        Where the credentials came from, for people; never a key.
    code : str
        The store's own word for it.
    remedy : str
        What to do when it denies access.
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
    said = f"status {status}{', ' + code if code else ''}"
    if status in BUSY:
        details["retry"] = True
        after = seconds_asked(headers.get("retry-after", ""))
        if after is not None:
            details["retry_after"] = after
        return StoreUnavailable(f"the store is busy or broken ({said})", path=path, details=details)
    return NbdataError(f"the store refused ({said})", path=path, details=details)


def wrong_bytes(path: str, status: int, code: str) -> ChecksumMismatch:
    """The error where a store refuses what arrived, since its MD5 is not the one that it was told."""
    return ChecksumMismatch(
        "what the store received is not what was sent, and it refused it",
        path=path,
        remedy="What stood there before still does; if it goes on, something on the way changes bytes",
        details={"status": status, "code": code},
    )


def seconds_asked(text: str) -> int | None:
    """What a Retry-After header asks for: seconds, or a date."""
    if text.isdigit() and len(text) < 9:
        return int(text)
    until = http_time(text)
    return None if until is None else max(0, round(until - time.time()))


def iso_time(text: str | None) -> float | None:
    """Seconds since the epoch of a time such as 2026-01-31T12:00:00Z."""
    try:
        return datetime.fromisoformat(f"{(text or '')[:19]}+00:00").timestamp()
    except ValueError:
        return None


@functools.lru_cache(
    maxsize=256
)  # many objects are as old as another, and to read it takes longer than the rest
def http_time(text: str | None) -> float | None:
    """Seconds since the epoch of a time such as Sat, 31 Jan 2026 12:00:00 GMT."""
    try:
        parsed = parsedate(text) if text else None
        return float(calendar.timegm(parsed)) if parsed else None
    except (ValueError, OverflowError):
        return None
