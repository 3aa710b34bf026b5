"""Compare one file with what a store says of an object, without reading the object.

An ETag confirms; whether it refutes depends (see nbdata.integrity.etags). Listings do not tell whether an
object is encrypted, so before a mismatch is called one the store is asked again.
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
    """A verdict and why.

    Attributes
    ----------
    verdict : Verdict
    expected, got : str
        Digests in hexadecimal digits; empty where there is none.
    algorithm : str
        Of the digests; ``etag`` or ``composite …`` for one of the parts of a multipart upload.
    reason : str
        Why it is not ok, or why nothing can be said.
    read : int
        Bytes that were read, or -1 if nothing was.
    """

    verdict: Verdict
    expected: str = ""
    got: str = ""
    algorithm: str = ""
    reason: str = ""
    read: int = -1


@dataclass(frozen=True)
class _Promise:
    """A digest that the object has, by one of several ways to compute it; only `conclusive` ones refute."""

    algorithm: str
    expected: str
    makers: list[Callable[[], Digest]]
    conclusive: bool


def compare(
    control: Control, store: Store, info: ObjectInfo, other: Store, promised: ObjectInfo, algorithm: str
) -> Answer:
    """Hash an object and compare it with what `other` says of `promised`.

    Raises
    ------
    SourceChanged
        If either of them changed meanwhile.
    """
    md5 = plain_md5(promised) if algorithm in ("auto", "md5") else None
    if md5:  # known from the listing: no further request unless it differs
        promise: _Promise | None = _Promise("md5", md5, [partial(new_digest, "md5")], conclusive=True)
    else:
        promised = _asked_again(control, other, promised)
        promise = _promise(control, other, promised, algorithm)
    while True:
        if promise is None:
            return Answer(Verdict.UNVERIFIABLE, reason=_why_not(promised, algorithm))
        answer = _judged(control, store, info, promise)
        if answer.verdict is not Verdict.MISMATCH or promise.algorithm != "md5":
            return answer
        promised = _asked_again(control, other, promised)
        if not promised.encrypted:
            return answer
        promise = _promise(control, other, promised, algorithm)  # no MD5 this time


def _promise(control: Control, store: Store, info: ObjectInfo, algorithm: str) -> _Promise | None:
    known = stored_checksum(info, algorithm)
    if known is not None:
        return _Promise(*known, [partial(new_digest, known[0])], conclusive=True)
    promise = of_parts(info, algorithm)
    if promise is None:
        return None
    part_size = told_part_size(control, store, info)
    # Where the store does not tell: each size that is tried costs one more digest of the bytes.
    makers: list[Callable[[], Digest]] = [
        partial(promise.digest, size) for size in promise.sizes(info.size, part_size)
    ]
    conclusive = promise.conclusive(part_size)
    return _Promise(promise.name, promise.expected, makers, conclusive) if makers else None


def _judged(control: Control, store: Store, info: ObjectInfo, promise: _Promise) -> Answer:
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
    """All that the store says of one object; listings say less."""
    found = retrying(control, lambda: store.head(info.key))
    if (found.etag.strip('"'), found.size) != (info.etag.strip('"'), info.size) and info.etag:
        raise SourceChanged("the object it is compared with changed meanwhile", path=info.key)
    return found


def _why_not(info: ObjectInfo, algorithm: str) -> str:
    if algorithm != "auto":
        return f"the store keeps no {algorithm} of it"
    if missing := [name for name in info.checksums if not is_available(name)]:
        return f"the store keeps a {missing[0]} of it, which needs awscrt: pip install awscrt"
    why = "the store keeps no checksum of it, and its ETag tells no MD5"
    return f"{why} (servers make ETags as they like, and encrypt with keys of KMS)" if info.encrypted else why
