"""Read an object's metadata from an S3 response: key, ETag, checksums, headers and encryption."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from nbdata.bounded import whole_number
from nbdata.stores.base import ObjectInfo
from nbdata.stores.http.answers import ais_checksum, http_time, iso_time
from nbdata.stores.http.client import Response
from nbdata.stores.http.heads import Head

__all__ = ["classed", "decoded", "encrypted", "info_of", "listed", "made_of", "quoted"]

# Headers that S3 stores with an object, beside user metadata ("PutObject", Amazon S3 API reference).
_KEPT = {
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
}
# Makes an `ObjectInfo` from all its values, and those that no listing has.
_new, _REST = tuple.__new__, ObjectInfo("", -1)[4:]
# S3's checksum algorithms, and the length of their digests in bytes.
_STORED = {"sha512": 64, "sha256": 32, "sha1": 20, "crc64nvme": 8, "crc32c": 4, "crc32": 4}


def decoded(key: str) -> str:
    """Decode a key of a response with ``encoding-type=url``. Some servers write a blank as ``+``."""
    if "%" not in key and "+" not in key:
        return key
    return unquote(key.replace("+", "%20"), errors="surrogateescape")


def quoted(etag: str | None) -> str:
    """An ETag with quotes, as in listings. SeaweedFS omits them after a copy, Ceph also after a finished upload."""
    return f'"{etag}"' if etag and not etag.endswith('"') else etag or ""


def listed(root: Element) -> list[ObjectInfo]:
    """Read the objects in a page of a listing."""
    encoded = root.findtext("EncodingType") == "url"
    objects = []
    for item in root:
        if item.tag != "Contents":
            continue
        field_of = item.findtext
        key, etag = field_of("Key") or "", field_of("ETag")
        if etag and etag[-1] != '"':
            etag = quoted(etag)
        # The arguments by position, and all of them: the defaults of a NamedTuple cost as much as a `findtext`.
        info = _new(
            ObjectInfo,
            (
                decoded(key) if encoded else key,
                whole_number(field_of("Size")),
                etag or "",
                # An empty ETag is AIStore's, whose time is then that of the last access (`LOM.LastModifiedLso`).
                None if etag == "" else iso_time(field_of("LastModified")),
                *_REST,
            ),
        )
        objects.append(info)
    return objects


def classed(root: Element, objects: Sequence[ObjectInfo]) -> list[ObjectInfo]:
    """Add their storage classes to the objects in a page of a listing."""
    classes = (item.findtext("StorageClass") or "" for item in root.iterfind("Contents"))
    return [
        info if name in ("", "STANDARD") else info._replace(storage_class=name)
        for info, name in zip(objects, classes, strict=True)
    ]


def info_of(key: str, response: Response | Head) -> ObjectInfo:
    """Read the metadata of the whole object from the headers of a GET or HEAD response."""
    headers = response.headers
    size = headers.get("content-length", "")
    total = headers.get("content-range", "").rpartition("/")[2]
    whole, composite = _checksums_of(headers)
    return ObjectInfo(
        key,
        whole_number(total, whole_number(size)),
        etag=headers.get("etag", ""),
        modified=http_time(headers.get("last-modified")),
        # A strong ETag also identifies the version, and reading by version id needs an extra permission.
        version=""
        if headers.get("etag", "W/").strip('"') and not headers.get("etag", "W/").startswith("W/")
        else headers.get("x-amz-version-id", "").replace("null", ""),
        checksums=whole,
        composite=composite,
        encrypted=encrypted(response),
        headers={
            n: v
            for n, v in headers.items()
            if n in _KEPT or (n.startswith("x-amz-meta-") and not n.startswith("x-amz-meta-ais-cksum-"))
        },
    )


def _checksums_of(headers: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Read the stored checksums in hex: those of the whole object, and the composite ones of its parts."""
    whole, composite = dict[str, str](), dict[str, str]()
    if not any(name.startswith("x-amz-checksum-") for name in headers):
        return _of_aistore(headers) or whole, composite
    kind = headers.get("x-amz-checksum-type", "")
    count = headers.get("etag", "").strip('"').partition("-")[2]
    for name, length in _STORED.items():
        value, _, parts = headers.get(f"x-amz-checksum-{name}", "").partition("-")
        try:
            digest = base64.b64decode(value, validate=True)
        except ValueError:
            continue
        if len(digest) != length:  # some stores send another algorithm's checksum, or none
            continue
        if whole_number(parts) >= 0 or (kind == "COMPOSITE" and whole_number(count) >= 0):
            composite[name] = f"{digest.hex()}-{parts or count}"
        elif kind == "FULL_OBJECT" or (not kind and (not count or name == "crc64nvme")):
            whole[name] = digest.hex()
        # Otherwise the object has parts, and the response does not tell which kind this checksum is.
    return whole, composite


def _of_aistore(headers: Mapping[str, str]) -> dict[str, str]:
    """Read the checksum that AIStore's S3 door tells, always of the whole object (``ais/tgts3.go``)."""
    told = headers.get("ais-checksum-value") or headers.get("x-amz-meta-ais-cksum-val")
    if not told:
        return {}
    kind = headers.get("ais-checksum-type") or headers.get("x-amz-meta-ais-cksum-type") or ""
    return ais_checksum(kind, told)


def encrypted(response: Response | Head) -> bool:
    """Whether the object's encryption makes its ETag something else than a digest of its bytes."""
    headers = response.headers
    kms = headers.get("x-amz-server-side-encryption", "").startswith("aws:kms")
    return kms or "x-amz-server-side-encryption-customer-algorithm" in headers


def made_of(key: str, size: int, response: Response | Head) -> ObjectInfo:
    """Read the metadata of a new object of `size` bytes from the response to its PUT."""
    info = info_of(key, response)
    return ObjectInfo(
        key, size, etag=info.etag, version=info.version, checksums=info.checksums, encrypted=info.encrypted
    )
