"""S3 and what speaks its protocol, over `http1` and `sigv4`: one code path for bodies and for control."""

from __future__ import annotations

import base64
import hashlib
import re
import threading
import time
import xml.etree.ElementTree as ET
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote, unquote

from nbdata.errors import AccessDenied, NbdataError, NotFound, SourceChanged, StoreUnavailable
from nbdata.stores.answers import ResponseBody, http_time, iso_time, refuse_another, start_of
from nbdata.stores.asked import EARLY
from nbdata.stores.base import ObjectInfo, Source, Stop, Store, Upload, fill
from nbdata.stores.credentials import S3Config
from nbdata.stores.dial import wants_password
from nbdata.stores.http1 import Origin, Pool, Response
from nbdata.stores.pools import pool_of
from nbdata.stores.s3_errors import EXPIRED, error_of, field, new_region
from nbdata.stores.sigv4 import EMPTY, UNSIGNED, Identity, Signer, quote_path, quote_query

__all__ = ["S3Store"]

# What XML 1.0 cannot say ("Char"), or its parsers change ("End-of-Line Handling").
_NOT_IN_XML = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\ud800-\\udfff\\ufffe\\uffff]")
_MD5 = re.compile("[0-9a-f]{32}")
# Headers that are kept with an object, beside user metadata ("PutObject", Amazon S3 API reference).
_KEPT = {
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
}
# Seconds between two questions for credentials that are said to expire soon all the same.
_ASK_AGAIN = 30.0
# Inside the class `list` is the method.
_Keys = list[str]


class _Aim(NamedTuple):
    """Where requests go, and how they are signed."""

    region: str
    prefix: str
    netloc: str
    pool: Pool
    signer: Signer | None


