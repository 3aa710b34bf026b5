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
from nbdata.stores.sessions import Answer, Write
from nbdata.transfer.gathering import MAX_BYTES, Gathering
from nbdata.transfer.retry import retrying
from nbdata.transfer.send import answer_of
from nbdata.verification.sent import SentHasher

__all__ = ["SmallFiles"]


class _Loaded(NamedTuple):
    """A small file that was read."""

    row: Row
    before: os.stat_result
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
            lambda: self._gathering.through(
                pushing.target.store.writing(self._gathering.width, MAX_BYTES), self._request, self._answered
            ),
            lambda row, error: whole(row, error, self._wrong.pop(row.path, None)),
        )
        #: What sends a batch.
        self.handed = self._gathering.handed

    def _request(self, row: Row) -> Write[_Loaded] | None:
        """What sends a small file; None if it cannot be read."""
        try:
            return self._load(row)
        except Exception as error:
            self._pushing.outcome.fail(row.path, error)
            return None

    def _load(self, row: Row) -> Write[_Loaded]:
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
        return Write(_Loaded(row, before, hasher), row.detail["key"], data, hasher.hexdigest())

    def _answered(self, answer: Answer[Write[_Loaded]]) -> None:
        """The store has answered for a small file."""
        loaded, info = answer.request.of, answer.told
        if info is None:
            self._missed(loaded.row, answer.error)
            return
        if info.etag:
            self._judged(loaded, info)
        else:
            self._gathering.later(partial(self._asked_after, loaded))
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
