"""Counts samples whose key came before: files of one sample that do not stand together in an archive."""

from __future__ import annotations

__all__ = ["KEYS", "KeysAgain"]

#: Keys that are remembered: 8 bytes and more of each.
KEYS = 1 << 20


class KeysAgain:
    """Counts them in the order of an archive.

    Attributes
    ----------
    count : int
    """

    def __init__(self) -> None:
        self.count = 0
        self._keys, self._all = set[int](), True

    def go_on(self, count: int) -> None:
        """Begin amid the archive, before which so many were counted; the keys before it are not known."""
        self.count, self._all = count, False

    def saw(self, key: str) -> bool:
        """Whether a sample has a key that came before, as far as that is known."""
        known = hash(key)
        again = known in self._keys
        self.count += again
        if again or len(self._keys) < KEYS:
            self._keys.add(known)
        else:
            self._all = False
        return again

    def note(self) -> str:
        """What is to be told; empty if there are none."""
        if not self.count:
            return ""
        least = "" if self._all else "at least "
        return (
            f"{least}{self.count:,} samples have a key that came before, and others since: files of one sample do not "
            "stand together in this archive. Unpack it, and pack the files"
        )
