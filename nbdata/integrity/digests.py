"""Hash bytes in order (`new_digest`), or while the parts of a file arrive out of order (`OrderedDigest`).

MD5 and SHA-1 are used as checksums here, against accidents and not against attackers. ``usedforsecurity=False`` keeps
them available on hosts in FIPS mode.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import re
import threading
import zlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

from nbdata.algorithms import ALGORITHMS, KNOWN
from nbdata.errors import BadOption, SourceChanged

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = [
    "CopyableDigest",
    "Digest",
    "OrderedDigest",
    "algorithms_of",
    "is_available",
    "new_digest",
]

_HEX = re.compile(r"[0-9a-fA-F]+")
_PIECE = 256 << 10
_READ = 1 << 20  # bytes per pread: large enough for the disk, small enough to let others take the lock


class Digest(Protocol):
    """The interface of hashlib's objects, which `new_digest` returns for every algorithm."""

    def update(self, data: ReadableBuffer, /) -> None:
        """Hash more bytes."""

    def hexdigest(self) -> str:
        """The digest of all bytes so far, in lower-case hex."""


class CopyableDigest(Digest, Protocol):
    """A digest that can be copied at any point."""

    def copy(self) -> CopyableDigest:
        """Return a copy, which has hashed the same bytes."""


class _Crc:
    """A CRC, written in big-endian order as stores do.

    Parameters
    ----------
    algorithm : str
        ``crc32c`` (Castagnoli, RFC 3720 appendix B.4), ``crc32`` (of zip and gzip), or ``crc64nvme`` (NVM Express,
        "NVM Command Set Specification", 5.2.1.3.4), which S3 gives an object that came without a checksum.
    crc : int
        The CRC of the preceding bytes.
    """

    def __init__(self, algorithm: str, crc: int = 0) -> None:
        self._algorithm, self._crc = algorithm, crc
        self._extend = _extend(algorithm)

    def update(self, data: ReadableBuffer, /) -> None:
        # One of the C extensions accepts only read-only bytes. Copying in pieces keeps the copy in the CPU's cache.
        view = memoryview(data).cast("B")
        for start in range(0, len(view), _PIECE):
            self._crc = self._extend(bytes(view[start : start + _PIECE]), self._crc)

    def hexdigest(self) -> str:
        return f"{self._crc:0{ALGORITHMS[self._algorithm].digits}x}"

    def copy(self) -> _Crc:
        return _Crc(self._algorithm, self._crc)


class _XxHash:
    """XXH64 with seed 0. It ends with the first `hexdigest`, and cannot be copied: nothing needs that."""

    def __init__(self) -> None:
        from awscrt.checksums import XXHash

        self._hash, self._digest = XXHash.new_xxhash64(), ""

    def update(self, data: ReadableBuffer, /) -> None:
        view = memoryview(data).cast("B")  # copied in pieces, as for a CRC
        for start in range(0, len(view), _PIECE):
            self._hash.update(bytes(view[start : start + _PIECE]))

    def hexdigest(self) -> str:
        self._digest = self._digest or self._hash.finalize().hex()
        return self._digest

    def copy(self) -> _XxHash:
        raise NotImplementedError


def _extend(algorithm: str) -> Callable[[bytes, int], int]:
    """Return a function that extends a CRC: it takes more bytes and the CRC of the preceding ones."""
    if algorithm == "crc32":
        return zlib.crc32
    if algorithm == "crc64nvme":
        from awscrt.checksums import crc64nvme

        return cast("Callable[[bytes, int], int]", crc64nvme)
    import google_crc32c

    return lambda data, crc: google_crc32c.extend(crc, data)


@functools.cache
def is_available(algorithm: str) -> bool:
    """Whether an algorithm is available here: awscrt has no wheel for some machines, and old ones have no XXH64."""
    package = KNOWN[algorithm].package
    if algorithm == "xxh64" and importlib.util.find_spec(package) is not None:
        from awscrt import checksums

        return hasattr(checksums, "XXHash")
    return not package or importlib.util.find_spec(package) is not None


