"""The index of samples that is stored beside the data, for users without an index of their own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from nbdata.errors import NotFound
from nbdata.formats.sample_index import SampleIndex
from nbdata.paths import has_glob
from nbdata.reading.loose import INDEX_NAME, index_name, known_index
from nbdata.reading.shards.indexing import foreign_index, saved_name
from nbdata.reading.shards.listing import Shard
from nbdata.redaction import redacted
from nbdata.transfer.sources import folder_part
from nbdata.verbs.options import Connecting
from nbdata.verbs.pull import Pull
from nbdata.verbs.push import Push
from nbdata.verbs.samples import SampleSource

__all__ = ["fetch", "fetch_of_shards", "save", "save_of_shards"]


def save(operation: SampleSource, index: SampleIndex) -> str:
    """Store the index of loose objects beside them; return its URL."""
    return _save(operation, index, _beside(operation))


def save_of_shards(operation: SampleSource, index: SampleIndex) -> str:
    """Store the index of shards beside the first of them; return its URL."""
    return _save(operation, index, _beside_shards(operation))


def fetch(operation: SampleSource, path: str) -> SampleIndex | None:
    """Fetch the index stored beside loose objects to `path`; None if there is none."""

    def sound() -> SampleIndex | None:
        found = known_index(path)
        return None if found is None or found.leads_out() else found

    return _fetch(operation, _beside(operation), path, sound)


def fetch_of_shards(operation: SampleSource, path: str, shards: list[Shard]) -> SampleIndex | None:
    """Fetch the index stored beside shards; None also if it belongs to other shards, or to other versions of them."""
    return _fetch(operation, _beside_shards(operation), path, lambda: foreign_index(path, shards))


def _beside(operation: SampleSource) -> str:
    """Return the place of the index of loose objects."""
    return _index_in(folder_part(operation.place), index_name(operation, "")[:16])


def _beside_shards(operation: SampleSource) -> str:
    """Return the place of the index of shards: in the folder of the first one."""
    place = operation.place
    if has_glob(place):
        return _index_in(folder_part(place), saved_name(operation))
    path = place.partition("?")[0] if place.startswith(("http://", "https://")) else place
    return _index_in(path.rpartition("/")[0], saved_name(operation))


def _index_in(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{INDEX_NAME}.{name}.idx"


def _save(operation: SampleSource, index: SampleIndex, url: str) -> str:
    Push(source=index.path, target=url, **operation.options_in(Connecting)).run(quiet=True)
    return redacted(url)


def _fetch(
    operation: SampleSource, url: str, path: str, sound: Callable[[], SampleIndex | None]
) -> SampleIndex | None:
    try:
        Pull(source=url, target=path, **operation.options_in(Connecting)).run(quiet=True)
    except NotFound:
        return None
    found = sound()
    if found is None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    return found
