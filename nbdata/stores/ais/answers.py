"""Read the answers of AIStore: metadata in headers and listings, and errors.

An object has a checksum of a type that its bucket decides, and a version; an own bucket counts versions from 1. nbdata
makes its ETag of both, because AIStore sends none for objects of its own. Objects of a backend have the backend's ETag,
which does not count as an MD5: nothing tells whether the backend encrypts them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nbdata.bounded import Unreadable, parse_json, size_in
from nbdata.errors import NbdataError, NotFound, StoreUnavailable
from nbdata.stores.http.answers import ais_checksum, refused, total_of, wrong_bytes
from nbdata.stores.http.client import Response
from nbdata.stores.http.heads import Head
from nbdata.stores.objects import ObjectInfo

__all__ = [
    "bucket_names",
    "checksum_in",
    "entry_of",
    "error_of",
    "info_of",
    "is_bucket_name",
    "is_folder",
    "unfit",
    "validator_of",
]

# Digits of a checksum, and what it is then.
_DIGITS = {8: "crc32c", 16: "xxh64", 32: "md5", 64: "sha256", 128: "sha512"}
# An entry that is a folder (``EntryIsDir`` in ``api/apc/lsmsg.go``).
_IS_FOLDER = 1 << 8
# The ETag among the custom metadata of an entry: ``[ETag:abc, source:aws]`` (``cmn.CustomMD2S``).
_ETAG = re.compile(r"\bETag[:=]\s*\"?([^,\]\"]+)")
# What a node says of bytes that are not those of the announced checksum (``cos.ErrBadCksum``).
_WRONG_BYTES = "BAD DATA CHECKSUM"
# Somebody writes the object: it can be read again in a moment (``sdk/errors.py``, ErrGETConflict; ``checkLocked``).
_LOCKED = (409, 423)


def checksum_in(headers: Mapping[str, str]) -> dict[str, str]:
    """The checksum that an answer tells, by algorithm; {} if it tells none."""
    return ais_checksum(headers.get("ais-checksum-type", ""), headers.get("ais-checksum-value", ""))


def validator_of(checksums: Mapping[str, str], version: str) -> str:
    """The ETag of an own object: its checksum and its version, which together change with the content."""
    value = "".join(checksums.values())
    return f'"{"-".join(filter(None, [value, version and f"v{version}"]))}"' if value or version else ""


def info_of(key: str, response: Response | Head, *, own: bool) -> ObjectInfo:
    """Read the metadata of an object from a response with all its bytes, or to HEAD.

    Parameters
    ----------
    own : bool
        Whether it is in a bucket of AIStore, not of a backend behind it.
    """
    headers = response.headers
    checksums = checksum_in(headers)
    version, etag = headers.get("ais-version", ""), headers.get("etag", "")
    etag = validator_of(checksums, version) if own else _of_backend(etag)
    return ObjectInfo(key, total_of(response), etag=etag, checksums=checksums)


def _of_backend(etag: str) -> str:
    etag = etag.removeprefix("W/").strip('"')
    return f'"backend-{etag}"' if etag else ""


def entry_of(entry: Any, *, own: bool) -> ObjectInfo:
    """Read an entry of a listing (``cmn.LsoEnt``). Anything else has no key. A size of 0 is left out there."""
    if not isinstance(entry, dict):
        return ObjectInfo("", -1)
    key, value, version = (_text(entry.get(name)) for name in ("name", "checksum", "version"))
    if unfit(key):
        return ObjectInfo("", -1)
    flags = entry.get("flags", 0)
    if isinstance(flags, int) and flags & _IS_FOLDER:
        return ObjectInfo(key.rstrip("/") + "/", -1)
    size = size_in(entry.get("size", "0"))
    if own:  # an entry does not say of which type its checksum is, but each has another length
        checksums = ais_checksum(_DIGITS.get(len(value), ""), value)
        return ObjectInfo(key, size, etag=validator_of(checksums, version), checksums=checksums)
    found = _ETAG.search(_text(entry.get("custom-md")))
    return ObjectInfo(key, size, etag=_of_backend(found.group(1) if found else ""))


def is_bucket_name(name: str) -> bool:
    """Whether a bucket may have this name (``cos.CheckAlphaPlus``)."""
    return bool(name) and name.isascii() and all(one.isalnum() or one in "-_." for one in name)


def bucket_names(told: Any, provider: str) -> list[str]:
    """Read a list of buckets (``cmn.Bcks``), sorted by name.

    Those in a namespace of their cluster have no URL, and are left out.

    Raises
    ------
    Unreadable
        If it is no list.
    """
    if told is None:  # an empty list, as Go writes it
        return []
    if not isinstance(told, list):
        raise Unreadable("no list of buckets")
    names = set[str]()
    for bucket in told:
        if not isinstance(bucket, dict) or bucket.get("provider") != provider:
            continue
        name, space = _text(bucket.get("name")), bucket.get("namespace")
        if is_bucket_name(name) and not (isinstance(space, dict) and space.get("name")):
            names.add(name)
    return sorted(names)


def unfit(key: str) -> str:
    """Return why AIStore has no such key, or ''. A server in front of it would take it for one of another bucket."""
    return "has a part . or .." if not {".", ".."}.isdisjoint(key.split("/")) else ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def is_folder(info: ObjectInfo) -> bool:
    """Whether an entry of a listing is a folder. Backends call empty objects with a slash at their end folders, too."""
    return info.size < 0 and info.key.endswith("/")


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
