"""Copy one object between stores: the store copies it itself, or it is streamed, in one piece or in parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nbdata.engine.copy.ends import WHOLE, Copied, Ends
from nbdata.errors import (
    BadOption,
    ChecksumMismatch,
    NbdataError,
)
from nbdata.integrity.digests import new_digest
from nbdata.integrity.etags import combine, parse_etag, part_size_candidates
from nbdata.stores.base import ObjectInfo, Upload
from nbdata.transfer.parted_send import PartedSend
from nbdata.transfer.reader import RangesIgnored
from nbdata.transfer.relay import Relay
from nbdata.transfer.retry import retrying, told_part_size
from nbdata.transfer.send import (
    BIG,
    Hasher,
    SentPart,
    hashed_parts,
    send_whole,
    upload_part_size,
    withdrawn,
)
from nbdata.verification.checker import check_for, plain_md5, stored_checksum
from nbdata.verification.sent_checker import MultipartChecker, SentHasher

__all__ = ["Copier", "PartedCopy"]

# Size of the parts in which a store copies larger objects.
_STORE_PART = 128 << 20

_NO_SOURCE = "the source has no checksum"
_NO_TARGET = "the target returned no checksum"
_NO_PROOF = "the store copied them itself and returned no checksum to compare"


class _NothingProved(NbdataError):
    """The store's answers for parts hold no digests."""


class PartedCopy(NamedTuple):
    """A copy in parts: what sends them, and what then returns the copy, perhaps made in another way, or raises."""

    sending: PartedSend
    finish: Callable[[], Copied]


