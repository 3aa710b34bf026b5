"""Count what an archive becomes where links are copies, in a store or on some disks, towards ``--max-expansion``."""

from __future__ import annotations

from nbdata.errors import BadArchive
from nbdata.sizes import format_size

__all__ = ["Expansion"]


class Expansion:
    """Counts the bytes of files, and of links that become files, towards ``--max-expansion``."""

    def __init__(self, most: int | None) -> None:
        self._most, self._bytes = most, 0

    def spend(self, size: int) -> None:
        """Count a file before it is written.

        Raises
        ------
        BadArchive
            If all files together are too large.
        """
        self._bytes += size
        if self._most is not None and self._bytes > self._most:
            raise BadArchive(
                f"the archive expands to more than {format_size(self._most)}, with a copy for each link",
                remedy="If that is right, raise --max-expansion",
                details={"limit": self._most},
            )
