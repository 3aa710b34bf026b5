"""Lists the FFRecord files of a source: a file, a folder of them, globs, lists."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nbdata.errors import BadOption, NotFound
from nbdata.formats.ffrecord import SUFFIX
from nbdata.paths import has_glob, is_url, last_component
from nbdata.redaction import redacted
from nbdata.signed_urls import without_signature
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.sources import Opener, find, folder_part

__all__ = ["RecordFile", "are_records", "files_of", "fingerprint_of", "key_of_record", "names_wanted"]


class RecordFile(NamedTuple):
    """One file, in the version that was listed.

    Attributes
    ----------
    place : str
        The place that opens its store: the fixed part of the source that named it.
    url : str
        The name of the file in its samples, without secrets.
    key, size, etag, modified, version
        As in `ObjectInfo`.
    """

    place: str
    url: str
    key: str
    size: int
    etag: str = ""
    modified: float | None = None
    version: str = ""

    @property
    def info(self) -> ObjectInfo:
        """The file as an `ObjectInfo`."""
        return ObjectInfo(self.key, self.size, self.etag, self.modified, self.version)

    @property
    def is_told_apart(self) -> bool:
        """True if the store tells this version from another one at all."""
        return bool(self.etag or self.version or self.modified is not None)

    @property
    def is_local(self) -> bool:
        """True if the file is on a disk of this machine."""
        return not is_url(self.place)

    @property
    def stem(self) -> str:
        """The file's name without ``.ffr``."""
        return last_component(self.key).removesuffix(SUFFIX)


def are_records(places: Sequence[str]) -> bool:
    """True if all places are FFRecord files, by their names; BadOption if only some are."""
    said = [last_component(place).endswith(SUFFIX) for place in places]
    if any(said) and not all(said):
        raise BadOption(
            "some of these are FFRecord files, others are not",
            got=redacted(places[said.index(False)]),
            remedy="Make samples of each, and join them with +",
        )
    return all(said)


def files_of(opener: Opener, places: Iterable[str]) -> list[RecordFile]:
    """List the files at some places; those of a folder or glob are sorted by name.

    Raises
    ------
    NotFound
        If a file does not exist, or a folder has none.
    BadOption
        If a name is not one of an FFRecord file, or is given twice.
    """
    found = [file for place in places for file in _of_place(opener, place)]
    seen = set[str]()
    for file in found:
        if file.url in seen:
            raise BadOption("a file is named twice", path=file.url, remedy="Name each once")
        seen.add(file.url)
    return found


def _of_place(opener: Opener, place: str) -> list[RecordFile]:
    base = folder_part(place)
    found = find(opener, place)
    if found.single is not None:
        return [_file(base, redacted(place), found.single)]
    root = redacted(base).rstrip("/") + "/"
    pattern = has_glob(place)
    files = [
        _file(base, root + entry.path, entry.info)
        for entry in found.entries
        if entry.path.endswith(SUFFIX) and (pattern or "/" not in entry.path)
    ]
    if not files:
        raise NotFound(
            f"there is no {SUFFIX} file in this folder", path=redacted(place),
            remedy="Folders inside it are not looked into: name the right one",
        )  # fmt: skip
    return sorted(files, key=lambda file: file.key)


def _file(place: str, url: str, info: ObjectInfo) -> RecordFile:
    if info.size < 0:
        raise BadOption(
            "the server does not say how large this file is, and where its last sample ends", path=url,
            remedy="Pull it, and read it from the disk",
        )  # fmt: skip
    # The time identifies a version only if nothing better does.
    modified = None if info.etag or info.version else info.modified
    return RecordFile(place, url, info.key, info.size, info.etag, modified, info.version)


def key_of_record(stem: str, number: int) -> str:
    """Return the key of a sample without a name: the stem of its file, and its number there."""
    return f"{stem}/{number:08}"


def names_wanted() -> BadOption:
    """Make the error for a selection by name among samples without names."""
    return BadOption(
        "samples in FFRecord files have no names that include, exclude or by could choose",
        remedy="Choose by number: samples[10:20], or samples.select(…)",
    )


def fingerprint_of(files: Iterable[RecordFile]) -> str:
    """Return a digest that is equal only for the same files in the same order and versions."""
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        said = json.dumps([without_signature(file.url), file.size, file.etag, file.modified, file.version])
        digest.update(said.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()
