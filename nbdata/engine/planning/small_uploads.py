"""Sends many small objects at a time, and checks each against the store's response; for push and unpacking."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from nbdata.errors import ChecksumMismatch
from nbdata.stores.base import ObjectInfo, Store
from nbdata.stores.sessions import Answer, Write
from nbdata.transfer.batcher import BATCH, MAX_BYTES, Batcher
from nbdata.transfer.control import Control
from nbdata.transfer.retry import Tries, retrying
from nbdata.transfer.send import answer_of
from nbdata.transfer.worker_pool import Unit, WorkerPool
from nbdata.verification.sent_checker import SentHasher

__all__ = ["BATCH", "Content", "Sending", "SmallObject", "SmallUploads"]


class SmallObject(Protocol):
    """A small object to send.

    Attributes
    ----------
    key : str
    size : int
        Bytes.
    wrong : ObjectInfo or None
        The store's description of an earlier try that arrived damaged.
    tries : Tries or None
        See `Batched`.
    """

    key: str
    size: int
    wrong: ObjectInfo | None
    tries: Tries | None


class Content(NamedTuple):
    """The bytes of a small object, and the hasher that has hashed them."""

    data: bytes
    hasher: SentHasher


#: Sends one object: yields its `Content` at its turn, and gets the store's description of the object, and whether that
#: proves the bytes. If only the store can say what it has, and fails to, that error is raised at the yield. A generator
#: that is dropped at the yield sends nothing.
Sending = Generator[Content, tuple[ObjectInfo, bool], None]

T = TypeVar("T", bound=SmallObject)


class SmallUploads(Generic[T]):
    """Sends small objects many at a time, in one worker of a pool.

    Parameters
    ----------
    workers : WorkerPool
    send : callable
        Returns the `Sending` of an object. It reports the outcome, and raises nothing.
    whole : callable
        Sends one object by itself after a failed first try.
    """

    def __init__(
        self,
        control: Control,
        workers: WorkerPool,
        store: Store,
        send: Callable[[T], Sending],
        whole: Callable[[T], None],
    ) -> None:
        self._control, self._workers, self._store = control, workers, store
        self._send = send
        self._batcher = Batcher[T](control, workers, self._transfer, whole)

    def takes(self, size: int) -> bool:
        """True if objects of that size are best sent together."""
        return self._control.rate is None and size <= self._store.writes_together

    def unit(self, batch: list[T]) -> Unit:
        """Return the unit of work that adds a batch; see `Batcher.unit`."""
        return self._batcher.unit(batch)

    def _transfer(self) -> None:
        session = self._store.writing(self._batcher.width, MAX_BYTES)
        self._batcher.run_session(session, self._request, self._answered)

    def _request(self, item: T) -> Write[tuple[T, Sending, SentHasher]] | None:
        """Make the request that sends an object; None if its bytes cannot be read."""
        sending = self._send(item)
        content = next(sending, None)
        if content is None:
            return None
        return Write((item, sending, content.hasher), item.key, content.data, content.hasher.hexdigest())

    def _answered(self, answer: Answer[Write[tuple[T, Sending, SentHasher]]]) -> None:
        """Handle the store's response for an object."""
        (item, sending, hasher), info = answer.request.of, answer.told
        if info is None:
            self._batcher.alone(item, answer.error)
            return
        if info.etag:
            self._compared(item, sending, hasher, info)
        else:
            self._batcher.submit(partial(self._asked_after, item, sending, hasher))
        self._control.checkpoint()

    def _asked_after(self, item: T, sending: Sending, hasher: SentHasher) -> None:
        """Ask the store about an object, because its response did not describe it."""
        try:
            info = retrying(self._control, lambda: self._store.head(item.key))
        except Exception as error:
            with contextlib.suppress(StopIteration):
                sending.throw(error)
            return
        if info.size in (item.size, -1):
            self._compared(item, sending, hasher, info)
        else:
            item.wrong = info
            self._batcher.alone(item)

    def _compared(self, item: T, sending: Sending, hasher: SentHasher, info: ObjectInfo) -> None:
        try:
            verified = hasher.verify("" if info.encrypted else answer_of(info))
        except ChecksumMismatch as error:
            if error.details.get("disproved"):
                item.wrong = info
            self._batcher.alone(item, error)
        else:
            try:  # noqa: SIM105 (contextlib.suppress takes a microsecond)
                sending.send((info, verified))
            except StopIteration:
                pass
        self._workers.done += 1
