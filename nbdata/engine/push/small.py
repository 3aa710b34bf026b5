"""push: many small files, sent together by one thread."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from nbdata.disk import disk_error
from nbdata.engine.push.listed_file import open_listed, still_same
from nbdata.engine.push.pushing import Pushing
from nbdata.errors import ChecksumMismatch, NbdataError, SourceChanged
from nbdata.report import Row
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.gathering import Gathering
from nbdata.transfer.retry import retrying
from nbdata.transfer.send import answer_of
from nbdata.verification.sent import SentHasher

__all__ = ["SmallFiles"]


class _Loaded(NamedTuple):
    """A small file in memory."""

    row: Row
    before: os.stat_result
    data: bytes
    md5: str
    hasher: SentHasher


class SmallFiles:
    """Those of one push.

    Parameters
    ----------
    pushing : Pushing
    whole : callable
        Sends one that did not go at the first try; told why, or None, and what the store has if that is wrong.
    """

    def __init__(
        self, pushing: Pushing, whole: Callable[[Row, NbdataError | None, ObjectInfo | None], None]
    ) -> None:
        self._pushing = pushing
        self._wrong: dict[str, ObjectInfo] = {}  # by path: of those that wait to be sent again
        self._gathering = Gathering[Row](
            pushing.run.control,
            pushing.crew,
            lambda: pushing.target.store.write_each(
                self._loaded,
                body=lambda loaded: (loaded.row.detail["key"], loaded.data, loaded.md5),
                width=self._gathering.width,
                written=self._written,
                missed=lambda loaded, error: self._missed(loaded.row, error),
            ),
            lambda row, error: whole(row, error, self._wrong.pop(row.path, None)),
        )
        #: What sends a batch.
        self.handed = self._gathering.handed

    def _loaded(self) -> _Loaded | None:
        """The next of the small files that are sent together."""
        while (row := self._gathering.next()) is not None:
            try:
                return self._load(row)
            except Exception as error:
                self._pushing.outcome.fail(row.path, error)
        return None

    def _load(self, row: Row) -> _Loaded:
        fd, before = open_listed(row)
        path, data = row.detail["file"], b""
        try:
            while len(data) <= row.size and (piece := os.read(fd, row.size + 1 - len(data))):
                data += piece
        except OSError as error:
            os.close(fd)
            raise disk_error(error, path) from error
        try:
            still_same(fd, before, path)
        finally:
            os.close(fd)
        if len(data) != row.size:
            raise SourceChanged("the file changed while it was sent", path=path)
        hasher = SentHasher(row.detail["key"], self._pushing.op.verify)
        hasher.update(memoryview(data))
        self._pushing.announce(row, before)
        return _Loaded(row, before, data, hasher.hexdigest(), hasher)

    def _written(self, loaded: _Loaded, info: ObjectInfo) -> None:
        """The store has answered for a small file."""
        if info.etag:
            self._judged(loaded, info)
        else:
            self._gathering.later(partial(self._asked_after, loaded._replace(data=b"")))
        self._pushing.run.control.checkpoint()

    def _asked_after(self, loaded: _Loaded) -> None:
        """The store did not tell of what it got; it does when it is asked."""
        try:
            info = retrying(
                self._pushing.run.control, lambda: self._pushing.target.store.head(loaded.row.detail["key"])
            )
        except Exception as error:
            self._pushing.outcome.fail(loaded.row.path, error)
            return
        if info.size in (loaded.row.size, -1):
            self._judged(loaded, info)
        else:
            self._wrong[loaded.row.path] = info
            self._gathering.missed(loaded.row, None)

    def _judged(self, loaded: _Loaded, info: ObjectInfo) -> None:
        row = loaded.row
        try:
            verified = loaded.hasher.verify("" if info.encrypted else answer_of(info))
            self._pushing.run.control.advance(bytes=row.size)
            self._pushing.sent(row, loaded.before, info, verified)
        except ChecksumMismatch as error:
            if error.details.get("disproved"):
                self._wrong[row.path] = info
            self._missed(row, error)
        except Exception as error:
            self._pushing.outcome.fail(row.path, error)
        self._pushing.crew.done += 1

    def _missed(self, row: Row, error: NbdataError | None) -> None:
        if isinstance(error, ChecksumMismatch):  # to be sent again at once: the store is not to blame
            self._pushing.run.control.tried_again(error)
            error = None
        self._gathering.missed(row, error)
