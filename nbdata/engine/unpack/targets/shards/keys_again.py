"""Count samples whose key came before: the files of such a sample are not adjacent in the archive."""

from __future__ import annotations

__all__ = ["KEYS", "KeysAgain"]

#: Number of keys that are remembered, at 8 bytes or more each.
KEYS = 1 << 20


class KeysAgain:
    """Counts samples with repeated keys, in the order of an archive.

    Attributes
    ----------
    count : int
    """

    def __init__(self) -> None:
        self.count = 0
        self._keys, self._all = set[int](), True

    def go_on(self, count: int) -> None:
        """Resume within the archive with the count so far; the keys before that place are not known."""
        self.count, self._all = count, False

    def saw(self, key: str) -> bool:
        """True if the key of a sample is known to have come before."""
        known = hash(key)
        again = known in self._keys
        self.count += again
        if again or len(self._keys) < KEYS:
            self._keys.add(known)
        else:
            self._all = False
        return again

    def note(self) -> str:
        """A note for the report; empty if no key is repeated."""
        if not self.count:
            return ""
        least = "" if self._all else "at least "
        return (
            f"{least}{self.count:,} samples repeat the key of an earlier sample: the files of one sample are not next "
            "to each other in this archive. Unpack it, and pack the files"
        )
