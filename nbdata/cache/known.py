"""The known kept caches and their contents, for users.

``STATE/caches/XXXX`` holds the path of a cache's folder; its job writes it at the start. A cache whose folder is gone
is forgotten. The file ``about`` in that folder has the origin of the objects and the limit. While a job keeps the
cache, it also has the bytes read and the bytes fetched for them. The job rewrites it every few seconds.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass, fields
from typing import Any

from nbdata.cache.kept_folder import KeptFolder, room_of_object
from nbdata.cache.kept_names import is_name, kept_in
from nbdata.own_files import folder_of, read_small, write_record
from nbdata.space.limits import disk_of

__all__ = ["KnownCache", "known_cache", "known_caches", "note_cache", "note_in"]

_FOLDER = "caches"
# The names of the files in it.
_NOTED = re.compile("[0-9a-f]{16}")
# Noted characters of a source, so that `about` stays within its room in `KeptFolder`.
_LONGEST = 300
# The most caches listed, and the most bytes read of each file.
_MOST, _READ = 1000, 8192


@dataclass(frozen=True)
class KnownCache:
    """A cache, as it is now or was a few seconds ago.

    Attributes
    ----------
    path : str
        Its folder.
    source : str
        The origin of its objects; empty if unknown.
    verify : str
        The checksum that objects are compared with: see `nbdata.verbs.options.Verifying`.
    limit, used : int
        The most bytes it may take, and the bytes it takes.
    objects : int
        The number of objects in it.
    read, fetched : int
        Bytes read since its job began, and bytes fetched for that.
    consumers : int
        The number of processes that use it.
    in_use : bool
        Whether a job keeps it. If not, `read`, `fetched` and `consumers` are 0.
    """

    path: str
    source: str = ""
    verify: str = ""
    limit: int = 0
    used: int = 0
    objects: int = 0
    read: int = 0
    fetched: int = 0
    consumers: int = 0
    in_use: bool = False

    @property
    def hit_rate(self) -> float | None:
        """The share of the read bytes that were not fetched; None if nothing was read."""
        return max(0.0, 1 - self.fetched / self.read) if self.read else None


_KINDS = {field.name: (str if field.type == "str" else int) for field in fields(KnownCache)}


def note_in(folder: KeptFolder, about: KnownCache, *, durable: bool) -> None:
    """Write a cache's description to its folder."""
    record = {name: value for name, value in asdict(about).items() if name not in ("path", "in_use")}
    folder.write_about(json.dumps({**record, "source": about.source[:_LONGEST]}), durable=durable)


def note_cache(state_dir: str, path: str) -> None:
    """Note a cache for `known_caches`. Does nothing if the state folder is not writable."""
    with contextlib.suppress(OSError):
        write_record(os.path.join(state_dir, _FOLDER, _name_of(path)), [os.fsencode(path)])


def _name_of(path: str) -> str:
    return hashlib.blake2b(os.fsencode(path), digest_size=8).hexdigest()


def known_caches(state_dir: str) -> list[KnownCache]:
    """All existing caches of this user, sorted by path."""
    caches = []
    with contextlib.suppress(OSError), folder_of(os.path.join(state_dir, _FOLDER, "")) as (at, _):
        for name in sorted(filter(_NOTED.fullmatch, os.listdir(at)))[:_MOST]:
            with contextlib.suppress(OSError):
                path = os.fsdecode(read_small(name, _READ, at=at))
                if _is_cache(path):
                    caches.append(known_cache(path))
                elif name == _name_of(path):  # otherwise nbdata has not made the file
                    os.unlink(name, dir_fd=at)
    return sorted(caches, key=lambda cache: cache.path)


def _is_cache(path: str) -> bool:
    """True if a folder is a cache. A link to a folder is not: clearing it would delete the files of that folder."""
    real = os.path.realpath(path)
    return kept_in(path) == path and kept_in(real) == real and os.path.isdir(real)


def known_cache(path: str) -> KnownCache:
    """The cache in a folder; OSError if the folder is gone."""
    about = _about(path)
    if KeptFolder.is_in_use(path):
        return KnownCache(**{**about, "path": path, "in_use": True})
    objects, used = _counted(path, os.stat(path).st_mtime_ns)
    named = {name: about[name] for name in ("source", "verify", "limit") if name in about}
    return KnownCache(path, **named, objects=objects, used=used)


def _about(path: str) -> dict[str, Any]:
    """Read a cache's description, as far as possible: a crash may have damaged it."""
    try:
        record = json.loads(read_small(KeptFolder.about_of(path), _READ).decode("ascii"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(record, dict):
        return {}
    return {name: value for name, value in record.items() if type(value) is _KINDS.get(name)}


@functools.lru_cache(64)
def _counted(path: str, changed: int) -> tuple[int, int]:
    """Count the objects and bytes of an unused cache. `changed` is the modification time of its folder."""
    del changed  # only a key for lru_cache
    block = disk_of(path)[2]
    objects, used = 0, KeptFolder.overhead_of(block)
    with os.scandir(path) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                if is_name(entry.name):
                    objects += 1
                    used += room_of_object(entry.stat(follow_symlinks=False).st_size, block)
    return objects, used
