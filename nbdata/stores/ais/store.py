"""One bucket of AIStore, over its native API (v1).

A gateway has no data: it lists, and redirects every request for an object to the node that has it. The redirects are
followed within the cluster's own map, or where the user allows (`nbdata.stores.http.hops`). Left out, until a real
cluster is at hand: reading many objects in one answer (GetBatch), and msgpack.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any
from urllib.parse import quote, urlsplit

from nbdata.bounded import Unreadable, parse_json
from nbdata.errors import AccessDenied, NotFound, SourceChanged, StoreUnavailable
from nbdata.stores.ais.answers import (
    bucket_names,
    checksum_in,
    entry_of,
    error_of,
    info_of,
    is_folder,
    unfit,
    validator_of,
)
from nbdata.stores.ais.cluster_map import ClusterMap
from nbdata.stores.ais.config import AisBucket, AisConfig
from nbdata.stores.ais.proof import PartsProof
from nbdata.stores.base import FolderPage, ObjectInfo, Source, Stop, Store, Upload
from nbdata.stores.filling import fill
from nbdata.stores.http.answers import differs, range_header, total_of
from nbdata.stores.http.client import Pool, Response
from nbdata.stores.http.dial import Origin
from nbdata.stores.http.heads import Head, request_head
from nbdata.stores.http.hops import Hops, Target, follow
from nbdata.stores.http.object_store import ObjectStore, SmallRequests
from nbdata.stores.http.pages import Page, Pages, ahead
from nbdata.stores.http.pools import pool_of
from nbdata.stores.http.proxies import proxy_for
from nbdata.stores.s3.sigv4 import quote_path, quote_query

__all__ = ["AisStore"]

# Objects up to this size are sent from memory, so that the request can be repeated.
_WHOLE = 1 << 20
# Flags of a listing: without what is below folders, and without folders (``LsNoRecursion``, ``LsNoDirs`` in
# ``api/apc/lsmsg.go``).
_NO_RECURSION, _NO_FOLDERS = 1 << 11, 1 << 13
_JSON = {"content-type": "application/json"}


class AisStore(ObjectStore):
    """One bucket.

    Parameters
    ----------
    bucket : AisBucket
        Without a name for the service itself, whose `children` are the buckets.
    config : AisConfig
    stop : Stop, optional
        Stops blocking calls.
    """

    multipart = refuses = True
    # There is no request for the uploads of a bucket, nor for the parts of one.
    lists_uploads = False
    # ``core.MaxChunkCount``.
    max_parts = 9999
    # The gateway must get no body, so each write asks first.
    writes_together = -1

    def __init__(self, bucket: AisBucket, config: AisConfig, *, stop: Stop | None = None) -> None:
        self.name = str(bucket)
        self._bucket, self._config, self.stop = bucket, config, stop
        self._own = bucket.provider == "ais"
        origin = Origin.of(
            config.endpoint, proxy=config.proxy, ca=config.ca, verify=config.verify, stall=config.stall
        )
        self._origin = replace(origin, certificate=config.certificate)
        self._base = urlsplit(config.endpoint).path.rstrip("/")
        self._pool = pool_of(self._origin, config.token)
        self._hops = config.hops or Hops(ClusterMap(self._map), partial(proxy_for, env=config.env))

    # -- one request --------------------------------------------------------------------------

    def _object(self, key: str, query: Mapping[str, str] | None = None) -> str:
        """The path and query of a request for an object."""
        if why := unfit(key):
            raise NotFound(f"the name {why}", path=self.said(key))
        return self._target(f"objects/{quote(self._bucket.name)}/{quote_path(key)}", query)

    def _target(self, path: str, query: Mapping[str, str] | None = None) -> str:
        return f"{self._base}/v1/{path}?{quote_query({**self._bucket.query, **(query or {})})}"

    def _headers(self, at: Origin, more: Mapping[str, str]) -> dict[str, str]:
        """All headers of a request. Only the gateway and servers that redirects may lead to get any."""
        sent = {"host": at.netloc, "accept-encoding": "identity", **more}
        if self._config.token:
            sent["authorization"] = f"Bearer {self._config.token}"
        return sent

    def _send(
        self,
        method: str,
        target: str,
        key: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | Iterator[memoryview] | None = None,
        *,
        size: int = 0,
        ok: tuple[int, ...] = (200,),
    ) -> Response:
        """Send a request, follow its redirects, and return the response if its status is in `ok`; otherwise raise."""

        def send(at: Target, body: bytes | Iterator[memoryview] | None, more: dict[str, str]) -> Response:
            pool = self._pool if at.origin == self._origin else pool_of(at.origin, self._config.token)
            sent = self._headers(at.origin, {**(headers or {}), **more})
            return pool.request(method, at.target, sent, body, size=size, stop=self.stop)

        of = key if target.startswith(f"{self._base}/v1/objects/") else ""
        first, asks = Target(self._origin, target, of), "content-type" not in (headers or {})
        response = follow(self._hops, first, send, body, self.said(key), asks=asks)
        if response.status in ok:
            return response
        data = b"" if method == "HEAD" else response.read(limit=1 << 20)
        raise error_of(response, data, path=self.said(key), bucket=self.name, source=self._config.source)

    def _map(self) -> bytes:
        """Fetch the cluster map from the gateway."""
        sent = self._headers(self._origin, {"accept": "application/json"})
        response = self._pool.request("GET", f"{self._base}/v1/daemon?what=smap", sent, stop=self.stop)
        data = response.read()
        if response.status == 200:
            return data
        error = error_of(response, data, path=self.name, bucket=self.name, source=self._config.source)
        if isinstance(error, AccessDenied):
            error.remedy = f"{error.remedy}. Or name the nodes: --option redirects=HOST or a network"
        raise error

    # -- reading ------------------------------------------------------------------------------

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        return ahead(self._pages(prefix, after, ""))

    def list_folder(self, prefix: str) -> Iterator[ObjectInfo]:
        if prefix and not prefix.endswith(
            "/"
        ):  # what the gateway makes of a part of a name is not documented
            return super().list_folder(prefix)
        return ahead(self._pages(prefix, "", "", flat=True))

    def folder_page(self, prefix: str, token: str = "") -> FolderPage:
        if prefix and not prefix.endswith("/"):
            return super().folder_page(prefix, token)
        page = next(self._pages(prefix, "", token, flat=True))
        return FolderPage(page.items, page.token)

    def children(self, prefix: str, limit: int) -> tuple[ObjectInfo, ...]:
        if not self._bucket.name:
            names = (name for name in self._buckets() if name.startswith(prefix))
            return tuple(ObjectInfo(f"{name}/", -1) for name in islice(names, limit))
        return tuple(islice(self.list_folder(prefix), limit))

    def _buckets(self) -> Sequence[str]:
        """List the names of the buckets of a provider."""
        body = json.dumps({"action": "list"}).encode()
        response = self._send(
            "GET", self._target("buckets"), "", {**_JSON, "accept": "application/json"}, body
        )
        try:
            return bucket_names(parse_json(response.read()), self._bucket.provider)
        except Unreadable as error:
            raise StoreUnavailable(
                "the store's list of buckets cannot be read", path=self.name, details={"retry": True}
            ) from error

    def _pages(
        self, prefix: str, after: str, token: str, *, flat: bool = False
    ) -> Iterator[Page[ObjectInfo]]:
        """List page by page ("list objects", ``api.LsoMsg``). Only own buckets can begin behind a name."""
        asked = {
            "prefix": prefix,
            "props": "name,size,checksum,version" if self._own else "name,size,custom",
            "flags": str(_NO_RECURSION if flat else _NO_FOLDERS),
            "pagesize": 0,
            "uuid": "",
            "continuation_token": token,
            "target": "",
        }
        if after and self._own:
            asked["start_after"] = after
        pages, target = Pages(self.said(prefix)), self._target(f"buckets/{quote(self._bucket.name)}")
        while True:
            body = json.dumps({"action": "list", "name": "", "value": asked}).encode()
            response = self._send("GET", target, prefix, {**_JSON, "accept": "application/json"}, body)
            told, entries, token = self._page(response.read(), prefix)
            infos = [entry_of(entry, own=self._own) for entry in entries]
            infos = [info for info in infos if not is_folder(info) or (flat and info.key != prefix)]
            if flat:
                infos.sort(key=lambda info: info.key.encode("utf-8", "surrogateescape"))
            pages.add(infos)
            items = [info for info in infos if info.key > after or not info.key]
            yield Page(items, bool(token), token)
            if not token:
                return
            if token == asked["continuation_token"]:
                raise StoreUnavailable("the listing does not go on", path=self.said(prefix))
            asked |= {"continuation_token": token, "uuid": str(told.get("uuid") or "")}
            asked.pop("start_after", None)

    def _page(self, data: bytes, prefix: str) -> tuple[dict[str, Any], Sequence[Any], str]:
        """Return a page, its entries, and the token of the next one."""
        try:
            told = parse_json(data)
        except Unreadable:
            told = None
        entries = (told.get("entries") or []) if isinstance(told, dict) else None
        token = told.get("continuation_token", "") if isinstance(told, dict) else None
        if not isinstance(entries, list) or not isinstance(token, str) or "entries" not in told:
            # Taken for an empty page, it would make a mirror delete the rest.
            raise StoreUnavailable(
                "the store's listing cannot be read", path=self.said(prefix), details={"retry": True}
            )
        return told, entries, token

    def head(self, key: str) -> ObjectInfo:
        # Without properties, all are told, a backend's ETag among them.
        query = {"props": "name,size,checksum,version"} if self._own else {}
        return info_of(key, self._send("HEAD", self._object(key, query), key), own=self._own)

    def _get(
        self, key: str, headers: dict[str, str], match: ObjectInfo | None, ok: tuple[int, ...]
    ) -> Response:
        return self._send("GET", self._object(key), key, headers, ok=ok)

    def _info_of(self, key: str, response: Response, match: ObjectInfo | None) -> ObjectInfo:
        if response.status != 206:
            return info_of(key, response, own=self._own)
        info = self._of_range(key, response, match)
        if info is not None:
            return info
        info = self.head(key)
        if total_of(response) not in (-1, info.size):
            raise SourceChanged("the object changed while it was read", path=self.said(key))
        return info

    def _of_range(self, key: str, response: Response | Head, match: ObjectInfo | None) -> ObjectInfo | None:
        """Read the metadata of the whole object from the answer with a range; None if it does not tell them.

        Its checksum is that of the range in some buckets (``checksum.enable_read_range``), else that of the object.
        """
        total, headers = total_of(response), response.headers
        if not self._own:
            info = info_of(key, response, own=False)
            return info._replace(checksums=match.checksums if match is not None else {})
        version = headers.get("ais-version", "")
        if match is None:
            return None
        if match.size in (-1, total) and match.etag == validator_of(checksum_in(headers), version):
            return match
        if match.size not in (-1, total) or (version and not match.etag.endswith(f'v{version}"')):
            return ObjectInfo(key, total, etag=f'"changed-v{version}"')
        return None

    # -- many small objects ---------------------------------------------------------------------

    def small_requests(self) -> SmallRequests:
        def read(info: ObjectInfo, start: int, end: int | None) -> bytes:
            sent = self._headers(self._origin, range_header(start, end))
            return request_head(self._origin, "GET", self._object(info.key), sent)

        def write(key: str, data: bytes, md5: str) -> bytes:
            raise NotImplementedError  # see `writes_together`

        def again(at: Target, _: ObjectInfo, start: int, end: int | None) -> tuple[bytes, Pool]:
            sent = self._headers(at.origin, range_header(start, end))
            pool = pool_of(at.origin, self._config.token)
            return request_head(at.origin, "GET", at.target, sent), pool

        return SmallRequests(self._pool, read, write, hops=self._hops, again=again)

    def info_of_whole(self, listed: ObjectInfo, head: Head) -> ObjectInfo | None:
        if head.status == 206:
            return self._of_range(listed.key, head, listed)
        return info_of(listed.key, head, own=self._own)

    def made(self, key: str, data: bytes, head: Head, body: memoryview) -> ObjectInfo | None:
        return None

    def says_wrong_bytes(self, data: bytes, head: Head) -> bool:
        return False

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
        pieces = fill(source, size, self.said(key))
        body: bytes | Iterator[memoryview] = b"".join(map(bytes, pieces)) if size <= _WHOLE else pieces
        # The node compares it, unless the bucket keeps no checksums (``putOI.write`` in ``ais/tgtobj.go``).
        sent = {"ais-checksum-type": "md5", "ais-checksum-value": md5} if md5 else {}
        response = self._send("PUT", self._object(key), key, sent, body, size=size)
        response.read()
        checksums = checksum_in(response.headers)
        proved = {"md5": md5} if md5 and checksums else {}
        # It says nothing of an object that it keeps in chunks, and here not the ETag of a backend.
        if not checksums or not self._own:
            info = self.head(key)
            return info._replace(checksums={**info.checksums, **proved})
        etag = validator_of(checksums, response.headers.get("ais-version", ""))
        return ObjectInfo(key, size, etag=etag, checksums={**checksums, **proved})

    def unfit(self, key: str) -> str:
        return unfit(key)

    def same_objects(self, other: Store) -> bool:
        return isinstance(other, AisStore) and (self.server, self._bucket) == (other.server, other._bucket)

    @property
    def server(self) -> str:
        return f"{self._origin}{self._base}"

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            try:
                self._send("DELETE", self._object(key), key, ok=(200, 204)).close()
            except NotFound as error:
                if error.details.get("bucket"):
                    raise

    def upload(self, key: str, size: int, *, headers: Mapping[str, str] | None = None) -> Upload:
        try:
            before = self.head(key)
        except NotFound:
            before = ObjectInfo(key, -1)
        body = json.dumps({"action": "mpt-upload"}).encode()
        response = self._send("POST", self._object(key), key, _JSON, body)
        upload_id = response.read(limit=1 << 16).decode("utf-8", "replace").strip().strip('"')
        if not upload_id:  # without an id, aborting the upload would delete the object
            raise StoreUnavailable("the store gave the upload no id", path=self.said(key))
        return _AisUpload(self, key, size, upload_id, before)

    def abort(self, key: str, upload_id: str) -> None:
        body = json.dumps({"action": "mpt-abort"}).encode()
        target = self._object(key, {"uploadId": upload_id})
        self._send("DELETE", target, key, _JSON, body, ok=(200, 204, 404)).close()


class _AisUpload(Upload):
    """A multipart upload to one key (``ais/tgtmpt.go``). The node that has the object keeps the parts.

    Parameters
    ----------
    before : ObjectInfo
        What stood at the key when it began.
    """

    def __init__(self, store: AisStore, key: str, size: int, upload_id: str, before: ObjectInfo) -> None:
        self._store, self._key, self._size, self.id, self._before = store, key, size, upload_id, before
        self._proof = PartsProof()

    def through(self, store: Store) -> Upload:
        assert isinstance(store, AisStore)
        other = _AisUpload(store, self._key, self._size, self.id, self._before)
        other._proof = self._proof
        return other

    def part(self, number: int, source: Source, size: int) -> str:
        store = self._store
        target = store._object(self._key, {"partNumber": str(number), "uploadId": self.id})
        body = self._proof.watched(number, fill(source, size, store.said(self._key)))
        store._send("PUT", target, self._key, body=body, size=size).read()
        return ""  # the native API answers a part with nothing

    def finish(self, parts: list[str]) -> ObjectInfo:
        store, numbers = self._store, range(1, len(parts) + 1)
        value = [{"part-number": number, "etag": etag} for number, etag in zip(numbers, parts, strict=True)]
        body = json.dumps({"action": "mpt-complete", "value": value}).encode()
        target = store._object(self._key, {"uploadId": self.id})
        try:
            store._send("POST", target, self._key, _JSON, body).read()
        except (StoreUnavailable, NotFound):
            # The object may be there, with only the answer lost; the upload is then gone.
            made = self._made()
            if made is None:
                raise
        else:
            made = store.head(self._key)
        self.proved = self._proof.agrees(made.checksums)
        return made

    def _made(self) -> ObjectInfo | None:
        """Return the object at the key, if it has the size of the parts, and is not the one from before."""
        try:
            info = self._store.head(self._key)
        except (NotFound, StoreUnavailable):
            return None
        another = self._before.size < 0 or differs(info, self._before)
        return info if another and info.size == sum(self._proof.sizes.values()) else None

    def abort(self) -> None:
        self._store.abort(self._key, self.id)