def new_digest(algorithm: str) -> CopyableDigest:
    """Return an empty digest of one of `nbdata.algorithms.KNOWN`.

    Raises
    ------
    BadOption
        If the algorithm is unknown, or not available here.
    """
    if algorithm not in KNOWN:
        raise BadOption(
            f"algorithm: {algorithm!r} is not known", remedy=f"Choose one of {', '.join(ALGORITHMS)}"
        )
    if not is_available(algorithm):
        package = KNOWN[algorithm].package
        raise BadOption(f"algorithm: {algorithm} needs {package}", remedy=f"pip install {package}")
    if algorithm == "xxh64":
        return _XxHash()
    if ALGORITHMS[algorithm].is_crc:
        return _Crc(algorithm)
    return hashlib.new(algorithm, usedforsecurity=False)


def algorithms_of(hexdigest: str) -> list[str]:
    """The algorithms whose hex digests have this length. If there are several, nothing tells which one it is.

    Eight and sixteen digits give none. They may be CRC-32C, but also CRC-32 (``.sfv``), Adler-32 or one of many 64-bit
    CRCs, and a wrong guess would report good data as damaged.
    """
    if not _HEX.fullmatch(hexdigest):
        return []
    return [one.name for one in ALGORITHMS.values() if one.digits == len(hexdigest) and not one.is_crc]


class OrderedDigest:
    """The digest of a file whose parts arrive out of order, from several threads.

    A digest takes bytes only in order. The *frontier* is the offset up to which everything is hashed. The thread that
    has just written the part at the frontier offers it while it is still in memory (`offer`, which never waits). Parts
    beyond the frontier are read back from the file, mostly from the page cache, once the gap before them has closed
    (`catch_up`). Both methods hash under one lock and read the frontier only while they hold it. So each byte is hashed
    once and in order, under any interleaving.

    **Offer bytes after they were written, not before.** If the write failed, and other bytes were fetched instead, the
    digest would cover bytes that are not in the file.

    Parameters
    ----------
    algorithm : str or callable
        One of `nbdata.algorithms.ALGORITHMS`, or a function that returns a new Digest (for a multipart ETag).
    """

    def __init__(self, algorithm: str | Callable[[], Digest]) -> None:
        self._new = partial(new_digest, algorithm) if isinstance(algorithm, str) else algorithm
        self._lock = threading.Lock()
        self._digest = self._new()
        self._position = 0

    @property
    def position(self) -> int:
        """The frontier: the number of bytes hashed from the start of the file."""
        return self._position

    def offer(self, offset: int, buffer: ReadableBuffer) -> bool:
        """Hash these bytes if they begin at the frontier and no other thread is hashing; returns whether it did.

        Never waits, because the threads of a transfer must not queue for the digest.

        Parameters
        ----------
        offset : int
            The offset of the bytes in the file.
        buffer : bytes-like
            The bytes, which are already written there.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if offset != self._position:
                return False
            self._digest.update(buffer)
            self._position += memoryview(buffer).nbytes
            return True
        finally:
            self._lock.release()

    def catch_up(self, fd: int, end: int | Callable[[], int]) -> int:
        """Hash bytes from the file that are written but not hashed, up to `end`; returns the frontier.

        Other threads may offer bytes meanwhile: the lock is free between two reads of 1 MiB. The file's own position
        does not change (pread).

        Parameters
        ----------
        fd : int
            The file, open for reading.
        end : int or callable
            All bytes before this offset are written. A callable is called again before each read, so that one call can
            follow a growing file.

        Raises
        ------
        SourceChanged
            If the file is shorter than `end`.
        """
        while True:
            with self._lock:
                # Called under the lock, so that the answer is current.
                written = end() if callable(end) else end
                wanted = min(_READ, written - self._position)
                if wanted <= 0:
                    return self._position
                piece = os.pread(fd, wanted, self._position)
                if not piece:
                    raise SourceChanged(
                        "the file ends before the bytes that were written to it",
                        expected=f"{written} bytes",
                        got=f"{self._position} bytes",
                        remedy="Nothing else may write to a file while it is transferred",
                    )
                self._digest.update(piece)
                self._position += len(piece)

    def hexdigest(self, total_size: int) -> str:
        """The digest of the whole file, in hex.

        Raises
        ------
        ValueError
            If not exactly `total_size` bytes are hashed: the digest of a part must never pass for that of the whole.
        """
        with self._lock:
            if self._position != total_size:
                raise ValueError(f"{self._position} bytes are hashed, the file has {total_size}")
            return self._digest.hexdigest()
