"""Keys for neighbours in a shard that share one: a reader would merge them, so later ones get a key of their own."""

from __future__ import annotations

__all__ = ["Runs", "key_of"]


class Runs:
    """Counts successive samples with the same key in one shard, which a reader would merge into one."""

    def __init__(self) -> None:
        self._key: str | None = None
        self._count = 0

    def number(self, key: str) -> int:
        """Return the next sample's count within its run of equal keys, from 1."""
        self._count = self._count + 1 if key == self._key else 1
        self._key = key
        return self._count


def key_of(key: str, number: int) -> str:
    """Return the key of a sample: ``KEY~2`` for the second one of a key."""
    return key if number == 1 else f"{key}~{number}"
