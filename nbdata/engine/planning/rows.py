"""What the rows of a plan remember of an object that a listing gave."""

from __future__ import annotations

from nbdata.report import Row
from nbdata.stores.base import ObjectInfo

__all__ = ["detail_of", "info_of"]


def detail_of(info: ObjectInfo) -> dict[str, object]:
    """What a row remembers of an object, beside its path and size."""
    detail: dict[str, object] = {"key": info.key}
    if info.etag:
        detail["etag"] = info.etag
    if info.modified is not None:
        detail["modified"] = info.modified
    if info.version:
        detail["version"] = info.version
    return detail


def info_of(row: Row) -> ObjectInfo:
    """The way back from `detail_of`."""
    detail = row.detail
    return ObjectInfo(
        detail["key"], row.size, detail.get("etag", ""), detail.get("modified"), detail.get("version", "")
    )
