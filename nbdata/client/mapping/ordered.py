"""Changes several samples at the same time, and gives the results in the order of the samples."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

__all__ = ["AT_ONCE", "Changer", "Sample", "changed"]

#: Samples that are under way for each worker, changed ones that wait for their turn included.
AT_ONCE = 2

#: ``__key__``, and fields by extension.
Sample = dict[str, Any]


class Changer(Protocol):
    """Makes new samples of a sample."""

    workers: int

    def change(self, sample: Sample) -> list[Sample]:
        """The new samples, whose fields are bytes; called by as many threads as there are workers."""

    def stop(self) -> None:
        """End all that is under way, at once: what waits in `change` raises. Nothing can be changed after that."""


def changed(samples: Iterable[Sample], changer: Changer) -> Generator[list[Sample], None, None]:
    """What becomes of each sample, in their order; at most `AT_ONCE` for each worker are in memory.

    When it ends, also early, nothing of it runs any more. The first error in the order of the samples is raised.
    """
    pool = ThreadPoolExecutor(changer.workers, "nbdata-map")
    pending = deque[Future[list[Sample]]]()
    try:
        for sample in samples:
            pending.append(pool.submit(changer.change, sample))
            if len(pending) >= AT_ONCE * changer.workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        changer.stop()
        pool.shutdown()
