"""List objects, folders, buckets and unfinished uploads in S3."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

from nbdata.errors import BadOption, StoreUnavailable
from nbdata.stores.http.client import Response
from nbdata.stores.http.pages import Pages, asked_ahead
from nbdata.stores.objects import FolderPage, ObjectInfo
from nbdata.stores.s3.answers import classed, decoded, listed
from nbdata.stores.s3.client import S3Client

__all__ = ["children", "entries", "folder_page", "objects", "pending"]

_Query = dict[str, str]
# Asking for it raises the error: so that comes behind the objects of the page before.
_NOWHERE: _Query = {}
# The token of the next page, which stands before the objects or behind them. One with an escape is left to the parser.
_TOKEN = re.compile(rb"<NextContinuationToken>([!-%'-;=?-~]+)</NextContinuationToken>")
_GOES_ON = re.compile(rb"<IsTruncated>true</IsTruncated>")
_ENDS = 8 << 10
# The parameters of a query that say where a listing goes on.
_RESUMING = ("continuation-token", "start-after", "marker")


def objects(client: S3Client, prefix: str, after: str) -> Iterator[ObjectInfo]:
    """Yield the objects below a prefix that come after the key `after`; asks for one page ahead."""
    begin = {"start-after": after} if after else {}
    return asked_ahead(_Listing(client, prefix, after), {**_query(prefix), **begin})


def entries(client: S3Client, prefix: str) -> Iterator[ObjectInfo]:
    """Yield the objects and folders below a prefix, no deeper than the next slash; asks for one page ahead."""
    return asked_ahead(_Listing(client, prefix, ""), {**_query(prefix), "delimiter": "/"})


def folder_page(client: S3Client, prefix: str, token: str) -> FolderPage:
    """List one page of `entries` with one request; see `nbdata.stores.base.Store.folder_page`."""
    listing = _Listing(client, prefix, "")
    request = {**_query(prefix), "delimiter": "/"}
    if token:
        request = _resumed(request, token)
    found, following = listing.read(request, listing.fetch(request))
    if following is None:
        return FolderPage(found, "")
    return FolderPage(found, json.dumps({name: following[name] for name in _RESUMING if name in following}))


def _query(prefix: str) -> _Query:
    return {"list-type": "2", "prefix": prefix, "encoding-type": "url", "max-keys": "1000"}


class _Listing:
    """One listing: see `nbdata.stores.http.pages.Asking`. A request is the query of a page."""

    def __init__(self, client: S3Client, prefix: str, after: str) -> None:
        self._client, self._said, self._after = client, client.said(prefix), after
        self._pages = Pages(self._said)

    def fetch(self, request: _Query) -> tuple[Response, bytes]:
        if request == _NOWHERE:
            raise StoreUnavailable(
                "the store says that its listing goes on, and does not say where", path=self._said
            )
        response = self._client.send("GET", "", request)
        return response, response.read()

    def foreseen(self, request: _Query, answer: tuple[Response, bytes]) -> _Query | None:
        """Return the query for the next page, if the page has a token in plain sight; the parser has the last word."""
        data = answer[1]
        ends = data[:_ENDS], data[max(_ENDS, len(data) - _ENDS) :]
        found = next(filter(None, map(_TOKEN.search, ends)), None)
        if found is None or not any(map(_GOES_ON.search, ends)):
            return None
        token = found[1].decode("ascii")
        return _behind(request, token) if token != request.get("continuation-token") else None

    def read(
        self, request: _Query, answer: tuple[Response, bytes]
    ) -> tuple[Sequence[ObjectInfo], _Query | None]:
        root = self._client.document(*answer)
        more_said = (root.findtext("IsTruncated") or "").strip().lower()
        if root.tag != "ListBucketResult" and more_said not in ("true", "false"):
            # For example a login page. Taken for an empty bucket, it would make a mirror delete everything.
            raise StoreUnavailable(
                "the store's answer is no listing", path=self._client.name, got=f"<{root.tag[:40]}>"
            )
        found = listed(root)
        if "delimiter" in request:
            found = sorted([*_folders(root), *classed(root, found)], key=_key)
        ignored = found and "start-after" in request and _key(found[0]) <= _key(ObjectInfo(self._after, -1))
        if ignored and "marker" not in request and root.find("KeyCount") is None:
            return (), {**request, "marker": self._after}  # version 1 of the listing begins there
        self._pages.add(found)
        if more_said != "true":
            return found, None
        token = root.findtext("NextContinuationToken")
        if token and token != request.get("continuation-token"):
            return found, _behind(request, token)
        # A server with only version 1 of the listing sends no token, and continues after `marker`.
        last = found[-1].key if found else ""
        if token or not last or last == request.get("marker"):
            return found, _NOWHERE
        following = {**request, "start-after": last, "marker": last}
        following.pop("continuation-token", None)
        return found, following


def _behind(request: _Query, token: str) -> _Query:
    """Return the query for the page that a token leads to."""
    following = {**request, "continuation-token": token}
    following.pop("start-after", None)
    return following


def _resumed(request: _Query, token: str) -> _Query:
    """Return the query for the page that a token of `folder_page` leads to."""
    try:
        said = json.loads(token)
    except ValueError:
        said = None
    if not isinstance(said, dict) or any(
        name not in _RESUMING or not isinstance(value, str) for name, value in said.items()
    ):
        raise BadOption("this is no token of a page", remedy="List the folder from its beginning")
    return {**request, **said} if said else _NOWHERE


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
