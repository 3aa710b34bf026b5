"""Compare a file with the store's checksum of an object, without reading the object.

An equal ETag confirms; whether a different one refutes depends (see nbdata.integrity.etags). Listings do not show
whether an object is encrypted, so the store is asked again before a mismatch is reported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from nbdata.errors import SourceChanged
from nbdata.integrity.digests import Digest, is_available, new_digest
from nbdata.integrity.verdicts import Verdict
from nbdata.stores.base import ObjectInfo, Store
from nbdata.transfer.control import Control
from nbdata.transfer.retry import retrying, told_part_size
from nbdata.verification.checker import of_parts, plain_md5, stored_checksum
from nbdata.verification.hashing import hash_object

__all__ = ["Answer", "compare"]


@dataclass(frozen=True)
class Answer:
    """A verdict and its reason.

    Attributes
    ----------
    verdict : Verdict
    expected, got : str
        Digests in hex; empty if there is none.
    algorithm : str
        The algorithm of the digests; ``etag`` or ``composite …`` for a digest of parts.
    reason : str
        Why the verdict is not ok.
    read : int
        Bytes read, or -1 if nothing was read.
    """

    verdict: Verdict
    expected: str = ""
    got: str = ""
    algorithm: str = ""
    reason: str = ""
    read: int = -1


@dataclass(frozen=True)
class _Promise:
    """A stored digest of the object, with one or more ways to compute it. Only a `conclusive` one refutes."""

    algorithm: str
    expected: str
    makers: list[Callable[[], Digest]]
    conclusive: bool


def compare(
    control: Control, store: Store, info: ObjectInfo, other: Store, promised: ObjectInfo, algorithm: str
) -> Answer:
    """Hash an object and compare it with the checksum that the store `other` has of `promised`.

    Raises
    ------
    SourceChanged
        If one of them changed meanwhile.
    """
    md5 = plain_md5(promised) if algorithm in ("auto", "md5") else None
    if md5:  # the listing shows it: no further request unless it differs
        promise: _Promise | None = _Promise("md5", md5, [partial(new_digest, "md5")], conclusive=True)
    else:
        promised = _asked_again(control, other, promised)
        promise = _promise(control, other, promised, algorithm)
    while True:
        if promise is None:
            return Answer(Verdict.UNVERIFIABLE, reason=_why_not(promised, algorithm))
        answer = _compared(control, store, info, promise)
        if answer.verdict is not Verdict.MISMATCH or promise.algorithm != "md5":
            return answer
        promised = _asked_again(control, other, promised)
        if not promised.encrypted:
            return answer
        promise = _promise(control, other, promised, algorithm)  # without the MD5 this time


def _promise(control: Control, store: Store, info: ObjectInfo, algorithm: str) -> _Promise | None:
    known = stored_checksum(info, algorithm)
    if known is not None:
        return _Promise(*known, [partial(new_digest, known[0])], conclusive=True)
    promise = of_parts(info, algorithm)
    if promise is None:
        return None
    part_size = told_part_size(control, store, info)
    # If the store does not report the part size, each tried size costs one more digest of the bytes.
    makers: list[Callable[[], Digest]] = [
        partial(promise.digest, size) for size in promise.sizes(info.size, part_size)
    ]
    conclusive = promise.conclusive(part_size)
    return _Promise(promise.name, promise.expected, makers, conclusive) if makers else None


def _compared(control: Control, store: Store, info: ObjectInfo, promise: _Promise) -> Answer:
    hashed = hash_object(control, store, info, lambda: [make() for make in promise.makers])
    right = promise.expected in hashed.digests
    got = promise.expected if right else hashed.digests[0]
    verdict, reason = Verdict.OK, ""
    if not right and promise.conclusive:
        verdict, reason = Verdict.MISMATCH, f"the {promise.algorithm} differs"
    elif not right:
        verdict = Verdict.UNVERIFIABLE
        what = "multipart ETag" if promise.algorithm == "etag" else f"{promise.algorithm} checksum"
        reason = f"the store does not tell one part size for its {what}, and the usual ones do not fit"
    return Answer(verdict, promise.expected, got, promise.algorithm, reason, hashed.size)


def _asked_again(control: Control, store: Store, info: ObjectInfo) -> ObjectInfo:
    """Return the store's full metadata of one object, since a listing has less."""
    asked = retrying(control, lambda: store.head(info.key))
    if (asked.etag.strip('"'), asked.size) != (info.etag.strip('"'), info.size) and info.etag:
        raise SourceChanged("the object it is compared with changed meanwhile", path=info.key)
    return asked


def _why_not(info: ObjectInfo, algorithm: str) -> str:
    if algorithm != "auto":
        return f"the store keeps no {algorithm} of it"
    if missing := [name for name in info.checksums if not is_available(name)]:
        return f"the store keeps a {missing[0]} of it, which needs awscrt: pip install awscrt"
    why = "the store keeps no checksum of it, and its ETag tells no MD5"
    return f"{why} (servers make ETags as they like, and encrypt with keys of KMS)" if info.encrypted else why
