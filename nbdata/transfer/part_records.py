"""The record of what is there of an object that is on its way to the disk.

Beside the bytes, ``HASH.part`` in the target's ``.nbdata/``, lies ``HASH.parts``: a header line, then lines of what
is there, all of them `nbdata.sealed_lines`; a torn tail is ignored. Two kinds of line:

``N``
    Part N is whole. Written after its bytes were synced, so it is true after the loss of the machine.
``[N, BYTES, BOOT]``
    So many bytes of part N are there. Written after its bytes were, without a sync: what a process wrote outlives
    its kill, but not its machine. So it counts only while the machine has not been booted since.

The header holds a hash of the source, never a URL that could carry a secret.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Iterator

from nbdata.sealed_lines import value_of
from nbdata.stores.base import ObjectInfo

__all__ = [
    "NOTED",
    "PART",
    "Begun",
    "PartRecord",
    "boot",
    "header_of",
    "names",
    "part_size_for",
    "validator",
]

#: Bytes of a part, up to `_MANY` parts.
PART = 16 << 20
_MANY = 1000
# Parts that an object was uploaded in are fetched as they are up to this size: of larger ones too few would be under
# way at once.
_LARGEST = 64 << 20
#: Bytes of a part after which it is noted how far it is: what a kill costs a connection at most.
NOTED = 4 << 20


def part_size_for(size: int, layout: int | None = None) -> int:
    """Bytes of a part of an object of `size` bytes: `PART`, or more where that would be too many.

    With a `layout` it is a multiple of that many bytes, unless they are more than `_LARGEST`.
    """
    part = max(PART, -(-size // _MANY // (1 << 20)) * (1 << 20))
    return -(-part // layout) * layout if layout and layout <= max(part, _LARGEST) else part


def validator(info: ObjectInfo) -> str:
    """What tells one version of an object from another, or '' if the store gives nothing.

    In this order: version or generation; strong ETag; time and length.
    """
    if info.version:
        return f"version {info.version}"
    if info.etag and not info.etag.startswith("W/"):
        return f"etag {info.etag}"
    return f"modified {info.modified} {info.size}" if info.modified is not None else ""


def names(staging: str, path: str) -> tuple[str, str]:
    """The files with the bytes and with the record of a path."""
    name = hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()[:24]
    return f"{staging}/{name}.part", f"{staging}/{name}.parts"


def _hash_of(source: str) -> str:
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def header_of(path: str, source: str, info: ObjectInfo, part_size: int) -> dict[str, object]:
    """The first line of a record: which version of which object it is of, in parts of how many bytes."""
    return {
        "path": path,
        "source": _hash_of(source),
        "size": info.size,
        "validator": validator(info),
        "part": part_size,
    }


@functools.cache
def boot() -> str:
    """What tells this run of the machine from the one before; '' where nobody knows."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


class PartRecord:
    """What a record file says: its header, what is there of which part, and up to which byte it is sound."""

    def __init__(self, path: str) -> None:
        self.header: dict[str, object] | None = None
        self.done: set[int] = set()
        self.begun: dict[int, int] = {}
        self.good = 0
        try:
            with open(path, "rb") as lines:
                for line in lines:
                    value = value_of(line)
                    if value is None:
                        break
                    self._take(value)
                    self.good += len(line)
        except (OSError, ValueError, TypeError):
            self.header = None

    def _take(self, value: object) -> None:
        if self.header is None:
            if not isinstance(value, dict):
                raise ValueError("no header")
            self.header = value
        elif isinstance(value, list):
            number, count, booted = value
            if booted and booted == boot():
                self.begun[int(number)] = int(count)
        else:
            self.done.add(int(value))  # type: ignore[call-overload]

    def is_of(self, source: str) -> bool:
        """Whether it is of something of this source."""
        return self.header is not None and self.header.get("source") == _hash_of(source)

    def part_size_of(self, path: str, source: str, info: ObjectInfo) -> int | None:
        """Bytes of its parts if it is of this version of this object, else None."""
        part = self.header.get("part") if self.header is not None else None
        if not isinstance(part, int) or part < 1 or not validator(info):
            return None
        return part if self.header == header_of(path, source, info, part) else None

    def present(self, size: int, part: int) -> int:
        """Bytes that are there of an object of `size` bytes in parts of `part` bytes."""
        whole = sum(min(part, size - n * part) for n in self.done)
        return whole + sum(count for n, count in self.begun.items() if n not in self.done)


class Begun:
    """What earlier runs have begun in a staging folder; reads only (for plans)."""

    def __init__(self, staging: str) -> None:
        self._staging = staging
        self._names: frozenset[str] = frozenset()
        with contextlib.suppress(OSError):
            self._names = frozenset(name for name in os.listdir(staging) if name.endswith(".parts"))

    def __contains__(self, path: str) -> bool:
        """Whether there is a partial of a path, of whatever version."""
        return bool(self._names) and os.path.basename(names("", path)[1]) in self._names

    def present(self, path: str, source: str, info: ObjectInfo) -> int:
        """Bytes of this version of an object that are there."""
        if path not in self:
            return 0
        data, record = names(self._staging, path)
        found = PartRecord(record)
        part = found.part_size_of(path, source, info)
        return found.present(info.size, part) if part and os.path.exists(data) else 0

    def is_other(self, path: str, source: str, info: ObjectInfo) -> bool:
        """Whether what was begun of a path is of another version of this source."""
        if path not in self:
            return False
        found = PartRecord(names(self._staging, path)[1])
        return found.is_of(source) and found.part_size_of(path, source, info) is None

    def of_source(self, source: str) -> Iterator[str]:
        """The data file of each partial that is of this source."""
        for name in self._names:
            record = f"{self._staging}/{name}"
            if PartRecord(record).is_of(source):
                yield record[:-1]
