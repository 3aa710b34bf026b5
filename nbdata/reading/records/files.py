"""Lists the FFRecord files of a source: a file, a folder of them, globs, lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nbdata.errors import BadOption, NotFound
from nbdata.formats.ffrecord import SUFFIX
from nbdata.paths import has_glob, last_component
from nbdata.reading.source_file import SourceFile, all_or_none
from nbdata.redaction import redacted
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.sources import Opener, find, folder_part

__all__ = ["are_records", "files_of", "key_of_record", "names_wanted", "stem_of"]


def are_records(places: Sequence[str]) -> bool:
    """True if all places are FFRecord files, by their names; BadOption if only some are."""
    return all_or_none(_is_record_file, places, "FFRecord files")


def _is_record_file(place: str) -> bool:
    return last_component(place).endswith(SUFFIX)


def files_of(opener: Opener, places: Iterable[str]) -> list[SourceFile]:
    """List the files at some places; those of a folder or glob are sorted by name.

    Raises
    ------
    NotFound
        If a file does not exist, or a folder has none.
    BadOption
        If a name is not one of an FFRecord file, or is given twice.
    """
    files = [file for place in places for file in _of_place(opener, place)]
    seen = set[str]()
    for file in files:
        if file.url in seen:
            raise BadOption("a file is named twice", path=file.url, remedy="Name each once")
        seen.add(file.url)
    return files


def _of_place(opener: Opener, place: str) -> list[SourceFile]:
    base = folder_part(place)
    source = find(opener, place)
    if source.single is not None:
        return [_file(base, redacted(place), source.single)]
    root = redacted(base).rstrip("/") + "/"
    pattern = has_glob(place)
    files = [
        _file(base, root + entry.path, entry.info)
        for entry in source.entries
        if entry.path.endswith(SUFFIX) and (pattern or "/" not in entry.path)
    ]
    if not files:
        raise NotFound(
            f"there is no {SUFFIX} file in this folder",
            path=redacted(place),
            remedy="Folders inside it are not looked into: name the right one",
        )
    return sorted(files, key=lambda file: file.key)


def _file(place: str, url: str, info: ObjectInfo) -> SourceFile:
    if info.size < 0:
        raise BadOption(
            "the server does not say how large this file is, and where its last sample ends",
            path=url,
            remedy="Pull it, and read it from the disk",
        )
    return SourceFile.of(place, url, info)


def stem_of(file: SourceFile) -> str:
    """Return a file's name without ``.ffr``."""
    return last_component(file.key).removesuffix(SUFFIX)


def key_of_record(stem: str, number: int) -> str:
    """Return the key of a sample without a name: the stem of its file, and its number there."""
    return f"{stem}/{number:08}"


def names_wanted() -> BadOption:
    """Make the error for a selection by name among samples without names."""
    return BadOption(
        "samples in FFRecord files have no names that include, exclude or by could choose",
        remedy="Choose by number: samples[10:20], or samples.select(…)",
    )
