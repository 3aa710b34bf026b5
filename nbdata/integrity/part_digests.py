"""The digest of the digests of an object's parts, made while its bytes arrive in many places at once.

A multipart ETag, and a composite checksum of S3, is a digest of the parts' digests (`nbdata.integrity.etags`). So
parts that come over several connections can be hashed by the thread that receives each, side by side, where the
digest of a whole can only be made in order. What was not hashed as it came is read from the file at the end.
"""

from __future__ import annotations

import os
import threading

from nbdata.errors import SourceChanged
from nbdata.integrity.digests import CopyableDigest, new_digest

__all__ = ["PartDigests"]

_BLOCK = 1 << 20


class PartDigests:
    """``hex-PARTS`` of an object of `size` bytes in parts of `part_size` bytes.

    `offer` may be called from many threads, but for the bytes of one part only from one at a time.

    Parameters
    ----------
    size, part_size : int
        Bytes; an empty object counts as one empty part.
    algorithm : str
        One of ``digests.ALGORITHMS``.
    """

    def __init__(self, size: int, part_size: int, algorithm: str = "md5") -> None:
        self._size, self._part_size, self._algorithm = size, part_size, algorithm
        self._count = max(1, -(-size // part_size))
        self._lock = threading.Lock()
        self._open: dict[
            int, tuple[int, CopyableDigest]
        ] = {}  # part to the bytes that are hashed, and their digest
        self._done: dict[int, str] = {}

    def _end(self, number: int) -> int:
        return min((number + 1) * self._part_size, self._size)

    def offer(self, offset: int, buffer: memoryview) -> bool:
        """Hash bytes that stand at `offset`; False if some of them were not the next ones of their part."""
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
        """Hash from the file what was not hashed as it came; all its bytes must be there."""
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
        """Of all parts; `catch_up` must have been called."""
        whole = new_digest(self._algorithm)
        whole.update(bytes.fromhex("".join(self._done[number] for number in range(self._count))))
        return f"{whole.hexdigest()}-{self._count}"
