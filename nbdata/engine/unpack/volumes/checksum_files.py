"""The checksum files for the volumes of an archive: the names that they list, and the digests that they give.

Publishers of archives often add ``NAME.md5`` for each volume, or one list such as ``MD5SUMS`` for all. The volumes are
compared with these digests while they are unpacked, so the data is read only once.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import posixpath
import zlib
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from nbdata.engine.job.run import Run
from nbdata.engine.unpack.volumes.stored_volume import StoredVolume
from nbdata.errors import AccessDenied, BadOption, ChecksumMismatch, NotFound
from nbdata.integrity.checksum_files import parse_checksums
from nbdata.integrity.checksum_names import is_checksum_file, is_manifest, owner_of
from nbdata.integrity.expectations import Expected, Problem, collect_expectations
from nbdata.redaction import redacted
from nbdata.stores.base import ObjectInfo, Store
from nbdata.stores.local import LocalStore
from nbdata.transfer.checksum_reader import ChecksumReader
from nbdata.transfer.reader import Reader
from nbdata.transfer.retry import retrying
from nbdata.transfer.sources import find
from nbdata.transfer.worker_pool import run_units
from nbdata.verification.checker import stored_checksum

__all__ = ["LARGEST", "ChecksumFiles", "Published", "content_of", "source_of"]

#: Bytes of the largest list that is read, also once decompressed, enough for some ten thousand volumes; and the most
#: lists.
LARGEST, _LISTS = 4 << 20, 16
_GZIP = b"\x1f\x8b"
# Bytes of the largest sidecar, which is one line.
_LARGEST_SIDECAR = 64 << 10
# Lists that are looked for where the folder is not listed.
_USUAL = ("MD5SUMS", "SHA256SUMS")
# Volumes, or lines of checksum files, that a message names.
_NAMED = 3


@dataclass(frozen=True)
class Published:
    """The digests that checksum files give for the volumes of an archive.

    Attributes
    ----------
    digests : dict of int to Expected
        By the number of the volume.
    notes : list of str
        What of the checksum files could not be used.
    """

    digests: dict[int, Expected] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def mark(self) -> int:
        """A number for these digests, to recognise them in a later run; 0 if there are none."""
        entries = [(number, one.algorithm, one.digest) for number, one in sorted(self.digests.items())]
        return zlib.crc32(json.dumps(entries).encode()) + 1 if entries else 0


def source_of(digests: Iterable[Expected]) -> str:
    """Say in which checksum files digests are."""
    sources = {digest.source for digest in digests}
    return next(iter(sources)) if len(sources) == 1 else "their checksum files"


class ChecksumFiles:
    """The checksum files for the volumes of an archive; read when they are needed.

    Parameters
    ----------
    run : Run
    store : Store
    base : str
        What the keys of these files begin with, before their names; and the keys of volumes that lie beside them.
    sidecars : dict of str to str
        Files for one volume each: their keys by their names.
    lists : dict of str to ObjectInfo
        Lists such as ``MD5SUMS``, by name.
    usual : sequence of str
        Names of lists to look for in the store.
    elsewhere : str
        The place of these files, if they do not lie beside the volumes.
    """

    def __init__(
        self,
        run: Run,
        store: Store,
        base: str,
        sidecars: dict[str, str],
        lists: dict[str, ObjectInfo],
        *,
        usual: Sequence[str] = (),
        elsewhere: str = "",
    ) -> None:
        self._run, self._store, self._base = run, store, base
        self._sidecars, self._lists, self._usual = sidecars, lists, usual
        self._elsewhere = elsewhere

    @classmethod
    def beside(
        cls, run: Run, store: Store, entries: Mapping[str, ObjectInfo], names: Sequence[str]
    ) -> ChecksumFiles | None:
        """The checksum files beside volumes.

        Parameters
        ----------
        entries : mapping of str to ObjectInfo
            What is there, by name. If that is nothing, None is returned.
        names : sequence of str
            The names of the volumes; some may be gone.
        """
        if not entries:
            return None
        one, info = next(iter(entries.items()))
        base = info.key[: len(info.key) - len(one)]
        inner = names[0][: names[0].rfind("/") + 1]
        near = {name: there for name, there in entries.items() if name[: len(inner)] == inner}
        if isinstance(store, LocalStore):  # the entries may be those of one archive only
            near.update(_on_disk("/" + base + inner, inner, {*names}))
        others = near.keys() - {*names}
        near = {name: there for name, there in near.items() if owner_of(name) not in others}
        sidecars, lists = _sorted_out(near, {posixpath.basename(name) for name in names})
        usual = [] if lists else [inner + name for name in _USUAL]
        return cls(run, store, base, sidecars, lists, usual=usual)

    @classmethod
    def at(cls, run: Run, place: str) -> ChecksumFiles:
        """The checksum files at a place that the user names: one file, or all in a folder."""
        source = find(run, place)
        location = source.location
        if source.single is None:
            entries = {entry.path: entry.info for entry in source.entries if is_checksum_file(entry.path)}
            return cls(run, location.store, location.key, *_sorted_out(entries), elsewhere=location.place)
        name = posixpath.basename(source.single.key)
        base = source.single.key[: len(source.single.key) - len(name)]
        return cls(run, location.store, base, {}, {name: source.single}, elsewhere=location.place)

    @property
    def named(self) -> bool:
        """Whether there are any, as far as the names show."""
        return bool(self._sidecars or self._lists)

    @cached_property
    def _contents(self) -> dict[str, bytes]:
        """The content of each list that is not too large, by name."""
        lists = dict(self._lists)
        for name in self._usual:
            with contextlib.suppress(AccessDenied, BadOption, NotFound):
                lists[name] = retrying(self._run.control, partial(self._store.head, self._base + name))
        sound = [(name, info) for name, info in lists.items() if 0 <= info.size <= LARGEST]
        sound.sort(key=lambda one: not is_manifest(one[0]))
        contents = {name: content_of(self._run, self._store, info) for name, info in sound[:_LISTS]}
        return {name: content for name, content in contents.items() if not _is_large(content)}

    def listed(self) -> Iterator[tuple[str, str]]:
        """Yield each name in the lists, relative to the base, with the name of the list."""
        for name, content in self._contents.items():
            inner = name[: name.rfind("/") + 1]
            for entry in parse_checksums(content, name=name).entries:
                if entry.name is not None:
                    yield inner + entry.name.removeprefix("./"), name

    def published(self, volumes: Sequence[StoredVolume]) -> Published:
        """Read the sidecars, and return the digest of each volume that has one.

        Raises
        ------
        ChecksumMismatch
            If two digests of a volume contradict each other, be they in checksum files or in the store.
        NotFound
            If the user has named these files, and they give no digest of any volume.
        """
        names = list(map(self._name_of, volumes))
        known = {name for name, count in Counter(names).items() if name and count == 1}
        numbers = {name: number for number, name in enumerate(names) if name in known}
        there = {name: volumes[number] for name, number in numbers.items()}
        bases = {posixpath.basename(name) for name in there}
        sidecars, other = dict[str, str](), dict[str, str]()
        for name, key in self._sidecars.items():
            (sidecars if posixpath.basename(owner_of(name) or "") in bases else other)[name] = key
        if self._elsewhere and len(other) <= _LISTS:  # one of them may be a list, such as all.md5
            sidecars |= other
        read, lists = ChecksumReader(self._run.control, self._store, sidecars), self._contents

        def content(name: str) -> bytes:
            return lists[name] if name in lists else read(name)

        expectations = collect_expectations(
            there, [*sidecars, *lists], content, separate_folder=bool(self._elsewhere), others=_unknown
        )
        expected = expectations.expected
        _refuse_contradictions(self._run, there, expected, expectations.problems)
        if self._elsewhere and there and not expected:
            raise NotFound(
                "no checksum file there gives a digest of these volumes",
                path=redacted(self._elsewhere),
                expected="VOLUME.md5 (.sha256 …), or a list such as MD5SUMS",
                got=_first_names(lists),
                remedy="Correct --against, or leave it out",
            )
        used = {one.source for one in expected.values()}
        notes = [
            f"{problem.source}: {problem.message}"
            for problem in expectations.problems
            if problem.name is None and not (problem.harmless or problem.source in used)
        ]
        notes += expectations.notes
        if there and not used and (sidecars or lists):
            shown = [*sidecars, *lists]
            more = " …" if len(shown) > _NAMED else ""
            notes.append(
                f"no digest of these volumes is in {', '.join(shown[:_NAMED])}{more}: nothing is compared"
            )
        unread = [name for name in self._lists if name not in lists]
        if unread:
            notes.append(f"{', '.join(unread[:_NAMED])}: not read, as too large, of unknown size or too many")
        return Published({numbers[name]: one for name, one in expected.items()}, notes[: _NAMED + 2])

    def _name_of(self, volume: StoredVolume) -> str:
        """The name under which these files may list a volume; empty if they cannot list it.

        Files elsewhere list names without folders, so they do not tell apart two volumes of one name.
        """
        if volume.gone or self._elsewhere:
            return "" if volume.gone else volume.name
        near = volume.lies_in(self._store) and volume.info.key.startswith(self._base)
        return volume.info.key[len(self._base) :] if near else ""


def _unknown() -> None:
    """Do not guess which file a digest without a name is for: the other files beside the volumes are not known."""


def _sorted_out(
    entries: Mapping[str, ObjectInfo], owners: Container[str] | None = None
) -> tuple[dict[str, str], dict[str, ObjectInfo]]:
    """The checksum files among files: the sidecars of `owners`, or all, with their keys; and the lists."""
    sidecars, lists = dict[str, str](), dict[str, ObjectInfo]()
    for name, info in sorted(entries.items()):
        owner = owner_of(name)
        small = 0 <= info.size <= _LARGEST_SIDECAR
        if owner is not None and small and (owners is None or posixpath.basename(owner) in owners):
            sidecars[name] = info.key
        elif is_checksum_file(name):
            lists[name] = info
    return sidecars, lists


def _on_disk(folder: str, inner: str, volumes: Container[str]) -> Iterator[tuple[str, ObjectInfo]]:
    """Yield the checksum files in a folder of this machine, except those of files that are no volumes."""
    with contextlib.suppress(OSError):
        with os.scandir(folder) as scan:
            there = {inner + entry.name for entry in scan}
        for name in sorted(filter(is_checksum_file, there)):
            owner = owner_of(name)
            path = os.path.join(folder, name[len(inner) :])
            if (owner in volumes or owner not in there) and os.path.isfile(path):
                yield name, ObjectInfo(path.lstrip("/"), os.path.getsize(path))


def _first_names(lists: Mapping[str, bytes]) -> str | None:
    """The first name in the lists."""
    names = (entry.name for content in lists.values() for entry in parse_checksums(content).entries)
    first = next((name for name in names if name), None)
    return None if first is None else f"{first} …"


def content_of(run: Run, store: Store, info: ObjectInfo) -> bytes:
    """Read a list."""
    if not info.size:  # some stores refuse an empty range
        return b""
    with Reader(run.control, store, info, 0, info.size) as reader:
        return b"".join(map(bytes, reader.blocks()))


def _is_large(content: bytes) -> bool:
    """True if a list that gzip has compressed has too many bytes. Of a damaged one, its parser says what is wrong."""
    if not content.startswith(_GZIP):
        return False
    try:
        return len(gzip.GzipFile(fileobj=io.BytesIO(content)).read(LARGEST + 1)) > LARGEST
    except (EOFError, OSError, zlib.error):
        return False


def _refuse_contradictions(
    run: Run,
    volumes: Mapping[str, StoredVolume],
    expected: Mapping[str, Expected],
    problems: Iterable[Problem],
) -> None:
    """Raise ChecksumMismatch if checksum files contradict each other about a volume, or the store.

    A listing does not show whether a key of KMS encrypts an object, whose ETag is then no MD5: the store is
    asked again.
    """
    wrong = [
        (problem.name, f"{problem.message.rpartition(': ')[2]} ({problem.source})")
        for problem in problems
        if problem.name is not None and problem.name in volumes
    ]
    doubtful = [name for name, one in expected.items() if _other_digest(volumes[name].info, one)]
    asked: dict[str, ObjectInfo] = {}

    def ask(name: str) -> None:
        asked[name] = volumes[name].described()

    run_units(run.control, (partial(ask, name) for name in doubtful))
    for name in doubtful:
        one = expected[name]
        if other := _other_digest(asked[name], one):
            wrong.append((name, f"{one.digest} in {one.source}, {other} in the store"))
    if wrong:
        shown = ", ".join(name for name, _ in wrong[:_NAMED]) + (" …" if len(wrong) > _NAMED else "")
        raise ChecksumMismatch(
            f"checksums contradict each other: {shown}",
            expected="one digest each",
            got=wrong[0][1],
            remedy="Get the right volume or checksum file; --verify none takes it as it is",
        )


def _other_digest(info: ObjectInfo, published: Expected) -> str:
    """The digest of the published algorithm that a store has of a volume, if it is another one; else empty."""
    stored = stored_checksum(info, published.algorithm)
    return stored[1] if stored is not None and stored[1] != published.digest else ""
