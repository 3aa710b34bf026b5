"""The two ends of a copy: their abilities and their stored checksums."""

from __future__ import annotations

import threading
from typing import NamedTuple

from nbdata.engine.planning.begun_uploads import BegunUploads
from nbdata.engine.planning.remote_target import is_another
from nbdata.errors import (
    Cancelled,
    ChecksumMismatch,
    NbdataError,
    NotFound,
    SourceChanged,
    StoreUnavailable,
)
from nbdata.stores.base import ObjectInfo, Store
from nbdata.transfer.control import Control
from nbdata.transfer.retry import retrying
from nbdata.verbs.copy import Copy
from nbdata.verification.checker import plain_md5

__all__ = ["WHOLE", "Copied", "Ends"]

#: Largest object, in bytes, that a store is asked to copy in one request. S3 allows 5 GiB, but a connection that stays
#: silent for that long looks dead.
WHOLE = 1 << 30
# Errors that another way of copying would not avoid.
_LASTING = (SourceChanged, NotFound, Cancelled, StoreUnavailable, ChecksumMismatch)


class Copied(NamedTuple):
    """A finished object: the target's description, why it is not verified ('' if it is), and if the store copied it."""

    info: ObjectInfo
    unproven: str
    by_store: bool


class Ends:
    """The two stores of a copy, and what is learnt about them during the copy; safe to use from many threads.

    `notes` holds messages for the user at the end.
    """

    def __init__(
        self, control: Control, op: Copy, source: Store, target: Store, uploads: BegunUploads
    ) -> None:
        self.control, self.op = control, op
        self.source, self.target, self.uploads = source, target, uploads
        self._by_store = target.can_copy(source)
        self._lock = threading.Lock()
        self.notes: list[str] = []

    def head(self, info: ObjectInfo) -> ObjectInfo:
        """The source's current description of an object; SourceChanged if its version differs."""
        told = retrying(self.control, lambda: self.source.head(info.key))
        if is_another(told, info):
            raise SourceChanged(
                "the object changed after it was listed",
                path=info.key,
                expected=info.etag or f"{info.size} bytes",
                got=told.etag or f"{told.size} bytes",
                remedy="Run the command again: it takes the new version",
            )
        return told

    def store_may(self, info: ObjectInfo) -> bool:
        """True if the store should copy this object itself; not if MD5 is required and the store cannot prove it."""
        provable = plain_md5(info) is not None and info.size <= WHOLE
        return self._by_store and (self.op.verify != "md5" or provable)

    def refused(self, error: NbdataError) -> None:
        """Raise `error`, unless it only means that the store cannot copy by itself."""
        if isinstance(error, _LASTING):
            raise error
        with self._lock:
            if self._by_store:
                self._by_store = False
                self.notes.append(
                    f"the store does not copy by itself ({error.message}), so the bytes went through this machine"
                )

    def fitting(self, size: int | None, total: int) -> int | None:
        """The part size of the source, if the target allows it and the user has set no other."""
        if size is None or self.op.part_size not in (None, size):
            return None
        return size if size >= self.target.min_part and -(-total // size) <= self.target.max_parts else None
