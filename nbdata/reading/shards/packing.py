"""Checks the source of ``pack``: whether it is shards, and that new shards do not replace those they are made of."""

from __future__ import annotations

from collections.abc import Iterable

from nbdata.errors import BadOption
from nbdata.reading.records.files import are_records
from nbdata.reading.shards.listing import are_shards
from nbdata.stores.base import Location, Store
from nbdata.verbs.pack import Pack

__all__ = ["packs_records", "packs_shards", "refuse_own_source"]


def packs_records(operation: Pack) -> bool:
    """True if FFRecord files are packed; BadOption if only some of the places are such files."""
    return are_records(operation.samples().sources)


def packs_shards(operation: Pack) -> bool:
    """True if shards are packed, and not files.

    Raises
    ------
    BadOption
        If several places are given that are not shards, or filters that do not apply to shards.
    """
    sources = operation.samples().sources
    if not are_shards(sources):
        if len(sources) > 1:
            raise BadOption("several sources can only be shards", remedy="Pack each folder by itself")
        return False
    if operation.include or operation.exclude:
        raise BadOption("--include and --exclude are for files", remedy="Name the shards that are meant")
    return True


def refuse_own_source(operation: Pack, folder: Location, shards: Iterable[tuple[Store, str]]) -> None:
    """BadOption if a shard to write may be one that is read.

    Parameters
    ----------
    folder : Location
        The folder of the new shards.
    shards : iterable of (Store, str)
        The shards that are read, by their keys.
    """
    for store, key in shards:
        inside = key.startswith(folder.key) and operation.names.is_one(key[len(folder.key) :])
        if inside and folder.store.same_objects(store):
            raise BadOption(
                "the new shards would replace those that they are made of",
                path=operation.target,
                remedy="Give the new ones another name or folder",
            )
