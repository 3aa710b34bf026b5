"""Fetch one object from a store to a file: whole, or in parts by several workers, verified as it arrives."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

from nbdata.errors import ChecksumMismatch, NbdataError, SourceChanged
from nbdata.stores.base import ObjectInfo, Store
from nbdata.transfer.control import Control
from nbdata.transfer.part_records import NOTED, PART
from nbdata.transfer.partials import Parts
from nbdata.transfer.reader import Check, Reader
from nbdata.transfer.retry import Tries

__all__ = ["BIG", "PartedFetch", "fetch_whole"]

#: From this size on, an object is fetched in parts and resumes after a kill.
BIG = PART + 1

CheckFactory = Callable[[ObjectInfo], Check]


def fetch_whole(
    control: Control,
    store: Store,
    info: ObjectInfo,
    fd: int,
    checks: CheckFactory,
    *,
    claim: Callable[[int], None] = lambda _size: None,
    tries: Tries | None = None,
) -> bool:
    """Fetch a whole object to an empty file. Returns whether its bytes were verified.

    An object of unknown size is read to its end, and disk space is claimed before each write. `tries` has the
    tries so far, if there were any.
    """
    return _WholeFetch(control, store, info, fd, checks, claim).run(tries or Tries(control))


class _WholeFetch:
    """One object on its way to an empty file: what has arrived, what is claimed, and the digest so far."""

    def __init__(
        self,
        control: Control,
        store: Store,
        info: ObjectInfo,
        fd: int,
        checks: CheckFactory,
        claim: Callable[[int], None],
    ) -> None:
        self._control, self._store, self._info, self._fd = control, store, info, fd
        self._checks, self._claim = checks, claim
        self._check: Check
        self._count = self._claimed = 0

    def run(self, tries: Tries) -> bool:
        """Fetch it, and again while its bytes are wrong. If it fails, its bytes count as not fetched."""
        try:
            return tries.until_matching(lambda: self._fetch(tries))
        except BaseException:
            self._control.advance(bytes=-self._count)
            raise

    def _fetch(self, tries: Tries) -> bool:
        with Reader(
            self._control, self._store, self._info, begins=self._begin, anew=True, tries=tries
        ) as reader:
            for block in reader.into(self._fd, self._claim_to):
                # Hashed only after the write: the digest must never cover bytes that are not in the file.
                self._check.offer(self._count, block)
                self._count += len(block)
                self._control.advance(bytes=len(block))
        return self._check.finish(self._fd, self._count)

    def _begin(self, answered: ObjectInfo) -> None:
        """Begin the file and its digest anew: bytes arrive, from the object's start."""
        self._control.advance(bytes=-self._count)  # the bytes fetched before are fetched again
        self._count = 0
        os.ftruncate(self._fd, 0)  # only once new bytes arrive: the old ones may be worth keeping
        self._check = self._checks(answered)

    def _claim_to(self, end: int) -> None:
        """Claim disk space before a write; that of a known size is reserved already."""
        if self._info.size < 0 and end > self._claimed:
            self._claim(end - self._claimed)
            self._claimed = end


class PartedFetch:
    """Fetches a large object in parts, by any free workers.

    `units` yields one callable per missing part. The worker that finishes the last one calls `done` with whether the
    bytes were verified, or `failed` with the first error. `present` is the number of bytes written before. `dropped` is
    True if some were there that nothing proves: these are fetched anew.
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
        self.dropped = partial.unproven and not self._check.unforgeable
        if self.dropped:
            try:
                partial.restart()
            except NbdataError as error:
                self._error = error
        self._missing = partial.missing()
        self._open = max(1, len(self._missing))
        self.present = partial.present()
        control.advance(present=self.present)

    def units(self) -> Iterator[Callable[[], None]]:
        """Yield the units of work. A complete partial still has one unit, which verifies it."""
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
        # `at` counts the bytes in the file. If the disk is full, the reader may be a block ahead.
        try:
            # Bytes that a later try continues from are never rewritten, because they are hashed.
            with Reader(self._control, self._store, self._info, at, end, skips=False) as reader:
                for block in reader.into(self._partial.fd):
                    self._check.offer(at, block)
                    at += len(block)
                    self._control.advance(bytes=len(block))
                    if at - noted >= NOTED:
                        self._partial.began(noted, at)
                        if self._store.refuses_first:
                            self._partial.note(number, at - start)
                        noted = at
        except (SourceChanged, ChecksumMismatch):
            self._partial.note(number, 0)  # the noted bytes may be of another version
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
        """Verify the complete object. If it is wrong, fetch everything again, in order."""
        anew = False

        def attempt() -> bool:
            nonlocal anew
            if anew:
                self._check = self._checks(self._info)
                for number in range(self._partial.count):
                    self._fetch(number)
            self._check.catch_up(self._partial.fd, lambda: self._info.size)
            try:
                verified = self._check.finish(self._partial.fd, self._info.size)
                if self._partial.unproven and not verified:
                    self.dropped = True
                    raise ChecksumMismatch(
                        "nothing proves the bytes that were there before", path=self._info.key
                    )
                return verified
            except ChecksumMismatch as error:
                if error.details.get("retry") is not False:
                    self._control.advance(bytes=self.present - self._info.size, present=-self.present)
                    self.present, anew = 0, True
                    self._partial.restart()
                raise

        return Tries(self._control).until_matching(attempt)
