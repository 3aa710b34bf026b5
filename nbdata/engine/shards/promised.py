"""Compare the bytes of a shard with its entry in the JSON index."""

from __future__ import annotations

from nbdata.errors import ChecksumMismatch
from nbdata.integrity.digests import Digest, new_digest
from nbdata.integrity.etags import MultipartDigest, are_parts, parse_etag, part_size_candidates
from nbdata.reading.shards.content import Body
from nbdata.reading.source_file import Promised, SourceFile

__all__ = ["PromisedBody"]

# Part sizes to try for a multipart ETag whose part size is not in the index.
_GUESSES = 4


class PromisedBody(Body):
    """The bytes of a shard, hashed while they are read.

    Parameters
    ----------
    body : Body
    shard : SourceFile
        The shard with its entry in the index.

    Raises
    ------
    ChecksumMismatch
        If the size of the shard differs from the index.
    """

    def __init__(self, body: Body, shard: SourceFile) -> None:
        super().__init__()
        self._body, self._shard = body, shard
        self._promised = promised = shard.promised or Promised()
        if promised.size is not None and 0 <= shard.size != promised.size:
            raise _differs(shard, "size", f"{promised.size:,} bytes", f"{shard.size:,} bytes")
        self._digests: list[Digest] = []
        self._expected = promised.md5 or promised.etag
        # Whether other bytes than these give another digest.
        self._is_sure = bool(promised.md5)
        if self._expected == parse_etag(shard.etag).value:  # the bytes are compared with this anyway
            self._expected = ""
        elif promised.md5:
            self._digests = [new_digest("md5")]
        elif promised.etag:
            self._digests = [MultipartDigest(size) for size in self._part_sizes(promised)]

    def _part_sizes(self, promised: Promised) -> list[int]:
        """Return the size in the index if its ETag has that many parts, else likely ones; none for too many parts."""
        size, parts = self._shard.size, parse_etag(promised.etag).parts
        if not are_parts(size, parts):
            return []
        if promised.part_size and -(-size // promised.part_size) == parts:
            self._is_sure = True
            return [promised.part_size]
        return part_size_candidates(size, parts, limit=_GUESSES)

    def _more(self) -> memoryview:
        block = self._body.block()
        for digest in self._digests:
            digest.update(block)
        return block

    def prove(self) -> bool:
        """Read the rest and compare; return False if it cannot be decided whether the bytes match the index.

        Raises
        ------
        ChecksumMismatch
            If the bytes differ from the index.
        """
        while self.block():
            pass
        if not self._expected:
            return True
        digests = [digest.hexdigest() for digest in self._digests]
        if self._expected in digests:
            return True
        if self._is_sure:
            raise _differs(self._shard, "MD5" if self._promised.md5 else "ETag", self._expected, digests[0])
        return False

    def close(self) -> None:
        self._body.close()
        super().close()


def _differs(shard: SourceFile, what: str, expected: str, got: str) -> ChecksumMismatch:
    return ChecksumMismatch(
        f"the shard has another {what} than its JSON index says",
        path=shard.url,
        expected=expected,
        got=got,
        remedy="Fetch or pack it anew; if it was changed on purpose, write the index anew, too",
    )
