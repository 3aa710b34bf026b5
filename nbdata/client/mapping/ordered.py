"""Changes several samples at the same time, and yields the results in the order of the samples."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

__all__ = ["AT_ONCE", "Changer", "Sample", "changed"]

#: Samples in progress per worker, including changed ones that wait for their turn.
AT_ONCE = 2

#: ``__key__``, and fields by extension.
Sample = dict[str, Any]
_Given = TypeVar("_Given", contravariant=True)
_Item = TypeVar("_Item")


class Changer(Protocol[_Given]):
    """Makes new samples from a sample, or from several."""

    workers: int

    def change(self, sample: _Given, /) -> list[Sample]:
        """Return the new samples, whose fields are bytes; as many threads call this as there are workers."""

    def stop(self) -> None:
        """Stop all work at once, so that a waiting `change` raises; nothing can be changed afterwards."""


def changed(samples: Iterable[_Item], changer: Changer[_Item]) -> Generator[list[Sample], None, None]:
    """Yield the new samples of each sample, in the order of the samples.

    At most `AT_ONCE` samples per worker are in memory. The first error in this order is raised. All workers are stopped
    when the generator ends, early or not.
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
