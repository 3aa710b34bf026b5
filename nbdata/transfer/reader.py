"""Read one version of one object from an offset on, and resume after every interruption.

Everything larger than a small object is read here: into a buffer, as blocks, or into a file. A read that broke off,
stalled or ended early is resumed at the byte it reached. An answer of another version is refused.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from nbdata.disk import disk_error
from nbdata.errors import NbdataError, SourceChanged, StoreUnavailable
from nbdata.stores.base import Body, ObjectInfo, Store
from nbdata.transfer.control import Control
from nbdata.transfer.part_records import validator
from nbdata.transfer.retry import Patience

__all__ = ["BLOCK", "Check", "RangesIgnored", "Reader"]

#: Bytes of the block that each thread reads into.
BLOCK = 1 << 20
# Bytes that are skipped at a time before the offset.
_DROPPED = 256 << 10

_T = TypeVar("_T")
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
    """The store sent the whole object for a range; fetch it in one piece."""


class Reader:
    """The bytes of an object in order, for one thread at a time. Close it at the end, or use ``with``.

    The count of tries starts again whenever a read gets further than all before. The reader does not count bytes with
    its control; the caller does.

    Parameters
    ----------
    control : Control
        Stops and pauses the reader, and counts its retries. No job has to run.
    store : Store
    info : ObjectInfo
        The version to read.
    start : int
        The first byte.
    end : int, optional
        The byte behind the last one; None for the end of the object.
    begins : callable, optional
        Called with what the store reports of the object before its first bytes, also when the reader starts over.
    anew : bool
        True starts over at `start` after an interruption if the store gives no validator. False resumes at the offset
        even then, in whatever version is there.
    skips : bool
        True reads and drops the bytes around the range if the store ignores ranges. False raises RangesIgnored.
    retries : bool
        False raises every error at once, for callers that start over themselves.
    check : callable, optional
        Makes the check of all bytes from what the store reports; for reads from 0 to the end. If the bytes are wrong,
        ChecksumMismatch comes in place of the last ones.
    failed : Exception, optional
        The error of a first try that was made elsewhere, and that the control has counted.

    Attributes
    ----------
    at : int
        The offset of the next byte.
    proven : bool or None
        True if `check` found all bytes to match the stored checksum; None until all were read.

    Raises
    ------
    SourceChanged
        By every reading method, if the object is not, or no longer, the version of `info`.
    RangesIgnored
        Likewise, see `skips`.
    StoreUnavailable
        Likewise, if the last try failed.
    """

    def __init__(
        self,
        control: Control,
        store: Store,
        info: ObjectInfo,
        start: int = 0,
        end: int | None = None,
        *,
        begins: Callable[[ObjectInfo], None] | None = None,
        anew: bool = False,
        skips: bool = True,
        retries: bool = True,
        check: Callable[[ObjectInfo], Check] | None = None,
        failed: Exception | None = None,
    ) -> None:
        self._control, self._store, self._info = control, store, info
        self._start, self._asked_end = start, end
        self._cuts = skips and end is not None
        self._end = end if end is not None else info.size if info.size >= 0 else None
        self._begins, self._skips, self._make_check = begins, skips, check
        self._anew = anew and not validator(info)
        self._patience = Patience(control) if retries else None
        self._failed = failed
        self._body: Body | None = None
        self._check: Check | None = None
        self._furthest = start
        self.at = start
        self.proven: bool | None = None

    def open(self) -> Body:
        """Send the request. Optional: reading does so, too. The body's `info` is what the store reports."""
        return self._trying(self._opened)

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill a part of `buffer`; 0 at the end."""
        count = self._trying(lambda: self._next(buffer))
        if self._check is not None:
            self._look(self._check, buffer[:count])
        self.at += count
        if self.at > self._furthest:
            self._furthest = self.at
            if self._patience is not None:
                self._patience.succeeded()
        return count

    def blocks(self) -> Iterator[memoryview]:
        """Yield the rest in this thread's block; each is valid until the next block of any reader of this thread."""
        view = _block()
        while count := self.readinto(view[: self._control.block]):
            yield view[:count]

    def into(self, fd: int, claim: Callable[[int], None] = lambda _end: None) -> Iterator[memoryview]:
        """Write the rest to a file, at the same offsets, and yield each block once it is written.

        Parameters
        ----------
        claim : callable
            Called before a block is written, with the length that the file will have.
        """
        for block in self.blocks():
            claim(self.at)
            written = 0
            try:
                while written < len(block):
                    written += os.pwrite(fd, block[written:], self.at - len(block) + written)
            except OSError as error:
                raise disk_error(error, f"file for {self._info.key}") from error
            yield block

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the connection; reading may go on after that."""
        body, self._body = self._body, None
        if body is not None:
            body.close()

    def _trying(self, attempt: Callable[[], _T]) -> _T:
        while True:
            failed, self._failed = self._failed, None
            try:
                self._control.checkpoint()
                if failed is not None:
                    raise failed
                return attempt()
            except Exception as error:
                self.close()
                if self._patience is None:
                    raise
                self._patience.after(error, told=error is failed)

    def _next(self, buffer: memoryview) -> int:
        if self.at and self.at == self._end and (self._body is None or self._cuts):
            return 0  # a range that begins at the end is an error to stores
        if self._cuts and self._end is not None:  # a store that ignores ranges sends more
            buffer = buffer[: self._end - self.at]
        count = self._opened().readinto(buffer)
        if self._end is not None and self.at + count > self._end:
            raise SourceChanged("the object is longer than the store said", path=self._info.key)
        if not count and self._end is not None and self.at < self._end:
            raise StoreUnavailable(
                "the store sent fewer bytes than it announced",
                path=self._info.key,
                expected=str(self._end - self._start),
                got=str(self.at - self._start),
                details={"retry": True},
            )
        return count

    def _opened(self) -> Body:
        if self._body is not None:
            return self._body
        at = self._start if self._anew else self.at
        asked = at if self._store.ranges else 0
        body = self._store.read(self._info.key, asked, self._asked_end, match=self._info)
        try:
            if body.start != at:
                self._drop(body, at)
            elif not self._skips and self._asked_end is not None:
                self._require(body.length in (self._asked_end - at, -1))
            if at == self._start:
                self.at = at
                if self._end is None and body.info.size >= 0:
                    self._end = body.info.size
                if self._begins is not None:
                    self._begins(body.info)
                if self._make_check is not None:
                    self._check = self._make_check(body.info)
        except BaseException:
            body.close()
            raise
        self._body = body
        return body

    def _drop(self, body: Body, at: int) -> None:
        """Skip the bytes before the offset of a store without ranges."""
        self._require(self._skips)
        if body.start != 0:
            raise NbdataError("the store answers with another range", path=self._info.key)
        scratch, left = memoryview(bytearray(_DROPPED)), at
        while left and (count := body.readinto(scratch[:left])):
            self._control.checkpoint()
            left -= count

    def _require(self, held: bool) -> None:
        if not held:
            raise RangesIgnored("the store answers a range with the whole object", path=self._info.key)

    def _look(self, check: Check, block: memoryview) -> None:
        check.offer(self.at, block)
        if self.proven is None and (not block or self.at + len(block) == self._end):
            self.proven = check.finish(-1, self.at + len(block))


def _block() -> memoryview:
    """One block per thread, made once."""
    view: memoryview | None = getattr(_local, "view", None)
    if view is None:
        view = _local.view = memoryview(bytearray(BLOCK))
    return view
