"""What a store vouches for, and the check of an object's bytes against it while they arrive."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from nbdata.errors import ChecksumMismatch
from nbdata.integrity.digests import OrderedDigest
from nbdata.integrity.etags import MultipartDigest, parse_etag, part_size_candidates
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.fetch import Check

__all__ = ["check_for", "plain_md5", "vouched"]

# Part sizes that are tried for a multipart ETag whose part size the store does not tell: each costs one more
# read of the file.
_GUESSES = 4


def plain_md5(info: ObjectInfo) -> str | None:
    """The MD5 of an object if its ETag is one.

    AWS: the ETag of an object that was put in one piece and not encrypted by KMS or a customer's key is
    the MD5 of its bytes ("Common Response Headers", Amazon S3 API reference).
    """
    if info.encrypted:
        return None
    return parse_etag(info.etag).md5


def vouched(info: ObjectInfo, verify: str) -> tuple[str, str] | None:
    """Algorithm and hex digest that the store vouches for, or None.

    `verify` is the option: with ``auto`` the MD5 that a plain ETag is, else the strongest stored checksum.
    """
    known = dict(info.checksums)
    md5 = plain_md5(info)
    if md5:
        known["md5"] = md5
    order = ("md5", "sha256", "sha1", "crc32c") if verify == "auto" else (verify,)
    return next(((name, known[name]) for name in order if name in known), None)


class _Unchecked:
    """Nothing to compare with."""

    def offer(self, offset: int, buffer: memoryview) -> bool:
        return True

    def catch_up(self, fd: int, end: Callable[[], int]) -> None:
        pass

    def finish(self, fd: int, size: int) -> bool:
        return False


class _Insisted(_Unchecked):
    """A digest is insisted on that the store does not have."""

    def __init__(self, info: ObjectInfo, verify: str) -> None:
        self._error = ChecksumMismatch(
            f"the store keeps no {verify} of this object",
            path=info.key,
            expected=f"a {verify}",
            got=info.etag or "no checksum",
            remedy="Use --verify auto, which takes what there is",
        )

    def finish(self, fd: int, size: int) -> bool:
        raise self._error


class _Whole:
    """One digest of the whole object."""

    def __init__(self, info: ObjectInfo, algorithm: str, expected: str) -> None:
        self._info, self._algorithm, self._expected = info, algorithm, expected
        self._digest = OrderedDigest(algorithm)

    def offer(self, offset: int, buffer: memoryview) -> bool:
        return self._digest.offer(offset, buffer)

    def catch_up(self, fd: int, end: Callable[[], int]) -> None:
        self._digest.catch_up(fd, end)

    def finish(self, fd: int, size: int) -> bool:
        self._digest.catch_up(fd, size)
        got = self._digest.hexdigest(size)
        if got != self._expected:
            raise ChecksumMismatch(
                f"the {self._algorithm} of the bytes is wrong",
                path=self._info.key,
                expected=self._expected,
                got=got,
            )
        return True


class _Multipart:
    """The MD5 of the part MD5s, ``hex-N``, for a part size that is known or guessed."""

    def __init__(self, info: ObjectInfo, expected: str, sizes: list[int], *, known: bool) -> None:
        self._info, self._expected, self._sizes, self._known = info, expected, sizes, known
        self._digest = OrderedDigest(partial(MultipartDigest, sizes[0]))

    def offer(self, offset: int, buffer: memoryview) -> bool:
        return self._digest.offer(offset, buffer)

    def catch_up(self, fd: int, end: Callable[[], int]) -> None:
        self._digest.catch_up(fd, end)

    def finish(self, fd: int, size: int) -> bool:
        self._digest.catch_up(fd, size)
        if self._digest.hexdigest(size) == self._expected:
            return True
        for part_size in self._sizes[1:]:
            digest = OrderedDigest(partial(MultipartDigest, part_size))
            digest.catch_up(fd, size)
            if digest.hexdigest(size) == self._expected:
                return True
        if self._known:
            raise ChecksumMismatch(
                "the multipart ETag of the bytes is wrong",
                path=self._info.key,
                expected=self._expected,
                got=self._digest.hexdigest(size),
            )
        return False  # uploaded with parts of some other size: nothing can be said


def check_for(info: ObjectInfo, verify: str, part_size: int | None = None, *, readable: bool = True) -> Check:
    """The check of one object; `part_size` is that of its multipart upload, if the store tells it.

    Of bytes that cannot be read again (not `readable`) only the likeliest part size is tried; all have to be
    offered in order, and any descriptor will do for `finish`.
    """
    if verify == "none":
        return _Unchecked()
    known = vouched(info, verify)
    if known is not None:
        return _Whole(info, *known)
    if verify != "auto":
        return _Insisted(info, verify)
    etag = parse_etag(info.etag)
    if etag.kind == "multipart" and not info.encrypted and info.size > 0:
        sizes = (
            [part_size]
            if part_size
            else part_size_candidates(info.size, etag.parts)[: _GUESSES if readable else 1]
        )
        if sizes:
            # One part is the same digest whatever its size is said to be.
            return _Multipart(info, etag.value, sizes, known=part_size is not None or etag.parts == 1)
    return _Unchecked()
