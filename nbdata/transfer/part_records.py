"""Records of partially fetched objects: which bytes are already on the disk.

The bytes are in ``HASH.part`` in the target's ``.nbdata/``, and the record is ``HASH.parts`` beside it. A record is a
header line followed by progress lines, all of them `nbdata.sealed_lines`. A torn tail is ignored. There are two kinds
of progress line:

``N``
    Part N is complete. Written after its bytes were synced, so it stays true after a power loss.
``[N, BYTES, BOOT]``
    The first BYTES bytes of part N are written. Written without a sync: a process's writes survive its kill, but not a
    crash of the machine. So this line counts only until the next boot.

The header holds a hash of the source and its server (`nbdata.transfer.sources.known_as`), never a URL, which could
contain a secret. It ends with a seal of what it says
(`nbdata.seals`). Anybody can leave a record without a valid seal, with any bytes beside it: such a partial is unproven,
and counts only if a checksum of the whole object proves it at the end.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
from collections.abc import Iterator

from nbdata.sealed_lines import value_of
from nbdata.seals import Seals
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.staging import Staging

__all__ = [
    "NOTED",
    "PART",
    "Begun",
    "PartRecord",
    "boot",
    "header_of",
    "is_partial",
    "names",
    "part_size_for",
    "validator",
]

#: Bytes of a part, unless an object would have more than `_MANY` parts.
PART = 16 << 20
_MANY = 1000
# Objects are fetched in the parts of their upload if these are at most this large. With larger parts, too few requests
# would run at once.
_LARGEST = 64 << 20
# The names of both files.
_NAME = re.compile(r"[0-9a-f]{24}\.parts?")
# The name of the seal in a header.
_SEAL = "seal"
#: A part's progress is noted each time after this many bytes: the most that a kill costs per connection.
NOTED = 4 << 20
# The most bytes of a record: more than a thousand parts that were each begun a hundred times; and of a line.
_MOST, _LONGEST = 16 << 20, 64 << 10


def part_size_for(size: int, layout: int | None = None) -> int:
    """Bytes of a part of an object of `size` bytes: `PART`, or more if there would be too many parts.

    With a `layout`, the result is a multiple of that many bytes, unless `layout` exceeds `_LARGEST`.
    """
    part = max(PART, -(-size // _MANY // (1 << 20)) * (1 << 20))
    return -(-part // layout) * layout if layout and layout <= max(part, _LARGEST) else part


def validator(info: ObjectInfo) -> str:
    """A text that identifies an object's version, or '' if the store reports nothing suitable.

    Uses the first of: version or generation; strong ETag; time and length.
    """
    if info.version:
        return f"version {info.version}"
    if info.etag and not info.etag.startswith("W/"):
        return f"etag {info.etag}"
    return f"modified {info.modified} {info.size}" if info.modified is not None else ""


def names(path: str) -> tuple[str, str]:
    """The names of the data file and of the record for a relative path."""
    name = hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()[:24]
    return f"{name}.part", f"{name}.parts"


def is_partial(name: str) -> bool:
    """True for the name of a data file or a record."""
    return _NAME.fullmatch(name) is not None


def _hash_of(source: str) -> str:
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def header_of(path: str, source: str, info: ObjectInfo, part_size: int, seals: Seals) -> dict[str, object]:
    """The first line of a record: the object, its version, its part size, and the seal of these."""
    said = _said(path, source, info, part_size)
    return {**said, _SEAL: seals.of("part", said)}


def _said(path: str, source: str, info: ObjectInfo, part_size: int) -> dict[str, object]:
    return {
        "path": path,
        "source": _hash_of(source),
        "size": info.size,
        "validator": validator(info),
        "part": part_size,
    }


@functools.cache
def boot() -> str:
    """The id of the machine's current boot; '' if unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


class PartRecord:
    """The content of a record file: its header, the progress of each part, and the length of its valid beginning."""

    def __init__(self, folder: Staging, name: str) -> None:
        self.header: dict[str, object] | None = None
        self.done: set[int] = set()
        self.begun: dict[int, int] = {}
        self.good = 0
        self._seal: object = None
        try:
            with folder.small(name, _MOST) as fd, open(fd, "rb", closefd=False) as lines:
                while line := lines.readline(_LONGEST):  # a hole has no line end
                    value = value_of(line)
                    if value is None:
                        break
                    self._take(value)
                    self.good += len(line)
        except (OSError, ValueError, TypeError, RecursionError, OverflowError):
            self.header = None

    def _take(self, value: object) -> None:
        if self.header is None:
            if not isinstance(value, dict):
                raise ValueError("no header")
            self.header, self._seal = value, value.pop(_SEAL, None)
        elif isinstance(value, list):
            number, count, booted = value
            if booted and booted == boot():
                self.begun[int(number)] = int(count)
        else:
            self.done.add(int(value))  # type: ignore[call-overload]

    def is_of(self, source: str) -> bool:
        """Whether the record is of an object of this source."""
        return self.header is not None and self.header.get("source") == _hash_of(source)

    def part_size_of(self, path: str, source: str, info: ObjectInfo) -> int | None:
        """The part size if the record is of exactly this version of this object; otherwise None."""
        part = self.header.get("part") if self.header is not None else None
        if not isinstance(part, int) or part < min(PART, info.size) or not validator(info):
            return None
        if self.header != _said(path, source, info, part):
            return None
        fits = all(0 <= n < -(-info.size // part) for n in (*self.done, *self.begun))
        begun = all(0 <= count <= min(part, info.size - n * part) for n, count in self.begun.items())
        return part if fits and begun else None

    def is_proven(self, seals: Seals) -> bool:
        """Whether this user's nbdata made the record."""
        return self.header is not None and seals.holds(self._seal, "part", self.header)

    def present(self, size: int, part: int) -> int:
        """Bytes written of an object of `size` bytes in parts of `part` bytes."""
        whole = sum(min(part, size - n * part) for n in self.done)
        return whole + sum(count for n, count in self.begun.items() if n not in self.done)


class Begun:
    """The partials of earlier runs in a staging folder; None: there is no folder. Only reads."""

    def __init__(self, folder: Staging | None) -> None:
        self._folder = folder
        self._names: frozenset[str] = frozenset()
        if folder is not None:
            with contextlib.suppress(OSError):
                self._names = frozenset(name for name in folder.names() if name.endswith(".parts"))

    def __contains__(self, path: str) -> bool:
        """Whether a path has a partial, of any version."""
        return bool(self._names) and names(path)[1] in self._names

    def present(self, path: str, source: str, info: ObjectInfo) -> int:
        """Bytes already written of this version of an object."""
        if self._folder is None or path not in self:
            return 0
        data, record = names(path)
        found = PartRecord(self._folder, record)
        part = found.part_size_of(path, source, info)
        return found.present(info.size, part) if part and self._folder.has(data) else 0

    def is_other(self, path: str, source: str, info: ObjectInfo) -> bool:
        """Whether a path's partial is of the same source but another version."""
        if self._folder is None or path not in self:
            return False
        found = PartRecord(self._folder, names(path)[1])
        return found.is_of(source) and found.part_size_of(path, source, info) is None

    def of_source(self, source: str) -> Iterator[str]:
        """Yield the name of the data file of each partial of this source."""
        for name in self._names:
            if self._folder is not None and PartRecord(self._folder, name).is_of(source):
                yield name[:-1]
