"""Check from a store's answer to an upload whether it received the bytes that were sent."""

from __future__ import annotations

from nbdata.errors import ChecksumMismatch
from nbdata.integrity.digests import new_digest
from nbdata.integrity.etags import combine, parse_etag
from nbdata.stores.base import ObjectInfo

__all__ = ["MultipartChecker", "SentHasher"]


class SentHasher:
    """The MD5 of outgoing bytes; see transfer.send.Hasher.

    S3 answers an upload in one piece, and each part, with the MD5 of the bytes received, unless a KMS key encrypts
    them.
    """

    def __init__(self, key: str, verify: str) -> None:
        self._key, self._verify = key, verify
        self._digest = None if verify == "none" else new_digest("md5")

    def update(self, data: memoryview, /) -> None:
        if self._digest is not None:
            self._digest.update(data)

    def hexdigest(self) -> str:
        return self._digest.hexdigest() if self._digest is not None else ""

    def verify(self, etag: str) -> bool:
        if self._digest is None:
            return False
        answered, sent = parse_etag(etag), self._digest.hexdigest()
        if answered.kind == "md5" and answered.md5 == sent:
            return True
        if self._verify == "md5" or answered.kind == "md5":
            raise ChecksumMismatch(
                "what the store received is not what was sent",
                path=self._key,
                expected=sent,
                got=etag or "no checksum",
                remedy="" if answered.kind == "md5" else "This store answers no MD5: use --verify auto",
                details={"disproved": answered.kind == "md5"},
            )
        return False


class MultipartChecker:
    """Checks an object that was assembled from parts."""

    def __init__(self, key: str, verify: str) -> None:
        self._key, self._verify = key, verify

    def __call__(self, info: ObjectInfo, digests: list[str]) -> bool:
        if info.encrypted:
            return False
        answered = parse_etag(info.etag)
        if self._verify == "none" or answered.kind != "multipart":
            # Every part was verified, so the ETag of the whole may be anything.
            return self._verify != "none"
        expected = combine(digests)
        if answered.value != expected:
            raise ChecksumMismatch(
                "the store put the parts together wrongly", path=self._key, expected=expected, got=info.etag
            )
        return True
