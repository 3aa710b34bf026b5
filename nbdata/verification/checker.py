"""Find an object's stored checksum, and check its bytes against it as they arrive."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from nbdata.algorithms import ALGORITHMS, KNOWN
from nbdata.bounded import whole_number
from nbdata.errors import ChecksumMismatch
from nbdata.integrity.digests import OrderedDigest, is_available, new_digest
from nbdata.integrity.etags import MultipartDigest, are_parts, parse_etag, part_size_candidates
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

# How many part sizes are tried for a multipart ETag if the store does not report the size. Each try costs one more
# read of the file.
_GUESSES = 4
_MULTIPART_NAMES = {"etag": "multipart ETag"}


def plain_md5(info: ObjectInfo) -> str | None:
    """The MD5 of an object, if its ETag is one; otherwise None.

    On AWS, the ETag is the MD5 of the bytes if two conditions hold: the object was uploaded in one piece, and it is not
    encrypted with KMS or a customer's key ("Common Response Headers", Amazon S3 API reference).
    """
    if info.encrypted:
        return None
    return parse_etag(info.etag).md5


def stored_checksum(info: ObjectInfo, verify: str) -> tuple[str, str] | None:
    """The algorithm and hex digest of an object's stored checksum, or None.

    `verify` is the option. With ``auto``, an MD5 in the ETag comes first, then the strongest stored checksum.
    """
    known = dict(info.checksums)
    md5 = plain_md5(info)
    if md5:
        known["md5"] = md5
    order = ("md5", *KNOWN) if verify == "auto" else (verify,)
    return next(((name, known[name]) for name in order if name in known and is_available(name)), None)


def decided(info: ObjectInfo, verify: str) -> bool:
    """Whether the listing alone shows which checksum an object has, so that no further request is needed."""
    if verify in ALGORITHMS:
        return stored_checksum(info, verify) is not None
    return verify == "none" or of_parts(info, verify) is None


def right(info: ObjectInfo, verify: str, body: memoryview) -> bool | None:
    """Check the complete bytes of an object. Returns whether they are verified; None if a further request is needed.

    Raises
    ------
    ChecksumMismatch
        If the bytes are wrong.
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
    """A stored digest of the digests of an object's parts.

    Attributes
    ----------
    name : str
        Its name in reports: ``etag``, or ``composite sha256`` and the like.
    algorithm : str
        The algorithm of the parts' digests, and of the digest over them.
    expected : str
        ``hex-PARTS``.
    parts : int
    """

    name: str
    algorithm: str
    expected: str
    parts: int

    def sizes(self, size: int, reported: int | None, limit: int = _GUESSES) -> list[int]:
        """Part sizes to try for an object of `size` bytes: the `reported` one of the store, or likely ones."""
        if reported:
            return [reported] if are_parts(size, -(-size // reported)) else []
        return part_size_candidates(size, self.parts)[:limit]

    def conclusive(self, reported: int | None) -> bool:
        """Whether a different digest proves different bytes. With a single part it does for any part size."""
        return reported is not None or self.parts == 1

    def digest(self, part_size: int) -> MultipartDigest:
        """Return an empty digest for parts of that size."""
        return MultipartDigest(part_size, self.algorithm)


def of_parts(info: ObjectInfo, verify: str) -> PartsPromise | None:
    """The strongest stored digest of an object's parts, or None, also if it cannot have so many parts.

    ETags count only with ``auto``: a user who asks for md5 means the MD5 of the file.
    """
    if info.size <= 0:
        return None
    found = {
        name: PartsPromise(f"composite {name}", name, value, whole_number(value.partition("-")[2]))
        for name, value in info.composite.items()
    }
    etag = parse_etag(info.etag)
    if verify == "auto" and etag.kind == "multipart" and not info.encrypted:
        found["md5"] = PartsPromise("etag", "md5", etag.value, etag.parts)
    wanted = ALGORITHMS if verify == "auto" else (verify,)
    known = (found[name] for name in wanted if name in found)
    return next((promise for promise in known if are_parts(info.size, promise.parts)), None)


def digest_check(info: ObjectInfo, algorithm: str, digest: str) -> Check:
    """Return the check of an object against a digest from elsewhere, such as a checksum file."""
    return _Whole(info, algorithm, digest)


class _Unchecked:
    """Checks nothing: there is no checksum to compare with."""

    unforgeable = False

    def offer(self, offset: int, buffer: memoryview) -> bool:
        return True

    def catch_up(self, fd: int, end: Callable[[], int]) -> None:
        pass

    def finish(self, fd: int, size: int) -> bool:
        return False


class _Insisted(_Unchecked):
    """Fails: the store lacks the digest that the user requires."""

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
    """Checks one digest of the whole object."""

    def __init__(self, info: ObjectInfo, algorithm: str, expected: str) -> None:
        self._info, self._algorithm, self._expected = info, algorithm, expected
        self.unforgeable = not KNOWN[algorithm].is_crc
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
    """Checks a digest of the parts' digests, ``hex-N``, for a known or guessed part size."""

    def __init__(self, info: ObjectInfo, promise: PartsPromise, sizes: list[int], *, known: bool) -> None:
        self._info, self._promise, self._sizes, self._known = info, promise, sizes, known
        self._expected = promise.expected
        self.unforgeable = not ALGORITHMS[promise.algorithm].is_crc
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
        return False  # uploaded with another part size, so the result is unknown


class _SideBySide(_Multipart):
    """As `_Multipart`, but each thread hashes the whole parts that its connection receives."""

    def __init__(self, info: ObjectInfo, promise: PartsPromise, sizes: list[int], *, known: bool) -> None:
        super().__init__(info, promise, sizes, known=known)
        self._parts = PartDigests(info.size, sizes[0], promise.algorithm)

    def offer(self, offset: int, buffer: memoryview) -> bool:
        return self._parts.offer(offset, buffer)

    def catch_up(self, fd: int, end: Callable[[], int]) -> None:
        pass  # the bytes of an earlier run are read at the end

    def _likeliest(self, fd: int, size: int) -> str:
        self._parts.catch_up(fd)
        return self._parts.hexdigest()


class Checker:
    """Knows an object's stored checksum, and so how to fetch and check its bytes.

    Asks the store for the size of the uploaded parts, if the checksum needs it.

    Raises
    ------
    ChecksumMismatch
        If the user requires a digest that the store does not keep.

    Attributes
    ----------
    layout : int or None
        Bytes of parts that can be hashed independently, in parallel; None if that has no benefit.
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
        """Return a new check. `fetched_in` is as in `check_for`."""
        return check_for(self._info, self._verify, self._part_size, fetched_in=fetched_in)


def check_for(
    info: ObjectInfo,
    verify: str,
    part_size: int | None = None,
    *,
    readable: bool = True,
    fetched_in: int | None = None,
) -> Check:
    """Return the check of one object. `part_size` is that of its multipart upload, if the store reports it.

    `fetched_in` is the size of the pieces that several connections fetch, each in order. If the bytes cannot be read
    again (not `readable`), only the likeliest part size is tried. They must all be offered in order, and `finish`
    accepts any descriptor.
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
    """Return the check of an object that is read once, from its first byte to its last."""
    promise = of_parts(info, verify) if stored_checksum(info, verify) is None else None
    part_size = told_part_size(control, store, info) if promise is not None else None
    return check_for(info, verify, part_size, readable=False)
