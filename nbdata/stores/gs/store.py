"""One bucket of Google Cloud Storage, over its JSON API (v1).

This is a client of its own, like that for S3, for four reasons. Listings include each object's checksums, any key can
be used, a blocking read stops at once, and forks are safe. Objects are sent in one stream. From `_RESUMABLE` bytes on
that is a resumable upload, of which nothing becomes visible before all bytes have arrived.
"""

from __future__ import annotations

import copy
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from nbdata.bounded import Unreadable, parse_json, size_in
from nbdata.errors import NbdataError, NotFound, SourceChanged, StoreUnavailable
from nbdata.stores.base import FolderPage, ObjectInfo, Source, Stop, Store
from nbdata.stores.filling import fill
from nbdata.stores.gs.config import GsConfig
from nbdata.stores.http.answers import digest_in, in_base64, iso_time, range_header, refused, wrong_bytes
from nbdata.stores.http.client import Origin, Response
from nbdata.stores.http.heads import Head, request_head
from nbdata.stores.http.object_store import ObjectStore, SmallRequests, refuse_spent
from nbdata.stores.http.pages import Page, Pages, ahead
from nbdata.stores.http.pools import pool_of
from nbdata.stores.http.servers import server_at
from nbdata.stores.s3.sigv4 import quote_query

__all__ = ["GsStore"]

_FIELDS = "name,size,generation,etag,md5Hash,crc32c,updated,contentEncoding,storageClass"
_RESUMABLE = 1 << 20
_KIND = "application/octet-stream"
# What the service says of an MD5 that is not that of the bytes.
_WRONG_BYTES = "match calculated"
_REMEDY = "Check that this identity may do this to this bucket"


