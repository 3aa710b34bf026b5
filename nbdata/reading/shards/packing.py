"""Checks the source of new shards: whether it is shards itself, is not replaced by them, and keeps samples whole."""

from __future__ import annotations

import itertools
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence

from nbdata.errors import BadOption
from nbdata.reading.records.files import are_records
from nbdata.reading.shards.listing import are_shards
from nbdata.stores.base import Location, Store
from nbdata.stores.local import LocalStore
from nbdata.verbs.pack import Pack
from nbdata.verbs.shard_names import ShardNames

__all__ = ["packs_records", "packs_shards", "refuse_own_source", "refuse_shuffled_files"]


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
    operation.refuse_filters("for files", "Name the shards that are meant")
    return True


def refuse_shuffled_files(operation: Pack, key: Callable[[int], str], numbers: Sequence[int]) -> None:
    """BadOption if ``--by file`` and ``--shuffle`` would tear the files of a sample apart.

    Readers group files by their keys, so files that share one have to stay together.

    Parameters
    ----------
    operation : Pack
    key : callable
        Returns the key of a file by its number.
    numbers : sequence of int
        The files to be packed.
    """
    if not operation.shuffle or operation.by != "file" or are_shards(operation.samples().sources):
        return
    ordered = sorted(array("q", (hash(key(number)) for number in numbers)))
    twice = {one for one, other in itertools.pairwise(ordered) if one == other}
    seen = set[str]()
    for number in numbers if twice else ():
        if hash(one := key(number)) in twice:
            if one in seen:
                raise BadOption(
                    f"--by file --shuffle: several files have the key {one!r} and belong to one sample, which would be "
                    "torn apart",
                    remedy="Leave --by file out: samples are shuffled whole. Or choose one file of each with --include",
                )
            seen.add(one)


def refuse_own_source(
    names: ShardNames, folders: Sequence[Location], sources: Iterable[tuple[Store, str]], target: str | None
) -> None:
    """BadOption if a shard to write may be an object that is read, whatever ``--overwrite`` says.

    Parameters
    ----------
    names : ShardNames
        The names of the new shards.
    folders : sequence of Location
        Their folders, in one store.
    sources : iterable of (Store, str)
        The shards or volumes that are read, by their keys.
    target : str or None
        The new shards, as the user wrote them.
    """
    written = folders[0].store
    local = isinstance(written, LocalStore)
    places = {os.path.join(os.path.realpath("/" + one.key), "") if local else one.key for one in folders}
    for store, key in sources:
        if not written.same_objects(store):
            continue
        for name in _names_on_disk(key) if local else [key]:
            folder, slash, last = name.rpartition("/")
            if folder + slash in places and names.is_one(last):
                raise BadOption(
                    "the new shards would replace those that they are made of",
                    path=target,
                    remedy="Give the new ones another name or folder",
                )


def _names_on_disk(key: str) -> Iterator[str]:
    """The real paths that a new file would replace a file at: its own, and that of a symbolic link to it."""
    folder, name = os.path.split("/" + key)
    yield os.path.join(os.path.realpath(folder), name)
    yield os.path.realpath("/" + key)
