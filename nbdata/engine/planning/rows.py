"""Stores the facts of a listed object in a row of a plan."""

from __future__ import annotations

from nbdata.report import Row
from nbdata.stores.base import ObjectInfo

__all__ = ["detail_of", "info_of"]


def detail_of(info: ObjectInfo) -> dict[str, object]:
    """Return the facts of an object for a row, beside its path and size."""
    detail: dict[str, object] = {"key": info.key}
    if info.etag:
        detail["etag"] = info.etag
    if info.modified is not None:
        detail["modified"] = info.modified
    if info.version:
        detail["version"] = info.version
    return detail


def info_of(row: Row) -> ObjectInfo:
    """Rebuild the object from `detail_of`."""
    detail = row.detail
    return ObjectInfo(
        detail["key"], row.size, detail.get("etag", ""), detail.get("modified"), detail.get("version", "")
    )
