"""cache_stream: many small files, fetched together by one thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import NamedTuple

from nbdata.disk import disk_error
from nbdata.errors import ChecksumMismatch, NbdataError
from nbdata.stores.base import ObjectInfo, Store
from nbdata.stores.sessions import Answer, Read
from nbdata.transfer.batcher import BATCH, MAX_BYTES, Batcher
from nbdata.transfer.control import Control
from nbdata.transfer.worker_pool import Unit, WorkerPool
from nbdata.verification.checker import decided, right

__all__ = ["SmallFiles", "WantedFile", "new_file"]


class WantedFile(NamedTuple):
    """A file of an item, to be fetched.

    Attributes
    ----------
    info : ObjectInfo
        As it was listed.
    path : str
        The file that is to be made.
    fetched : callable
        A context within which the file is made; it deals with what goes wrong, and counts the file.
    """

    info: ObjectInfo
    path: str
    fetched: Callable[[], AbstractContextManager[None]]


class SmallFiles:
    """Those of one stream, which come in the order of its items.

    Parameters
    ----------
    verify : str
        The option.
    alone : callable
        Fetches one that did not go at the first try; told why, or None.
    fatal : callable
        A context: what is raised there ends the stream, whoever runs it.
    """

    def __init__(
        self,
        control: Control,
        workers: WorkerPool,
        store: Store,
        verify: str,
        alone: Callable[[WantedFile, NbdataError | None], None],
        fatal: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._control, self._workers, self._store, self._verify = control, workers, store, verify
        self._batch: list[WantedFile] = []
        self._batcher = Batcher[WantedFile](control, workers, self._each, alone)
        self._fatal = fatal

    def has(self, info: ObjectInfo) -> bool:
        """Whether an object is one of many small ones."""
        together = 0 <= info.size <= self._store.reads_together and self._control.rate is None
        return together and decided(info, self._verify)

    def add(self, small: WantedFile) -> Iterator[Unit]:
        """One more of them, and what is to be done now."""
        self._batch.append(small)
        if len(self._batch) == BATCH:
            yield from self.flush()

    def flush(self) -> Iterator[Unit]:
        """What is to be done before anything is waited for: these may be what it waits for."""
        if self._batch:
            batch, self._batch = self._batch, []
            yield partial(self._batcher.add, batch)

    def _each(self) -> None:
        with self._fatal():
            self._batcher.run_session(
                self._store.reading(self._batcher.width, MAX_BYTES),
                lambda small: Read(small, small.info),
                self._answered,
            )

    def _answered(self, answer: Answer[Read[WantedFile]]) -> None:
        """The bytes of a small object are there, in memory; or did not come."""
        small, body = answer.request.of, answer.data
        if answer.told is None:
            self._batcher.failed(small, answer.error)
            return
        try:
            verified = right(answer.told, self._verify, body)
        except ChecksumMismatch as error:
            self._control.tried_again(error)
            verified = None
        if verified is None:
            self._batcher.failed(small, None)
            return
        with small.fetched():
            fd = new_file(small.path)
            try:
                while body:
                    body = body[os.write(fd, body) :]
            except OSError as error:
                raise disk_error(error, small.path) from error
            finally:
                os.close(fd)
            self._control.advance(bytes=small.info.size)
        self._workers.done += 1
        self._control.checkpoint()


def new_file(path: str) -> int:
    """A file that is not there yet, open; to be closed by who asked."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise disk_error(error, path) from error
