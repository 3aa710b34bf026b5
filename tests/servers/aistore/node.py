"""A node ("target"): it has the bytes, and answers requests for objects that the gateway has redirected to it.

The native API is in ``ais/target.go``, ``ais/tgthead.go``, ``ais/tgtobj.go`` and ``ais/tgtmpt.go``; the S3 door is in
`tests.servers.aistore.s3_node`.
"""

from __future__ import annotations

import dataclasses
import hmac
import json
import os
import re
import sys
import urllib.parse
from email.utils import formatdate
from pathlib import Path
from typing import Any

from tests.servers.aistore import s3_node
from tests.servers.aistore.answering import Answered, Handler, Server, serve
from tests.servers.aistore.kept import Bucket, Kept, Object, checksum_of

__all__ = ["NodeHandler", "signature"]

_PIECE = 256 << 10
# Properties that HEAD knows (``_objHeadV2`` in ``ais/tgthead.go``); others are refused.
_PROPERTIES = {
    *("name", "size", "checksum", "atime", "version", "custom", "last-modified", "etag"),
    *("location", "copies", "ec", "chunked"),
}


def signature(key: str, method: str, path: str, length: int) -> str:
    """The signature of a redirect: over method, path and length of the body (``ais/signverify.go``, in another way)."""
    return hmac.digest(key.encode(), f"{method} {path} {length}".encode(), "sha256").hex()


