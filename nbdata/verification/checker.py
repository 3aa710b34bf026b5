"""What a store vouches for, and the check of an object's bytes against it while they arrive."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from nbdata.errors import ChecksumMismatch
from nbdata.integrity.digests import ALGORITHMS, OrderedDigest, is_available, new_digest
from nbdata.integrity.etags import MultipartDigest, parse_etag, part_size_candidates
from nbdata.integrity.part_digests import PartDigests
from nbdata.stores.base import ObjectInfo, Store
from nbdata.transfer.control import Control
from nbdata.transfer.reader import Check
from nbdata.transfer.retry import told_part_size

__all__ = [
    "Checker",
    "PartsPromise",
    "check_for",
    "digest_check",
    "of_parts",
    "plain_md5",
    "right",
    "stored_checksum",
    "stream_check",
]

# Part sizes that are tried for a multipart ETag whose part size the store does not tell: each costs one more
# read of the file.
_GUESSES = 4
_MULTIPART_NAMES = {"etag": "multipart ETag"}


def plain_md5(info: ObjectInfo) -> str | None:
    """The MD5 of an object if its ETag is one.

    AWS: the ETag of an object that was put in one piece and not encrypted by KMS or a customer's key is
    the MD5 of its bytes ("Common Response Headers", Amazon S3 API reference).
    """
    if info.encrypted:
        return None
    return parse_etag(info.etag).md5


def stored_checksum(info: ObjectInfo, verify: str) -> tuple[str, str] | None:
    """Algorithm and hex digest that the store vouches for, or None.

    `verify` is the option: with ``auto`` the MD5 that a plain ETag is, else the strongest stored checksum.
    """
    known = dict(info.checksums)
    md5 = plain_md5(info)
    if md5:
        known["md5"] = md5
    order = ("md5", *ALGORITHMS) if verify == "auto" else (verify,)
    return next(((name, known[name]) for name in order if name in known and is_available(name)), None)


def decided(info: ObjectInfo, verify: str) -> bool:
    """Whether a listing told all that there is to compare an object's bytes with, so that nothing has to be asked."""
    if verify in ALGORITHMS:
        return stored_checksum(info, verify) is not None
    return verify == "none" or of_parts(info, verify) is None


def right(info: ObjectInfo, verify: str, body: memoryview) -> bool | None:
    """Whether these bytes, all of an object, were verified; None if more has to be asked to know.

    Raises
    ------
    ChecksumMismatch
        If they are wrong.
    """
    if verify == "none":
        return False
    known = stored_checksum(info, verify)
    if known is None:
        return None if verify != "auto" or of_parts(info, verify) is not None else False
    algorithm, expected = known
    digest = new_digest(algorithm)
    digest.update(body)
    if (got := digest.hexdigest()) != expected:
        raise _mismatch(info, algorithm, expected, got)
    return True


def _mismatch(info: ObjectInfo, algorithm: str, expected: str, got: str) -> ChecksumMismatch:
    return ChecksumMismatch(
        f"the {algorithm} of the bytes is wrong", path=info.key, expected=expected, got=got
    )


class PartsPromise(NamedTuple):
    """A digest of the digests of an object's parts.

    Attributes
    ----------
    name : str
        How it is called: ``etag``, or ``composite sha256`` and the like.
    algorithm : str
        Of the parts, and of their digests.
    expected : str
        ``hex-PARTS``.
    parts : int
    """

    name: str
    algorithm: str
    expected: str
    parts: int

    def sizes(self, size: int, told: int | None, limit: int = _GUESSES) -> list[int]:
        """Part sizes to be tried for an object of `size` bytes: the one that the store `told`, or likely ones."""
        return [told] if told else part_size_candidates(size, self.parts)[:limit]

    def conclusive(self, told: int | None) -> bool:
        """Whether another digest proves other bytes; one part is the same digest whatever its size is said to be."""
        return told is not None or self.parts == 1

    def digest(self, part_size: int) -> MultipartDigest:
        """An empty one, for parts of that size."""
        return MultipartDigest(part_size, self.algorithm)


def of_parts(info: ObjectInfo, verify: str) -> PartsPromise | None:
    """What the store vouches for of the parts of an object, or None; the strongest that it has.

    ETags count with ``auto`` alone: who asks for an MD5 means that of the file.
    """
    if info.size <= 0:
        return None
    found = {
        name: PartsPromise(f"composite {name}", name, value, int(value.partition("-")[2]))
        for name, value in info.composite.items()
    }
    etag = parse_etag(info.etag)
    if verify != "auto":
        return found.get(verify)
    if etag.kind == "multipart" and not info.encrypted:
        found["md5"] = PartsPromise("etag", "md5", etag.value, etag.parts)
    return next((found[name] for name in ALGORITHMS if name in found), None)


def digest_check(info: ObjectInfo, algorithm: str, digest: str) -> Check:
    """The check of an object against a digest that somebody else vouches for."""
    return _Whole(info, algorithm, digest)


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
            details={"retry": False},
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
            raise _mismatch(self._info, self._algorithm, self._expected, got)
        return True


