"""S3 and compatible stores, over `http.client` and `sigv4`: one code path for bodies and for control."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from urllib.parse import quote

from nbdata.bounded import whole_number
from nbdata.errors import Cancelled, NbdataError, NotFound, SourceChanged, StoreUnavailable
from nbdata.stores.another_try import worth_retrying
from nbdata.stores.base import FolderPage, ObjectInfo, Source, Stop, Store, Upload
from nbdata.stores.filling import fill
from nbdata.stores.http.answers import if_match, in_base64, range_header
from nbdata.stores.http.client import Pool, Response
from nbdata.stores.http.heads import Head
from nbdata.stores.http.hops import Target
from nbdata.stores.http.object_store import ObjectStore, SmallRequests
from nbdata.stores.http.pages import Pages
from nbdata.stores.s3 import deletion, listing
from nbdata.stores.s3.answers import encrypted, info_of, made_of, quoted
from nbdata.stores.s3.client import S3Client
from nbdata.stores.s3.config import S3Config
from nbdata.stores.s3.errors import says_wrong_bytes
from nbdata.stores.s3.extensions import EXTENSIONS
from nbdata.stores.s3.sigv4 import quote_path

__all__ = ["S3Store"]

_MD5 = re.compile("[0-9a-f]{32}")
# In the class, `list` means the method.
_Keys = list[str]


class S3Store(ObjectStore):
    """One bucket.

    Parameters
    ----------
    bucket : str
        Empty for the service itself, whose `children` are the buckets.
    config : S3Config
    stop : Stop, optional
        Stops blocking calls.
    renew : callable, optional
        Returns a new configuration. Called when the identity expires soon, or with a session token that the store
        refused.
    """

    multipart = reopens = refuses = True

    def __init__(
        self,
        bucket: str,
        config: S3Config,
        *,
        stop: Stop | None = None,
        renew: Callable[[str], S3Config] | None = None,
    ) -> None:
        self.name = f"s3://{bucket}"
        self._bucket = bucket
        self.stop = stop
        self._new: dict[str, str] = {}  # the condition that an object is new
        self._client = S3Client(bucket, config, stop, renew)
        if config.hops is not None:  # the first server must get no body
            self.writes_together = -1

    def notes(self) -> Sequence[str]:
        return [note for name, note in EXTENSIONS.items() if note and name in self._client.left_out]

    @property
    def stored_as(self) -> str:
        own = self._client.parameters
        parameters = json.dumps([own.stored, own.key], sort_keys=True) if own.stored or own.key else ""
        return parameters and hashlib.sha256(parameters.encode()).hexdigest()[:16]

    # -- reading ------------------------------------------------------------------------------

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        return listing.objects(self._client, prefix, after)

    def list_folder(self, prefix: str) -> Iterator[ObjectInfo]:
        return listing.entries(self._client, prefix)

    def folder_page(self, prefix: str, token: str = "") -> FolderPage:
        return listing.folder_page(self._client, prefix, token)

    def children(self, prefix: str, limit: int) -> tuple[ObjectInfo, ...]:
        return listing.children(self._client, prefix, limit)

    def head(self, key: str) -> ObjectInfo:
        headers = {"x-amz-checksum-mode": "ENABLED", **self._client.parameters.key}
        return info_of(key, self._client.send("HEAD", key, headers=headers))

    def part_size(self, info: ObjectInfo) -> int | None:
        if not info.etag.strip('"').partition("-")[2]:
            return None
        try:
            size, parts = self._part(info.key, 1)
            last, _ = self._part(info.key, parts) if parts > 1 else (size, 1)
        except Cancelled:
            raise
        except Exception as error:
            # A temporary failure must not make a verifiable object unverifiable.
            if worth_retrying(error):
                raise
            return None  # not every store reports part sizes; without them they are guessed
        # If parts differ in size, no single size gives the ETag, and a mismatch would mean nothing.
        return size if 0 < last <= size and size * (parts - 1) + last == info.size else None

    def _part(self, key: str, number: int) -> tuple[int, int]:
        """Return the bytes of one part, and the number of parts."""
        query, own = {"partNumber": str(number)}, self._client.parameters.key
        headers = self._client.send("HEAD", key, query, own, ok=(200, 206)).headers
        size, parts = (whole_number(headers.get(name)) for name in ("content-length", "x-amz-mp-parts-count"))
        if size < 0 or not 0 < parts <= self.max_parts:
            raise StoreUnavailable("the store does not tell the size of a part", path=self.said(key))
        return size, parts

    def _get(
        self, key: str, headers: dict[str, str], match: ObjectInfo | None, ok: tuple[int, ...]
    ) -> Response:
        query = _condition(headers, match)
        return self._client.send("GET", key, query, headers | self._client.parameters.key, ok=ok)

    def _info_of(self, key: str, response: Response, match: ObjectInfo | None) -> ObjectInfo:
        return info_of(key, response)

    def small_requests(self) -> SmallRequests:
        client, endpoint = self._client, self._client.renewed_endpoint()
        own = client.parameters.key

        def read(info: ObjectInfo, start: int, end: int | None) -> bytes:
            headers = range_header(start, end)
            query = _condition(headers, info)
            return client.request(endpoint, "GET", info.key, query, headers | own if own else headers)

        def write(key: str, data: bytes, md5: str) -> bytes:
            return client.request(endpoint, "PUT", key, {}, self._stored(_proof(md5)), data)

        def again(at: Target, info: ObjectInfo, start: int, end: int | None) -> tuple[bytes, Pool]:
            headers = range_header(start, end)
            _condition(headers, info)
            return client.request_at(at, endpoint, "GET", headers | own if own else headers)

        return SmallRequests(
            endpoint.pool, read, write, lambda: client.endpoint is endpoint, client.hops, again
        )

    def info_of_whole(self, listed: ObjectInfo, head: Head) -> ObjectInfo:
        return info_of(listed.key, head)

    def made(self, key: str, data: bytes, head: Head, body: memoryview) -> ObjectInfo:
        return made_of(key, len(data), head)

    def says_wrong_bytes(self, data: bytes, head: Head) -> bool:
        return says_wrong_bytes(data)

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
        sent = self._stored({**(headers or {}), **_proof(md5), **self._new})
        response = self._client.send("PUT", key, headers=sent, body=body, size=size)
        response.read()
        return made_of(key, size, response)

    def creating(self) -> S3Store:
        """See `Store.creating`. SeaweedFS and other servers may ignore the condition."""
        store = copy.copy(self)
        store._new = {"if-none-match": "*"}
        return store

    def _stored(self, headers: dict[str, str]) -> dict[str, str]:
        """Return the headers of a request that makes an object: these, and those that the user wants."""
        own = self._client.parameters
        return {**headers, **own.stored, **own.key}

    @property
    def server(self) -> str:
        return self._client.server

    def same_objects(self, other: Store) -> bool:
        return isinstance(other, S3Store) and (self._client.server, self._bucket) == (
            other._client.server,
            other._bucket,
        )

    def can_copy(self, source: Store) -> bool:
        return (
            isinstance(source, S3Store)
            and self._client.hops is None  # a node copies what it has itself, if at all
            and self._client.given_endpoint == source._client.given_endpoint
            and self._client.identity == source._client.identity
            and not self._client.parameters.describes
        )

    def copy(self, source: Store, info: ObjectInfo, key: str) -> ObjectInfo:
        response, root = self._copied(key, {}, source, info, self._client.parameters.of_copies)
        return ObjectInfo(key, info.size, etag=quoted(root.findtext("ETag")), encrypted=encrypted(response))

    def _copied(
        self,
        key: str,
        query: dict[str, str],
        source: Store,
        info: ObjectInfo,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[Response, ET.Element]:
        assert isinstance(source, S3Store)
        sent = {
            "x-amz-copy-source": quote_path(f"/{source._bucket}/{info.key}"),
            **(headers or {}),
            **self._client.parameters.key,
            **source._client.parameters.source_key,
        }
        if info.version:
            sent["x-amz-copy-source"] += f"?versionId={quote(info.version, safe='')}"
        elif not info.etag.startswith("W/"):
            sent |= if_match(info.etag, "x-amz-copy-source-if-match")
        try:
            return self._client.answer("PUT", key, query, b"", sent)
        except NotFound as error:
            if error.details.get("code") == "NoSuchKey":
                raise SourceChanged(
                    "the object vanished after it was listed", path=source.said(info.key)
                ) from error
            raise

    def upload(self, key: str, size: int, *, headers: Mapping[str, str] | None = None) -> Upload:
        sent = self._stored(dict(headers or {}))
        upload_id = self._client.xml("POST", key, {"uploads": ""}, headers=sent).findtext("UploadId")
        if not upload_id:  # without an id, aborting the upload would delete the object
            raise StoreUnavailable("the store gave the upload no id", path=self.said(key))
        return _S3Upload(self, key, size, upload_id)

    def reopen(self, key: str, size: int, upload_id: str) -> Upload:
        upload, stored = _S3Upload(self, key, size, upload_id), dict[int, tuple[int, str]]()
        query = {"uploadId": upload_id}
        pages = Pages(self.said(key))
        while True:
            root = self._client.xml("GET", key, query)
            parts = [(whole_number(part.findtext("PartNumber")), part) for part in root.iterfind("Part")]
            pages.add([number for number, _ in parts])
            for number, part in parts:
                if 0 < number <= self.max_parts:  # a part that cannot be told is sent again
                    stored[number] = whole_number(part.findtext("Size")), quoted(part.findtext("ETag"))
            marker = root.findtext("NextPartNumberMarker")
            if root.findtext("IsTruncated") != "true" or not marker:
                upload.stored = stored
                return upload
            if marker == query.get("part-number-marker"):
                raise StoreUnavailable("the store lists the same parts again and again", path=self.said(key))
            query = {"uploadId": upload_id, "part-number-marker": marker}

    def pending(self, prefix: str) -> Iterator[tuple[str, str]]:
        return listing.pending(self._client, prefix)

    def abort(self, key: str, upload_id: str) -> None:
        self._client.send("DELETE", key, {"uploadId": upload_id}, ok=(200, 204, 404)).close()

    def delete(self, keys: Iterable[str]) -> None:
        deletion.delete(self._client, keys)


def _condition(headers: dict[str, str], match: ObjectInfo | None) -> dict[str, str]:
    """Add headers that request checksums and the version in `match`. Returns the query for it."""
    headers["x-amz-checksum-mode"] = "ENABLED"
    if match is not None:
        if match.version:
            return {"versionId": match.version}
        if not match.etag.startswith("W/"):
            headers |= if_match(match.etag)
    return {}


def _proof(md5: str) -> dict[str, str]:
    """The header that makes S3 reject other bytes ("PutObject", Amazon S3 API reference)."""
    return {"content-md5": in_base64(md5)} if md5 else {}


class _S3Upload(Upload):
    """A multipart upload to one key."""

    reopens = True

    def __init__(self, store: S3Store, key: str, size: int, upload_id: str) -> None:
        self._store, self._key, self._size, self.id = store, key, size, upload_id

    def through(self, store: Store) -> Upload:
        assert isinstance(store, S3Store)
        return _S3Upload(store, self._key, self._size, self.id)

    def part(self, number: int, source: Source, size: int) -> str:
        query = {"partNumber": str(number), "uploadId": self.id}
        store = self._store
        body = fill(source, size, store.said(self._key))
        own = store._client.parameters.key
        response = store._client.send("PUT", self._key, query, own, body, size=size)
        response.read()
        self.encrypted = self.encrypted or encrypted(response)
        return response.headers.get("etag", "")

    def copy_part(self, number: int, source: Store, info: ObjectInfo, start: int, end: int) -> str:
        query = {"partNumber": str(number), "uploadId": self.id}
        ranged = {"x-amz-copy-source-range": f"bytes={start}-{end - 1}"}
        response, root = self._store._copied(self._key, query, source, info, ranged)
        self.encrypted = self.encrypted or encrypted(response)
        return root.findtext("ETag") or ""

    def finish(self, parts: _Keys) -> ObjectInfo:
        root = ET.Element("CompleteMultipartUpload")
        for number, etag in enumerate(parts, 1):
            part = ET.SubElement(root, "Part")
            ET.SubElement(part, "PartNumber").text = str(number)
            ET.SubElement(part, "ETag").text = etag
        try:
            query, new = {"uploadId": self.id}, self._store._new
            answer = self._store._client.xml("POST", self._key, query, ET.tostring(root), new or None)
        except (StoreUnavailable, NotFound):
            # The upload may be complete, with only the response lost. The repeated request then fails, as the upload
            # is gone.
            made = self._made_of(parts)
            if made is None:
                raise
            return made
        # Some servers send no ETag here.
        etag = quoted(answer.findtext("ETag")) or self._store.head(self._key).etag
        return ObjectInfo(self._key, self._size, etag=etag, encrypted=self.encrypted)

    def _made_of(self, parts: _Keys) -> ObjectInfo | None:
        """Return the object at the key, if its ETag shows that it was made from exactly these parts."""
        digests = [part.strip('"').lower() for part in parts]
        if self.encrypted or not all(_MD5.fullmatch(digest) for digest in digests):
            return None
        whole = hashlib.md5(bytes.fromhex("".join(digests)), usedforsecurity=False).hexdigest()
        try:
            info = self._store.head(self._key)
        except NbdataError:
            return None
        same = info.etag.strip('"').lower() == f"{whole}-{len(parts)}"
        return info if same and self._size in (-1, info.size) else None

    def abort(self) -> None:
        self._store.abort(self._key, self.id)
