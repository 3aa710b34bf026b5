"""One container of Azure Blob Storage, over its REST API.

This is a client of its own, like that for S3 (`gs` has the reasons). Objects are block blobs. Small ones are sent in
one request, and Azure stores and returns their MD5. Large ones are sent as blocks, which are then committed as a list.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import hmac
import secrets
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping
from email.utils import formatdate
from urllib.parse import quote, unquote, urlsplit

from nbdata.bounded import Unreadable, parse_xml, whole_number
from nbdata.errors import NbdataError, NotFound, SourceChanged, StoreUnavailable
from nbdata.stores.az.config import AzConfig
from nbdata.stores.base import FolderPage, ObjectInfo, Source, Stop, Store, Upload
from nbdata.stores.filling import fill
from nbdata.stores.http.answers import (
    digest_in,
    http_time,
    if_match,
    in_base64,
    range_header,
    refused,
    total_of,
    wrong_bytes,
)
from nbdata.stores.http.client import Origin, Response
from nbdata.stores.http.heads import Head, request_head
from nbdata.stores.http.object_store import ObjectStore, SmallRequests, refuse_spent
from nbdata.stores.http.pages import Page, Pages, ahead
from nbdata.stores.http.pools import pool_of
from nbdata.stores.http.servers import server_at
from nbdata.stores.s3.sigv4 import quote_query

__all__ = ["AzStore", "signature"]

_VERSION = "2021-08-06"
# The last version that returns the MD5 of a block without being asked ("Put Block", Blob Storage REST API).
_VERSION_OF_BLOCKS = "2018-11-09"
# Headers that are signed in a fixed position ("Authorize with Shared Key").
_SIGNED = (
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
)
_REMEDY = "Check that this identity may do this to this container, and for a SAS that it has not expired"
_KEPT = {
    "content-type": "x-ms-blob-content-type",
    "content-encoding": "x-ms-blob-content-encoding",
    "content-language": "x-ms-blob-content-language",
    "content-disposition": "x-ms-blob-content-disposition",
    "cache-control": "x-ms-blob-cache-control",
}
# In the class, `list` means the method.
_Keys = list[str]


class AzStore(ObjectStore):
    """One container.

    Parameters
    ----------
    container : str
    config : AzConfig
    stop : Stop, optional
        Stops blocking calls.
    """

    multipart = refuses = True
    min_part = 1 << 20
    max_parts = 50_000
    _page = 5000  # the most blobs in one page of a listing

    def __init__(self, container: str, config: AzConfig, *, stop: Stop | None = None) -> None:
        self.name = f"az://{container}"
        self._container, self._config, self.stop = container, config, stop
        self._new: dict[str, str] = {}  # the condition that a blob is new
        self._origin = Origin.of(
            config.endpoint, proxy=config.proxy, ca=config.ca, verify=config.verify, stall=config.stall
        )
        self._base = f"{urlsplit(config.endpoint).path.rstrip('/')}/{quote(container, safe='$')}"
        self._pool = pool_of(self._origin, (config.account, config.key, config.sas, config.tokens.identity))

    @property
    def server(self) -> str:
        return f"{self._config.account.lower()}@{server_at(self._config.endpoint)}"

    # -- one request --------------------------------------------------------------------------

    def _send(
        self,
        method: str,
        key: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | Iterator[memoryview] | None = None,
        *,
        size: int = 0,
        ok: tuple[int, ...] = (200,),
    ) -> Response:
        """Send a signed request and return its response. Raise the matching error if the status is not in `ok`."""
        config = self._config
        length = len(body) if isinstance(body, bytes) else size
        for last in (False, True):
            target, sent = self._signed(method, key, query or {}, headers or {}, length)
            response = self._pool.request(method, target, sent, body, size=size, stop=self.stop)
            if response.status in ok:
                return response
            data = b"" if method == "HEAD" else response.read(limit=1 << 20)
            token = "" if config.key or config.sas else sent.get("authorization", "")
            if response.status == 401 and not last and token and config.tokens.renewed(token):
                refuse_spent(body, "the access token had ended", self.said(key))
                continue
            break
        raise self._error(response, data, key)

    def _signed(
        self, method: str, key: str, query: Mapping[str, str], headers: Mapping[str, str], length: int
    ) -> tuple[str, dict[str, str]]:
        """Return the target and all headers of a request with a body of `length` bytes."""
        config = self._config
        path = self._base + (f"/{_quoted(key)}" if key else "")
        sent = {
            "host": self._origin.netloc,
            "accept-encoding": "identity",
            "x-ms-version": _VERSION,
            **headers,
        }
        sent["x-ms-date"] = formatdate(time.time(), usegmt=True)
        if config.key:
            sent["authorization"] = signature(config.account, config.key, method, path, query, sent, length)
        elif not config.sas and (token := config.tokens.header()):
            sent["authorization"] = token
        text = "&".join(filter(None, [quote_query(dict(query)) if query else "", config.sas]))
        return f"{path}?{text}" if text else path, sent

    def _error(self, response: Response, data: bytes, key: str) -> NbdataError:
        code = response.headers.get("x-ms-error-code") or _read(data).findtext("Code") or ""
        if code in ("ContainerNotFound", "ContainerBeingDeleted"):
            return NotFound(
                "there is no such container",
                path=self.name,
                remedy="Check the name and the account",
                details={"status": response.status, "code": code, "bucket": True},
            )
        if self.says_wrong_bytes(data, response):
            return wrong_bytes(self.said(key), response.status, code)
        status = {"PublicAccessNotPermitted": 403, "NoAuthenticationInformation": 401}.get(
            code, response.status
        )
        return refused(
            status,
            response.headers,
            path=self.said(key),
            identity=self._config.source,
            code=code,
            remedy=_REMEDY,
        )

    # -- reading ------------------------------------------------------------------------------

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        return ahead(self._pages(prefix, after, {}))

    def list_folder(self, prefix: str) -> Iterator[ObjectInfo]:
        return ahead(self._pages(prefix, "", {"delimiter": "/"}))

    def folder_page(self, prefix: str, token: str = "") -> FolderPage:
        resuming = {"marker": token} if token else {}
        page = next(self._pages(prefix, "", {"delimiter": "/", **resuming}))
        return FolderPage(page.items, page.token)

    def _pages(self, prefix: str, after: str, more: Mapping[str, str]) -> Iterator[Page[ObjectInfo]]:
        query = {
            "restype": "container",
            "comp": "list",
            "prefix": prefix,
            "maxresults": str(self._page),
            **more,
        }
        has_folders, found = False, not after
        pages = Pages(self.said(prefix))
        while True:
            root = _read(self._send("GET", "", query).read(limit=64 << 20))
            if root.tag != "EnumerationResults":
                raise StoreUnavailable(
                    "the store's listing cannot be read", path=self.said(prefix), details={"retry": True}
                )
            marker = root.findtext("NextMarker")
            # Accounts with real folders (Data Lake) list those too.
            files = [
                _listed(item)
                for item in root.iterfind("Blobs/Blob")
                if item.findtext("Properties/ResourceType") != "directory"
            ]
            if folders := [ObjectInfo(_name_of(item), -1) for item in root.iterfind("Blobs/BlobPrefix")]:
                files = sorted([*folders, *files], key=lambda info: info.key)
            pages.add(files)
            # Real folders are listed as a whole, ``a/1`` before ``a-b``: `after` is then a place, not a least key.
            has_folders = has_folders or root.find("Blobs/Blob/Properties/ResourceType") is not None
            if has_folders and not found:
                keys = [info.key for info in files]
                found = after in keys
                files = files[keys.index(after) + 1 :] if found else []
            elif not has_folders:
                files = [info for info in files if info.key > after or not info.key]
            if has_folders and not found and not marker:
                raise SourceChanged(
                    "the folder changed while it was listed", path=self.said(after), remedy="List it again"
                )
            yield Page(files, bool(marker), marker or "")
            if not marker:
                return
            if marker == query.get("marker"):
                raise StoreUnavailable("the listing does not go on", path=self.said(prefix))
            query["marker"] = marker

    def head(self, key: str) -> ObjectInfo:
        return _info_of(key, self._send("HEAD", key))

    def _get(
        self, key: str, headers: dict[str, str], match: ObjectInfo | None, ok: tuple[int, ...]
    ) -> Response:
        if match is not None:
            headers |= if_match(match.etag)
        return self._send("GET", key, None, headers, ok=ok)

    def _info_of(self, key: str, response: Response, match: ObjectInfo | None) -> ObjectInfo:
        return _info_of(key, response)

    def small_requests(self) -> SmallRequests:
        def read(info: ObjectInfo, start: int, end: int | None) -> bytes:
            headers = range_header(start, end) | if_match(info.etag)
            target, sent = self._signed("GET", info.key, {}, headers, 0)
            return request_head(self._origin, "GET", target, sent)

        def write(key: str, data: bytes, md5: str) -> bytes:
            target, sent = self._signed("PUT", key, {}, _block_blob({}, md5), len(data))
            return request_head(self._origin, "PUT", target, sent, len(data)) + data

        return SmallRequests(self._pool, read, write)

    def says_wrong_bytes(self, data: bytes, head: Head | Response) -> bool:
        code = head.headers.get("x-ms-error-code") or _read(data).findtext("Code") or ""
        return code == "Md5Mismatch" or b"MD5 doesn't match" in data  # the second is Azurite's wording

    def info_of_whole(self, listed: ObjectInfo, head: Head) -> ObjectInfo:
        return _info_of(listed.key, head)

    def made(self, key: str, data: bytes, head: Head, body: memoryview) -> ObjectInfo:
        return _made_of(key, len(data), head)

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
        sent = _block_blob({**_kept(headers), **self._new}, md5)
        response = self._send("PUT", key, None, sent, body, size=size, ok=(201,))
        response.read()
        return _made_of(key, size, response)

    def upload(self, key: str, size: int, *, headers: Mapping[str, str] | None = None) -> Upload:
        return _AzUpload(self, key, size, {**_kept(headers), **self._new})

    def creating(self) -> AzStore:
        store = copy.copy(self)
        store._new = {"if-none-match": "*"}
        return store

    def same_objects(self, other: Store) -> bool:
        return isinstance(other, AzStore) and (self._origin, self._base) == (other._origin, other._base)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._send("DELETE", key, None, {"x-ms-delete-snapshots": "include"}, ok=(200, 202, 404)).close()


class _AzUpload(Upload):
    """An upload in blocks. Uncommitted blocks cost nothing after a week, and cannot be deleted before."""

    def __init__(self, store: AzStore, key: str, size: int, headers: Mapping[str, str]) -> None:
        self._store, self._key, self._size, self._headers = store, key, size, headers
        self.id = secrets.token_hex(8)

    def through(self, store: Store) -> Upload:
        assert isinstance(store, AzStore)
        same = _AzUpload(store, self._key, self._size, self._headers)
        same.id = self.id
        return same

    def _block(self, number: int) -> str:
        return base64.b64encode(f"{self.id}-{number:06}".encode()).decode()

    def part(self, number: int, source: Source, size: int) -> str:
        store = self._store
        query = {"comp": "block", "blockid": self._block(number)}
        body = fill(source, size, store.said(self._key))
        sent = {"x-ms-version": _VERSION_OF_BLOCKS}
        response = store._send("PUT", self._key, query, sent, body, size=size, ok=(201,))
        response.read()
        digest = digest_in(response.headers.get("content-md5", ""), 16)
        return f'"{digest}"' if digest else ""

    def finish(self, parts: _Keys) -> ObjectInfo:
        root = ET.Element("BlockList")
        for number in range(1, len(parts) + 1):
            ET.SubElement(root, "Latest").text = self._block(number)
        data = ET.tostring(root, encoding="utf-8", xml_declaration=True)
        response = self._store._send("PUT", self._key, {"comp": "blocklist"}, self._headers, data, ok=(201,))
        response.read()
        return ObjectInfo(self._key, self._size, etag=response.headers.get("etag", ""))

    def abort(self) -> None:
        """Do nothing: Azure has no request to abort an upload."""


def signature(
    account: str,
    key: str,
    method: str,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    length: int,
) -> str:
    """Return the Authorization header of a request ("Authorize with Shared Key", Azure Storage REST API)."""
    known = {**headers, "content-length": str(length) if length else ""}
    lines = [method, *(known.get(name, "") for name in _SIGNED)]
    lines += [f"{name}:{headers[name]}" for name in sorted(headers) if name.startswith("x-ms-")]
    lines.append(f"/{account}{path}")
    lines += [f"{name}:{query[name]}" for name in sorted(query)]
    try:
        secret = base64.b64decode(key, validate=True)
    except ValueError:
        secret = b""  # the store then reports a wrong key
    digest = hmac.digest(secret, "\n".join(lines).encode("utf-8", "surrogatepass"), hashlib.sha256)
    return f"SharedKey {account}:{base64.b64encode(digest).decode()}"


def _quoted(key: str) -> str:
    return quote(key.encode("utf-8", "surrogatepass"), safe="/-_.~")


def _read(data: bytes) -> ET.Element:
    try:
        return parse_xml(data)
    except Unreadable:
        return ET.Element("Unreadable")


def _kept(headers: Mapping[str, str] | None) -> dict[str, str]:
    return {_KEPT[name]: value for name, value in (headers or {}).items() if name in _KEPT}


def _block_blob(headers: Mapping[str, str], md5: str) -> dict[str, str]:
    """The headers to create a blob in one request and have its MD5 checked ("Put Blob", Blob Storage REST API)."""
    sent = {"x-ms-blob-type": "BlockBlob", **headers}
    return {**sent, "content-md5": in_base64(md5)} if md5 else sent


def _made_of(key: str, size: int, response: Response | Head) -> ObjectInfo:
    """Read the metadata of a new blob of `size` bytes from the response to its PUT."""
    digest = digest_in(response.headers.get("content-md5", ""), 16)
    etag = response.headers.get("etag", "")
    return ObjectInfo(key, size, etag=etag, checksums={"md5": digest} if digest else {})


def _name_of(item: ET.Element) -> str:
    """The key of a blob or a folder in a listing."""
    name = item.find("Name")
    key = (name.text or "") if name is not None else ""
    if name is not None and name.get("Encoded") == "true":  # the name has characters that XML cannot hold
        return unquote(key, errors="surrogateescape")
    return key


def _listed(item: ET.Element) -> ObjectInfo:
    key = _name_of(item)
    etag = (item.findtext("Properties/Etag") or "").strip('"')
    digest = digest_in(item.findtext("Properties/Content-MD5") or "", 16)
    return ObjectInfo(
        key,
        whole_number(item.findtext("Properties/Content-Length")),
        etag=f'"{etag}"' if etag else "",
        modified=http_time(item.findtext("Properties/Last-Modified")),
        checksums={"md5": digest} if digest else {},
        storage_class="" if (tier := item.findtext("Properties/AccessTier") or "") == "Hot" else tier,
    )


def _info_of(key: str, response: Response | Head) -> ObjectInfo:
    headers = response.headers
    whole = headers.get("x-ms-blob-content-md5", "")
    if response.status == 200:  # in a range response it is the digest of the range
        whole = whole or headers.get("content-md5", "")
    digest = digest_in(whole, 16)
    return ObjectInfo(
        key,
        total_of(response),
        etag=headers.get("etag", ""),
        modified=http_time(headers.get("last-modified")),
        checksums={"md5": digest} if digest else {},
        headers={n: v for n, v in headers.items() if n in _KEPT},
    )
