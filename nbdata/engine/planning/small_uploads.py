"""Sends many small objects at a time, and checks each against the store's response; for push and unpacking."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from nbdata.errors import ChecksumMismatch
from nbdata.stores.base import ObjectInfo, Store
from nbdata.stores.sessions import Answer, Write
from nbdata.transfer.batcher import BATCH, MAX_BYTES, Batcher
from nbdata.transfer.control import Control
from nbdata.transfer.retry import Tries, retrying
from nbdata.transfer.send import answer_of
from nbdata.transfer.worker_pool import Unit, WorkerPool
from nbdata.verification.sent_checker import SentHasher

__all__ = ["BATCH", "Content", "SmallObject", "SmallUploads"]


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
    """The bytes of a small object.

    Attributes
    ----------
    data : bytes
    hasher : SentHasher
        Has hashed the bytes.
    more : any
        The caller's own data.
    """

    data: bytes
    hasher: SentHasher
    more: Any = None


T = TypeVar("T", bound=SmallObject)


class SmallUploads(Generic[T]):
    """Sends small objects many at a time, in one worker of a pool.

    Parameters
    ----------
    workers : WorkerPool
    content : callable
        Returns the bytes of an object at its turn. Its errors are passed to `failed`.
    sent : callable
        Called when the store has an object, with its `Content`, the store's description, and whether that proves the
        bytes.
    whole : callable
        Sends one object by itself after a failed first try.
    failed : callable
        Called with an object and its error.
    """

    def __init__(
        self,
        control: Control,
        workers: WorkerPool,
        store: Store,
        *,
        content: Callable[[T], Content],
        sent: Callable[[T, Content, ObjectInfo, bool], None],
        whole: Callable[[T], None],
        failed: Callable[[T, Exception], None],
    ) -> None:
        self._control, self._workers, self._store = control, workers, store
        self._content, self._sent, self._failed = content, sent, failed
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

    def _request(self, item: T) -> Write[tuple[T, Content]] | None:
        """Make the request that sends an object; None if its bytes cannot be read."""
        try:
            content = self._content(item)
        except Exception as error:
            self._failed(item, error)
            return None
        return Write((item, content), item.key, content.data, content.hasher.hexdigest())

    def _answered(self, answer: Answer[Write[tuple[T, Content]]]) -> None:
        """Handle the store's response for an object."""
        (item, content), info = answer.request.of, answer.told
        if info is None:
            self._batcher.alone(item, answer.error)
            return
        if info.etag:
            self._compared(item, content, info)
        else:
            self._batcher.submit(partial(self._asked_after, item, content))
        self._control.checkpoint()

    def _asked_after(self, item: T, content: Content) -> None:
        """Ask the store about an object, because its response did not describe it."""
        try:
            info = retrying(self._control, lambda: self._store.head(item.key))
        except Exception as error:
            self._failed(item, error)
            return
        if info.size in (item.size, -1):
            self._compared(item, content, info)
        else:
            item.wrong = info
            self._batcher.alone(item)

    def _compared(self, item: T, content: Content, info: ObjectInfo) -> None:
        try:
            verified = content.hasher.verify("" if info.encrypted else answer_of(info))
        except ChecksumMismatch as error:
            if error.details.get("disproved"):
                item.wrong = info
            self._batcher.alone(item, error)
        else:
            try:
                self._sent(item, content, info, verified)
            except Exception as error:
                self._failed(item, error)
        self._workers.done += 1
