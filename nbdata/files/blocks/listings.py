"""The latest listings of folders, kept in the cache of a mount for when the store cannot be reached."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from nbdata.files.blocks.folder import LISTING, BlockFolder
from nbdata.stores.base import ObjectInfo

__all__ = ["MOST_NAMES", "KeptListing", "keep_listing", "kept_listing"]

#: The most names of a folder whose listing is kept.
MOST_NAMES = 200_000
# The most bytes of a file, and of what it says.
_MOST, _MOST_TEXT = 64 << 20, 256 << 20
# Magic, and the digest of what follows.
_HEAD = struct.Struct("<8s16s")
_MAGIC = b"nbdata1\n"


class KeptListing(NamedTuple):
    """A listing as it was kept.

    Attributes
    ----------
    names : dict of str to ObjectInfo or None
        The files by name; None for a folder.
    at : float
        When it was listed, in seconds since 1970.
    """

    names: dict[str, ObjectInfo | None]
    at: float


def _name_of(place: str, prefix: str) -> str:
    facts = f"{place}\0{prefix}"
    return hashlib.blake2b(facts.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest() + LISTING


def keep_listing(
    folder: BlockFolder, place: str, prefix: str, names: Mapping[str, ObjectInfo | None]
) -> bool:
    """Keep the names of a folder, unless they are too long; return False if there is no room.

    Call it while the folder is `locked`.
    """
    rows = [
        [name] if info is None else [name, info.size, info.etag, info.modified, info.version]
        for name, info in names.items()
    ]
    text = json.dumps([place, prefix, rows], separators=(",", ":")).encode("ascii")
    data = zlib.compress(text, 1)
    head = _HEAD.pack(_MAGIC, _digest(data))
    if len(data) + len(head) > _MOST or len(text) > _MOST_TEXT:
        return True
    name = _name_of(place, prefix)
    found = folder.content(name, _MOST)
    if found is not None and found[0] == head + data:
        folder.touch(name)
        return True
    return folder.replace(name, head + data)


def kept_listing(folder: BlockFolder, place: str, prefix: str) -> KeptListing | None:
    """Return the names of a folder as they were last kept; None if they were not, or the file is damaged."""
    found = folder.content(_name_of(place, prefix), _MOST)
    if found is None or len(found[0]) < _HEAD.size:
        return None
    data, at = found
    if data[: _HEAD.size] != _HEAD.pack(_MAGIC, _digest(data[_HEAD.size :])):
        return None
    try:
        unpacked = zlib.decompressobj()
        told: Any = json.loads(unpacked.decompress(data[_HEAD.size :], _MOST_TEXT))
        if told[:2] != [place, prefix]:
            return None
        return KeptListing(dict(_entry(prefix, row) for row in told[2]), at)
    except (ValueError, TypeError, LookupError, RecursionError, zlib.error):
        return None


def _entry(prefix: str, row: list[Any]) -> tuple[str, ObjectInfo | None]:
    """Return a name and what it is; ValueError if it says anything else."""
    name = row[0]
    if not isinstance(name, str) or "/" in name or name in ("", ".", ".."):
        raise ValueError("no name")
    if len(row) == 1:
        return name, None
    _, size, etag, modified, version = row
    right = type(size) is int and isinstance(etag, str) and isinstance(version, str)
    if not right or not (modified is None or isinstance(modified, (int, float))):
        raise ValueError("no file")
    return name, ObjectInfo(prefix + name, size, etag, modified, version)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
