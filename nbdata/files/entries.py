"""What fsspec calls *info*: a dict that describes a file or folder, made of a store's `ObjectInfo`, and back."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from nbdata.stores.base import ObjectInfo

__all__ = ["Entry", "file_entry", "folder_entry", "info_in"]

#: Has name, size in bytes (0 for a folder), and type (``file`` or ``directory``). A file has also, where the store
#: reports them, ``ETag`` (without quotes), ``LastModified`` (with a time zone) and ``VersionId``.
Entry = dict[str, Any]


def file_entry(name: str, info: ObjectInfo) -> Entry:
    """Return the entry of an object. A size that the store does not report is None."""
    entry: Entry = {"name": name, "size": info.size if info.size >= 0 else None, "type": "file"}
    if info.etag:
        entry["ETag"] = info.etag.strip('"') if not info.etag.startswith("W/") else info.etag
    if info.modified is not None:
        entry["LastModified"] = datetime.fromtimestamp(info.modified, timezone.utc)
    if info.version:
        entry["VersionId"] = info.version
    return entry


def folder_entry(name: str) -> Entry:
    """Return the entry of a folder."""
    return {"name": name, "size": 0, "type": "directory"}


def info_in(entry: Entry, key: str) -> ObjectInfo:
    """Return the metadata of the object that an entry describes."""
    size, etag, modified = entry.get("size"), str(entry.get("ETag") or ""), entry.get("LastModified")
    return ObjectInfo(
        key,
        size if isinstance(size, int) else -1,
        etag if not etag or etag.startswith("W/") else f'"{etag}"',
        modified.timestamp() if isinstance(modified, datetime) else None,
        str(entry.get("VersionId") or ""),
    )
