"""A shard that is sent while it is written; its size is known only at its end."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from nbdata.space.ledger import Ledger
from nbdata.space.limits import limited_folders, round_up
from nbdata.stores.base import Location, ObjectInfo, Store
from nbdata.stores.local import LocalStore
from nbdata.transfer.control import Control
from nbdata.transfer.object_upload import ObjectUpload, Uploads
from nbdata.transfer.send import SentPart, hashed_parts, send_whole
from nbdata.verification.sent_checker import MultipartChecker, SentHasher
from nbdata.writing.manifest import Digests, digests
from nbdata.writing.outgoing import OutgoingBytes

__all__ = ["PART", "SENT_AT_A_TIME", "GrowingShard", "Target"]

#: Least bytes of a part.
PART = 8 << 20
#: Most parts of a shard in flight; memory holds these and one more.
SENT_AT_A_TIME = 4
# Most bytes of parts in flight, for large parts; one part is always allowed.
_SENT_BYTES = 64 << 20


class Target(NamedTuple):
    """The destination of shards.

    Attributes
    ----------
    control : Control
    folder : Location
    state_dir : str
    env : dict
        The process's environment.
    verify : str
        See `nbdata.verbs.options.Verifying`.
    most : int
        Approximate bytes of a shard.
    """

    control: Control
    folder: Location
    state_dir: str
    env: dict[str, str]
    verify: str
    most: int

    @property
    def store(self) -> Store:
        """The store of the folder."""
        return self.folder.store

    @property
    def part_size(self) -> int:
        """Bytes of a part, chosen so that even twice the expected size does not need too many parts."""
        store = self.store
        return max(PART, store.min_part, round_up(-(-self.most * 2 // store.max_parts), 1 << 20))

    def room(self) -> threading.BoundedSemaphore:
        """A semaphore with a place for each part that may be in flight."""
        return threading.BoundedSemaphore(max(1, min(SENT_AT_A_TIME, _SENT_BYTES // self.part_size)))


class GrowingShard:
    """One shard, one volume of an archive, or one file that a program writes; for one thread.

    A store with multipart uploads receives it in parts while it grows. Any other store, and the disk, receives it whole
    at its end, and it stays in memory until then.

    Parameters
    ----------
    target : Target
    name : str
    pool : ThreadPoolExecutor
        The threads that send the parts.
    uploads : Uploads
    room : BoundedSemaphore, optional
        Limits the parts in flight of all shards that share it (see `Target.room`); without it the shard has its
        own.

    Attributes
    ----------
    made : ObjectInfo or None
        The finished object as the store describes it, once whole; `verified` is whether that proves its bytes.
    """

    def __init__(
        self,
        target: Target,
        name: str,
        pool: ThreadPoolExecutor,
        uploads: Uploads,
        room: threading.BoundedSemaphore | None = None,
    ) -> None:
        self.name, self.size, self.samples = name, 0, 0
        self.made: ObjectInfo | None = None
        self.verified = False
        self._target, self._pool, self._uploads = target, pool, uploads
        self._key = target.folder.key + name
        self._part = target.part_size
        self._buffer, self._filled = bytearray(self._part), 0
        self._full: list[bytearray] = []  # for stores without multipart uploads
        self._upload: ObjectUpload | None = None  # once a part is full
        self._sent: list[Future[SentPart]] = []
        self._room = room or target.room()

    def write(self, data: bytes | memoryview) -> None:
        """Append some bytes; waits while too many parts are in flight."""
        view = memoryview(data)
        self.size += len(view)
        while view:
            count = min(len(view), self._part - self._filled)
            self._buffer[self._filled : self._filled + count] = view[:count]
            view, self._filled = view[count:], self._filled + count
            if self._filled == self._part:
                self._hand_over()
                self._buffer, self._filled = bytearray(self._part), 0

    def _hand_over(self) -> None:
        """Send the contents of the buffer, or keep them."""
        if not self._target.store.multipart:
            self._full.append(self._buffer)
            return
        self._raise_failed()
        if self._upload is None:
            checker = MultipartChecker(self._key, self._target.verify)
            self._upload = self._uploads.open(self._key, None, checker)
        upload = self._upload.begun()
        send = hashed_parts(
            self._target.control,
            partial(OutgoingBytes, [memoryview(self._buffer)[: self._filled]]),
            self._hasher,
        )
        self._room.acquire()
        sending = self._pool.submit(send, upload, len(self._sent) + 1, 0, self._filled)
        sending.add_done_callback(lambda _: self._room.release())
        self._sent.append(sending)

    def _raise_failed(self) -> None:
        for sending in self._sent:
            if sending.done() and not sending.cancelled() and (error := sending.exception()) is not None:
                raise error

    def _hasher(self) -> SentHasher:
        return SentHasher(
            self._key, self._target.verify if self._target.verify in ("none", "md5") else "auto"
        )

    def end(self) -> None:
        """Send the last bytes if parts can be sent, to free memory. `finish` may come much later."""
        if not self._target.store.multipart:
            return
        if self._filled:
            self._hand_over()
        self._buffer, self._filled = bytearray(), 0

    def finish(self) -> Digests:
        """Send the rest, and give the shard its name; return the digests for its manifest."""
        if self._upload is None:
            return self._finish_whole()
        if self._filled:
            self._hand_over()
        parts = [sending.result() for sending in self._sent]
        info, self.verified = self._upload.finish(parts)
        self.made = info
        return digests(info.etag, part_size=0 if info.encrypted else min(self._part, self.size))

    def _finish_whole(self) -> Digests:
        data = [memoryview(one) for one in self._full] + [memoryview(self._buffer)[: self._filled]]
        hashers: list[SentHasher] = []

        def hasher() -> SentHasher:
            hashers.append(self._hasher())
            return hashers[-1]

        def send() -> ObjectInfo:
            self.made, self.verified = send_whole(
                self._target.control,
                self._target.store,
                self._key,
                partial(OutgoingBytes, data),
                self.size,
                hasher,
            )
            return self.made

        if isinstance(self._target.store, LocalStore):
            limited = limited_folders(self._target.state_dir, self._target.env)
            folder = "/" + self._target.folder.key
            with Ledger().reserve(
                folder, self.size, 1, limited, less="take less with shard_size="
            ) as reserved:
                info = send()
                reserved.note_written(self.size, 1)
        else:
            info = send()
        return digests(info.etag, hashers[-1].hexdigest())

    def give_up(self) -> None:
        """Give up the unfinished shard: nothing appears under its name, and the store keeps no part of it.

        Waits for the requests in flight, so they should be stopped first.
        """
        self._full.clear()
        for sending in self._sent:
            sending.cancel()
        for sending in self._sent:
            with contextlib.suppress(BaseException):
                sending.exception()
        self._sent, self._buffer, self._filled = [], bytearray(), 0
        if self._upload is not None:
            self._upload.give_up()
