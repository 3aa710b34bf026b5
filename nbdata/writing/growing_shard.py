"""A shard that is sent while it is written; its size is known only at its end."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, Protocol

from nbdata.errors import NbdataError, NotFound
from nbdata.space.ledger import Ledger
from nbdata.space.limits import limited_folders, round_up
from nbdata.stores.base import Location, ObjectInfo, Store, Upload
from nbdata.stores.local import LocalStore
from nbdata.transfer.control import Control
from nbdata.transfer.retry import retrying
from nbdata.transfer.send import SentPart, hashed_parts, send_whole, withdrawn
from nbdata.transfer.uploads import claim, forget, leave, remember
from nbdata.verification.sent_checker import MultipartChecker, SentHasher
from nbdata.writing.manifest import Digests, digests
from nbdata.writing.outgoing import OutgoingBytes

__all__ = ["PART", "SENT_AT_A_TIME", "GrowingShard", "Target", "Uploads"]

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

    @property
    def known_as(self) -> str:
        """The name under which its uploads are remembered."""
        return f"{self.folder.place}\n{self.store.server}"


class Uploads(Protocol):
    """Starts and remembers the uploads of a shard, in place of the shard itself."""

    def begin(self, key: str) -> Upload:
        """Start the upload of a key, and remember it before its first part."""

    def finished(self, key: str) -> None:
        """Note that the upload has become an object."""

    def abandon(self, key: str, upload: Upload) -> None:
        """Abort the upload."""


class GrowingShard:
    """One shard, or one volume of an archive; for one thread.

    A store with multipart uploads receives it in parts while it grows. Any other store, and the disk, receives it whole
    at its end, and it stays in memory until then.

    Parameters
    ----------
    target : Target
    name : str
    pool : ThreadPoolExecutor
        The threads that send the parts.
    uploads : Uploads, optional
        Starts the uploads. Without it the shard starts its own, and aborts an upload that a killed process left.
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
        uploads: Uploads | None = None,
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
        self._upload: Upload | None = None
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
        upload = self._upload or self._begin()
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

    def _begin(self) -> Upload:
        """Start an upload, remembered before its first part; abort an upload that a killed process left."""
        if self._uploads is not None:
            self._upload = retrying(self._target.control, partial(self._uploads.begin, self._key))
            return self._upload
        target = self._target
        while (left := claim(target.state_dir, target.known_as, self._key)) is not None:
            self._abandon(left, target.store)
        upload = retrying(target.control, lambda: target.store.upload(self._key, -1))
        self._upload = upload
        remember(target.state_dir, target.known_as, self._key, upload.id)
        return upload

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
        target, upload, key = self._target, self._upload, self._key
        parts = [sending.result() for sending in self._sent]
        info = retrying(target.control, lambda: upload.finish([part.answer for part in parts]))
        try:
            whole = MultipartChecker(key, target.verify)(info, [part.digest for part in parts])
        except NbdataError as error:
            self._upload = None
            error.remedy = withdrawn(target.control, target.store, key, info)
            raise
        self._upload = None
        self.made, self.verified = info, whole and all(part.verified for part in parts)
        if self._uploads is not None:
            self._uploads.finished(key)
        else:
            with contextlib.suppress(NbdataError):  # cleanup finds that it is gone
                forget(target.state_dir, upload.id)
        return digests(info.etag, part_size=0 if info.encrypted else min(self._part, self.size))

    def _finish_whole(self) -> Digests:
        data = [memoryview(one) for one in self._full] + [memoryview(self._buffer)[: self._filled]]
        hashers: list[SentHasher] = []

        def hasher() -> SentHasher:
            hashers.append(self._hasher())
            return hashers[-1]

        def send() -> ObjectInfo:
            self.made, self.verified = send_whole(
                self._target.control, self._target.store, self._key, partial(OutgoingBytes, data), self.size, hasher
            )  # fmt: skip
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

    def give_up(self, store: Store) -> None:
        """Give up the unfinished shard: nothing appears under its name, and the store keeps no part of it.

        Waits for the requests in flight, so they should be stopped first. `store` is another object for the same store;
        it makes the remaining requests.
        """
        self._full.clear()
        for sending in self._sent:
            sending.cancel()
        for sending in self._sent:
            with contextlib.suppress(BaseException):
                sending.exception()
        self._sent, self._buffer, self._filled = [], bytearray(), 0
        upload, self._upload = self._upload, None
        if upload is None:
            return
        if self._uploads is not None:
            self._uploads.abandon(self._key, upload)
        else:
            self._abandon(upload.id, store)

    def _abandon(self, upload_id: str, store: Store) -> None:
        target = self._target
        try:
            with contextlib.suppress(NotFound):
                store.abort(self._key, upload_id)
            forget(target.state_dir, upload_id)
        except NbdataError:
            with contextlib.suppress(NbdataError):
                leave(target.state_dir, upload_id)  # cleanup finds it
