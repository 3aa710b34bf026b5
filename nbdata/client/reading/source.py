"""The protocol of a source of samples: one place of a store, in this process."""

from __future__ import annotations

from typing import Any, Protocol

from nbdata.protocols import Epoch
from nbdata.reading.counts import Counts
from nbdata.reading.timeline import Timeline

__all__ = ["Source"]


class Source(Protocol):
    """A place that samples are read from."""

    @property
    def counts(self) -> Counts:
        """The counts of what this process has read so far."""

    @property
    def left_out(self) -> tuple[int, list[str]]:
        """The number of files that belong to no sample, and the first of them."""

    def read(self, numbers: list[int], coming: list[int], keep: int) -> list[dict[str, Any]]:
        """Return samples by their numbers, each as a new dict; `coming` and `keep` as in `Fetcher.fetch`."""

    @property
    def fields(self) -> dict[str, tuple[int, int]]:
        """Per field, the number of samples that have it, and its bytes."""

    @property
    def timeline(self) -> Timeline:
        """The times at which this process waited."""

    def size(self, number: int) -> int:
        """Return the bytes of a sample, as far as the store gave sizes."""

    def share(self, workers: int) -> None:
        """Take one of `workers` shares of the default connections and bytes."""

    def note_epoch(self, epoch: Epoch) -> None:
        """Note that the loop begins an epoch, or that it is over; for a cache that the samples are read through."""

    def drop_ahead(self) -> None:
        """Drop the samples that were fetched ahead."""

    def close(self) -> None:
        """Stop all work in progress."""
