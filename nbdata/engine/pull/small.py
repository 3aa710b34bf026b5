"""pull: many small objects, fetched together by one thread."""

from __future__ import annotations

from collections.abc import Callable

from nbdata.engine.pull.pulling import Pulling
from nbdata.errors import ChecksumMismatch, NbdataError
from nbdata.report import Row
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.gathering import Gathering
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
            lambda: pulling.store.read_each(
                self._gathering.next,
                info=lambda small: small[1],
                width=self._gathering.width,
                arrived=self._arrived,
                missed=self._gathering.missed,
            ),
            lambda small, error: whole(*small, error),
        )
        #: What fetches a batch.
        self.handed = self._gathering.handed

    def has(self, row: Row, info: ObjectInfo) -> bool:
        """Whether an object is one of many small ones, which are fetched together."""
        pulling = self._pulling
        return (
            0 <= info.size <= pulling.store.reads_each
            and row.action != "compare"
            and "present" not in row.detail
            and pulling.promised is None
            and pulling.run.control.rate is None
            and row.path not in pulling.begun
            and decided(info, pulling.op.verify)
        )

    def _arrived(self, small: Small, told: ObjectInfo, body: memoryview) -> None:
        """The bytes of a small object are there, in memory."""
        pulling, (row, info) = self._pulling, small
        try:
            verified = right(told, pulling.op.verify, body)
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
