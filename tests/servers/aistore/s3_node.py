"""The S3 door of a node (``ais/tgts3.go``, ``ais/tgts3mpt.go``, ``ais/s3/``)."""

from __future__ import annotations

import time
import xml.etree.ElementTree as ET
from email.utils import formatdate
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from tests.servers.aistore.answering import Answered
from tests.servers.aistore.kept import Bucket, Object

if TYPE_CHECKING:
    from tests.servers.aistore.node import NodeHandler

__all__ = ["document", "error_document", "respond"]

_NAMESPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'
_KIND = {"content-type": "application/xml"}
# Codes of errors (``s3.WriteErr`` in ``ais/s3/err.go``).
_CODES = {"ErrNotFound": "NoSuchKey", "ErrBckNotFound": "NoSuchBucket"}


def document(root: str, inside: str) -> bytes:
    """An XML document of S3."""
    return f"{_XML}<{root} {_NAMESPACE}>{inside}</{root}>".encode()


def error_document(error: Answered, path: str) -> bytes:
    """The document of an error."""
    code = _CODES.get(error.code, error.code or "InternalError")
    inside = (
        f"<Code>{code}</Code><Message>{escape(error.message)}</Message><Resource>{escape(path)}</Resource>"
    )
    return f"{_XML}<Error>{inside}</Error>".encode()


def respond(handler: NodeHandler) -> None:
    """Answer a request for an object."""
    try:
        _respond(handler)
    except Answered as error:
        data = b"" if handler.command == "HEAD" else error_document(error, handler.address.path)
        handler.answer(error.status, data, _KIND)


def _respond(handler: NodeHandler) -> None:
    kept, query = handler.kept, handler.query
    name = "/".join(handler.parts[2:])
    bucket = kept.named(handler.parts[1])
    if handler.command in ("GET", "HEAD"):
        if handler.command == "GET" and "uploadId" in query:
            parts = kept.parts(bucket, name, query["uploadId"])
            inside = "".join(
                f'<Part><PartNumber>{number}</PartNumber><ETag>"{md5}"</ETag></Part>'
                for number, (_, md5) in parts.items()
            )  # without sizes (``types.CompletedPart``)
            handler.answer(200, document("ListPartsResult", inside), _KIND)
            return
        found = kept.find(bucket, name)
        headers = _headers_of(found)
        if handler.command == "HEAD":
            # HEAD has the checksum under other names (``cos.S3MetadataChecksumType``).
            if found.checksum:
                headers |= {
                    "x-amz-meta-ais-cksum-type": found.kind,
                    "x-amz-meta-ais-cksum-val": found.checksum,
                }
            handler.answer(200, b"", headers | {"content-length": str(found.size)})
            return
        handler.send(bucket, found, handler.headers_of(found) | headers, of_s3=True)
    elif handler.command == "PUT":
        _put(handler, bucket, name)
    elif handler.command == "DELETE":
        if "uploadId" in query:
            kept.abort(bucket, name, query["uploadId"])
            handler.answer(204)
            return
        kept.delete(bucket, name)  # 404 for what is not there, unlike S3 ("NOTE" in ``ais/s3/err.go``)
        handler.answer(200)
    elif "uploads" in query:
        upload_id = kept.begin(bucket, name, {})
        inside = f"<Bucket>{bucket.name}</Bucket><Key>{escape(name)}</Key><UploadId>{upload_id}</UploadId>"
        handler.answer(200, document("InitiateMultipartUploadResult", inside), _KIND)
    else:
        root = ET.fromstring(b"".join(handler.body()))
        numbers = [int(one.text or 0) for one in root.iter() if one.tag.endswith("PartNumber")]
        made = kept.complete(bucket, name, query.get("uploadId", ""), numbers, of_s3=True)
        inside = f'<Bucket>{bucket.name}</Bucket><Key>{escape(name)}</Key><ETag>"{made.etag}"</ETag>'
        handler.answer(200, document("CompleteMultipartUploadResult", inside), _KIND)


def _headers_of(found: Object) -> dict[str, str]:
    """``s3.SetS3Headers``."""
    headers = {"last-modified": formatdate(found.modified / 1e9, usegmt=True)}
    if found.etag:
        headers["etag"] = f'"{found.etag}"'
    headers |= {name: value for name, value in found.custom.items() if name.startswith("x-amz-meta-")}
    return headers


def _put(handler: NodeHandler, bucket: Bucket, name: str) -> None:
    kept, query = handler.kept, handler.query
    source = handler.headers.get("x-amz-copy-source")
    if "uploadId" in query:
        if source is not None:
            raise Answered(501, "UploadPartCopy not implemented yet", "NotImplemented")
        number = int(query.get("partNumber") or 0)
        md5 = kept.part(bucket, name, query["uploadId"], number, handler.body(), handler.length)
        handler.answer(200, b"", {"etag": f'"{md5}"'})
        return
    if source is not None:
        # A node copies from its own disk only; others read from the node that has it (``copyObject``).
        raise Answered(501, "copies are not made by this stand-in", "NotImplemented")
    custom = {
        key.lower(): value for key, value in handler.headers.items() if key.lower().startswith("x-amz-meta-")
    }
    made = kept.put(bucket, name, handler.body(), handler.length, handler.given(), custom)
    handler.answer(200, b"", _headers_of(made))


def listing(
    bucket: str,
    entries: list[tuple[str, dict[str, object] | None]],
    token: str,
    prefix: str,
) -> bytes:
    """A page of ListObjectsV2 (``ListObjectResult`` in ``ais/s3/types.go``). Folders have no properties.

    Names are as they are: ``encoding-type`` is not looked at. The time is that of the last access. An ETag is told only
    if it is stored, without quotes (``core/lom.go``: ``LastModifiedLso``, ``ETag``).
    """
    inside = [
        f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(entries)}</KeyCount>",
        f"<MaxKeys>1000</MaxKeys><IsTruncated>{'true' if token else 'false'}</IsTruncated>",
    ]
    if token:
        inside.append(f"<NextContinuationToken>{escape(token)}</NextContinuationToken>")
    for name, told in entries:
        if told is None:
            inside.append(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>")
            continue
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(str(told["accessed"])) / 1e9))
        etag = str(told["etag"])
        if etag.startswith("v1-"):
            etag = ""
        inside.append(
            f"<Contents><Key>{escape(name)}</Key><LastModified>{stamp}</LastModified><ETag>{escape(etag)}</ETag>"
            f"<Size>{told['size']}</Size><StorageClass></StorageClass></Contents>"
        )
    return document("ListBucketResult", "".join(inside))


def names_to_delete(data: bytes) -> list[str]:
    """The names in the body of DeleteObjects."""
    root = ET.fromstring(data)
    return [one.text or "" for one in root.iter() if one.tag.rpartition("}")[2] == "Key"]
