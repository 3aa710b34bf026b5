"""Entries of a store's listing that cannot be used: why, and which ones a job has met.

Such an entry does not end the listing. It counts as a failure of the job, so a mirror whose listing had one deletes
nothing: the file that the entry stands for would look as if it were gone.
"""

from __future__ import annotations

import threading
import warnings

from nbdata.report import Row

__all__ = ["BadEntries", "why_unusable"]

# The longest key in characters. S3 and Google's store allow 1,024 bytes, and Linux 4,096 bytes for a path.
_LONGEST = 8192
# Most entries that are kept with their reason, and most characters of a key that are shown.
_NAMED, _SHOWN = 100, 60


def why_unusable(key: str, prefix: str, *, text_only: bool) -> str:
    """Explain why a listed key cannot be used; '' if it can.

    Parameters
    ----------
    prefix : str
        The requested prefix. The path of any other key relative to it would be wrong.
    text_only : bool
        Whether keys are UTF-8. Otherwise they may hold any bytes of names on a disk (`os.fsdecode`).
    """
    if not key:
        return "the store lists an object without a name"
    if len(key) > _LONGEST:
        return f"its key has {len(key):,} characters, and nbdata takes {_LONGEST:,}"
    if not key.startswith(prefix):
        return f"the store lists {shown(key)!r} when it is asked for {shown(prefix)!r}"
    if not key.isascii():
        try:
            key.encode("utf-8", "strict" if text_only else "surrogateescape")
        except UnicodeEncodeError:
            return "its key is not UTF-8"
    return ""


def shown(key: str) -> str:
    """A key for messages: shortened, and without characters that cannot be printed."""
    text = f"{key[:_SHOWN]}…" if len(key) > _SHOWN else key
    return text.encode("utf-8", "backslashreplace").decode()


class BadEntries:
    """Collects unusable entries. Safe to use from many threads.

    Parameters
    ----------
    warn : bool
        Whether to issue a Python warning for the first one: work outside a job has no report.
    """

    def __init__(self, *, warn: bool = False) -> None:
        self._lock, self._warn = threading.Lock(), warn
        self._named: dict[tuple[str, str, int], None] = {}
        self._more = 0

    def add(self, key: str, reason: str) -> None:
        """Note an entry. A listing that is resumed may give it again, and then it counts once."""
        with self._lock:
            entry = (shown(key), reason, hash(key))
            if entry in self._named:
                return
            first = not self._named
            if len(self._named) < _NAMED:
                self._named[entry] = None
            else:
                self._more += 1
        if first and self._warn:
            warnings.warn(f"an entry of the listing is left out: {reason}", stacklevel=2)

    @property
    def rows(self) -> list[Row]:
        """A failed row for each named entry, and one for all others."""
        with self._lock:
            found = [Row(key, "unreadable", 0, {"reason": reason}) for key, reason, _ in self._named]
            if self._more:
                more = f"{self._more:,} more of the listing's entries cannot be used"
                found.append(Row("", "unreadable", 0, {"reason": more}))
        return found

    def take(self) -> list[Row]:
        """Return `rows`, and forget them."""
        found = self.rows
        with self._lock:
            self._named.clear()
            self._more = 0
        return found
