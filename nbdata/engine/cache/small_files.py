"""Fetch small files of a cache in batches, in one thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from nbdata.disk import disk_error
from nbdata.errors import ChecksumMismatch
from nbdata.stores.base import ObjectInfo, Store
from nbdata.stores.sessions import Answer, Read
from nbdata.transfer.batcher import BATCH, MAX_BYTES, Batcher
from nbdata.transfer.control import Control
from nbdata.transfer.retry import Tries
from nbdata.transfer.worker_pool import Unit, WorkerPool
from nbdata.verification.checker import decided, right

__all__ = ["SmallFiles", "WantedFile", "new_file"]


@dataclass(slots=True, eq=False)
class WantedFile:
    """A file to be fetched.

    Attributes
    ----------
    info : ObjectInfo
        The listed object.
    folder : int
        The descriptor of a folder of the cache.
    name : str
        The path of the new file, relative to that folder.
    path : str
        Its whole path, for errors.
    fetched : callable
        Returns a context manager around making the file; it handles errors and counts the file.
    tries : Tries or None
        See `Batched`.
    """

    info: ObjectInfo
    folder: int
    name: str
    path: str
    fetched: Callable[[], AbstractContextManager[None]]
    tries: Tries | None = None


class SmallFiles:
    """The small files of one cache, in the order in which they are wanted.

    Parameters
    ----------
    verify : str
        The option.
    alone : callable
        Fetches one file by itself.
    fatal : callable
        Returns a context manager; an error inside it ends the job, in any thread.
    """

    def __init__(
        self,
        control: Control,
        workers: WorkerPool,
        store: Store,
        verify: str,
        alone: Callable[[WantedFile], None],
        fatal: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._control, self._workers, self._store, self._verify = control, workers, store, verify
        self._batch: list[WantedFile] = []
        self._batcher = Batcher[WantedFile](control, workers, self._each, alone)
        self._fatal = fatal

    def has(self, info: ObjectInfo) -> bool:
        """True if an object is small enough for a batch."""
        together = 0 <= info.size <= self._store.reads_together and self._control.rate is None
        return together and decided(info, self._verify)

    def add(self, small: WantedFile) -> Iterator[Unit]:
        """Add a file, and yield the work that is due."""
        self._batch.append(small)
        if len(self._batch) == BATCH:
            yield from self.flush()

    def flush(self) -> Iterator[Unit]:
        """Yield the pending work; call this before waiting, as others may wait for these files."""
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
        """Write a small object whose bytes are in memory, or handle its error."""
        small, body = answer.request.of, answer.data
        if answer.told is None:
            self._batcher.alone(small, answer.error)
            return
        try:
            verified = right(answer.told, self._verify, body)
        except ChecksumMismatch as error:
            self._batcher.alone(small, error)
            return
        if verified is None:
            self._batcher.alone(small)
            return
        with small.fetched():
            fd = new_file(small)
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


def new_file(wanted: WantedFile) -> int:
    """Create a new file and return its descriptor; the caller closes it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(wanted.name, flags, 0o600, dir_fd=wanted.folder)
    except OSError as error:
        raise disk_error(error, wanted.path) from error
