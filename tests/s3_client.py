"""A small S3 client for tests: it fills buckets and reads them, without nbdata and ten times as fast as botocore.

A test that uploads a hundred objects otherwise spends most of its time in botocore.
"""

# ruff: noqa: N803 (botocore's names of parameters)
from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import http.client
import io
import zlib
from collections import deque
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote, unquote_plus, urlsplit
from xml.etree import ElementTree as ET

from nbdata.demo.server import REGION, EmbeddedServer
from tests.waiting import PATIENCE

__all__ = ["S3Client"]

# As botocore: servers fail now and then on a busy machine.
_TRIES = 5
_SPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"


class S3Client:
    """A client for an embedded server, independent of the environment, safe for threads.

    The methods here have the names, parameters and results of botocore's, as far as tests use them. All others are
    botocore's.
    """

    def __init__(self, server: EmbeddedServer) -> None:
        self._host, self._keys = urlsplit(server.url).netloc, (server.access_key, server.secret_key)
        self._idle = deque[http.client.HTTPConnection]()
        self._botocore: Any = None

    def __getattr__(self, name: str) -> Any:
        if self._botocore is None:
            self._botocore = _session().create_client(
                "s3",
                endpoint_url=f"http://{self._host}",
                region_name=REGION,
                aws_access_key_id=self._keys[0],
                aws_secret_access_key=self._keys[1],
            )
        return getattr(self._botocore, name)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; the next request opens new ones."""
        while self._idle:
            self._idle.pop().close()
        if self._botocore is not None:
            self._botocore.close()
            self._botocore = None

    def create_bucket(self, *, Bucket: str) -> None:
        """Create a bucket."""
        self._send("PUT", f"/{Bucket}")

    def delete_bucket(self, *, Bucket: str) -> None:
        """Delete a bucket; SeaweedFS deletes its objects too."""
        self._send("DELETE", f"/{Bucket}")

    def put_object(self, *, Bucket: str, Key: str, Body: Any = b"", **options: Any) -> dict[str, Any]:
        """Upload an object, with its CRC-32, as botocore does."""
        if options or not isinstance(Body, (bytes, bytearray, memoryview)):
            found: dict[str, Any] = self.__getattr__("put_object")(
                Bucket=Bucket, Key=Key, Body=Body, **options
            )
            return found
        crc = base64.b64encode(zlib.crc32(Body).to_bytes(4, "big")).decode()
        headers = {"x-amz-checksum-crc32": crc, "x-amz-sdk-checksum-algorithm": "CRC32"}
        etag, _ = self._send("PUT", _path(Bucket, Key), body=bytes(Body), headers=headers)
        return {"ETag": etag}

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        """Read an object."""
        etag, body = self._send("GET", _path(Bucket, Key))
        return {"ETag": etag, "ContentLength": len(body), "Body": io.BytesIO(body)}

    def delete_object(self, *, Bucket: str, Key: str) -> None:
        """Delete an object."""
        self._send("DELETE", _path(Bucket, Key))

    def list_objects_v2(self, *, Bucket: str, Prefix: str = "") -> dict[str, Any]:
        """List at most a thousand objects."""
        query = f"encoding-type=url&list-type=2&prefix={quote(Prefix, safe='')}"
        page = ET.fromstring(self._send("GET", f"/{Bucket}", query)[1])
        entries = [
            {child.tag.removeprefix(_SPACE): child.text or "" for child in entry}
            for entry in page.iter(f"{_SPACE}Contents")
        ]
        found: dict[str, Any] = {
            "KeyCount": len(entries),
            "IsTruncated": page.findtext(f"{_SPACE}IsTruncated") == "true",
        }
        if entries:
            found["Contents"] = [
                {"Key": unquote_plus(entry["Key"]), "Size": int(entry["Size"]), "ETag": entry["ETag"]}
                for entry in entries
            ]
        return found

    def _send(
        self,
        method: str,
        path: str,
        query: str = "",
        *,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> tuple[str, bytes]:
        """Send a request; return the ETag and the body of the response. Try again after a failure of the server."""
        for left in reversed(range(_TRIES)):
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = http.client.HTTPConnection(self._host, timeout=PATIENCE)
            try:
                signed = self._signed(method, path, query, headers or {})
                connection.request(method, f"{path}?{query}" if query else path, body, signed)
                answer = connection.getresponse()
                found = answer.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                if not left:
                    raise
                self.close()  # the server may have closed the others, too
                continue
            self._idle.append(connection)
            if answer.status < 500 or not left:
                break
        assert answer.status < 300, f"{method} {path}: {answer.status} {found!r}"
        return answer.headers.get("etag", ""), found

    def _signed(self, method: str, path: str, query: str, headers: dict[str, str]) -> dict[str, str]:
        """Return the headers of a request with its signature (AWS Signature Version 4)."""
        now = f"{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}"
        headers = {
            "host": self._host,
            "x-amz-content-sha256": "UNSIGNED-PAYLOAD",
            "x-amz-date": now,
            **headers,
        }
        names = sorted(headers)
        lines = [method, path, query, *(f"{name}:{headers[name]}" for name in names)]
        canonical = "\n".join([*lines, "", ";".join(names), "UNSIGNED-PAYLOAD"])
        scope = f"{now[:8]}/{REGION}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = f"AWS4{self._keys[1]}".encode()
        for part in (*scope.split("/"), text):
            key = hmac.digest(key, part.encode(), "sha256")
        headers["Authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self._keys[0]}/{scope}, SignedHeaders={';'.join(names)}, "
            f"Signature={key.hex()}"
        )
        return headers


def _path(bucket: str, key: str) -> str:
    return f"/{bucket}/{quote(key, safe='/~')}"


@functools.lru_cache(maxsize=1)
def _session() -> Any:
    """Return a shared botocore session.

    A new session loads botocore's models again, which takes a tenth of a second.
    """
    import botocore.session

    return botocore.session.Session()
