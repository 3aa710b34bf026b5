"""A file of samples in a store: a tar shard or an FFRecord file, and digests of a list of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from nbdata.errors import BadOption
from nbdata.integrity.etags import parse_etag
from nbdata.paths import is_url
from nbdata.redaction import redacted
from nbdata.signed_urls import without_signature
from nbdata.sizes import counted
from nbdata.stores.base import ObjectInfo
from nbdata.verbs.choosing import SlicingShards

__all__ = ["Promised", "SourceFile", "all_or_none", "digest_of", "fingerprint_of", "first_of_each", "sliced"]


class Promised(NamedTuple):
    """A JSON index's entry about the bytes of a shard.

    Attributes
    ----------
    size : int or None
    md5, etag : str
        Of all bytes, or of parts of `part_size` bytes; empty if not given.
    part_size : int
        0 if not given.
    samples : int or None
    """

    size: int | None = None
    md5: str = ""
    etag: str = ""
    part_size: int = 0
    samples: int | None = None

    @classmethod
    def of(cls, said: dict[str, Any]) -> Promised:
        """Read the entry of a shard; values that make no sense are skipped."""
        size, part_size, samples = said.get("filesize"), said.get("part_size"), said.get("nsamples")
        md5, etag = (parse_etag(str(said.get(word) or "")) for word in ("md5sum", "etag"))
        return cls(
            size if isinstance(size, int) else None,
            md5.md5 or "",
            etag.value if etag.kind == "multipart" else "",
            part_size if isinstance(part_size, int) and part_size > 0 else 0,
            samples if isinstance(samples, int) else None,
        )


class SourceFile(NamedTuple):
    """One shard or FFRecord file, in the version that was listed.

    Attributes
    ----------
    place : str
        The place that opens its store: the fixed part of the source that named it.
    url : str
        The name of the file in its samples, without secrets.
    key, size, etag, modified, version, checksums
        As in `ObjectInfo`, with None for no checksums.
    promised : Promised or None
        The entry of the JSON index that named it.
    """

    place: str
    url: str
    key: str
    size: int
    etag: str = ""
    modified: float | None = None
    version: str = ""
    checksums: Mapping[str, str] | None = None
    promised: Promised | None = None

    @classmethod
    def of(cls, place: str, url: str, info: ObjectInfo) -> SourceFile:
        """Return the file that a store describes."""
        # The time identifies a version only if nothing better does.
        modified = None if info.etag or info.version else info.modified
        return cls(
            place, url, info.key, info.size, info.etag, modified, info.version, dict(info.checksums) or None
        )

    @property
    def info(self) -> ObjectInfo:
        """The file as an `ObjectInfo`."""
        info = ObjectInfo(self.key, self.size, self.etag, self.modified, self.version)
        return info._replace(checksums=self.checksums) if self.checksums else info

    @property
    def is_told_apart(self) -> bool:
        """True if the store tells this version from another one at all."""
        return bool(self.etag or self.version or self.modified is not None)

    @property
    def is_local(self) -> bool:
        """True if the file is on a disk of this machine."""
        return not is_url(self.place)


def all_or_none(is_one: Callable[[str], bool], places: Sequence[str], kind: str) -> bool:
    """True if all places are files of a kind, such as ``shards``; BadOption if only some are."""
    answers = [is_one(place) for place in places]
    if any(answers) and not all(answers):
        raise BadOption(
            f"some of these are {kind}, others are not",
            got=redacted(places[answers.index(False)]),
            remedy="Make samples of each, and join them with +",
        )
    return all(answers)


def sliced(operation: SlicingShards, files: list[SourceFile]) -> list[SourceFile]:
    """Return the files that ``--shard-slice`` takes; BadOption if it leaves none of some."""
    taken = files[operation.shards_sliced]
    if files and not taken:
        raise BadOption(
            f"--shard-slice {operation.shard_slice} takes none of {counted(len(files), 'files')}",
            expected="A:B or A:B:S, counted from 0",
        )
    return taken


def first_of_each(files: Iterable[SourceFile]) -> list[SourceFile]:
    """Return one file of each place, to open their stores."""
    return list({file.place: file for file in files}.values())


def fingerprint_of(files: Iterable[SourceFile]) -> str:
    """Return a digest that is equal only for the same files in the same order and versions."""
    return digest_of(
        [without_signature(file.url), file.size, file.etag, file.modified, file.version] for file in files
    )


def digest_of(facts: Iterable[list[Any]]) -> str:
    """Return a digest of a list of facts about each file."""
    digest = hashlib.blake2b(digest_size=16)
    for said in facts:
        digest.update(json.dumps(said).encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()
