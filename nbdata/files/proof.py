"""Compares what is read of one version of a file with its checksum, whoever reads which part of it."""

from __future__ import annotations

from nbdata.errors import ChecksumMismatch, without_calls
from nbdata.files.connections import Place
from nbdata.stores.base import ObjectInfo
from nbdata.threads import ForkLock
from nbdata.transfer.reader import Check
from nbdata.verification.checker import stream_check

__all__ = ["Early", "Proof"]

# Bytes of one file, and of all files together, that were read before others in front of them, and are held until then.
_EARLY, _EARLY_OF_ALL = 4 << 20, 32 << 20


class Early:
    """Counts the bytes that the proofs of many files hold, so that they stay within a bound."""

    def __init__(self, most: int = _EARLY_OF_ALL) -> None:
        self._lock = ForkLock()
        self._room = most

    def take(self, size: int) -> bool:
        """Count bytes that are about to be held; return False, and count nothing, if they are too many."""
        with self._lock:
            if size > self._room:
                return False
            self._room -= size
            return True

    def give_back(self, size: int) -> None:
        """Count bytes that are no longer held."""
        with self._lock:
            self._room += size


class Proof:
    """The comparison of one version of a file; safe to use from many threads.

    Bytes are compared as they are given out, so that what is proven is what readers got. Those that are given out
    before others in front of them are copied, as far as `early` allows. If it does not, the file stays unproven until
    they are given out once more.

    Parameters
    ----------
    place : Place
    info : ObjectInfo
        The version, whose size is known.
    verify : str
        See `nbdata.verbs.options.Verifying`.
    early : Early, optional
        None copies nothing.

    Attributes
    ----------
    proven : bool or None
        True once all bytes were compared with a checksum of the store, False if there is none; None before.
    wrong : ChecksumMismatch or None
        What is wrong with the bytes.
    begun : bool
        Whether any bytes were given out.
    followed : bool
        Whether all bytes that were given out so far are compared, or held to be compared.
    repeated : bool
        Whether bytes were given out again, after they were compared or held: those are not compared.
    """

    def __init__(self, place: Place, info: ObjectInfo, verify: str, early: Early | None = None) -> None:
        self._place, self._info, self._verify, self._early = place, info, verify, early
        self._lock = ForkLock()
        self._check: Check | None = None
        self._hashed = 0
        self._held = dict[int, bytes]()  # by offset
        self._size_held = 0
        self.proven: bool | None = None
        self.wrong: ChecksumMismatch | None = None
        self.begun, self.followed, self.repeated = False, True, False

    @property
    def is_open(self) -> bool:
        """Whether the bytes may still turn out to be wrong."""
        return self.proven is None and self._verify != "none"

    def given(self, start: int, view: memoryview) -> None:
        """Compare bytes that a reader is about to get.

        Raises
        ------
        ChecksumMismatch
            If all bytes have been given out, and some of them are wrong; from then on always.
        """
        if not self.is_open:
            return
        with self._lock:
            self.begun = True
            if self.wrong is not None:
                raise self.wrong
            if self.proven is not None:
                return
            if start > self._hashed:
                self._hold(start, view)
                return
            self.repeated = self.repeated or start < self._hashed
            if start + len(view) > self._hashed:
                self._hash(view[self._hashed - start :])
                self._catch_up()

    def close(self) -> None:
        """Drop what is held."""
        self._drop()

    def _hold(self, start: int, view: memoryview) -> None:
        if not self.followed:
            return
        while (first := self._held.get(start)) is not None:  # what was given first counts
            self.repeated = True
            start, view = start + len(first), view[len(first) :]
        size, early = len(view), self._early
        if not size:
            return
        if early is None or self._size_held + size > _EARLY or not early.take(size):
            self.followed = False
            self._drop()
            return
        self._size_held += size
        self._held[start] = bytes(view)

    def _catch_up(self) -> None:
        """Compare those of the held bytes that come next now."""
        while self._held and (start := min(self._held)) <= self._hashed:
            data = self._held.pop(start)
            self._give_back(len(data))
            if start + len(data) > self._hashed:
                self._hash(memoryview(data)[self._hashed - start :])

    def _hash(self, view: memoryview) -> None:
        if self._check is None:
            place = self._place
            self._check = stream_check(place.control, place.store, self._info, self._verify)
        self._check.offer(self._hashed, view)
        self._hashed += len(view)
        if self._hashed == self._info.size:
            check, self._check = self._check, None
            try:
                self.proven = check.finish(-1, self._info.size)
            except ChecksumMismatch as error:
                self.wrong = without_calls(error)  # type: ignore[assignment]
                raise

    def _give_back(self, size: int) -> None:
        self._size_held -= size
        if self._early is not None:
            self._early.give_back(size)

    def _drop(self) -> None:
        self._held.clear()
        self._give_back(self._size_held)
