"""Compute the digest of the digests of an object's parts, while several parts arrive at once.

A multipart ETag and S3's composite checksum are digests of the parts' digests (`nbdata.integrity.etags`). So each
thread can hash the parts that its connection receives, in parallel, while the digest of a whole object must be computed
in order. Bytes that were not hashed on arrival are read from the file at the end.
"""

from __future__ import annotations

import os
import threading

from nbdata.errors import SourceChanged
from nbdata.integrity.digests import CopyableDigest, new_digest

__all__ = ["PartDigests"]

_BLOCK = 1 << 20


class PartDigests:
    """The digest ``hex-PARTS`` of an object of `size` bytes in parts of `part_size` bytes.

    Many threads may call `offer`, but only one at a time for the bytes of one part.

    Parameters
    ----------
    size, part_size : int
        Bytes; an empty object counts as one empty part.
    algorithm : str
        One of `nbdata.algorithms.ALGORITHMS`.
    """

    def __init__(self, size: int, part_size: int, algorithm: str = "md5") -> None:
        self._size, self._part_size, self._algorithm = size, part_size, algorithm
        self._count = max(1, -(-size // part_size))
        self._lock = threading.Lock()
        self._open: dict[
            int, tuple[int, CopyableDigest]
        ] = {}  # the hashed bytes of each open part, and their digest
        self._done: dict[int, str] = {}

    def _end(self, number: int) -> int:
        return min((number + 1) * self._part_size, self._size)

    def offer(self, offset: int, buffer: memoryview) -> bool:
        """Hash the bytes at `offset`. Returns False if some of them do not come next in their part."""
        taken = True
        while buffer:
            number = offset // self._part_size
            piece = buffer[: self._end(number) - offset]
            taken &= self._take(number, offset - number * self._part_size, piece)
            offset, buffer = offset + len(piece), buffer[len(piece) :]
        return taken

    def _take(self, number: int, within: int, piece: memoryview) -> bool:
        with self._lock:
            if number in self._done:
                return False
            at, digest = self._open.pop(number) if number in self._open else (0, new_digest(self._algorithm))
        if at == within:
            digest.update(piece)
            at += len(piece)
        with self._lock:
            if number * self._part_size + at == self._end(number):
                self._done[number] = digest.hexdigest()
            else:
                self._open[number] = at, digest
        return at == within + len(piece)

    def catch_up(self, fd: int) -> None:
        """Hash from the file what was not hashed on arrival. All bytes must be in the file."""
        view = memoryview(bytearray(_BLOCK))
        for number in range(self._count):
            while number not in self._done:
                at = number * self._part_size + self._open.get(number, (0, None))[0]
                count = os.preadv(fd, [view[: self._end(number) - at]], at) if at < self._size else 0
                if not count and at < self._size:
                    raise SourceChanged(
                        "the file ends before the bytes that were written to it",
                        expected=f"{self._size} bytes",
                        got=f"{at} bytes",
                        remedy="Nothing else may write to a file while it is transferred",
                    )
                self._take(number, at - number * self._part_size, view[:count])

    def hexdigest(self) -> str:
        """The digest over all parts. Call `catch_up` before."""
        whole = new_digest(self._algorithm)
        whole.update(bytes.fromhex("".join(self._done[number] for number in range(self._count))))
        return f"{whole.hexdigest()}-{self._count}"