class GsStore(ObjectStore):
    """One bucket.

    Parameters
    ----------
    bucket : str
    config : GsConfig
    stop : Stop, optional
        Stops blocking calls.
    """

    refuses = True
    # Requests name the listed generation, and the store answers "not found" if that was replaced.
    _gone = "the object vanished or changed after it was listed"

    def __init__(self, bucket: str, config: GsConfig, *, stop: Stop | None = None) -> None:
        self.name = f"gs://{bucket}"
        self._bucket, self._config, self.stop = bucket, config, stop
        self._new: dict[str, str] = {}  # the condition that an object is new
        self._origin = Origin.of(
            config.endpoint, proxy=config.proxy, ca=config.ca, verify=config.verify, stall=config.stall
        )
        self._base = urlsplit(config.endpoint).path.rstrip("/")
        self._uploads = f"/upload/storage/v1/b/{quote(bucket, safe='')}/o"
        self._pool = pool_of(self._origin, config.tokens.identity)

    @property
    def server(self) -> str:
        return server_at(self._config.endpoint)

    # -- one request --------------------------------------------------------------------------

    def _object(self, key: str) -> str:
        return f"/storage/v1/b/{quote(self._bucket, safe='')}/o/{_quoted(key)}"

    def _send(
        self,
        method: str,
        path: str,
        key: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | Iterator[memoryview] | None = None,
        *,
        size: int = 0,
        ok: tuple[int, ...] = (200,),
    ) -> Response:
        """Send a request and return its response if the status is in `ok`; otherwise raise the matching error."""
        for last in (False, True):
            target, sent = self._signed(path, query or {}, headers or {})
            response = self._pool.request(method, target, sent, body, size=size, stop=self.stop)
            if response.status in ok:
                return response
            data, token = response.read(limit=1 << 20), sent.get("authorization", "")
            if response.status == 401 and not last and token and self._config.tokens.renewed(token):
                refuse_spent(body, "the access token had ended", self.said(key))
                continue
            break
        raise self._error(response, data, key)

    def _signed(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> tuple[str, dict[str, str]]:
        """Return the target and all headers of a request."""
        asked = dict(query)
        if self._config.user_project:
            asked["userProject"] = self._config.user_project
        sent = {"host": self._origin.netloc, "accept-encoding": "identity", **headers}
        if token := self._config.tokens.header():
            sent["authorization"] = token
        return f"{self._base}{path}" + (f"?{quote_query(asked)}" if asked else ""), sent

    def _error(self, response: Response, data: bytes, key: str) -> NbdataError:
        message = _message(data)
        if response.status == 400 and _WRONG_BYTES in message:
            return wrong_bytes(self.said(key), response.status, message[:200])
        error = refused(
            response.status,
            response.headers,
            path=self.said(key),
            identity=self._config.tokens.source,
            code=message[:200],
            remedy=_REMEDY,
        )
        if isinstance(error, NotFound) and (not key or "specified bucket" in message.lower()):
            return NotFound(
                "there is no such bucket",
                path=self.name,
                remedy="Check the name and the endpoint",
                details={**error.details, "bucket": True},
            )
        return error

    def _json(self, response: Response, key: str) -> dict[str, Any]:
        document = _document(response.read())
        if not document:
            raise StoreUnavailable(
                "the store's answer cannot be read", path=self.said(key), details={"retry": True}
            )
        return document

    # -- reading ------------------------------------------------------------------------------

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        return ahead(self._pages(prefix, after, {}))

    def list_folder(self, prefix: str) -> Iterator[ObjectInfo]:
        return ahead(self._pages(prefix, "", {"delimiter": "/"}))

    def folder_page(self, prefix: str, token: str = "") -> FolderPage:
        resuming = {"pageToken": token} if token else {}
        page = next(self._pages(prefix, "", {"delimiter": "/", **resuming}))
        return FolderPage(page.items, page.token)

    def _pages(self, prefix: str, after: str, more: Mapping[str, str]) -> Iterator[Page[ObjectInfo]]:
        query = {
            "prefix": prefix,
            "maxResults": "1000",
            "fields": f"kind,nextPageToken,prefixes,items({_FIELDS})",  # an empty listing has only its kind
            "projection": "noAcl",
            **more,
        }
        if after:
            query["startOffset"] = after  # the key `after` is listed again, and dropped below
        path = f"/storage/v1/b/{quote(self._bucket, safe='')}/o"
        pages = Pages(self.said(prefix))
        while True:
            page = _parsed(self._send("GET", path, "", query).read()) or {}
            known = page.get("kind") == "storage#objects" or not page.keys().isdisjoint(("items", "prefixes"))
            token, items = page.get("nextPageToken", ""), page.get("items", [])
            prefixes = page.get("prefixes", [])
            lists = isinstance(items, list) and isinstance(prefixes, list)
            if not (known and lists and isinstance(token, str)):
                # Taken for an empty page, it would make a mirror delete the rest.
                raise StoreUnavailable(
                    "the store's listing cannot be read", path=self.said(prefix), details={"retry": True}
                )
            infos = [_info_of(item) for item in items]
            if folders := [ObjectInfo(_text(name), -1) for name in prefixes]:
                infos = sorted([*folders, *infos], key=lambda info: info.key)
            pages.add(infos)
            # An entry without a key is none of those before `after`: it is reported.
            yield Page([info for info in infos if info.key > after or not info.key], bool(token), token)
            if not token:
                return
            if token == query.get("pageToken"):
                raise StoreUnavailable("the listing does not go on", path=self.said(prefix))
            query["pageToken"] = token

    def head(self, key: str) -> ObjectInfo:
        query = {"fields": _FIELDS, "projection": "noAcl"}
        return _info_of(self._json(self._send("GET", self._object(key), key, query), key))._replace(key=key)

    def _get(
        self, key: str, headers: dict[str, str], match: ObjectInfo | None, ok: tuple[int, ...]
    ) -> Response:
        return self._send("GET", self._object(key), key, _media(match), headers, ok=ok)

    def _info_of(self, key: str, response: Response, match: ObjectInfo | None) -> ObjectInfo:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise NbdataError(
                "the store sends it compressed, although it was asked not to", path=self.said(key)
            )
        # Only a listing or `head` has the checksums in one form, and an emulator does not send the generation.
        generation = response.headers.get("x-goog-generation", "")
        if match is not None and match.version and generation == match.version:
            return match
        info = self.head(key)
        if generation and info.version != generation:
            raise SourceChanged("the object changed while it was read", path=self.said(key))
        return info

    def small_requests(self) -> SmallRequests:
        def read(info: ObjectInfo, start: int, end: int | None) -> bytes:
            target, sent = self._signed(self._object(info.key), _media(info), range_header(start, end))
            return request_head(self._origin, "GET", target, sent)

        def write(key: str, data: bytes, md5: str) -> bytes:
            headers, whole = _with_resource(_promised(md5), _KIND, data)
            target, sent = self._signed(self._uploads, {"uploadType": "multipart", "name": key}, headers)
            return request_head(self._origin, "POST", target, sent, len(whole)) + whole

        return SmallRequests(self._pool, read, write)

    def says_wrong_bytes(self, data: bytes, head: Head) -> bool:
        return _WRONG_BYTES in _message(data)

    def info_of_whole(self, listed: ObjectInfo, head: Head) -> ObjectInfo | None:
        plain = head.headers.get("content-encoding", "identity") == "identity"
        same = listed.version and head.headers.get("x-goog-generation", "") == listed.version
        return listed if plain and same else None

    def made(self, key: str, data: bytes, head: Head, body: memoryview) -> ObjectInfo | None:
        resource = _document(bytes(body))
        return _info_of(resource) if resource else None

    # -- writing ------------------------------------------------------------------------------

    def write(
        self,
        key: str,
        source: Source,
        size: int,
        *,
        headers: Mapping[str, str] | None = None,
        md5: str = "",
    ) -> ObjectInfo:
        body = fill(source, size, self.said(key))
        kind = (headers or {}).get("content-type", _KIND)
        if 0 < size <= _RESUMABLE:
            query = {"uploadType": "multipart", "name": key, **self._new}
            # Sent whole, so that it can be repeated. Emulators make an object even of a body that breaks off.
            sent, data = _with_resource(_promised(md5), kind, b"".join(map(bytes, body)))
            response = self._send("POST", self._uploads, key, query, sent, data)
            return _info_of(self._json(response, key))
        session = self._session(key, kind, size, md5)
        sent = {"content-type": kind, "content-range": f"bytes 0-{size - 1}/{size}" if size else "bytes */0"}
        return _info_of(self._json(self._send("PUT", *session, sent, body, size=size, ok=(200, 201)), key))

    def _session(self, key: str, kind: str, size: int, md5: str) -> tuple[str, str, dict[str, str]]:
        """Begin a resumable upload. Returns the path, key and query for its bytes."""
        sent = {"x-upload-content-type": kind, "x-upload-content-length": str(size)}
        sent["content-type"] = "application/json"
        query = {"uploadType": "resumable", "name": key, **self._new}
        resource = json.dumps(_promised(md5)).encode()
        response = self._send("POST", self._uploads, key, query, sent, resource, ok=(200, 201))
        response.read()
        try:
            where = urlsplit(response.headers.get("location", ""))
        except ValueError:  # an address in brackets that is none
            where = urlsplit("")
        if not where.query or not where.path.startswith("/"):
            raise StoreUnavailable("the store gave the upload no place", path=self.said(key))
        query = {
            unquote(name): unquote(value.replace("+", "%20"))
            for name, _, value in (part.partition("=") for part in where.query.split("&"))
        }
        query.pop("userProject", None)
        return where.path.removeprefix(self._base), key, query

    def creating(self) -> GsStore:
        store = copy.copy(self)
        store._new = {"ifGenerationMatch": "0"}
        return store

    def same_objects(self, other: Store) -> bool:
        return isinstance(other, GsStore) and (self._origin, self._bucket) == (other._origin, other._bucket)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._send("DELETE", self._object(key), key, ok=(200, 204, 404)).close()


def _quoted(key: str) -> str:
    return quote(key.encode("utf-8", "surrogatepass"), safe="")


def _media(match: ObjectInfo | None) -> dict[str, str]:
    """The query for the bytes of an object, in exactly that version."""
    return {"alt": "media"} | ({"generation": match.version} if match is not None and match.version else {})


def _promised(md5: str) -> dict[str, str]:
    """A resource whose MD5 makes the store reject other bytes ("Objects: insert", JSON API reference)."""
    return {"md5Hash": in_base64(md5)} if md5 else {}


def _with_resource(resource: dict[str, str], kind: str, data: bytes) -> tuple[dict[str, str], bytes]:
    """The headers and body of a request with an object's resource and bytes ("Multipart upload", same reference)."""
    boundary = secrets.token_hex(16)
    head = (
        f"--{boundary}\r\ncontent-type: application/json\r\n\r\n{json.dumps(resource)}\r\n"
        f"--{boundary}\r\ncontent-type: {kind}\r\n\r\n"
    )
    sent = {"content-type": f"multipart/related; boundary={boundary}"}
    return sent, b"".join((head.encode("latin-1"), data, f"\r\n--{boundary}--\r\n".encode()))


def _document(data: bytes) -> dict[str, Any]:
    return _parsed(data) or {}


def _parsed(data: bytes) -> dict[str, Any] | None:
    """Parse a JSON object; None if it is none."""
    try:
        document = parse_json(data)
    except Unreadable:
        return None
    return document if isinstance(document, dict) else None


def _message(data: bytes) -> str:
    """The message in an error document, or ''."""
    problem = _document(data).get("error")
    return str(problem.get("message", "")) if isinstance(problem, dict) else ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _info_of(item: Any) -> ObjectInfo:
    """Read an object resource ("Objects", Cloud Storage JSON API reference). Anything else has no key.

    Its MD5 becomes the ETag, as in the XML API, so that a local file can be compared before a download. Composite
    objects have no MD5.
    """
    if not isinstance(item, dict):
        return ObjectInfo("", -1)
    field_of = item.get
    md5 = digest_in(_text(field_of("md5Hash")), 16)
    crc32c = digest_in(_text(field_of("crc32c")), 4)
    generation = field_of("generation")
    return ObjectInfo(
        _text(field_of("name")),
        size_in(field_of("size")),
        etag=f'"{md5}"' if md5 else _text(field_of("etag")),
        modified=iso_time(_text(field_of("updated"))),
        version=str(generation) if size_in(generation) > 0 else "",
        checksums={"crc32c": crc32c} if crc32c else {},
        storage_class="" if (told := _text(field_of("storageClass"))) == "STANDARD" else told,
    )
