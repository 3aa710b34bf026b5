"""Read many checksum files of a store, several at the same time."""

from __future__ import annotations

import bisect
from functools import partial

from nbdata.stores.base import Store
from nbdata.transfer.control import Control
from nbdata.transfer.retry import retrying
from nbdata.transfer.worker_pool import run_units

__all__ = ["ChecksumReader"]

# Number of checksum files that are read ahead together.
_BATCH = 256


class ChecksumReader:
    """Reads checksum files, several ahead in parallel; for callers that take them in the order of names.

    Parameters
    ----------
    keys : dict of str to str
        Maps names to keys in the store.
    """

    def __init__(self, control: Control, store: Store, keys: dict[str, str]) -> None:
        self._control, self._store, self._keys = control, store, keys
        self._order = sorted(keys)
        self._read: dict[str, bytes] = {}

    def __call__(self, name: str) -> bytes:
        if name not in self._read:
            start = bisect.bisect_left(self._order, name)
            self._read = {}
            run_units(
                self._control, (partial(self._one, each) for each in self._order[start : start + _BATCH])
            )
        return self._read.pop(name)

    def _one(self, name: str) -> None:
        self._read[name] = retrying(self._control, lambda: self._store.read_bytes(self._keys[name]))
