"""Read the answers of AIStore: metadata in headers and listings, and errors.

An object has a checksum of a type that its bucket decides, and a version; an own bucket counts versions from 1. nbdata
makes its ETag of both, because AIStore sends none for objects of its own. Objects of a backend have the backend's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nbdata.algorithms import ALGORITHMS
from nbdata.bounded import Unreadable, parse_json, size_in
from nbdata.errors import NbdataError, NotFound, StoreUnavailable
from nbdata.stores.http.answers import refused, total_of, wrong_bytes
from nbdata.stores.http.client import Response
from nbdata.stores.http.heads import Head
from nbdata.stores.objects import ObjectInfo

__all__ = ["checksum_in", "entry_of", "error_of", "info_of", "validator_of"]

# The names of checksum types (``cmn/cos/cksum.go``); both kinds of xxhash are XXH64.
_TYPES = {"xxhash": "xxh64", "xxhash2": "xxh64", "crc32c": "crc32c", "md5": "md5"} | {
    name: name for name in ("sha256", "sha512")
}
_DIGITS = {8: "crc32c", 16: "xxh64", 32: "md5", 64: "sha256", 128: "sha512"}
_HEX = re.compile(r"[0-9a-f]{8,128}")
# An entry that is a folder (``EntryIsDir`` in ``api/apc/lsmsg.go``).
_IS_FOLDER = 1 << 8
# The ETag among the custom metadata of an entry: ``[ETag:abc, source:aws]`` (``cmn.CustomMD2S``).
_ETAG = re.compile(r"\bETag[:=]\s*\"?([^,\]\"]+)")
# What a node says of bytes that are not those of the announced checksum (``cos.ErrBadCksum``).
_WRONG_BYTES = "BAD DATA CHECKSUM"
# Somebody writes the object: it can be read again in a moment (``sdk/errors.py``, ErrGETConflict; ``checkLocked``).
_LOCKED = (409, 423)


def checksum_in(headers: Mapping[str, str]) -> tuple[str, str]:
    """The algorithm and the hex digest that an answer tells; '' for what is not known."""
    value = headers.get("ais-checksum-value", "").lower()
    name = _TYPES.get(headers.get("ais-checksum-type", "").lower(), "")
    return (name, value) if _HEX.fullmatch(value) and _DIGITS.get(len(value)) == name else ("", "")


def validator_of(value: str, version: str) -> str:
    """The ETag of an own object: its checksum and its version, which together change with the content."""
    return f'"{"-".join(filter(None, [value, version and f"v{version}"]))}"' if value or version else ""


def info_of(key: str, response: Response | Head, *, own: bool) -> ObjectInfo:
    """Read the metadata of an object from a response with all its bytes, or to HEAD.

    Parameters
    ----------
    own : bool
        Whether it is in a bucket of AIStore, not of a backend behind it.
    """
    headers = response.headers
    name, value = checksum_in(headers)
    version, etag = headers.get("ais-version", ""), headers.get("etag", "")
    if own:
        etag = validator_of(value, version)
    elif etag and not etag.startswith(('"', "W/")):
        etag = f'"{etag}"'
    return ObjectInfo(key, total_of(response), etag=etag, checksums=_known(name, value))


def _known(name: str, value: str) -> dict[str, str]:
    return {name: value} if name in ALGORITHMS else {}


def entry_of(entry: Any, *, own: bool) -> ObjectInfo:
    """Read an entry of a listing (``cmn.LsoEnt``). Anything else has no key. A size of 0 is left out there."""
    if not isinstance(entry, dict):
        return ObjectInfo("", -1)
    key, value, version = (_text(entry.get(name)) for name in ("name", "checksum", "version"))
    flags = entry.get("flags", 0)
    if isinstance(flags, int) and flags & _IS_FOLDER:
        return ObjectInfo(key.rstrip("/") + "/", -1)
    size, value = size_in(entry.get("size", "0")), value.lower()
    if own:
        known = _DIGITS.get(len(value), "") if _HEX.fullmatch(value) else ""
        etag = validator_of(value if known else "", version)
        return ObjectInfo(key, size, etag=etag, checksums=_known(known, value))
    found = _ETAG.search(_text(entry.get("custom-md")))
    return ObjectInfo(key, size, etag=f'"{found.group(1)}"' if found else "")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def error_of(response: Response, data: bytes, *, path: str, bucket: str, source: str) -> NbdataError:
    """Return the error that a response stands for.

    Parameters
    ----------
    data : bytes
        The error document (``cmn.ErrHTTP``); empty after HEAD.
    path, bucket : str
        What was requested, and the bucket, as users know them.
    source : str
        The origin of the token, shown in messages.
    """
    message, code = _told(data)
    status = response.status
    if message.startswith(_WRONG_BYTES):
        return wrong_bytes(path, status, message[:200])
    details: dict[str, Any] = {"status": status, "code": code}
    if status == 404 and (
        code in ("ErrBckNotFound", "ErrRemoteBckNotFound") or message.startswith("bucket ")
    ):
        return NotFound(
            "there is no such bucket",
            path=bucket,
            remedy="Check the name, the provider and the gateway",
            details={**details, "bucket": True},
        )
    if status in _LOCKED:
        details["retry"] = True
        return StoreUnavailable("the object is being written", path=path, details=details)
    remedy = "Check the token (AIS_AUTHN_TOKEN), and that it may do this to this bucket"
    return refused(status, response.headers, path=path, identity=source, code=message[:200], remedy=remedy)


def _told(data: bytes) -> tuple[str, str]:
    """The message and the code in an error document."""
    try:
        told = parse_json(data) if data else {}
    except Unreadable:
        return "", ""
    return (_text(told.get("message")), _text(told.get("tcode"))) if isinstance(told, dict) else ("", "")
