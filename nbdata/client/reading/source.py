"""What samples are read from: one place of a store, in this process."""

from __future__ import annotations

from typing import Any, Protocol

from nbdata.reading.counts import Counts
from nbdata.reading.timeline import Timeline

__all__ = ["Source"]


class Source(Protocol):
    """Where samples are read from."""

    @property
    def counts(self) -> Counts:
        """What this process has read so far."""

    @property
    def left_out(self) -> tuple[int, list[str]]:
        """How many files belong to no sample, and the first of them."""

    def read(self, numbers: list[int], coming: list[int], keep: int) -> list[dict[str, Any]]:
        """Samples by their number, each as a new dict; the other two as `Fetcher.fetch` has them."""

    @property
    def fields(self) -> dict[str, tuple[int, int]]:
        """Of each field how many samples have it, and its bytes."""

    @property
    def timeline(self) -> Timeline:
        """When this process waited."""

    def size(self, number: int) -> int:
        """Bytes of a sample, as far as the store told them."""

    def share(self, workers: int) -> None:
        """Take no more than one of so many shares of the connections and bytes that nobody has set otherwise."""

    def drop_ahead(self) -> None:
        """Hold no samples that were fetched ahead."""

    def close(self) -> None:
        """End what is under way."""
