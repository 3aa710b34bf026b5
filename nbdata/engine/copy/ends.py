"""The two ends of a copy: what they are able to do, what they vouch for, and uploads in parts to one of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from nbdata.engine.planning.begun_uploads import BegunUploads
from nbdata.errors import (
    Cancelled,
    ChecksumMismatch,
    NbdataError,
    NotFound,
    SourceChanged,
    StoreUnavailable,
)
from nbdata.stores.base import ObjectInfo, Store, Upload
from nbdata.transfer.control import Control
from nbdata.transfer.retry import retrying
from nbdata.transfer.send import PartedSend, SentPart, withdrawn
from nbdata.verbs.copy import Copy
from nbdata.verification.checker import plain_md5

__all__ = ["WHOLE", "Copied", "Ends", "Job"]

#: Up to this size a store is asked to copy an object in one request, in bytes. S3 allows 5 GiB, but a connection
#: that is silent for as long as that takes looks dead.
WHOLE = 1 << 30
# What another way of copying would not mend.
_LASTING = (SourceChanged, NotFound, Cancelled, StoreUnavailable, ChecksumMismatch)


class Copied(NamedTuple):
    """A finished object: what the target says of it, why it is not proven ('' if it is), and who copied it."""

    info: ObjectInfo
    unproven: str
    by_store: bool


class Job(NamedTuple):
    """One object to be copied."""

    info: ObjectInfo
    key: str
    done: Callable[[Copied], None]
    failed: Callable[[Exception], None]


class Ends:
    """The two stores of a copy, and what is learnt about them while it goes on; for many threads.

    `notes` says what the user should know in the end.
    """

    def __init__(
        self, control: Control, op: Copy, source: Store, target: Store, uploads: BegunUploads
    ) -> None:
        self.control, self.op = control, op
        self.source, self.target, self._uploads = source, target, uploads
        self._by_store = target.can_copy(source)
        self._lock = threading.Lock()
        self.notes: list[str] = []

    def head(self, info: ObjectInfo) -> ObjectInfo:
        """What the source says of an object now; SourceChanged if it is another one."""
        told = retrying(self.control, lambda: self.source.head(info.key))
        if _another(told, info):
            raise SourceChanged(
                "the object changed after it was listed",
                path=info.key,
                expected=info.etag or f"{info.size} bytes",
                got=told.etag or f"{told.size} bytes",
                remedy="Run the command again: it takes the new version",
            )
        return told

    def store_may(self, info: ObjectInfo) -> bool:
        """Whether the store is to copy this one itself; whoever insists on MD5 wants proof by it."""
        provable = plain_md5(info) is not None and info.size <= WHOLE
        return self._by_store and (self.op.verify != "md5" or provable)

    def refused(self, error: NbdataError) -> None:
        """Raises `error`, unless it only means that the store does not copy by itself."""
        if isinstance(error, _LASTING):
            raise error
        with self._lock:
            if self._by_store:
                self._by_store = False
                self.notes.append(
                    f"the store does not copy by itself ({error.message}), so the bytes went through this machine"
                )

    def fitting(self, size: int | None, total: int) -> int | None:
        """A part size of the source, if the target allows it and the user wants no other."""
        if size is None or self.op.part_size not in (None, size):
            return None
        return size if size >= self.target.min_part and -(-total // size) <= self.target.max_parts else None

    def parted(
        self,
        job: Job,
        told: ObjectInfo,
        part_size: int,
        send: Callable[[Upload, int, int, int], SentPart],
        *,
        before: Callable[[list[str]], None],
        whole: Callable[[ObjectInfo, list[str]], bool],
        done: Callable[[ObjectInfo, bool], None],
        failed: Callable[[Exception], None],
        in_order: bool = False,
    ) -> PartedSend:
        """A send in parts that is given up should the run end before it does."""
        key = job.key

        def finished(made: ObjectInfo, proven: bool) -> None:
            del self._uploads.unfinished[key]
            self._uploads.finished(key)
            done(made, proven)

        def broken(error: Exception) -> None:
            del self._uploads.unfinished[key]
            failed(error)

        sending = PartedSend(
            self.control,
            job.info.size,
            part_size,
            send,
            begin=lambda: self._uploads.begin(self.target, key, job.info.size, told.headers),
            abandon=partial(self._uploads.abandon, key),
            before=before,
            whole=whole,
            done=finished,
            failed=broken,
            in_order=in_order,
            withdraw=partial(withdrawn, self.control, self.target, key),
        )
        self._uploads.unfinished[key] = sending.give_up
        return sending


def _another(told: ObjectInfo, listed: ObjectInfo) -> bool:
    """Whether an answer is of another version than a listing, as far as both say; some listings have no ETags."""
    if told.size != listed.size:
        return True
    pairs = [
        (told.version, listed.version),
        (told.etag.strip('"'), listed.etag.strip('"')),
        (told.modified and int(told.modified), listed.modified and int(listed.modified)),
    ]
    return next((ours != theirs for ours, theirs in pairs if ours and theirs), False)
