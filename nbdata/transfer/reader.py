"""Read one version of an object from an offset on, and resume after every interruption.

All objects except small ones are read here: into a buffer, as blocks, or into a file. A read that broke off, stalled or
ended early resumes at the byte it reached. A response of another version is refused.
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
from nbdata.transfer.retry import Tries

__all__ = ["BLOCK", "Check", "RangesIgnored", "Reader"]

#: Bytes of each thread's block.
BLOCK = 1 << 20
# Bytes per read when skipping to the offset.
_DROPPED = 256 << 10

_T = TypeVar("_T")
_local = threading.local()


class Check(Protocol):
    """Hashes one object as its bytes arrive, possibly out of order (see verification.checker)."""

    @property
    def unforgeable(self) -> bool:
        """True if the checksum shows bytes that somebody has forged, as a CRC does not."""

    def offer(self, offset: int, buffer: memoryview) -> bool:
        """Hash `buffer` if it comes next and return True. False means that it must be hashed later from the file."""

    def catch_up(self, fd: int, end: Callable[[], int]) -> None:
        """Hash bytes from the file that were written but not hashed, up to the byte that `end` returns."""

    def finish(self, fd: int, size: int) -> bool:
        """True if the bytes are verified, False if the store has no checksum; ChecksumMismatch if they are wrong."""


class RangesIgnored(NbdataError):
    """The store ignored the range and sent the whole object; fetch it in one piece."""


class Reader:
    """Reads the bytes of an object in order, in one thread at a time. Close it at the end, or use ``with``.

    The number of tries starts again whenever a read gets further than all before. The caller, not the reader, counts
    bytes with the control.

    Parameters
    ----------
    control : Control
        Stops and pauses the reader, and counts its retries. It needs no running job.
    store : Store
    info : ObjectInfo
        The version to read.
    start : int
        The first byte.
    end : int, optional
        The byte after the last one; None for the end of the object.
    begins : callable, optional
        Called with the store's metadata of the object before its first bytes, also when the reader starts over.
    anew : bool
        If the store gives no validator, True starts over at `start` after an interruption. False resumes at the offset
        even then, in whatever version is there.
    skips : bool
        If the store ignores ranges, True reads and drops the bytes around the range. False raises RangesIgnored.
    retries : bool
        False raises every error at once, for callers that start over by themselves.
    check : callable, optional
        Makes the check of all bytes from the store's metadata; for reads from 0 to the end. If the bytes are wrong,
        ChecksumMismatch is raised in place of the last ones.
    tries : Tries, optional
        The tries of the request so far, for one that goes on after other readers or a session.

    Attributes
    ----------
    at : int
        The offset of the next byte.
    proven : bool or None
        True if `check` matched all bytes to the stored checksum, False if there is none; None until all are read.

    Raises
    ------
    SourceChanged
        By every reading method, if the object is not, or no longer, the version of `info`.
    RangesIgnored
        By every reading method, see `skips`.
    StoreUnavailable
        By every reading method, if the last try failed.
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
        tries: Tries | None = None,
    ) -> None:
        self._control, self._store, self._info = control, store, info
        self._start, self._asked_end = start, end
        self._cuts = skips and end is not None
        self._end = end if end is not None else info.size if info.size >= 0 else None
        self._begins, self._skips, self._make_check = begins, skips, check
        self._anew = anew and not validator(info)
        self._tries = (tries or Tries(control)) if retries else None
        self._body: Body | None = None
        self._check: Check | None = None
        self._furthest = start
        self.at = start
        self.proven: bool | None = None

    def open(self) -> Body:
        """Send the request. Optional, because reading also does it. The body's `info` is the store's metadata."""
        return self._trying(self._opened)

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill some of `buffer` and return the count; 0 at the end."""
        count = self._trying(lambda: self._next(buffer))
        if self._check is not None:
            self._look(self._check, buffer[:count])
        self.at += count
        if self.at > self._furthest:
            self._furthest = self.at
            if self._tries is not None:
                self._tries.succeeded()
        return count

    def blocks(self) -> Iterator[memoryview]:
        """Yield the rest in this thread's block. Each is valid until the next block of any reader in this thread."""
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
        """Release the connection. Reading may continue afterwards."""
        body, self._body = self._body, None
        if body is not None:
            body.close()

    def _trying(self, attempt: Callable[[], _T]) -> _T:
        while True:
            try:
                self._control.checkpoint()
                return attempt()
            except Exception as error:
                self.close()
                if self._tries is None:
                    raise
                self._tries.after(error)

    def _next(self, buffer: memoryview) -> int:
        if self.at and self.at == self._end and (self._body is None or self._cuts):
            return 0  # requesting a range that begins at the end is an error
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
        """Skip the bytes before the offset, for a store without ranges."""
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
    """Return this thread's block, which is made once."""
    view: memoryview | None = getattr(_local, "view", None)
    if view is None:
        view = _local.view = memoryview(bytearray(BLOCK))
    return view
