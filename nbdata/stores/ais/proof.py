"""Compare the parts of an upload with the checksum that AIStore has of the whole object.

A node answers a part with nothing, and has a checksum of the whole at the end: of the bucket's type if the parts came
in order, else a CRC32C that it combines from those of the parts (``Ufest.WholeChecksum`` in ``core/ufest.go``).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["PartsProof"]


class PartsProof:
    """The checksums of sent parts. Safe to use from many threads; it knows nothing where awscrt is missing.

    Attributes
    ----------
    sizes : dict
        The bytes of each part that was sent.
    """

    def __init__(self) -> None:
        self._checksums = _checksums()
        self._lock = threading.Lock()
        self._crcs: dict[int, int] = {}
        self.sizes: dict[int, int] = {}
        self._whole = self._checksums.XXHash.new_xxhash64() if self._checksums else None
        # The part that goes on with it, and how many parts are on their way.
        self._next, self._open = 1, 0

    def watched(self, number: int, pieces: Iterator[memoryview]) -> Iterator[memoryview]:
        """Yield the pieces of a part, and hash them as they leave. A part that is sent again counts anew.

        The hash of the whole needs the parts one after the other: beside another one, or out of order, it is given up.
        """
        with self._lock:
            if self._open or number != self._next:
                self._whole = None
            whole = self._whole
            self._open += 1
        crc = size = 0
        is_whole = False
        try:
            for piece in pieces:
                if self._checksums:
                    crc = self._checksums.crc32c(piece, crc)
                    if whole is not None:
                        whole.update(bytes(piece))  # it takes no view
                size += len(piece)
                yield piece
            is_whole = True
        finally:
            with self._lock:
                self._open -= 1
                if is_whole:
                    self._crcs[number], self.sizes[number], self._next = crc, size, number + 1
                else:
                    self._whole = None

    def agrees(self, checksums: Mapping[str, str]) -> bool | None:
        """Whether a checksum of the whole object is that of the parts; None if that cannot be told."""
        with self._lock:
            if not self._checksums or [*sorted(self._crcs)] != [*range(1, len(self._crcs) + 1)]:
                return None
            if "crc32c" in checksums:
                crc = 0
                for number in range(1, len(self._crcs) + 1):
                    crc = self._checksums.combine_crc32c(crc, self._crcs[number], self.sizes[number])
                return bool(checksums["crc32c"] == f"{crc:08x}")
            if "xxh64" in checksums and self._whole is not None and self._next == len(self._crcs) + 1:
                whole, self._whole = self._whole, None
                return bool(checksums["xxh64"] == whole.finalize().hex())
        return None


def _checksums() -> Any:
    """awscrt's checksums, if they are here and new enough."""
    try:
        from awscrt import checksums
    except ImportError:
        return None
    return checksums if hasattr(checksums, "XXHash") and hasattr(checksums, "combine_crc32c") else None