class _Multipart:
    """The digest of the parts' digests, ``hex-N``, for a part size that is known or guessed."""

    def __init__(self, info: ObjectInfo, promise: PartsPromise, sizes: list[int], *, known: bool) -> None:
        self._info, self._promise, self._sizes, self._known = info, promise, sizes, known
        self._expected = promise.expected
        self._digest = OrderedDigest(partial(promise.digest, sizes[0]))

    def offer(self, offset: int, buffer: memoryview) -> bool:
        return self._digest.offer(offset, buffer)

    def catch_up(self, fd: int, end: Callable[[], int]) -> None:
        self._digest.catch_up(fd, end)

    def _likeliest(self, fd: int, size: int) -> str:
        self._digest.catch_up(fd, size)
        return self._digest.hexdigest(size)

    def finish(self, fd: int, size: int) -> bool:
        got = self._likeliest(fd, size)
        if got == self._expected:
            return True
        for part_size in self._sizes[1:]:
            digest = OrderedDigest(partial(self._promise.digest, part_size))
            digest.catch_up(fd, size)
            if digest.hexdigest(size) == self._expected:
                return True
        if self._known:
            raise ChecksumMismatch(
                f"the {_MULTIPART_NAMES.get(self._promise.name, self._promise.name)} of the bytes is wrong",
                path=self._info.key,
                expected=self._expected,
                got=got,
            )
        return False  # uploaded with parts of some other size: nothing can be said


class _SideBySide(_Multipart):
    """The same, where each connection brings whole parts: each is hashed by the thread that receives it."""

    def __init__(self, info: ObjectInfo, promise: PartsPromise, sizes: list[int], *, known: bool) -> None:
        super().__init__(info, promise, sizes, known=known)
        self._parts = PartDigests(info.size, sizes[0], promise.algorithm)

    def offer(self, offset: int, buffer: memoryview) -> bool:
        return self._parts.offer(offset, buffer)

    def catch_up(self, fd: int, end: Callable[[], int]) -> None:
        pass  # what an earlier run has brought is read at the end

    def _likeliest(self, fd: int, size: int) -> str:
        self._parts.catch_up(fd)
        return self._parts.hexdigest()


class Checker:
    """What a store vouches for of one object, and so how its bytes are best fetched and how they are checked.

    Asks the store in what parts the object was uploaded, if only that tells what its checksum means.

    Raises
    ------
    ChecksumMismatch
        If a digest is insisted on that the store does not keep.

    Attributes
    ----------
    layout : int or None
        Bytes of parts that can be hashed each by itself, side by side; None where there is nothing to gain.
    """

    def __init__(self, control: Control, store: Store, info: ObjectInfo, verify: str) -> None:
        self._info, self._verify = info, verify
        promise = (
            of_parts(info, verify) if verify != "none" and stored_checksum(info, verify) is None else None
        )
        self._part_size = told_part_size(control, store, info) if promise is not None else None
        sizes = promise.sizes(info.size, self._part_size) if promise is not None else []
        self.layout = sizes[0] if sizes else None
        if isinstance(check := self.check(), _Insisted):
            check.finish(-1, info.size)  # raises, before a byte is fetched

    def check(self, fetched_in: int | None = None) -> Check:
        """A new check; `fetched_in` as for `check_for`."""
        return check_for(self._info, self._verify, self._part_size, fetched_in=fetched_in)


def check_for(
    info: ObjectInfo,
    verify: str,
    part_size: int | None = None,
    *,
    readable: bool = True,
    fetched_in: int | None = None,
) -> Check:
    """The check of one object; `part_size` is that of its multipart upload, if the store tells it.

    `fetched_in` are the bytes of the pieces in which it comes over several connections, each in order.
    Of bytes that cannot be read again (not `readable`) only the likeliest part size is tried; all have to be
    offered in order, and any descriptor will do for `finish`.
    """
    if verify == "none":
        return _Unchecked()
    known = stored_checksum(info, verify)
    if known is not None:
        return _Whole(info, *known)
    promise = of_parts(info, verify)
    if promise is not None and (verify == "auto" or promise.conclusive(part_size)):
        sizes = promise.sizes(info.size, part_size, _GUESSES if readable else 1)
        if sizes:
            kind = _SideBySide if fetched_in and fetched_in % sizes[0] == 0 else _Multipart
            return kind(info, promise, sizes, known=promise.conclusive(part_size))
    return _Unchecked() if verify == "auto" else _Insisted(info, verify)


def stream_check(control: Control, store: Store, info: ObjectInfo, verify: str = "auto") -> Check:
    """The check of an object that is read once, from its first byte to its last."""
    promise = of_parts(info, verify) if stored_checksum(info, verify) is None else None
    part_size = told_part_size(control, store, info) if promise is not None else None
    return check_for(info, verify, part_size, readable=False)
