"""List objects, folders, buckets and unfinished uploads in S3."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from nbdata.errors import StoreUnavailable
from nbdata.stores.http.pages import Page, Pages
from nbdata.stores.objects import ObjectInfo
from nbdata.stores.s3.answers import decoded, listed
from nbdata.stores.s3.client import S3Client

__all__ = ["children", "pages", "pages_of_folder", "pending"]


def pages(client: S3Client, prefix: str, after: str) -> Iterator[Page[ObjectInfo]]:
    """Yield pages of the objects below a prefix that come after the key `after`."""
    return _pages(client, prefix, after, {})


def pages_of_folder(client: S3Client, prefix: str) -> Iterator[Page[ObjectInfo]]:
    """Yield pages of the objects and folders below a prefix, no deeper than the next slash."""
    return _pages(client, prefix, "", {"delimiter": "/"})


def _pages(client: S3Client, prefix: str, after: str, more: dict[str, str]) -> Iterator[Page[ObjectInfo]]:
    query = {"list-type": "2", "prefix": prefix, "encoding-type": "url", "max-keys": "1000", **more}
    if after:
        query["start-after"] = after
    pages = Pages(client.said(prefix))
    while True:
        root = client.xml("GET", "", query)
        more_said = (root.findtext("IsTruncated") or "").strip().lower()
        if root.tag != "ListBucketResult" and more_said not in ("true", "false"):
            # For example a login page. Taken for an empty bucket, it would make a mirror delete everything.
            raise StoreUnavailable(
                "the store's answer is no listing", path=client.name, got=f"<{root.tag[:40]}>"
            )
        objects = sorted([*_folders(root), *listed(root)], key=_key) if more else listed(root)
        ignored = objects and "start-after" in query and _key(objects[0]) <= _key(ObjectInfo(after, -1))
        if ignored and "marker" not in query and root.find("KeyCount") is None:
            query["marker"] = after  # version 1 of the listing begins there
            continue
        goes_on = more_said == "true"
        pages.add(objects)
        yield Page(objects, goes_on)
        if not goes_on:
            return
        token = root.findtext("NextContinuationToken")
        if token and token != query.get("continuation-token"):
            query["continuation-token"] = token
            query.pop("start-after", None)
            continue
        # A server with only version 1 of the listing sends no token, and continues after `marker`.
        last = objects[-1].key if objects else ""
        if token or not last or last == query.get("marker"):
            raise StoreUnavailable(
                "the store says that its listing goes on, and does not say where",
                path=client.said(prefix),
            )
        query.pop("continuation-token", None)
        query |= {"start-after": last, "marker": last}


def children(client: S3Client, prefix: str, limit: int) -> tuple[ObjectInfo, ...]:
    """List some objects and folders below a prefix, as `Store.children`. Without a bucket, list buckets."""
    if not client.bucket:
        names = (bucket.findtext("Name") or "" for bucket in client.xml("GET", "", {}).iter("Bucket"))
        return tuple(ObjectInfo(f"{name}/", -1) for name in names if name.startswith(prefix))[:limit]
    query = {"list-type": "2", "prefix": prefix, "delimiter": "/", "encoding-type": "url"}
    root = client.xml("GET", "", {**query, "max-keys": str(min(limit, 1000))})
    objects = [info for info in listed(root) if not info.key.endswith("/")]
    entries = sorted([*_folders(root), *objects], key=_key)
    return tuple(info for info in entries if info.key.startswith(prefix))[:limit]


def _folders(root: Element) -> list[ObjectInfo]:
    """The folders in a page of a listing."""
    decode = decoded if root.findtext("EncodingType") == "url" else str
    return [ObjectInfo(decode(item.findtext("Prefix") or ""), -1) for item in root.iterfind("CommonPrefixes")]


def _key(info: ObjectInfo) -> bytes:
    return info.key.encode("utf-8", "surrogatepass")


def pending(client: S3Client, prefix: str) -> Iterator[tuple[str, str]]:
    """Unfinished multipart uploads below a prefix, as (key, id)."""
    query = {"uploads": "", "prefix": prefix}  # SeaweedFS does not encode here, although it says so
    pages = Pages(client.said(prefix))
    while True:
        root = client.xml("GET", "", query)
        uploads = [
            (item.findtext("Key") or "", item.findtext("UploadId") or "") for item in root.iterfind("Upload")
        ]
        pages.add(uploads)
        # An upload is aborted by its key and id: one of another prefix is not ours, and one without an id is none.
        yield from ((key, upload) for key, upload in uploads if upload and key.startswith(prefix))
        marker, upload = root.findtext("NextKeyMarker"), root.findtext("NextUploadIdMarker")
        if root.findtext("IsTruncated") != "true" or not marker:
            return
        if (marker, upload or "") == (query.get("key-marker"), query.get("upload-id-marker")):
            raise StoreUnavailable(
                "the store lists the same uploads again and again", path=client.said(prefix)
            )
        query |= {"key-marker": marker, "upload-id-marker": upload or ""}
