"""Names the epochs of loops, and tells them to the caches that the samples are read through."""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from nbdata.client.reading.source import Source
from nbdata.protocols import Epoch

__all__ = ["epoch_of_sampler", "epoch_of_stream", "telling"]

_T = TypeVar("_T")
# Counts the streams of this process. Workers of one loader make equally many, so they count alike.
_streams = itertools.count()


def epoch_of_stream(about: dict[str, Any], *, whole: bool) -> Epoch:
    """Name the epoch of a pass by its state. All workers of a loader, and each later pass, are of the same loop."""
    parent = multiprocessing.parent_process()
    process = os.getpid() if parent is None else parent.pid
    loop = f"{process} {about['samples']} {about['shuffle']} {about['seed']}"
    return Epoch(loop, f"{about['epoch']} {next(_streams)}", whole)


def epoch_of_sampler(order: str, *, whole: bool) -> Epoch:
    """Name the epoch of a sampler's pass. The reader of its samples adds their fingerprint."""
    return Epoch(f"{os.getpid()} {order}", os.urandom(8).hex(), whole)


def telling(sources: Iterable[Source], epoch: Epoch, steps: Iterable[_T]) -> Iterator[_T]:
    """Yield the steps of an epoch; tell the sources when it begins, and when all steps are done."""
    sources = list(sources)
    for source in sources:
        source.note_epoch(epoch)
    yield from steps
    for source in sources:
        source.note_epoch(epoch._replace(over=True))
