"""Fetch the files of a cache: small ones in batches, large ones in parts, others in one piece."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial

from nbdata.engine.cache.small_files import SmallFiles, WantedFile, new_file
from nbdata.errors import NbdataError, SourceChanged
from nbdata.stores.base import ObjectInfo, Store
from nbdata.transfer.control import Control
from nbdata.transfer.fetch import BIG, PartedFetch, fetch_whole
from nbdata.transfer.part_records import validator
from nbdata.transfer.partials import UnrecordedParts
from nbdata.transfer.reader import RangesIgnored
from nbdata.transfer.retry import retrying
from nbdata.transfer.worker_pool import Unit, WorkerPool
from nbdata.verification.checker import Checker

__all__ = ["FileFetching"]


class FileFetching:
    """Fetches the files of one cache from one store.

    Parameters
    ----------
    verify : str
        The option.
    fatal : callable
        Returns a context manager; an error inside it ends the job, in any thread.
    """

    def __init__(
        self,
        control: Control,
        workers: WorkerPool,
        store: Store,
        verify: str,
        fatal: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._control, self._workers, self._store = control, workers, store
        self._verify, self._fatal = verify, fatal
        self._small = SmallFiles(control, workers, store, verify, self._alone, fatal)
        self._open: set[int] = set()  # descriptors of large files; many workers fetch their parts

    def fetch(self, wanted: WantedFile) -> Iterator[Unit]:
        """Yield the work for one more file; small files wait until a batch is full, or until `flush`."""
        info = wanted.info
        if self._small.has(info):
            yield from self._small.add(wanted)
            return
        yield from self.flush()  # small ones do not wait for large ones
        if self._store.ranges and info.size >= BIG and validator(info):
            yield partial(self._large, wanted)
        else:
            yield partial(self.fetch_alone, wanted)

    def flush(self) -> Iterator[Unit]:
        """Yield the pending work; call this before waiting, as others may wait for these files."""
        return self._small.flush()

    def close(self) -> None:
        """Close files that a stop left unfinished."""
        for fd in self._open:
            os.close(fd)

    def fetch_alone(self, wanted: WantedFile) -> None:
        """Fetch a file in one piece, in this thread."""
        with wanted.fetched():
            fd = new_file(wanted)
            try:
                fetch_whole(
                    self._control,
                    self._store,
                    wanted.info,
                    fd,
                    lambda answered: self._checker(wanted.info, answered).check(),
                    tries=wanted.tries,
                )
            finally:
                os.close(fd)

    def _alone(self, wanted: WantedFile) -> None:
        with self._fatal():
            self.fetch_alone(wanted)

    def _large(self, wanted: WantedFile) -> None:
        """Ask the store for the checksum of a large object, in a worker, and submit its parts."""
        info = described = wanted.info
        try:
            if self._verify != "none":  # listings lack checksums, and do not show if the ETag is an MD5
                described = retrying(self._control, lambda: self._store.head(info.key))
            checker = self._checker(info, described)
            fd = new_file(wanted)
        except (NbdataError, OSError) as error:
            _refused(wanted, error)
            return
        self._open.add(fd)
        parts = UnrecordedParts(fd, info.size, checker.layout)

        def close() -> None:
            self._open.discard(fd)
            os.close(fd)

        def done(_verified: bool) -> None:
            close()
            with wanted.fetched():
                pass

        def failed(error: Exception) -> None:
            close()
            if isinstance(error, RangesIgnored):
                os.unlink(wanted.name, dir_fd=wanted.folder)
                self._control.advance(bytes=-sum(b - a for a, b in map(parts.span, parts.done)))
                self.fetch_alone(wanted)
                return
            _refused(wanted, error)

        fetch = PartedFetch(
            self._control,
            self._store,
            info,
            parts,
            lambda _: checker.check(parts.part_size),
            done=done,
            failed=failed,
        )
        self._workers.submit(map(self._guarded, fetch.units()))

    def _guarded(self, unit: Unit) -> Unit:
        """Wrap a unit so its errors end the job: units submitted directly are not wrapped elsewhere."""

        def guarded() -> None:
            with self._fatal():
                unit()

        return guarded

    def _checker(self, listed: ObjectInfo, info: ObjectInfo) -> Checker:
        """A checker for an object that was `listed`, and that the store describes as `info` now."""
        if info.size not in (-1, listed.size):  # room was taken for the listed size
            raise SourceChanged(
                "the object changed since it was listed",
                path=listed.key,
                expected=f"{listed.size} bytes",
                got=f"{info.size} bytes",
            )
        return Checker(self._control, self._store, info, self._verify)


def _refused(wanted: WantedFile, error: Exception) -> None:
    with wanted.fetched():
        raise error