class Copier:
    """Copies objects between two stores; for many threads."""

    def __init__(self, ends: Ends) -> None:
        self._ends, self._control, self._op = ends, ends.control, ends.op
        self._source, self._target = ends.source, ends.target
        self._parts_prove = True

    def in_parts(self, info: ObjectInfo, key: str) -> PartedCopy | None:
        """Prepare the copy of an object in parts; None if it is better copied as a `whole`."""
        if info.size < BIG or not self._target.multipart:
            return None
        told = self._ends.head(info)  # listings hold neither checksums nor metadata
        if self._ends.store_may(info):
            return self._parts_by_store(info, key, told)
        return self._streamed_parts(info, key, told)

    # -- in one piece -------------------------------------------------------------------------

    def whole(self, info: ObjectInfo, key: str) -> Copied:
        """Copy an object in one piece."""
        if info.size < 0:
            raise BadOption(
                "the source does not say how large this is", path=info.key, remedy="Pull it, then push it"
            )
        if self._ends.store_may(info):
            try:
                return self._whole_by_store(info, key)
            except NbdataError as error:
                self._ends.refused(error)
        return self._streamed(info, key)

    def _whole_by_store(self, info: ObjectInfo, key: str) -> Copied:
        made = retrying(self._control, lambda: self._target.copy(self._source, info, key))
        ours, theirs = parse_etag(info.etag), parse_etag(made.etag)
        unproven = ""
        if ours != theirs or ours.kind not in ("md5", "multipart"):
            told = self._ends.head(info)  # not all stores check whether it changed
            there = retrying(self._control, lambda: self._target.head(key))
            sent, got = plain_md5(told), plain_md5(there)
            if there.size != info.size or (sent and got and sent != got):
                raise ChecksumMismatch(
                    "the copy that the store made differs from the source",
                    path=key,
                    expected=f"{info.size} bytes, {info.etag}",
                    got=f"{there.size} bytes, {there.etag}",
                    remedy=withdrawn(self._control, self._target, key, made if made.etag else there),
                )
            unproven = _NO_PROOF
            made = made if made.etag else there
        self._control.advance(bytes=info.size)
        return Copied(made, unproven, by_store=True)

    def _streamed(self, info: ObjectInfo, key: str) -> Copied:
        verify, part_size = self._op.verify, None
        if verify == "auto" and "-" in info.etag:
            part_size = told_part_size(self._control, self._source, info)
        source_proven, told = False, None

        def read(start: int, size: int, hasher: Hasher) -> Relay:
            nonlocal told
            relay = Relay(self._control, self._source, info, start, size)
            check = check_for(relay.info, verify, part_size, readable=False)

            def finish() -> None:
                nonlocal source_proven
                source_proven = check.finish(-1, size)

            told = None if verify == "none" else stored_checksum(relay.info, verify)
            relay.md5 = told[1] if told is not None and told[0] == "md5" else ""
            relay.updates = [hasher.update, lambda data: check.offer(relay.sent, data)]
            relay.at_end = finish
            return relay

        made, proven = send_whole(
            self._control, self._target, key, read, info.size, lambda: SentHasher(key, verify)
        )
        if source_proven and not proven and told is not None:
            proven = self._has(key, made, *told)
        return Copied(made, _why(source_proven, proven), by_store=False)

    def _has(self, key: str, made: ObjectInfo, algorithm: str, digest: str) -> bool:
        """Compare a new object's checksum with that of the source, if it has one by this algorithm."""
        got = made.checksums.get(algorithm, "")
        if got and got != digest:
            raise ChecksumMismatch(
                "what the store received is not what was sent",
                path=key,
                expected=digest,
                got=got,
                remedy=withdrawn(self._control, self._target, key, made),
            )
        return bool(got)

    # -- in parts -----------------------------------------------------------------------------

    def _parts_by_store(
        self, info: ObjectInfo, key: str, told: ObjectInfo, *, prove: bool = True
    ) -> PartedCopy | None:
        """Prepare a copy in parts by the store; None if a single request is better.

        If the parts match those in which the source was uploaded, the answers prove that its bytes arrived.
        """
        etag, size = parse_etag(told.etag), None
        if prove and self._parts_prove and etag.kind == "multipart" and not told.encrypted:
            size = self._ends.fitting(told_part_size(self._control, self._source, info), info.size)
        prove = size is not None
        if size is None:
            if info.size <= WHOLE:
                return None
            size = upload_part_size(info.size, self._op.part_size or _STORE_PART, self._target)

        def send(upload: Upload, number: int, start: int, count: int) -> SentPart:
            answer = retrying(
                self._control,
                lambda: upload.copy_part(number, self._source, info, start, start + count),
            )
            md5 = "" if upload.encrypted else parse_etag(answer).md5 or ""
            if prove and not md5:
                raise _NothingProved("the store returns no digest of a part")
            self._control.advance(bytes=count)
            return SentPart(answer, md5, prove)

        def refuse(digests: list[str]) -> None:
            self._ends.head(info)  # not all stores check whether it changed
            if prove and combine(digests) != etag.value:
                raise _mismatch(info, etag.value, combine(digests))

        upload = self._ends.uploads.open(key, info.size, lambda *_: prove, headers=told.headers)
        sending = PartedSend(self._control, upload, info.size, size, send)

        def finish() -> Copied:
            try:
                made, proven = sending.finish(refuse)
            except NbdataError as error:
                return self._another_way(info, key, told, error)
            return Copied(made, "" if proven else _NO_PROOF, by_store=True)

        return PartedCopy(sending, finish)

    def _another_way(self, info: ObjectInfo, key: str, told: ObjectInfo, error: NbdataError) -> Copied:
        """Copy an object that the store could not copy in parts, or raise `error` again."""
        self._control.checkpoint()
        if isinstance(error, _NothingProved):
            self._parts_prove = False
            parts = self._parts_by_store(info, key, told, prove=False)
        else:
            self._ends.refused(error)
            parts = self._streamed_parts(info, key, told)
        if parts is None:
            return self.whole(info, key)
        parts.sending.send_parts()
        return parts.finish()

    def _streamed_parts(self, info: ObjectInfo, key: str, told: ObjectInfo) -> PartedCopy:
        """Prepare a copy in parts that are streamed through this machine.

        A digest of the whole object needs its bytes in order, so parts are then sent one after the other. Otherwise
        parts like those of the original upload prove it by their digests.
        """
        verify = self._op.verify
        expected = stored_checksum(told, verify) if verify != "none" else None
        if verify == "md5" and expected is None:
            check_for(told, verify).finish(-1, info.size)  # raises: there is no checksum to compare with
        etag = parse_etag(told.etag)
        parts: list[int] = []
        known: int | None = None
        if verify == "auto" and expected is None and etag.kind == "multipart" and not told.encrypted:
            known = told_part_size(self._control, self._source, info)
            parts = [known] if known else part_size_candidates(info.size, etag.parts)[:1]
        like = self._ends.fitting(parts[0], info.size) if parts else None
        size = like or upload_part_size(info.size, self._op.part_size, self._target)
        whole = _InOrder(expected[0]) if expected else None
        source_proven = False

        def read(start: int, count: int, hasher: Hasher) -> Relay:
            relay = Relay(self._control, self._source, info, start, count)
            relay.updates = [hasher.update]
            if whole is not None:
                relay.updates.append(whole.begin())
            return relay

        send_part = hashed_parts(self._control, read, lambda: SentHasher(key, verify))

        def send(upload: Upload, number: int, start: int, count: int) -> SentPart:
            sent = send_part(upload, number, start, count)
            if whole is not None:
                whole.keep()
            return sent

        def refuse(digests: list[str]) -> None:
            nonlocal source_proven
            if whole is not None and expected is not None:
                if whole.hexdigest() != expected[1]:
                    raise _mismatch(info, expected[1], whole.hexdigest())
                source_proven = True
            elif like is not None:
                source_proven = combine(digests) == etag.value
                if not source_proven and known:
                    raise _mismatch(info, etag.value, combine(digests))

        checker = MultipartChecker(key, verify)
        upload = self._ends.uploads.open(key, info.size, checker, headers=told.headers)
        sending = PartedSend(self._control, upload, info.size, size, send, in_order=whole is not None)

        def finish() -> Copied:
            try:
                made, proven = sending.finish(refuse)
            except RangesIgnored:
                return self._streamed(info, key)
            return Copied(made, _why(source_proven, proven), by_store=False)

        return PartedCopy(sending, finish)


class _InOrder:
    """A digest of parts that come in order; each part may be repeated."""

    def __init__(self, algorithm: str) -> None:
        self._sure = self._trial = new_digest(algorithm)

    def begin(self) -> Callable[[memoryview], object]:
        """Begin the next part, or repeat the last one; return the function that hashes its bytes."""
        self._trial = self._sure.copy()
        return self._trial.update

    def keep(self) -> None:
        """Keep the last part: it has arrived."""
        self._sure = self._trial

    def hexdigest(self) -> str:
        """The digest of all parts that have arrived."""
        return self._sure.hexdigest()


def _why(source_proven: bool, target_proven: bool) -> str:
    return "" if source_proven and target_proven else _NO_TARGET if source_proven else _NO_SOURCE


def _mismatch(info: ObjectInfo, expected: str, got: str) -> ChecksumMismatch:
    return ChecksumMismatch(
        "the bytes do not match the checksum of the source", path=info.key, expected=expected, got=got
    )
