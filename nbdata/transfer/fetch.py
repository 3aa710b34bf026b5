"""One object from a store into a file: whole, or in parts by several workers, checked as it arrives."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from nbdata.disk import disk_error
from nbdata.errors import ChecksumMismatch, NbdataError, SourceChanged, StoreUnavailable
from nbdata.stores.base import Body, ObjectInfo, Store
from nbdata.transfer.control import Control
from nbdata.transfer.part_records import NOTED, PART
from nbdata.transfer.partials import Parts
from nbdata.transfer.retry import lasting, retrying

__all__ = ["BIG", "Check", "PartedFetch", "RangesIgnored", "fetch_whole"]

#: From this size on an object is fetched in parts and continues after a kill.
BIG = PART + 1
# How often bytes that are not the promised ones are fetched again.
MISMATCHES = 3
_BLOCK = 1 << 20

_local = threading.local()


class Check(Protocol):
    """Hashes one object while its bytes arrive, possibly out of order (see verification.verify)."""

    def offer(self, offset: int, buffer: memoryview) -> bool:
        """Hash `buffer` if it is what comes next; False if it has to be caught up with later."""

    def catch_up(self, fd: int, end: Callable[[], int]) -> None:
        """Hash from the file what was written but not hashed, up to the byte that `end` tells."""

    def finish(self, fd: int, size: int) -> bool:
        """Whether the bytes were verified; ChecksumMismatch if they are wrong, False if nobody vouches."""


class RangesIgnored(NbdataError):
    """The store sent the whole object for a range: it has to be fetched in one piece."""


CheckFactory = Callable[[ObjectInfo], Check]


def _buffer() -> memoryview:
    """One block per thread, made once."""
    view = getattr(_local, "view", None)
    if view is None:
        view = _local.view = memoryview(bytearray(_BLOCK))
    return view


def _blocks(
    control: Control,
    body: Body,
    fd: int,
    offset: int,
    limit: int,
    check: Check,
    claim_to: Callable[[int], None] = lambda _end: None,
) -> Iterator[int]:
    """Write the bytes of `body` into the file from `offset` on; yields the size of each block once it stands
    there and is counted. At most `limit` bytes (negative: no limit) may come.
    """
    view, done = _buffer()[: control.block], 0
    while count := body.readinto(view):
        if 0 <= limit < done + count:
            raise SourceChanged("the object is longer than the store said", path=body.info.key)
        claim_to(offset + done + count)
        block, written = view[:count], 0
        try:
            while written < count:
                written += os.pwrite(fd, block[written:], offset + done + written)
        except OSError as error:
            raise disk_error(error, f"file for {body.info.key}") from error
        # Hashed only now: the digest must never vouch for bytes that did not get into the file.
        check.offer(offset + done, block)
        done += count
        control.advance(bytes=count)
        yield count
        control.checkpoint()
    if done < limit:
        raise StoreUnavailable(
            "the store sent fewer bytes than it announced",
            path=body.info.key,
            expected=str(limit),
            got=str(done),
            details={"retry": True},
        )


def fetch_whole(
    control: Control,
    store: Store,
    info: ObjectInfo,
    fd: int,
    checks: CheckFactory,
    *,
    claim: Callable[[int], None] = lambda _size: None,
    failed: Exception | None = None,
) -> bool:
    """All of an object into an empty file; returns whether its bytes were verified.

    An object of unknown size is read to its end; room for it is claimed before it is written. `failed` is as for
    `retrying`.
    """
    mismatches = count = claimed = 0

    def claim_to(end: int) -> None:
        nonlocal claimed
        if info.size < 0 and end > claimed:
            claim(end - claimed)
            claimed = end

    def attempt() -> bool:
        nonlocal count
        body = store.read(info.key, match=info)
        try:
            control.advance(bytes=-count)  # what an earlier attempt had fetched is fetched again
            count = 0
            os.ftruncate(fd, 0)  # not before there is something better: what is there may be kept
            check = checks(body.info)
            limit = body.info.size if body.info.size >= 0 else info.size
            for block in _blocks(control, body, fd, 0, limit, check, claim_to):
                count += block
        finally:
            body.close()
        return check.finish(fd, count)

    while True:
        try:
            return retrying(control, attempt, failed=failed)
        except ChecksumMismatch as error:
            failed = None
            mismatches += 1
            if mismatches >= MISMATCHES or lasting(error):
                control.advance(bytes=-count)
                raise
            control.tried_again(error)
        except BaseException:
            control.advance(bytes=-count)
            raise


class PartedFetch:
    """A big object, fetched in parts by whichever workers are free.

    `units` gives one callable a missing part; the worker that finishes the last one calls `done` with
    whether the bytes were verified, or `failed` with the first error. `present` is how many bytes were there.
    """

    def __init__(
        self,
        control: Control,
        store: Store,
        info: ObjectInfo,
        partial: Parts,
        checks: CheckFactory,
        *,
        done: Callable[[bool], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._control, self._store, self._info, self._partial = control, store, info, partial
        self._checks = checks
        self._check = checks(info)
        self._done, self._failed = done, failed
        self._lock = threading.Lock()
        self._error: Exception | None = None
        self._missing = partial.missing()
        self._open = max(1, len(self._missing))
        self.present = partial.present()
        control.advance(present=self.present)

    def units(self) -> Iterator[Callable[[], None]]:
        """The work; a complete partial still has one unit, which verifies it."""
        if not self._missing:
            yield self._finish_unit
        for number in self._missing:
            yield lambda number=number: self._part_unit(number)  # type: ignore[misc]

    def _finish_unit(self) -> None:
        self._one_less()

    def _part_unit(self, number: int) -> None:
        if self._error is None:
            try:
                self._fetch(number)
            except Exception as error:
                with self._lock:
                    self._error = self._error or error
        self._one_less()

    def _fetch(self, number: int) -> None:
        start, end = self._partial.span(number)
        at = noted = start + self._partial.begun.get(number, 0)

        def attempt() -> None:
            # A further attempt goes on where the one before stopped: bytes that are hashed are never rewritten.
            nonlocal at, noted
            if at == end:
                return
            body = self._store.read(self._info.key, at, end, match=self._info)
            try:
                if body.start != at or body.length not in (end - at, -1):
                    raise RangesIgnored(
                        "the store answers a range with the whole object", path=self._info.key
                    )
                for block in _blocks(self._control, body, self._partial.fd, at, end - at, self._check):
                    at += block
                    if at - noted >= NOTED:
                        self._partial.began(noted, at)
                        if self._store.refuses_first:
                            self._partial.note(number, at - start)
                        noted = at
            finally:
                body.close()

        try:
            retrying(self._control, attempt)
        except (SourceChanged, ChecksumMismatch):
            self._partial.note(number, 0)  # what was noted may be of another version
            raise
        except Exception:
            if self._store.refuses_first:
                self._partial.note(number, at - start)
            raise
        self._partial.mark(number)
        self._check.catch_up(self._partial.fd, self._partial.contiguous)

    def _one_less(self) -> None:
        with self._lock:
            self._open -= 1
            last = self._open == 0
        if not last:
            return
        try:
            if self._error is not None:
                raise self._error
            verified = self._verify()
        except Exception as error:
            self._failed(error)
        else:
            self._done(verified)

    def _verify(self) -> bool:
        """All parts are there: are they right? If not, fetch everything again, in order."""
        for tries in range(1, MISMATCHES + 1):
            self._check.catch_up(self._partial.fd, lambda: self._info.size)
            try:
                return self._check.finish(self._partial.fd, self._info.size)
            except ChecksumMismatch as error:
                if lasting(error):
                    raise
                self._control.advance(bytes=self.present - self._info.size, present=-self.present)
                self._control.tried_again(error)
                self.present = 0
                self._partial.restart()
                if tries == MISMATCHES:
                    raise
            self._check = self._checks(self._info)
            for number in range(self._partial.count):
                self._fetch(number)
        raise AssertionError("unreachable")
