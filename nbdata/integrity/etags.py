"""Read S3 ETags, and compute them.

An object written by one PUT has the MD5 of its content as ETag. An object written in N parts has
``md5(md5(part 1) + … + md5(part N))-N``, with each inner digest as 16 bytes. Amazon states the first in
https://docs.aws.amazon.com/AmazonS3/latest/API/API_Object.html, and describes the second, for checking an object, in
https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity.html. Cloudflare has a worked example in
https://developers.cloudflare.com/r2/objects/multipart-objects.

**An equal ETag confirms; a different one does not always refute.** 32 hexadecimal digits are no MD5 of the content if
the object is encrypted with SSE-KMS or SSE-C, and some S3-compatible stores make up their own. The part size of an
N-part object is not recorded, parts may differ in size, and the sizes tried here are guesses. So equal digests prove
the bytes. Different ones prove damage only for a plain, unencrypted object. In all other cases the caller reports
*unverifiable* (``Expected(conclusive=False)``), never *mismatch*.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from nbdata.integrity.digests import new_digest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed import ReadableBuffer

__all__ = [
    "COMMON_PART_SIZES",
    "ETag",
    "MultipartDigest",
    "are_parts",
    "combine",
    "parse_etag",
    "part_size_candidates",
]

_MIB = 1 << 20
_MB = 10**6

COMMON_PART_SIZES = (
    8 * _MIB,  # AWS CLI, boto3
    5 * _MIB,  # the smallest allowed; AWS SDKs for Go, Java and JavaScript, rclone, obstore
    16 * _MIB,  # S3 console, MinIO
    15 * _MIB,  # s3cmd
    50 * _MIB,  # s5cmd, s3fs
    *(n * _MIB for n in (64, 100, 128, 10, 20, 25, 32, 40, 256, 512, 1024)),
    *(n * _MB for n in (5, 8, 10, 16, 50, 64, 100)),
)
"""Part sizes in bytes that widespread clients use, likeliest first."""

_MD5 = re.compile(r"([0-9a-f]{32})(?:-([1-9][0-9]{0,5}))?", re.IGNORECASE)
# The most parts of an object, as in S3, and the fewest bytes of each but the last. Each part takes memory and time, and
# a server may claim any number. No client is known to upload smaller ones: S3 wants 5 MiB.
_MOST_PARTS, _LEAST_PART = 10_000, 1024


@dataclass(frozen=True)
class ETag:
    """A parsed ETag.

    Attributes
    ----------
    kind : str
        ``"md5"``: looks like the MD5 of the content (the module's docstring covers encryption). ``"multipart"``: looks
        like the digest of the parts' digests. ``"weak"``: marks equivalent content, so it says nothing about bytes.
        ``"opaque"``: anything else. ``"none"``: there is none.
    value : str
        The ETag without quotes, with digests in lower case, as `MultipartDigest.hexdigest` returns them.
    md5 : str or None
        The MD5 of the content, only for the kind md5.
    parts : int
        The number of parts for the kind multipart, otherwise 0.
    """

    kind: Literal["md5", "multipart", "weak", "opaque", "none"]
    value: str = ""
    md5: str | None = None
    parts: int = 0


def parse_etag(text: str | None) -> ETag:
    """Parse an ETag of a header or a listing, with or without quotes, in either case."""
    value = (text or "").strip()
    weak = value[:2] in ("W/", "w/")
    value = value[2:] if weak else value
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = value[1:-1]
    if not value:
        return ETag("none")
    if weak:
        return ETag("weak", value)
    match = _MD5.fullmatch(value)
    if match is None:
        return ETag("opaque", value)
    if match[2] is None:
        return ETag("md5", value.lower(), md5=value.lower())
    if int(match[2]) > _MOST_PARTS:
        return ETag("opaque", value)
    return ETag("multipart", value.lower(), parts=int(match[2]))


def are_parts(size: int, parts: int) -> bool:
    """Whether an object of `size` bytes can have been uploaded in so many parts."""
    return 0 < parts <= _MOST_PARTS and (parts - 1) * _LEAST_PART < max(size, 1)


def combine(part_md5s: Iterable[str]) -> str:
    """Return the unquoted ETag of an object whose parts have these MD5s (in hex), in order.

    Raises
    ------
    ValueError
        If there is no part, or a value is not an MD5.
    """
    digests = [bytes.fromhex(md5) for md5 in part_md5s]
    if not digests or any(len(digest) != 16 for digest in digests):
        raise ValueError("the ETag of a multipart object takes one MD5 of 32 hexadecimal digits per part")
    return f"{_md5(b''.join(digests)).hexdigest()}-{len(digests)}"


class MultipartDigest:
    """The ETag of an object that is uploaded in parts of one size; a `Digest` that takes bytes in order.

    With another algorithm it is the *composite* checksum that S3 keeps of such an object, which is computed in the same
    way (https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity-upload.html).
    An empty object counts as one empty part, as a multipart upload has at least one.

    Parameters
    ----------
    part_size : int
        Bytes of every part except the last.
    algorithm : str
        One of `nbdata.algorithms.ALGORITHMS`.
    """

    def __init__(self, part_size: int, algorithm: str = "md5") -> None:
        if part_size < 1:
            raise ValueError(f"a part size of {part_size} bytes makes no parts")
        self.part_size = part_size
        self._algorithm = algorithm
        self._finished, self._count = bytearray(), 1
        self._part = new_digest(algorithm)
        self._room = part_size

    def update(self, data: ReadableBuffer, /) -> None:
        """Hash more bytes."""
        view = memoryview(data).cast("B")
        while view:
            # The next byte closes a full part, not its own last byte, so there is no empty part at the end.
            if not self._room:
                self._finished += bytes.fromhex(self._part.hexdigest())
                self._part, self._count = new_digest(self._algorithm), self._count + 1
                self._room = self.part_size
            piece, view = view[: self._room], view[self._room :]
            self._part.update(piece)
            self._room -= len(piece)

    def hexdigest(self) -> str:
        """The unquoted ETag of all bytes so far, ``<md5>-<parts>``, or the composite checksum in the same form."""
        whole = new_digest(self._algorithm)
        whole.update(self._finished + bytes.fromhex(self._part.hexdigest()))
        return f"{whole.hexdigest()}-{self._count}"


def part_size_candidates(size: int, parts: int, *, limit: int = 32) -> list[int]:
    """Return part sizes in bytes that divide `size` bytes into exactly `parts` parts, likeliest first.

    The sizes of common clients come first (`COMMON_PART_SIZES`, and the AWS CLI's doubling of 8 MiB for huge files),
    then the even split, then whole MiB. If the real size is not among them, the object is unverifiable.

    Parameters
    ----------
    size : int
        Bytes of the object.
    parts : int
        Number of parts, from its ETag.
    limit : int
        The most candidates. Each costs a pass of MD5 over the bytes.
    """
    if parts < 1 or size < 0:
        return []
    if parts == 1:  # every part size of at least `size` gives the same digest
        return [max(size, 1)]
    # ceil(size / p) == parts, solved for p
    low, high = -(-size // parts), (size - 1) // (parts - 1)
    doubled = (8 * _MIB << n for n in range(10))
    whole = range(-(-low // _MIB) * _MIB, high + 1, _MIB)[:limit]
    likely = dict.fromkeys([*COMMON_PART_SIZES, *doubled, low, *whole])
    return [part_size for part_size in likely if low <= part_size <= high][:limit]


def _md5(data: bytes = b"") -> hashlib._Hash:
    return hashlib.md5(data, usedforsecurity=False)
