"""Retry failed requests: exponential backoff with full jitter, Retry-After, and a limit on tries.

The engine owns retries; stores never retry. So a pause holds retries, a stop ends them, and each one is counted and
shown. The delays follow "full jitter" (Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TypeVar

from nbdata.errors import BadOption, ChecksumMismatch, NbdataError, SourceChanged, StoreUnavailable
from nbdata.stores.another_try import pushed_back, retry_after, worth_retrying
from nbdata.stores.base import ObjectInfo, Store
from nbdata.stores.sessions import Unusual
from nbdata.transfer.bad_entries import why_unusable
from nbdata.transfer.control import Control
from nbdata.transfer.part_records import PART

__all__ = ["BUDGET", "TRIES", "Tries", "listing", "listing_of_folder", "retrying", "told_part_size"]

# The most tries. With the delays below, they span about a minute of a store that does not respond.
TRIES = 8
# A store that was never reached is more likely misspelled than busy.
TRIES_UNREACHED = 3
# How many times bytes are moved that arrive wrong.
MISMATCHES = 3
# The most retries of a whole job, besides one for each object and part that it has moved.
BUDGET = 1000
_FIRST, _LONGEST, _LONGEST_ASKED = 0.2, 20.0, 120.0
# A key of fewer characters is short enough for `why_unusable`.
_SURELY_SHORT = 1024

_T = TypeVar("_T")


class Tries:
    """The tries of one request: counts those that failed, and waits before the next one, or gives up.

    Parameters
    ----------
    control : Control
    failed : NbdataError, optional
        The error of a first try that was made together with those of other requests (`stores.sessions`).

    Attributes
    ----------
    count : int
        The failed tries in succession.
    """

    def __init__(self, control: Control, failed: NbdataError | None = None) -> None:
        self._control = control
        self.count = 0
        # Wrong bytes and unusual answers do not blame the store, so the second try is made at once. Their errors are
        # not kept: they hold the frames that hold the bytes.
        self._first = None if isinstance(failed, (ChecksumMismatch, Unusual)) else failed
        if isinstance(failed, ChecksumMismatch):
            control.tried_again(failed)

    def run(self, attempt: Callable[[], _T]) -> _T:
        """Return the result of `attempt`, repeating it while its error is worth another try.

        Raises the last error if no tries are left, and Cancelled if the job must stop.
        """
        self._begin()
        while True:
            self._control.checkpoint()
            try:
                return attempt()
            except Exception as error:
                self.after(error)

    def until_matching(self, attempt: Callable[[], _T]) -> _T:
        """Return the result of `attempt`, repeating it while the bytes that arrive are wrong.

        Raises
        ------
        ChecksumMismatch
            If they are wrong for the `MISMATCHES`th time, or if another try could not be right either, as when the
            store has nothing to compare with.
        """
        self._begin()
        for number in range(1, MISMATCHES + 1):
            try:
                return attempt()
            except ChecksumMismatch as error:
                if number == MISMATCHES or error.details.get("retry") is False:
                    raise
                self._control.tried_again(error)
                self.succeeded()  # all bytes came
        raise AssertionError("unreachable")

    def _begin(self) -> None:
        """Wait for the second try if the first one failed, or raise its error."""
        failed, self._first = self._first, None
        if failed is not None:  # the control knows already whether the store pushed back
            self._control.checkpoint()
            self._wait_after(failed)

    def succeeded(self) -> None:
        """Start the count again."""
        self.count = 0

    def after(self, error: Exception) -> None:
        """Wait for the next try, or raise `error` if it is not worth one. Raises Cancelled if the job must stop."""
        self._control.checkpoint()  # an aborted connection looks like a broken one
        if pushed_back(error):
            self._control.pushed_back()
        self._wait_after(error)

    def _wait_after(self, error: Exception) -> None:
        self.count += 1
        bound = TRIES_UNREACHED if getattr(error, "details", {}).get("unreached") else TRIES
        if not worth_retrying(error) or self.count >= bound or self._overdrawn():
            raise error
        self._control.tried_again(error)
        self._control.sleep(_pause(self.count, error))

    def _overdrawn(self) -> bool:
        """Whether the job has retried far more often than it made progress, so that more retries are no help."""
        pulse = self._control.pulse()
        return pulse.retries >= BUDGET + pulse.units + pulse.moved // PART


def _pause(count: int, error: Exception) -> float:
    """Return the seconds to wait after so many failed tries in succession, of which the last one met `error`."""
    wait = random.uniform(0, min(_LONGEST, _FIRST * 2**count))
    asked = retry_after(error)
    return wait if asked is None else max(wait, min(asked, _LONGEST_ASKED))


def retrying(control: Control, attempt: Callable[[], _T]) -> _T:
    """Return the result of `attempt`, repeating it as `Tries.run` does."""
    return Tries(control).run(attempt)


def told_part_size(control: Control, store: Store, info: ObjectInfo) -> int | None:
    """Return `Store.part_size`, repeating the request while that is worth it.

    A broken connection is not the same as "no part size": without the size, a wrong byte may go undetected. But a store
    that fails each time with an error status does not support the request, so it counts as None.
    """
    try:
        return retrying(control, lambda: store.part_size(info))
    except StoreUnavailable as error:
        if "status" not in error.details:
            raise
        return None


def listing(control: Control, store: Store, prefix: str) -> Iterator[ObjectInfo]:
    """Yield the objects of `Store.list`, resuming after the last key if it breaks off.

    An entry that cannot be used is left out and noted (`Control.bad_entries`). A key that comes twice in succession is
    yielded once, with the facts of its first entry.

    Raises
    ------
    BadOption
        If no entry can be used. SeaweedFS, for example, lists keys without the prefix for ``a//b``.
    """
    tries, after, unusable = Tries(control), "", ""
    text_only = store.flat
    while True:
        try:
            for info in store.list(prefix, after=after):
                key = info.key
                if key == after and key:
                    continue
                # For most keys, these tests are all of `why_unusable`.
                if (not (key.isascii() and key.startswith(prefix)) or not 0 < len(key) < _SURELY_SHORT) and (
                    why := why_unusable(key, prefix, text_only=text_only)
                ):
                    control.bad_entries.add(key, why)
                    unusable = unusable or why
                    continue
                yield info
                after = key
                if tries.count:
                    tries.succeeded()
            break
        except NbdataError as error:
            tries.after(error)
    if unusable and not after:
        raise _nothing_usable(unusable)


def _nothing_usable(why: str) -> BadOption:
    """Return the error for a listing without a usable entry. Taken for empty, it would hide what is there."""
    return BadOption(why, remedy="Write the place as the store lists it: it may take two slashes for one")


def listing_of_folder(control: Control, store: Store, prefix: str) -> Iterator[ObjectInfo]:
    """Yield the entries of `Store.list_folder`. If it breaks off, list again and skip to after the last key.

    Unusable entries and keys that come twice are treated as in `listing`.

    Raises
    ------
    SourceChanged
        If that key no longer exists by then.
    """
    tries, last, unusable = Tries(control), "", ""
    while True:
        known = last
        try:
            for info in store.list_folder(prefix):
                if known:
                    known = "" if info.key == known else known
                    continue
                if info.key == last and last:
                    continue
                if why := why_unusable(info.key, prefix, text_only=store.flat):
                    control.bad_entries.add(info.key, why)
                    unusable = unusable or why
                    continue
                yield info
                last = info.key
                tries.succeeded()
            break
        except NbdataError as error:
            tries.after(error)
    if unusable and not last:
        raise _nothing_usable(unusable)
    if known:
        raise SourceChanged("the folder changed while it was listed", remedy="List it again")
