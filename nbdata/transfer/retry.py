"""Trying again what is worth it: exponential back-off with full jitter, Retry-After, a bound on tries.

The engine owns retries (stores never retry), so that a pause holds them, a stop ends them, and every one
of them is counted and shown. The delays follow "full jitter" (Brooker, "Exponential Backoff And
Jitter", AWS Architecture Blog, 2015).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TypeVar

from nbdata.errors import BadOption, ChecksumMismatch, NbdataError, SourceChanged, StoreUnavailable
from nbdata.stores.another_try import pushed_back, retry_after, worth_retrying
from nbdata.stores.base import ObjectInfo, Store
from nbdata.transfer.control import Control
from nbdata.transfer.part_records import PART

__all__ = ["BUDGET", "TRIES", "listing", "listing_of_folder", "retrying", "told_part_size", "until_matching"]

# Tries in all; with the delays below that is about a minute of a store that does not answer.
TRIES = 8
# A store that was never reached is more likely misspelt than busy.
TRIES_UNREACHED = 3
# How often bytes are moved in all that arrive wrong.
MISMATCHES = 3
# Retries of a whole job, beside one for each object and part that it has moved.
BUDGET = 1000
_FIRST, _LONGEST, _LONGEST_ASKED = 0.2, 20.0, 120.0

_T = TypeVar("_T")


class Patience:
    """Decides, after each failure, whether to try again, and waits before it."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._tries = 0

    def succeeded(self) -> None:
        """Begin to count anew."""
        self._tries = 0

    def after(self, error: Exception, *, told: bool = False) -> None:
        """Wait for the next try, or raise `error` when it is not worth one; Cancelled if the job is to end.

        `told` if the control knows already that the store pushed back.
        """
        self._control.checkpoint()  # an aborted connection looks like a broken one
        self._tries += 1
        if not told and pushed_back(error):
            self._control.pushed_back()
        bound = TRIES_UNREACHED if getattr(error, "details", {}).get("unreached") else TRIES
        if not worth_retrying(error) or self._tries >= bound or self._overdrawn():
            raise error
        wait = random.uniform(0, min(_LONGEST, _FIRST * 2**self._tries))
        asked = retry_after(error)
        if asked is not None:
            wait = max(wait, min(asked, _LONGEST_ASKED))
        self._control.tried_again(error)
        self._control.sleep(wait)

    def _overdrawn(self) -> bool:
        """Whether the job has tried again far more often than that it got on: more of the same helps nobody."""
        pulse = self._control.pulse()
        return pulse.retries >= BUDGET + pulse.units + pulse.moved // PART


def retrying(control: Control, attempt: Callable[[], _T], *, failed: Exception | None = None) -> _T:
    """The result of `attempt`, tried again while its error is worth it.

    `failed` is the error of a first try that was made already, and the control was told of it. Raises the last
    error when the tries are used up, and Cancelled when the job is to end.
    """
    patience = Patience(control)
    if failed is not None:
        patience.after(failed, told=True)
    while True:
        control.checkpoint()
        try:
            return attempt()
        except Exception as error:
            patience.after(error)


def until_matching(
    control: Control, attempt: Callable[[Exception | None], _T], *, failed: Exception | None = None
) -> _T:
    """The result of `attempt`, called again while the bytes that arrive are not the right ones.

    `attempt` is given `failed` (see `retrying`) the first time, then None.

    Raises
    ------
    ChecksumMismatch
        If they are wrong for the `MISMATCHES`th time, or other bytes would not be right either, as where a store has
        nothing to compare them with.
    """
    for tries in range(1, MISMATCHES + 1):
        try:
            return attempt(failed if tries == 1 else None)
        except ChecksumMismatch as error:
            if tries == MISMATCHES or error.details.get("retry") is False:
                raise
            control.tried_again(error)
    raise AssertionError("unreachable")


def told_part_size(control: Control, store: Store, info: ObjectInfo) -> int | None:
    """`Store.part_size`, asked again while that is worth it.

    Not told because the line broke is another thing than not told: without it a wrong byte may prove nothing. But a
    store that knows the question only as an error, each time, does not tell.
    """
    try:
        return retrying(control, lambda: store.part_size(info))
    except StoreUnavailable as error:
        if "status" not in error.details:
            raise
        return None


def listing(control: Control, store: Store, prefix: str) -> Iterator[ObjectInfo]:
    """`Store.list`, which goes on behind the last key when it broke off.

    BadOption if the store gives keys that do not begin with the prefix, as SeaweedFS does for ``a//b``.
    """
    patience, after = Patience(control), ""
    while True:
        try:
            for info in store.list(prefix, after=after):
                # Its name below the prefix would be cut off anywhere.
                if not info.key.startswith(prefix):
                    raise BadOption(
                        f"the store lists {info.key!r} when it is asked for {prefix!r}",
                        remedy="Write the place as it lists it: it may take two slashes for one",
                    )
                yield info
                after = info.key
                patience.succeeded()
            return
        except NbdataError as error:
            patience.after(error)


def listing_of_folder(control: Control, store: Store, prefix: str) -> Iterator[ObjectInfo]:
    """`Store.list_folder`, which begins anew when it broke off, and goes on behind the last key.

    Raises
    ------
    SourceChanged
        If that key is gone by then.
    """
    patience, last = Patience(control), ""
    while True:
        known = last
        try:
            for info in store.list_folder(prefix):
                if known:
                    known = "" if info.key == known else known
                    continue
                yield info
                last = info.key
                patience.succeeded()
            break
        except NbdataError as error:
            patience.after(error)
    if known:
        raise SourceChanged("the folder changed while it was listed", remedy="List it again")