class Node(Server):
    """One node."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(NodeHandler, settings)
        self.kept = Kept(Path(settings["folder"]))


class NodeHandler(Handler):
    """A connection of a node."""

    server: Node

    @property
    def kept(self) -> Kept:
        """The objects of this node."""
        return self.server.kept

    @property
    def length(self) -> int:
        """The length of the body; a request without one is not written (411 in Go's server, too)."""
        return int(self.headers.get("content-length") or 0)

    def respond(self) -> None:
        if (status := self.fault("status")) is not None:
            raise Answered(int(status), "injected")
        self._check_redirected()
        if self.parts[0] == "s3":
            s3_node.respond(self)
            return
        if self.parts[:2] != ["v1", "objects"] or len(self.parts) < 4:
            raise Answered(404, "invalid URL path")
        bucket = self.kept.bucket(self.query.get("provider") or "ais", self.parts[2])
        name = self.parts[3]
        if self.command == "GET":
            found = self.kept.find(bucket, name)
            self.send(bucket, found, self.headers_of(found))
        elif self.command == "HEAD":
            self._head(bucket, name)
        elif self.command == "PUT":
            self._put(bucket, name)
        elif self.command == "DELETE":
            if self.json().get("action") == "mpt-abort":
                self.kept.abort(bucket, name, self.query.get("uploadId", ""))
            else:
                self.kept.delete(bucket, name)
            self.answer(200)
        else:
            self._post(bucket, name)

    def _check_redirected(self) -> None:
        """Compare the signature of the gateway, if the cluster signs redirects."""
        key = self.server.settings.get("signs")
        if key and self.query.get("u") != signature(key, self.command, self.address.path, self.length):
            raise Answered(401, "cannot verify request: missing or wrong signature")

    # -- reading ----------------------------------------------------------------------------------

    def headers_of(self, found: Object) -> dict[str, str]:
        """The headers of a GET (``cmn.ToHeader``): there is an ETag only if the object has one from elsewhere."""
        headers = {"ais-atime": str(found.accessed), "content-type": "application/octet-stream"}
        if found.checksum:
            headers |= {"ais-checksum-type": found.kind, "ais-checksum-value": found.checksum}
        if found.version:
            headers["ais-version"] = found.version
        if found.custom:
            headers["ais-custom-md"] = ", ".join(f"{name}={value}" for name, value in found.custom.items())
            if "ETag" in found.custom:
                headers["etag"] = found.custom["ETag"]
        return headers

    def send(self, bucket: Bucket, found: Object, headers: dict[str, str], *, of_s3: bool = False) -> None:
        """Send an object or a range of it (``getOI.txfini``)."""
        start, end, status = 0, found.size, 200
        if wanted := self.headers.get("range"):
            start, end = _range(wanted, found.size)
            status = 206
            headers |= {"accept-ranges": "bytes", "content-range": f"bytes {start}-{end - 1}/{found.size}"}
            if start >= found.size:
                self.answer(416, b"", {"content-range": f"bytes */{found.size}"})
                return
        fd = self.kept.open(found)
        try:
            if status == 206 and bucket.of_ranges and not of_s3 and found.checksum:
                value = checksum_of(bucket.checksum, os.pread(fd, end - start, start))
                headers |= {"ais-checksum-type": bucket.checksum, "ais-checksum-value": value}
            data = os.pread(fd, min(_PIECE, end - start), start)
            pause = self.fault("pause_after")
            if (cut := self.fault("break_after")) is not None or (cut := pause) is not None:
                data = data[:cut]
            self.begin(status, end - start, headers, data)
            if pause is not None:
                self.server.resumed.wait()
            elif cut is not None:
                self.close_connection = True
                return
            at = start + len(data)
            while at < end and (data := os.pread(fd, min(_PIECE, end - at), at)):
                self.wfile.write(data)
                at += len(data)
        finally:
            os.close(fd)

    def _head(self, bucket: Bucket, name: str) -> None:
        found = self.kept.find(bucket, name)
        asked = {prop.strip() for prop in self.query.get("props", "").split(",") if prop.strip()}
        if unknown := asked - _PROPERTIES:
            raise Answered(400, f"invalid property {min(unknown)!r} in props list")
        headers = self.headers_of(found) | {"ais-present": "true", "content-length": str(found.size)}
        if asked:  # only what was asked for (``cmn.ToHeaderV2``); else all (``objHead`` in ``ais/target.go``)
            headers.pop("etag", None)
            kept = {"checksum": "ais-checksum-", "version": "ais-version", "custom": "ais-custom-md"}
            kept["atime"] = "ais-atime"
            for prop, beginning in kept.items():
                if prop not in asked:
                    headers = {one: two for one, two in headers.items() if not one.startswith(beginning)}
            if "last-modified" in asked:
                headers["last-modified"] = formatdate(found.modified / 1e9, usegmt=True)
            if "etag" in asked and found.etag:
                headers["etag"] = f'"{found.etag}"'
            if "chunked" in asked and found.parts:
                headers |= {
                    "ais-chunks-count": str(len(found.parts)),
                    "ais-chunks-max-chunk-size": str(max(found.parts)),
                }
        self.answer(200, b"", headers)

    # -- writing ----------------------------------------------------------------------------------

    def given(self) -> tuple[str, str]:
        """The checksum that came with an object."""
        headers = self.headers
        return headers.get("ais-checksum-type", "").lower(), headers.get("ais-checksum-value", "")

    def _put(self, bucket: Bucket, name: str) -> None:
        if upload_id := self.query.get("uploadId"):
            number = self.query.get("partNumber", "")
            if not number.isdigit():
                raise Answered(400, f"invalid part number {number!r}")
            body = self.body()
            self.kept.part(bucket, name, upload_id, int(number), body, self.length)
            self.answer(200)  # without an ETag: only the S3 door tells one
            return
        kind, value = self.given()
        if bucket.checksum != "none" and value:
            try:
                found = self.kept.find(bucket, name)
            except Answered:
                pass
            else:
                if (found.kind, found.checksum) == (kind, value):  # "PUT is a no-op" (``putOI.putObject``)
                    for _ in self.body():
                        pass
                    self.answer(200)
                    return
        made = self.kept.put(bucket, name, self.body(), self.length, (kind, value), {})
        if self.fault("lose_answer"):
            self.close_connection = True
            return
        headers = self.headers_of(made)
        headers.pop("content-type")
        self.answer(200, b"", headers)

    def _post(self, bucket: Bucket, name: str) -> None:
        asked = self.json()
        if asked.get("action") == "mpt-upload":
            upload_id = self.kept.begin(bucket, name, {})
            self.answer(200, upload_id.encode(), {"content-type": "text/plain"})
        elif asked.get("action") == "mpt-complete":
            numbers = [int(part["part-number"]) for part in asked.get("value") or []]
            self.kept.complete(bucket, name, self.query.get("uploadId", ""), numbers, of_s3=False)
            if self.fault("lose_answer"):
                self.close_connection = True
                return
            self.answer(200)
        else:
            raise Answered(400, f"invalid action {asked.get('action')!r}")

    # -- the gateway and tests ----------------------------------------------------------------------

    def controlled(self, what: str, asked: dict[str, Any]) -> Any:
        if what == "bucket":
            self.kept.add_bucket(Bucket(**asked))
            return {}
        if what == "list":
            bucket = self.kept.bucket(asked["provider"], asked["bucket"])
            found = self.kept.listed(bucket, asked["prefix"], asked["after"], asked["limit"])
            return [dataclasses.asdict(one) | {"etag": one.etag} for one in found]
        if what == "uploads":
            return self.kept.uploads(self.kept.bucket(asked["provider"], asked["bucket"]))
        if what == "delete":
            bucket = self.kept.bucket(asked["provider"], asked["bucket"])
            for name in asked["names"]:
                try:
                    self.kept.delete(bucket, name)
                except Answered:
                    continue
            return {}
        if what == "give":
            return self._give(asked)
        if what.startswith("take"):
            raise Answered(400, "take has a body of its own")
        return super().controlled(what, asked)

    def _control(self) -> None:
        if self.parts[1:2] == ["take"]:
            bucket = self.kept.bucket(self.query["provider"], self.query["bucket"])
            self.kept.take(bucket, json.loads(self.query["told"]), self.body())
            self.answer(200, b"{}")
            return
        super()._control()

    def _give(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Copy objects to another node; delete them here if they move."""
        bucket = self.kept.bucket(asked["provider"], asked["bucket"])
        for name in asked["names"]:
            found = self.kept.find(bucket, name)
            fd = self.kept.open(found)
            with open(fd, "rb") as file:
                query = urllib.parse.urlencode(
                    {
                        "provider": bucket.provider,
                        "bucket": bucket.name,
                        "told": json.dumps(dataclasses.asdict(found)),
                    }
                )
                self.server.reach(f"{asked['to']}/_control/take?{query}", file.read())
            if asked["move"]:
                self.kept.delete(bucket, name)
        return {}


def _range(text: str, size: int) -> tuple[int, int]:
    """Read a range of one part (``parseMultiRange`` in ``ais/htcommon.go``)."""
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", text.strip())
    if not match or not (match[1] or match[2]):
        raise Answered(416, f"invalid range {text!r}")
    if not match[1]:
        return max(0, size - int(match[2])), size
    start = int(match[1])
    end = min(int(match[2]) + 1, size) if match[2] else size
    return start, end


if __name__ == "__main__":
    serve(Node(json.loads(sys.argv[1])))
