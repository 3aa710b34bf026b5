"""pull: many small objects, fetched together by one thread."""

from __future__ import annotations

from collections.abc import Callable

from nbdata.engine.pull.pulling import Pulling
from nbdata.errors import ChecksumMismatch, NbdataError
from nbdata.report import Row
from nbdata.stores.base import ObjectInfo
from nbdata.stores.sessions import Answer, Read
from nbdata.transfer.gathering import MAX_BYTES, Gathering
from nbdata.transfer.landing import Landed
from nbdata.transfer.part_records import validator
from nbdata.verification.verify import decided, right

__all__ = ["Small", "SmallObjects"]

#: One of them, and what the store says of it.
Small = tuple[Row, ObjectInfo]


class SmallObjects:
    """Those of one pull.

    Parameters
    ----------
    pulling : Pulling
    whole : callable
        Fetches one that did not go at the first try; told why, or None.
    """

    def __init__(
        self, pulling: Pulling, whole: Callable[[Row, ObjectInfo, NbdataError | None], None]
    ) -> None:
        self._pulling = pulling
        self._gathering = Gathering[Small](
            pulling.run.control,
            pulling.crew,
            lambda: self._gathering.through(
                pulling.store.reading(self._gathering.width, MAX_BYTES),
                lambda small: Read(small, small[1]),
                self._answered,
            ),
            lambda small, error: whole(*small, error),
        )
        #: What fetches a batch.
        self.handed = self._gathering.handed

    def has(self, row: Row, info: ObjectInfo) -> bool:
        """Whether an object is one of many small ones, which are fetched together."""
        pulling = self._pulling
        return (
            0 <= info.size <= pulling.store.reads_together
            and row.action != "compare"
            and "present" not in row.detail
            and pulling.promised is None
            and pulling.run.control.rate is None
            and row.path not in pulling.begun
            and decided(info, pulling.op.verify)
        )

    def _answered(self, answer: Answer[Read[Small]]) -> None:
        """The bytes of a small object are there, in memory; or did not come."""
        pulling, small, body = self._pulling, answer.request.of, answer.data
        row, info = small
        if answer.told is None:
            self._gathering.missed(small, answer.error)
            return
        try:
            verified = right(answer.told, pulling.op.verify, body)
            if verified is None:
                self._gathering.missed(small, None)
                return
            final, staging = pulling.landing.target.prepare(row.path)
            pulling.claimed[row.path] = row.detail["needed"]
            temporary = pulling.landing.target.written(staging, body, row.path)
            pulling.verified[row.path] = verified
            pulling.landing.land(Landed(row.path, temporary, final, info.size, tag=validator(info)))
            pulling.run.control.advance(bytes=info.size)
        except ChecksumMismatch as error:
            pulling.run.control.tried_again(error)
            self._gathering.missed(small, None)
            return
        except Exception as error:
            pulling.failed(row.path, error)
        pulling.crew.done += 1
        pulling.run.control.checkpoint()
