"""Read many checksum files of a store, several at the same time."""

from __future__ import annotations

import bisect
from functools import partial

from nbdata.errors import BadOption
from nbdata.stores.base import Store
from nbdata.transfer.control import Control
from nbdata.transfer.retry import retrying
from nbdata.transfer.worker_pool import run_units

__all__ = ["ChecksumReader"]

# Number of checksum files that are read ahead together, and the most bytes of each: 64 MiB in all.
_BATCH, _SMALL = 256, 256 << 10


class ChecksumReader:
    """Reads checksum files, several small ones ahead in parallel; for callers that take them in the order of names.

    The call with a name raises BadOption for a file that is too large to be one.

    Parameters
    ----------
    keys : dict of str to str
        Maps names to keys in the store.
    """

    def __init__(self, control: Control, store: Store, keys: dict[str, str]) -> None:
        self._control, self._store, self._keys = control, store, keys
        self._order = sorted(keys)
        self._read: dict[str, bytes | None] = {}  # None: too large to be read ahead

    def __call__(self, name: str) -> bytes:
        if name not in self._read:
            start = bisect.bisect_left(self._order, name)
            self._read = {}
            run_units(
                self._control, (partial(self._ahead, each) for each in self._order[start : start + _BATCH])
            )
        content = self._read.pop(name)
        if content is None:
            content = retrying(self._control, lambda: self._store.read_bytes(self._keys[name]))
        return content

    def _ahead(self, name: str) -> None:
        read = partial(self._store.read_bytes, self._keys[name], limit=_SMALL)
        try:
            self._read[name] = retrying(self._control, read)
        except BadOption:
            self._read[name] = None