class S3Store(Store):
    """One bucket.

    Parameters
    ----------
    bucket : str
        Empty for the service itself, whose `children` are the buckets.
    config : S3Config
    stop : Stop, optional
        Ends blocking calls.
    renew : callable, optional
        Gives the configuration anew when its identity is about to expire, or when the session token that it is told
        was refused.
    """

    multipart = True
    flat = True

    def __init__(
        self,
        bucket: str,
        config: S3Config,
        *,
        stop: Stop | None = None,
        renew: Callable[[str], S3Config] | None = None,
    ) -> None:
        self.name = f"s3://{bucket}"
        self._bucket, self._config, self._stop, self._renew = bucket, config, stop, renew
        self._renewing, self._asked = threading.Lock(), 0.0
        self._aim(config.region)

    def _aim(self, region: str) -> _Aim:
        """Address and sign for a region; one assignment, so that other threads see all of it or nothing."""
        config = self._config
        scheme, host, port, prefix = S3Config(**{**vars(config), "region": region}).host_for(self._bucket)
        origin = Origin(scheme, host, port, config.proxy, config.ca, config.verify, config.stall)
        signer = Signer(config.identity, region, origin.netloc) if config.identity else None
        self._aimed = aim = _Aim(region, prefix, origin.netloc, pool_of(origin, config.identity), signer)
        return aim

    def _fresh(self) -> _Aim:
        """The aim, with an identity that is not about to expire if there is another."""
        identity = self._config.identity
        if identity is not None and identity.expires is not None and time.time() > identity.expires - EARLY:
            try:
                self._renewed(identity)
            except AccessDenied:
                if time.time() > identity.expires:
                    raise
        return self._aimed

    def _renewed(self, old: Identity, refused: str = "") -> bool:
        """Whether there is another identity now."""
        with self._renewing:
            if self._renew is None or self._config.identity != old:
                return self._config.identity != old
            if not refused and time.monotonic() < self._asked:
                return False
            self._asked = time.monotonic() + _ASK_AGAIN
            config = self._renew(refused)
            if config.identity == old:
                return False
            self._config = config
            self._aim(self._aimed.region)
            return True

    # -- one request --------------------------------------------------------------------------

    def _send(
        self,
        method: str,
        key: str,
        query: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        body: bytes | Iterator[memoryview] | None = None,
        *,
        size: int = 0,
        ok: tuple[int, ...] = (200,),
    ) -> Response:
        """The answer to a signed request, once its status is one of `ok`; else the error it means."""
        for last in (False, False, True):
            aim, signed = self._fresh(), self._config.identity
            response = self._exchange(aim, method, key, query, headers, body, size)
            if response.status in ok:
                return response
            if response.status == 407 and self._config.proxy:
                response.close()
                raise wants_password(aim.pool.origin)
            data = b"" if method == "HEAD" else response.read(limit=1 << 20)
            if (
                not last
                and signed is not None
                and field(data, "Code") in EXPIRED
                and self._renewed(signed, signed.token)
            ):
                if body is None or isinstance(body, bytes):
                    continue
                raise StoreUnavailable(
                    "the credentials had expired, and there are new ones",
                    path=self.name,
                    details={"retry": True},
                )
            region = new_region(response, data)
            if region and not last and region != aim.region:
                if self._aimed is aim:  # else another thread has learnt it meanwhile
                    self._aim(region)  # the bucket lives elsewhere, and the answer says where
                if body is None or isinstance(body, bytes):
                    continue
                # The body is spent: whoever made it has to begin again.
                raise StoreUnavailable(
                    f"the bucket is in region {region}", path=self.name, details={"retry": True}
                )
            break
        identity = self._config.identity
        path = f"{self.name}/{key}" if key else self.name
        raise error_of(
            response, data, path=path, identity=identity.source if identity else "nobody (anonymous)"
        )

    def _exchange(
        self,
        aim: _Aim,
        method: str,
        key: str,
        query: dict[str, str] | None,
        headers: dict[str, str] | None,
        body: bytes | Iterator[memoryview] | None,
        size: int,
    ) -> Response:
        path = f"{aim.prefix}/{quote_path(key)}"
        text = quote_query(query) if query else ""
        extra = dict(headers or {})
        if self._config.requester_pays:
            extra["x-amz-request-payer"] = "requester"
        if aim.signer is not None:
            payload = _sha256(body) if body is None or isinstance(body, bytes) else UNSIGNED
            extra = aim.signer.headers(method, path, text, extra, payload)
        else:
            extra["host"] = aim.netloc
        target = f"{path}?{text}" if text else path
        return aim.pool.request(method, target, extra, body, size=size, stop=self._stop)

    def _xml(
        self,
        method: str,
        key: str,
        query: dict[str, str],
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ET.Element:
        return self._answer(method, key, query, body, headers)[1]

    def _answer(
        self,
        method: str,
        key: str,
        query: dict[str, str],
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[Response, ET.Element]:
        """An answer, and the document that it holds."""
        sent = dict(headers or {})
        if body:
            digest = hashlib.md5(body, usedforsecurity=False).digest()
            sent["content-md5"] = base64.b64encode(digest).decode()
        response = self._send(method, key, query, sent, body)
        data = response.read()
        try:
            # Blanks may come first: they keep a connection alive while the store works (CompleteMultipartUpload).
            root = ET.fromstring(data.lstrip())  # noqa: S314  expat refuses entity bombs since 2.4.1
        except ET.ParseError as error:
            if re.match(rb"\s*<(!doctype )?html", data[:256], re.IGNORECASE):
                raise self._web_page() from error
            root = ET.Element("Unreadable")
        if root.tag.lower().endswith("html"):
            raise self._web_page()
        for element in root.iter():  # names without their namespace: servers differ in it
            element.tag = element.tag.rpartition("}")[2]
        if root.tag in ("Error", "Unreadable"):  # S3 may say 200 and mean 500 (CompleteMultipartUpload)
            response.status = 500
            raise error_of(response, data, path=f"{self.name}/{key}", identity="")
        return response, root

    def _web_page(self) -> StoreUnavailable:
        return StoreUnavailable(
            "a web page came in place of an answer of S3", path=self.name,
            remedy="Name the address of S3 in endpoint_url or AWS_ENDPOINT_URL, not that of a console or login page",
        )  # fmt: skip

    # -- reading ------------------------------------------------------------------------------

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        query = {"list-type": "2", "prefix": prefix, "encoding-type": "url", "max-keys": "1000"}
        if after:
            query["start-after"] = after
        while True:
            root = self._xml("GET", "", query)
            if root.tag != "ListBucketResult" and root.find("IsTruncated") is None:
                # Of a login page, say: taken for an empty bucket, it would have a mirror delete everything.
                raise StoreUnavailable(
                    "the store's answer is no listing", path=self.name, got=f"<{root.tag[:40]}>"
                )
            decode = root.findtext("EncodingType") == "url"
            last = ""
            for item in root.iterfind("Contents"):
                key = item.findtext("Key") or ""
                last = _decoded(key) if decode else key
                yield ObjectInfo(
                    last,
                    int(item.findtext("Size") or -1),
                    etag=item.findtext("ETag") or "",
                    modified=iso_time(item.findtext("LastModified")),
                )
            if root.findtext("IsTruncated") != "true":
                return
            token = root.findtext("NextContinuationToken")
            if token and token != query.get("continuation-token"):
                query["continuation-token"] = token
                query.pop("start-after", None)
                continue
            # A server that knows only version 1 of the listing gives no token, and goes on behind `marker`.
            if token or not last or last == query.get("marker"):
                raise StoreUnavailable(
                    "the store says that its listing goes on, and does not say where",
                    path=f"{self.name}/{prefix}",
                )
            query.pop("continuation-token", None)
            query |= {"start-after": last, "marker": last}

    def children(self, prefix: str, limit: int) -> tuple[str, ...]:
        if not self._bucket:
            names = (bucket.findtext("Name") or "" for bucket in self._xml("GET", "", {}).iter("Bucket"))
            return tuple(f"{name}/" for name in names if name.startswith(prefix))[:limit]
        query = {"list-type": "2", "prefix": prefix, "delimiter": "/", "encoding-type": "url"}
        root = self._xml("GET", "", {**query, "max-keys": str(min(limit, 1000))})
        decode = _decoded if root.findtext("EncodingType") == "url" else str
        folders = [decode(item.findtext("Prefix") or "") for item in root.iterfind("CommonPrefixes")]
        keys = [decode(item.findtext("Key") or "") for item in root.iterfind("Contents")]
        return tuple(sorted([*folders, *(key for key in keys if not key.endswith("/"))]))[:limit]

    def head(self, key: str) -> ObjectInfo:
        response = self._send("HEAD", key, headers={"x-amz-checksum-mode": "ENABLED"})
        return _info_of(key, response)

    def part_size(self, info: ObjectInfo) -> int | None:
        if not info.etag.strip('"').partition("-")[2]:
            return None
        try:
            size, parts = self._part(info.key, 1)
            last, _ = self._part(info.key, parts) if parts > 1 else (size, 1)
        except Exception:
            return None  # a courtesy of the store; without it part sizes are guessed
        # Parts may differ in size; then no single size makes the ETag, and a mismatch would mean nothing.
        return size if size > 0 and size * (parts - 1) + last == info.size else None

    def _part(self, key: str, number: int) -> tuple[int, int]:
        """Bytes of one part, and how many parts there are."""
        headers = self._send("HEAD", key, {"partNumber": str(number)}, ok=(200, 206)).headers
        return int(headers["content-length"]), int(headers["x-amz-mp-parts-count"])

    def read(
        self, key: str, start: int = 0, end: int | None = None, *, match: ObjectInfo | None = None
    ) -> ResponseBody:
        headers = {"x-amz-checksum-mode": "ENABLED"}
        query: dict[str, str] = {}
        ranged = start > 0 or end is not None
        if ranged:
            headers["range"] = f"bytes={start}-{'' if end is None else end - 1}"
        if match is not None:
            if match.version:
                query["versionId"] = match.version
            elif match.etag and not match.etag.startswith("W/"):
                headers["if-match"] = match.etag
        try:
            if end is not None and end <= start:
                return self._nothing(key, start, match)
            response = self._send("GET", key, query, headers, ok=(200, 206, 416) if ranged else (200,))
            if response.status == 416:
                response.close()
                return self._nothing(key, start, match)
        except NotFound as error:
            if match is not None and not error.details.get("bucket"):
                raise SourceChanged(
                    "the object vanished after it was listed", path=f"{self.name}/{key}"
                ) from error
            raise
        info = _info_of(key, response)
        try:
            refuse_another(f"{self.name}/{key}", info, match)
        except SourceChanged:
            response.close()
            raise
        return ResponseBody(response, info, start_of(response) if ranged and response.status == 206 else 0)

    def _nothing(self, key: str, start: int, match: ObjectInfo | None) -> ResponseBody:
        """The empty body of a range beyond the end."""
        info = self.head(key)
        refuse_another(f"{self.name}/{key}", info, match)
        return ResponseBody(None, info, start)

    # -- writing ------------------------------------------------------------------------------

    def write(
        self, key: str, source: Source, size: int, *, headers: Mapping[str, str] | None = None
    ) -> ObjectInfo:
        body = fill(source, size, f"{self.name}/{key}")
        response = self._send("PUT", key, headers=dict(headers or {}), body=body, size=size)
        response.read()
        return _written(key, size, response)

    def same_objects(self, other: Store) -> bool:
        return isinstance(other, S3Store) and (self._server(), self._bucket) == (
            other._server(),
            other._bucket,
        )

    def _server(self) -> str:
        """Where the buckets live; all regions of AWS are one."""
        return self._config.endpoint.rstrip("/").lower()

    def can_copy(self, source: Store) -> bool:
        return (
            isinstance(source, S3Store)
            and self._server() == source._server()
            and _keys_of(self._config) == _keys_of(source._config)
        )

    def copy(self, source: Store, info: ObjectInfo, key: str) -> ObjectInfo:
        response, root = self._copied(key, {}, source, info)
        return ObjectInfo(key, info.size, etag=_quoted(root.findtext("ETag")), encrypted=_encrypted(response))

    def _copied(
        self,
        key: str,
        query: dict[str, str],
        source: Store,
        info: ObjectInfo,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[Response, ET.Element]:
        assert isinstance(source, S3Store)
        sent = {"x-amz-copy-source": quote_path(f"/{source._bucket}/{info.key}"), **(headers or {})}
        if info.version:
            sent["x-amz-copy-source"] += f"?versionId={quote(info.version, safe='')}"
        elif info.etag and not info.etag.startswith("W/"):
            sent["x-amz-copy-source-if-match"] = info.etag
        try:
            return self._answer("PUT", key, query, b"", sent)
        except NotFound as error:
            if error.details.get("code") == "NoSuchKey":
                raise SourceChanged(
                    "the object vanished after it was listed", path=f"{source.name}/{info.key}"
                ) from error
            raise

    def upload(self, key: str, size: int, *, headers: Mapping[str, str] | None = None) -> Upload:
        upload_id = self._xml("POST", key, {"uploads": ""}, headers=headers).findtext("UploadId")
        if not upload_id:  # without it, to give the upload up would delete the object
            raise StoreUnavailable("the store gave the upload no id", path=f"{self.name}/{key}")
        return _S3Upload(self, key, size, upload_id)

    def pending(self, prefix: str) -> Iterator[tuple[str, str]]:
        query = {"uploads": "", "prefix": prefix}  # SeaweedFS does not encode here although it says so
        while True:
            root = self._xml("GET", "", query)
            for item in root.iterfind("Upload"):
                yield item.findtext("Key") or "", item.findtext("UploadId") or ""
            marker, upload = root.findtext("NextKeyMarker"), root.findtext("NextUploadIdMarker")
            if root.findtext("IsTruncated") != "true" or not marker:
                return
            query |= {"key-marker": marker, "upload-id-marker": upload or ""}

    def abort(self, key: str, upload_id: str) -> None:
        self._send("DELETE", key, {"uploadId": upload_id}, ok=(200, 204, 404)).close()

    def delete(self, keys: Iterable[str]) -> None:
        batch = deque[str]()
        for key in keys:
            if _NOT_IN_XML.search(key):
                self._delete([key])
                continue
            batch.append(key)
            if len(batch) == 1000:
                self._delete(batch)
                batch.clear()
        if batch:
            self._delete(batch)

    def _delete(self, keys: Sequence[str]) -> None:
        if len(keys) == 1:
            self._send("DELETE", keys[0], ok=(200, 204, 404)).close()
            return
        root = ET.Element("Delete")
        ET.SubElement(root, "Quiet").text = "true"
        for key in keys:
            ET.SubElement(ET.SubElement(root, "Object"), "Key").text = key
        body = ET.tostring(root, encoding="utf-8")
        failed = {
            item.findtext("Key") for item in self._xml("POST", "", {"delete": ""}, body).iterfind("Error")
        }
        for key in keys:  # one by one, so that the error names the key and the reason
            if key in failed:
                self._send("DELETE", key, ok=(200, 204, 404)).close()


class _S3Upload(Upload):
    """A multipart upload to one key."""

    def __init__(self, store: S3Store, key: str, size: int, upload_id: str) -> None:
        self._store, self._key, self._size, self.id = store, key, size, upload_id

    def through(self, store: Store) -> Upload:
        assert isinstance(store, S3Store)
        return _S3Upload(store, self._key, self._size, self.id)

    def part(self, number: int, source: Source, size: int) -> str:
        query = {"partNumber": str(number), "uploadId": self.id}
        store = self._store
        body = fill(source, size, f"{store.name}/{self._key}")
        response = store._send("PUT", self._key, query, body=body, size=size)
        response.read()
        self.encrypted = self.encrypted or _encrypted(response)
        return response.headers.get("etag", "")

    def copy_part(self, number: int, source: Store, info: ObjectInfo, start: int, end: int) -> str:
        query = {"partNumber": str(number), "uploadId": self.id}
        ranged = {"x-amz-copy-source-range": f"bytes={start}-{end - 1}"}
        response, root = self._store._copied(self._key, query, source, info, ranged)
        self.encrypted = self.encrypted or _encrypted(response)
        return root.findtext("ETag") or ""

    def finish(self, parts: _Keys) -> ObjectInfo:
        root = ET.Element("CompleteMultipartUpload")
        for number, etag in enumerate(parts, 1):
            part = ET.SubElement(root, "Part")
            ET.SubElement(part, "PartNumber").text = str(number)
            ET.SubElement(part, "ETag").text = etag
        try:
            answer = self._store._xml("POST", self._key, {"uploadId": self.id}, ET.tostring(root))
        except (StoreUnavailable, NotFound):
            # Perhaps only the answer was lost, and with it the request asked again, of an upload that is an object now.
            made = self._made_of(parts)
            if made is None:
                raise
            return made
        # Some servers do not say here.
        etag = _quoted(answer.findtext("ETag")) or self._store.head(self._key).etag
        return ObjectInfo(self._key, self._size, etag=etag, encrypted=self.encrypted)

    def _made_of(self, parts: _Keys) -> ObjectInfo | None:
        """What stands at the key, if its ETag says that it was put together from just these parts."""
        digests = [part.strip('"').lower() for part in parts]
        if self.encrypted or not all(_MD5.fullmatch(digest) for digest in digests):
            return None
        whole = hashlib.md5(bytes.fromhex("".join(digests)), usedforsecurity=False).hexdigest()
        try:
            found = self._store.head(self._key)
        except NbdataError:
            return None
        same = (found.size, found.etag.strip('"').lower()) == (self._size, f"{whole}-{len(parts)}")
        return found if same else None

    def abort(self) -> None:
        self._store.abort(self._key, self.id)


# -- answers --------------------------------------------------------------------------------------


def _decoded(key: str) -> str:
    """A key of an answer with ``encoding-type=url``; some servers write a blank as ``+``."""
    return unquote(key.replace("+", "%20"), errors="surrogatepass")


def _quoted(etag: str | None) -> str:
    """An ETag as listings have it; SeaweedFS answers a copy, and Ceph also a finished upload, without its quotes."""
    return f'"{etag}"' if etag and not etag.endswith('"') else etag or ""


def _sha256(body: bytes | None) -> str:
    return hashlib.sha256(body).hexdigest() if body is not None else EMPTY


def _info_of(key: str, response: Response) -> ObjectInfo:
    headers = response.headers
    size = headers.get("content-length", "")
    total = headers.get("content-range", "").rpartition("/")[2]
    whole, composite = _checksums_of(headers)
    return ObjectInfo(
        key,
        int(total) if total.isdigit() else int(size) if size.isdigit() else -1,
        etag=headers.get("etag", ""),
        modified=http_time(headers.get("last-modified")),
        # A strong ETag tells versions apart as well, and asking by version id takes a permission of its own.
        version=""
        if headers.get("etag", "W/").strip('"') and not headers.get("etag", "W/").startswith("W/")
        else headers.get("x-amz-version-id", "").replace("null", ""),
        checksums=whole,
        composite=composite,
        encrypted=_encrypted(response),
        headers={n: v for n, v in headers.items() if n in _KEPT or n.startswith("x-amz-meta-")},
    )


# Algorithms by which S3 keeps checksums, and the bytes of their digests.
_STORED = {"sha512": 64, "sha256": 32, "sha1": 20, "crc64nvme": 8, "crc32c": 4, "crc32": 4}


def _checksums_of(headers: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The stored checksums in hexadecimal digits: of the whole object, and of the checksums of its parts."""
    whole, composite = dict[str, str](), dict[str, str]()
    kind = headers.get("x-amz-checksum-type", "")
    count = headers.get("etag", "").strip('"').partition("-")[2]
    for name, length in _STORED.items():
        value, _, parts = headers.get(f"x-amz-checksum-{name}", "").partition("-")
        try:
            digest = base64.b64decode(value, validate=True)
        except ValueError:
            continue
        if len(digest) != length:  # a store that answers another algorithm's, or none
            continue
        if parts.isdigit() or (kind == "COMPOSITE" and count.isdigit()):
            composite[name] = f"{digest.hex()}-{parts or count}"
        elif kind == "FULL_OBJECT" or (not kind and (not count or name == "crc64nvme")):
            whole[name] = digest.hex()
        # Else it is of an object in parts, and nothing tells which of the two it is.
    return whole, composite


def _keys_of(config: S3Config) -> tuple[str, ...]:
    """What tells two identities apart, wherever they were found."""
    identity = config.identity
    return (identity.key, identity.secret, identity.token) if identity else ()


def _encrypted(response: Response) -> bool:
    headers = response.headers
    kms = headers.get("x-amz-server-side-encryption", "").startswith("aws:kms")
    return kms or "x-amz-server-side-encryption-customer-algorithm" in headers


def _written(key: str, size: int, response: Response) -> ObjectInfo:
    info = _info_of(key, response)
    return ObjectInfo(
        key, size, etag=info.etag, version=info.version, checksums=info.checksums, encrypted=info.encrypted
    )
