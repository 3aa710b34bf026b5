"""The index of samples that is stored beside the data, for users without an index of their own."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
from collections.abc import Iterator
from typing import Any

from nbdata.client.opened import Opened
from nbdata.errors import NbdataError, UnsafeMember
from nbdata.formats.sample_index import SampleIndex
from nbdata.formats.sample_objects import SampleObject
from nbdata.own_files import folder_of, write_record
from nbdata.paths import as_folder, has_glob, is_url, leads_out
from nbdata.reading.loose import INDEX_NAME, index_name, known_index
from nbdata.reading.shards.indexing import foreign_index, saved_name
from nbdata.reading.source_file import SourceFile
from nbdata.reading.stored_index import MOST, fetched_index
from nbdata.redaction import redacted
from nbdata.sizes import format_size
from nbdata.transfer.sources import folder_part
from nbdata.verbs.options import Connecting
from nbdata.verbs.push import Push
from nbdata.verbs.samples import SampleSource

__all__ = ["fetch", "fetch_of_shards", "save", "save_of_shards"]

# How many folders on the disk are remembered while an index is compared with it.
_FOLDERS = 4096


def save(operation: SampleSource, index: SampleIndex) -> str:
    """Store the index of loose objects beside them; return its URL."""
    return _save(operation, index, _beside(operation))


def save_of_shards(operation: SampleSource, index: SampleIndex) -> str:
    """Store the index of shards beside the first of them; return its URL."""
    return _save(operation, index, _beside_shards(operation))


def fetch(operation: SampleSource, path: str) -> SampleIndex | None:
    """Fetch the index stored beside loose objects to `path`; None if there is none.

    Its paths are relative to the folder of this operation, whatever place it was made for.
    """
    with _fetched(operation, _beside(operation), path) as fresh:
        known = known_index(fresh)
        if known is None or not _says_enough(known.about) or not known.is_in_order():
            return None
        folder = as_folder(folder_part(operation.place))
        if not is_url(folder):
            _refuse_links_out(known, folder)
        prefix = Opened(operation).open(folder).key
        write_record(path, known.pieces({"source": redacted(operation.place), "prefix": prefix}))
    return SampleIndex(path)


def fetch_of_shards(operation: SampleSource, path: str, shards: list[SourceFile]) -> SampleIndex | None:
    """Fetch the index stored beside shards; None also if it belongs to other shards, or to other versions of them."""
    with _fetched(operation, _beside_shards(operation), path) as fresh:
        if foreign_index(fresh, shards) is None:
            return None
        with folder_of(path) as (at, name):
            os.replace(os.path.basename(fresh), name, src_dir_fd=at, dst_dir_fd=at)
    return foreign_index(path, shards)


def _refuse_links_out(index: SampleIndex, folder: str) -> None:
    """Raise UnsafeMember if a link to a folder leads an object out of a folder on the disk: a listing follows none."""

    @functools.lru_cache(_FOLDERS)
    def is_led(above: str) -> bool:
        return leads_out(f"{folder}{above}/", folder)

    for number in range(len(index)):
        found = list[SampleObject]()
        with contextlib.suppress(NbdataError):  # what is no path is refused when it is read
            found = index.objects(number)
        for one in found:
            if is_led(one.path.rpartition("/")[0]):
                raise UnsafeMember(
                    "the index names an object outside of its folder",
                    path=folder,
                    expected="paths that no link leads out",
                    got=one.path,
                    remedy='Look where the link came from, and build the index anew: refresh="always"',
                )


def _says_enough(about: dict[str, Any]) -> bool:
    """True if the header of an index from another user has what readers ask it for."""
    names = about.get("left_out_names")
    listed = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return listed and isinstance(about.get("listing"), str) and isinstance(about.get("left_out"), int)


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
    if (size := os.path.getsize(index.path)) > MOST:
        raise NbdataError(
            "the index is larger than readers take",
            path=redacted(url),
            expected=f"at most {format_size(MOST)}",
            got=format_size(size),
            remedy="Store the data as shards",
        )
    Push(source=index.path, target=url, **operation.options_in(Connecting)).run(quiet=True)
    return redacted(url)


@contextlib.contextmanager
def _fetched(operation: SampleSource, url: str, path: str) -> Iterator[str]:
    """Fetch an index to a file beside `path`, which is removed at the end; there may be none."""
    fresh = f"{path}.{secrets.token_hex(8)}"
    try:
        with fetched_index(Opened(operation), url, fresh):
            yield fresh
    finally:
        with contextlib.suppress(OSError), folder_of(fresh) as (at, name):
            os.unlink(name, dir_fd=at)
