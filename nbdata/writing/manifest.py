"""The JSON index beside the shards that describes them, in the format of the wids library."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any, NamedTuple

from nbdata.bounded import parse_json
from nbdata.errors import BadOption, NbdataError, NotFound
from nbdata.integrity.etags import parse_etag
from nbdata.stores.base import ObjectInfo, Store
from nbdata.transfer.control import Control
from nbdata.transfer.retry import retrying, told_part_size
from nbdata.transfer.send import send_whole
from nbdata.verification.sent_checker import SentHasher
from nbdata.writing.outgoing import OutgoingBytes

__all__ = ["Digests", "Manifest", "ShardRow", "digests"]

_HEAD = {"__kind__": "wids-shard-index-v1", "wids_version": 1}
# Most bytes of a manifest.
_MOST = 64 << 20
# The most values in it.
_MOST_VALUES = 4 << 20
# Shards that the store is asked about at a time.
_ASKED = 8
# Keys of a shard's entry that describe its bytes; wids knows the first.
_MD5, _ETAG, _PART_SIZE = "md5sum", "etag", "part_size"

#: The part of a shard's entry that describes its bytes.
Digests = dict[str, str | int]


def digests(etag: str, md5: str = "", part_size: int = 0) -> Digests:
    """Make the digests of a shard from the store's ETag or the MD5 in hex, and the size of the parts."""
    found = parse_etag(etag)
    if md5 or found.md5:
        return {_MD5: md5 or found.md5 or ""}
    if found.kind != "multipart":
        return {}
    return {_ETAG: found.value, **({_PART_SIZE: part_size} if part_size else {})}


class ShardRow(NamedTuple):
    """The facts about a shard for the manifest.

    Attributes
    ----------
    name : str
    size, samples : int
    made : dict or None
        Its `digests` if it was just written; None if it existed before.
    etag : str
        The ETag of a shard that existed before.
    """

    name: str
    size: int
    samples: int
    made: Digests | None
    etag: str = ""


class Manifest:
    """The manifest at a key."""

    def __init__(self, control: Control, store: Store, key: str) -> None:
        self._control, self._store, self._key = control, store, key

    def refuse_others(self, is_shard: Callable[[str], bool]) -> None:
        """BadOption if a file other than an index of these shards has this name: it would be lost."""
        try:
            found = retrying(self._control, lambda: self._store.read_bytes(self._key, limit=_MOST))
        except NotFound:
            return
        except BadOption:  # larger than any index
            found = b""
        try:
            said = parse_json(found, values=_MOST_VALUES)
            ours = said["__kind__"] == _HEAD["__kind__"] and all(
                is_shard(one["url"]) for one in said["shardlist"]
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            ours = False
        if not ours:
            raise BadOption(
                "the name of the index of the shards is taken by something else",
                path=self._key,
                remedy="Move it away, or give the shards another name",
            )

    def lists(self, name: str, existing: ObjectInfo) -> bool:
        """Whether the manifest describes this existing shard: its size, and its digest if the store has one."""
        entry = self._entries.get(name, {})
        told = {"filesize": existing.size, **digests(existing.etag)}
        return all(entry.get(word) == value for word, value in told.items())

    def write(self, name: str, rows: Iterable[ShardRow], verify: str) -> None:
        """Write the manifest, unless it already has the same contents."""
        before = self._read()
        known = _by_name(before)
        with ThreadPoolExecutor(_ASKED, "nbdata-index") as pool:
            shards = list(pool.map(lambda row: self._said(row, known.get(row.name, {})), rows))
        said = {**_HEAD, "name": name, "shardlist": shards}
        if said == before:
            return
        data = json.dumps(said, indent=1).encode()
        send_whole(
            self._control, self._store, self._key, partial(OutgoingBytes, [memoryview(data)]), len(data),
            partial(SentHasher, self._key, "none" if verify == "none" else "auto"),
        )  # fmt: skip

    def _said(self, row: ShardRow, before: dict[str, Any]) -> dict[str, Any]:
        """Return the entry of a shard, given its earlier entry."""
        one = {"url": row.name, "nsamples": row.samples, "filesize": row.size}
        if row.made is not None:
            return {**one, **row.made}
        found = digests(row.etag)
        same = all(before.get(word) == value for word, value in {**one, **found}.items())
        if same and _MD5 not in found:  # the earlier entry may know more than the store
            found = {word: before[word] for word in (_MD5, _ETAG, _PART_SIZE) if word in before}
        if _ETAG in found and _PART_SIZE not in found:
            found |= self._part_size(row)
        return {**one, **found}

    def _part_size(self, row: ShardRow) -> Digests:
        """Return the size of the parts of an existing shard, if the store knows it and its ETag depends on it."""
        key = "".join(self._key.rpartition("/")[:2]) + row.name
        info = retrying(self._control, lambda: self._store.head(key))
        told = None if info.encrypted else told_part_size(self._control, self._store, info)
        return {_PART_SIZE: told} if told else {}

    @cached_property
    def _entries(self) -> dict[str, Any]:
        """The entries that the manifest had before, by name."""
        return _by_name(self._read())

    def _read(self) -> dict[str, Any]:
        """Read the entries of an earlier run; empty if there are none that can be read."""
        try:
            found = parse_json(self._store.read_bytes(self._key), values=_MOST_VALUES)
            return found if all(isinstance(one["url"], str) for one in found["shardlist"]) else {}
        except (NbdataError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return {}


def _by_name(said: dict[str, Any]) -> dict[str, Any]:
    return {one["url"]: one for one in said.get("shardlist", [])}
