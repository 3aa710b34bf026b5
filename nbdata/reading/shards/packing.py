"""Checks the source of new shards: whether it is shards itself, is not replaced by them, and keeps samples whole."""

from __future__ import annotations

import itertools
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from nbdata.errors import BadOption
from nbdata.paths import has_glob, is_url
from nbdata.reading.records.files import are_records
from nbdata.reading.shards.listing import are_shards
from nbdata.stores.base import Location, Store
from nbdata.stores.local import LocalStore
from nbdata.transfer.selection import read_lines
from nbdata.verbs.pack import Pack
from nbdata.verbs.samples import SampleSource
from nbdata.verbs.shard_names import ShardNames

__all__ = ["refuse_own_source", "refuse_shuffled_files", "samples_of"]


# Lines of a list that an error shows.
_SHOWN = 60


def samples_of(operation: Pack) -> SampleSource:
    """Return the samples that a pack reads, with the files that ``--files-from`` lists.

    Raises
    ------
    BadOption
        If several places are given that are neither shards nor FFRecord files, or options that do not apply to what
        is there.
    NotFound
        If the list cannot be read.
    """
    samples = operation.samples()
    if operation.files_from is not None:
        samples = replace(samples, source=_listed(operation, operation.files_from))
    sources = samples.sources
    if are_records(sources):
        return samples
    if are_shards(sources):
        operation.refuse_filters("for files", "Name the shards that are meant")
        return samples
    if operation.files_from is not None:
        raise BadOption(
            "--files-from lists files that are neither shards nor FFRecord files",
            path=operation.files_from,
            got=sources[0].rpartition("/")[2],
            remedy="To pack files of a folder choose them with --include",
        )
    if len(sources) > 1:
        raise BadOption("several sources can only be shards", remedy="Pack each folder by itself")
    if operation.shard_slice is not None:
        raise BadOption("--shard-slice is for shards, and this is a folder of files", remedy="Use --slice")
    return samples


def _listed(operation: Pack, file: str) -> tuple[str, ...]:
    """The places that a list names below the source, in its order."""
    folder = operation.places()[0].rstrip("/") + "/"
    if not isinstance(operation.source, str) or are_shards([operation.source]) or has_glob(folder):
        raise BadOption("--files-from needs a folder as SOURCE", remedy="Its paths are relative to SOURCE")
    names = [name.removeprefix("./") for name in read_lines(file) if name]
    for name in names:
        if is_url(name) or name.startswith("/") or ".." in name.split("/") or has_glob(name):
            raise BadOption(
                f"--files-from: {name[:_SHOWN]!r} is no path of a file below SOURCE",
                expected="relative paths without *, ?, [, { and .., one a line",
            )
    if not names:
        raise BadOption("--files-from lists nothing", path=file)
    return tuple(folder + name for name in names)


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
    files = operation.files_from is None and not are_shards(operation.samples().sources)
    if not operation.shuffle or operation.by != "file" or not files:
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
