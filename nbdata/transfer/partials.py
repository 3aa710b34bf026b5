"""A big object on its way to the disk: its bytes, and the record of which parts are there.

Two files in the target's ``.nbdata/``: ``HASH.part`` (the bytes, at their offsets) and ``HASH.parts`` (a
header line, then one line a finished part, each with a CRC; a torn tail is ignored). A part is recorded
after its bytes were synced, so whatever the record says is true, after a kill and after the loss
of the machine. The header holds a hash of the source, never a URL that could carry a secret.
"""

from __future__ import annotations

import abc
import contextlib
import hashlib
import json
import os
import threading
import zlib

from nbdata.stores.base import ObjectInfo
from nbdata.stores.local import disk_error

__all__ = ["PART", "Partial", "Parts", "UnrecordedParts", "part_size_for", "peek_present", "validator"]

#: Bytes of a part, up to `_MANY` parts.
PART = 16 << 20
_MANY = 1000


def part_size_for(size: int) -> int:
    """Bytes of a part of an object of `size` bytes: `PART`, or more where that would be too many."""
    return max(PART, -(-size // _MANY // (1 << 20)) * (1 << 20))


def validator(info: ObjectInfo) -> str:
    """What tells one version of an object from another, or '' if the store gives nothing.

    In this order: version or generation; strong ETag; time and length.
    """
    if info.version:
        return f"version {info.version}"
    if info.etag and not info.etag.startswith("W/"):
        return f"etag {info.etag}"
    return f"modified {info.modified} {info.size}" if info.modified is not None else ""


def _names(staging: str, path: str) -> tuple[str, str]:
    name = hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()[:24]
    return f"{staging}/{name}.part", f"{staging}/{name}.parts"


def _header(path: str, source: str, info: ObjectInfo) -> dict[str, object]:
    origin = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return {
        "path": path,
        "source": origin,
        "size": info.size,
        "validator": validator(info),
        "part": part_size_for(info.size),
    }


def _read_record(record: str) -> tuple[dict[str, object] | None, set[int], int]:
    """Header, parts done, and the length up to which the record is sound."""
    header, done, good = None, set[int](), 0
    try:
        with open(record, "rb") as lines:
            for line in lines:
                crc, _, body = line.partition(b" ")
                if not body.endswith(b"\n") or crc != b"%08x" % zlib.crc32(body[:-1]):
                    break
                value = json.loads(body)
                if header is None:
                    header = value
                else:
                    done.add(int(value))
                good += len(line)
    except (OSError, ValueError):
        return None, set(), 0
    return (header if isinstance(header, dict) else None), done, good


def peek_present(staging: str, path: str, source: str, info: ObjectInfo) -> int:
    """Bytes of an object that are there from an earlier run; reads only (for plans)."""
    data, record = _names(staging, path)
    header, done, _ = _read_record(record)
    if header != _header(path, source, info) or not os.path.exists(data):
        return 0
    part = part_size_for(info.size)
    return sum(min(part, info.size - n * part) for n in done)


class Parts(abc.ABC):
    """The parts of one object in a file, and which of them are there; marked from many threads."""

    fd: int

    def __init__(self, size: int) -> None:
        self.size = size
        self.part_size = part_size_for(size)
        self.count = -(-size // self.part_size)
        self.done: set[int] = set()
        self._lock = threading.Lock()

    def span(self, number: int) -> tuple[int, int]:
        """Where part `number` (from 0) begins and ends."""
        start = number * self.part_size
        return start, min(start + self.part_size, self.size)

    def missing(self) -> list[int]:
        """The parts that are yet to be fetched."""
        return [n for n in range(self.count) if n not in self.done]

    def contiguous(self) -> int:
        """Up to which byte everything from the start is there."""
        with self._lock:
            number = 0
            while number in self.done:
                number += 1
        return min(number * self.part_size, self.size)

    @abc.abstractmethod
    def mark(self, number: int) -> None:
        """Note a part whose bytes were all written."""

    @abc.abstractmethod
    def restart(self) -> None:
        """Forget all parts: the bytes are not what they should be."""


class UnrecordedParts(Parts):
    """Parts of a file that nobody continues after a stop, as in a cache."""

    def __init__(self, fd: int, size: int) -> None:
        super().__init__(size)
        self.fd = fd

    def mark(self, number: int) -> None:
        with self._lock:
            self.done.add(number)

    def restart(self) -> None:
        with self._lock:
            self.done.clear()


class Partial(Parts):
    """The partial of one object; parts may be marked from many threads.

    `restarted` says that an earlier partial was of another version and was thrown away.
    """

    def __init__(self, staging: str, path: str, source: str, info: ObjectInfo, mode: int) -> None:
        super().__init__(info.size)
        self.data, self._record = _names(staging, path)
        header = _header(path, source, info)
        found, done, good = _read_record(self._record)
        usable = found == header and bool(header["validator"]) and os.path.exists(self.data)
        self.restarted = found is not None and not usable
        self.done = done if usable else set()
        self.fd = self._log = -1
        try:
            self.fd = os.open(self.data, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
            os.ftruncate(self.fd, info.size)
            self._log = os.open(self._record, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            os.ftruncate(self._log, good if usable else 0)
            os.lseek(self._log, 0, os.SEEK_END)
            if not usable:
                self._append(header)
        except OSError as error:
            self.close()
            raise disk_error(error, self.data) from error

    def _append(self, value: object) -> None:
        body = json.dumps(value, separators=(",", ":")).encode()
        os.write(self._log, b"%08x %b\n" % (zlib.crc32(body), body))
        os.fdatasync(self._log)

    def mark(self, number: int) -> None:
        """Record a part whose bytes were all written: sync them, then say so."""
        try:
            os.fdatasync(self.fd)
            with self._lock:
                self._append(number)
                self.done.add(number)
        except OSError as error:
            raise disk_error(error, self.data) from error

    def restart(self) -> None:
        """Forget all parts: the bytes are not what they should be."""
        with self._lock:
            self.done.clear()
            os.ftruncate(self._log, os.pread(self._log, 1 << 16, 0).index(b"\n") + 1)
            os.lseek(self._log, 0, os.SEEK_END)

    def close(self) -> None:
        """Close both files; they stay for the next run."""
        for fd in (self.fd, self._log):
            if fd >= 0:
                os.close(fd)
        self.fd = self._log = -1

    @staticmethod
    def forget_record(data: str) -> None:
        """Remove the record of parts, given the path that the data file had: it has its final name now."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(data + "s")

    def discard(self) -> None:
        """Remove both files."""
        self.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.data)
        self.forget_record(self.data)
