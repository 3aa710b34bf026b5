"""Neighbours of one key in a shard: who reads it would find one sample, so the second one gets a key of its own."""

from __future__ import annotations

__all__ = ["Runs", "key_of"]


class Runs:
    """Counts samples that have the key of the one before, in one shard: they would be one sample with it."""

    def __init__(self) -> None:
        self._key: str | None = None
        self._count = 0

    def number(self, key: str) -> int:
        """Which one of its key the next sample is, from 1."""
        self._count = self._count + 1 if key == self._key else 1
        self._key = key
        return self._count


def key_of(key: str, number: int) -> str:
    """What a sample is called: the second one of a key ``KEY~2``."""
    return key if number == 1 else f"{key}~{number}"
