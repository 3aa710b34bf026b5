"""Servers that say the same of their objects, names, sizes and ETags, and give different bytes.

Each speaks S3, Google's JSON API and Azure's REST API, and has one bucket, ``b``.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

__all__ = ["Twin", "twin"]

_TIME = "2026-01-01T00:00:00.000Z"
_HTTP_TIME = "Thu, 01 Jan 2026 00:00:00 GMT"


class Twin(NamedTuple):
    """A server, and the ranges that were read from it, each as its key and its first byte."""

    url: str
    read: list[tuple[str, int]]

    def options(self, scheme: str) -> dict[str, Any]:
        """Return the storage options that lead to it."""
        if scheme == "s3":
            return {"endpoint_url": self.url, "key": "k", "secret": "s", "region": "us-east-1"}
        if scheme == "gs":
            return {"endpoint_url": self.url, "token": "anon"}
        return {"endpoint_url": self.url, "account_name": "same", "anon": "true"}


@contextmanager
def twin(objects: dict[str, bytes], *, till: int | None = None, parts: int = 0) -> Iterator[Twin]:
    """Serve some objects, whose ETags are those of any twin; from the byte `till` on, reads are refused.

    With `parts`, the ETags claim an upload in so many parts instead, and so does a composite checksum.
    """
    read: list[tuple[str, int]] = []

    def below(query: str) -> dict[str, bytes]:
        prefix = parse_qs(query).get("prefix", [""])[0]
        return {key: objects[key] for key in sorted(objects) if key.startswith(prefix)}

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            path, query = urlsplit(self.path).path, urlsplit(self.path).query
            key = unquote(path.partition("/o/")[2] if path.startswith("/storage/") else path[len("/b/") :])
            if key in objects and (not path.startswith("/storage/") or "alt=media" in query):
                self._give(key, objects[key])
            elif key in objects:
                self._say(200, json.dumps(_as_json(key, objects[key])).encode())
            elif key:
                self._say(404, b"")
            elif path.startswith("/storage/"):
                items = [_as_json(key, data) for key, data in below(query).items()]
                self._say(200, json.dumps({"items": items}).encode())
            else:
                self._say(200, _listing(below(query), parts, azure="restype=container" in query).encode())

        def do_HEAD(self) -> None:
            self.do_GET()

        def _give(self, key: str, data: bytes) -> None:
            wanted = (self.headers.get("range") or self.headers.get("x-ms-range") or "").removeprefix(
                "bytes="
            )
            first, _, last = wanted.partition("-")
            start, end = int(first or 0), min(len(data), int(last) + 1 if last else len(data))
            if till is not None and start >= till and self.command == "GET":
                self._say(403, b"<Error><Code>AccessDenied</Code></Error>")
                return
            if self.command == "GET":
                read.append((key, start))
            told = {
                "etag": _etag(key, parts),
                "last-modified": _HTTP_TIME,
                "x-goog-generation": "7",
            }
            if parts:
                told["x-amz-checksum-sha256"] = base64.b64encode(bytes(32)).decode() + f"-{parts}"
            else:
                told["x-amz-server-side-encryption"] = "aws:kms"
            if wanted:
                told["content-range"] = f"bytes {start}-{end - 1}/{len(data)}"
            self._say(206 if wanted else 200, data[start:end], told)

        def _say(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield Twin(f"http://127.0.0.1:{server.server_port}", read)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _etag(key: str, parts: int = 0) -> str:
    return f'"{"0" * 32}-{parts}"' if parts else f'"opaque-{key}"'


def _as_json(key: str, data: bytes) -> dict[str, str]:
    return {"name": key, "size": str(len(data)), "generation": "7", "etag": "same", "updated": _TIME}


def _listing(objects: dict[str, bytes], parts: int, *, azure: bool) -> str:
    if azure:
        blobs = "".join(
            f"<Blob><Name>{key}</Name><Properties><Content-Length>{len(data)}</Content-Length>"
            f"<Etag>{_etag(key)}</Etag><Last-Modified>{_HTTP_TIME}</Last-Modified></Properties></Blob>"
            for key, data in objects.items()
        )
        return f"<EnumerationResults><Blobs>{blobs}</Blobs><NextMarker/></EnumerationResults>"
    contents = "".join(
        f"<Contents><Key>{key}</Key><Size>{len(data)}</Size><ETag>{_etag(key, parts)}</ETag>"
        f"<LastModified>{_TIME}</LastModified></Contents>"
        for key, data in objects.items()
    )
    return f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>"
