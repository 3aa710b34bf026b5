"""Loaders for the tests of the service: they yield numbers, and know where they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["Numbers", "number_of"]


class Numbers:
    """Yields batches with the numbers from 0 on; its state is the next one.

    Attributes
    ----------
    made : list of (int, int)
        The epoch and the number of each batch that it has yielded.
    """

    def __init__(self, count: int, size: int = 40_000) -> None:
        self.count, self.size = count, size
        self.epoch = self._at = 0
        self.made: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[dict[str, Any]]:
        epoch, first = self.epoch, self._at
        for number in range(first, self.count):
            self._at = number + 1
            self.made.append((epoch, number))
            yield {"n": np.full(self.size // 4, number, np.int32), "epoch": epoch}
        self.set_epoch(epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass."""
        self.epoch, self._at = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """Return the position."""
        if self._at == self.count:
            return {"epoch": self.epoch + 1, "at": 0, "count": self.count}
        return {"epoch": self.epoch, "at": self._at, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position."""
        self.epoch, self._at = state["epoch"], state["at"]


def number_of(batch: dict[str, Any]) -> int:
    """Return the number of a batch, which must be whole."""
    assert (batch["n"] == batch["n"][0]).all()
    return int(batch["n"][0])
