"""The checksums that are known of the files of a data set: from checksum files beside them or elsewhere, or a store.

``--against`` may name a checksum file, a folder of them, or a store's folder of the data itself. The last two
are told apart by what is found there, not by how it is written: checksum files that speak of the data come
first; for files of which they say nothing, an object at the same relative path vouches with its stored
checksum or ETag. If any file has such an object, the folder counts as one of the data: what is there and
not here is then *missing*, what is here and not there *extra*.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, field

from nbdata.engine.check.datasets import ChecksumReader, DataSet, beside, parent
from nbdata.engine.job.run import Run
from nbdata.engine.planning.rows import detail_of, info_of
from nbdata.errors import AccessDenied, NotFound
from nbdata.integrity.checksum_files import MAX_SIZE
from nbdata.integrity.checksum_names import is_checksum_file
from nbdata.integrity.expectations import Expectations, Expected, collect_expectations
from nbdata.paths import has_glob, is_ours
from nbdata.redaction import redacted
from nbdata.report import Row
from nbdata.stores.base import Location, ObjectInfo
from nbdata.stores.local import LocalStore
from nbdata.transfer.retry import retrying
from nbdata.transfer.sources import Found, find
from nbdata.verbs.md5check import Md5check

__all__ = ["KnownChecksums", "bounded", "known_checksums"]

# Problems of checksum files that are told one by one.
_TOLD = 20


@dataclass
class KnownChecksums:
    """What is known of the files of a data set.

    Attributes
    ----------
    expected : dict of str to Expected
        By checksum files.
    objects : dict of str to ObjectInfo
        By objects of a store, also of files that are missing; what they vouch for is looked at when the file is hashed.
    by_itself : bool
        Whether each object is compared with what its own store says of it, as nobody else says anything.
    by_repair : bool
        Whether files are compared with the SOURCE of ``--repair``, since no checksum file names any of them.
    place : str
        Where the checksum files or objects are.
    missing : list of str
        Files that somebody speaks of and that are not there.
    lost : dict of str to Expected
        The digests of those that are missing.
    extra : set of str
        Files that a complete list leaves out.
    reasons : dict of str to str
        Why a file has no expectation, where more is known than that nothing names it.
    notes : list of str
        Problems of checksum files, bounded.
    looked_for : str
        What was looked for, and where.
    """

    place: str
    looked_for: str
    expected: dict[str, Expected] = field(default_factory=dict)
    objects: dict[str, ObjectInfo] = field(default_factory=dict)
    by_itself: bool = False
    by_repair: bool = False
    missing: list[str] = field(default_factory=list)
    lost: dict[str, Expected] = field(default_factory=dict)
    extra: set[str] = field(default_factory=set)
    reasons: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def take(self, found: Expectations) -> None:
        """Take over what checksum files say."""
        self.expected = found.expected
        self.missing, self.lost = found.missing, found.lost
        self.extra = set(found.extra)
        self.reasons = {p.name: f"{p.message} ({p.source})" for p in found.problems if p.name is not None}
        self.notes += bounded([f"{p.source}: {p.message}" for p in found.problems])

    def knows(self, data: DataSet) -> bool:
        """Whether anything is said of the files that PATH means."""
        return any(map(data.in_scope, self.expected)) or any(map(data.in_scope, self.missing))


def bounded(notes: list[str]) -> list[str]:
    """The first notes, and how many more there are."""
    told = notes[:_TOLD]
    return told if len(notes) <= _TOLD else [*told, f"and {len(notes) - _TOLD:,} more of the kind"]


def known_checksums(run: Run, op: Md5check, data: DataSet) -> KnownChecksums:
    """Find out who vouches for the files: reads listings and checksum files, no data."""
    if op.against is not None:
        return _against(run, op, data, op.against)
    kind = "checksum" if op.algorithm == "auto" else op.algorithm
    known = KnownChecksums(
        data.folder.place, f"a {kind} in NAME.md5 (.sha256 …) or a manifest such as MD5SUMS beside the files"
    )
    known.take(_read(run, op, data.names, data.folder, data.sources, known.notes, separate=False))
    if op.repair is not None and not known.knows(data):
        known = _against(run, op, data, op.repair)
        known.by_repair = True
        known.notes.append(
            f"no checksum file speaks of these files, so each is compared with {redacted(op.repair)}"
        )
        return known
    if not known.knows(data) and not isinstance(data.folder.store, LocalStore):
        known.by_itself = True
        known.extra.clear()
        known.notes.append(
            "no checksum file speaks of these objects, so each is compared with what its own store says "
            "of it: that shows damage since it was stored, not that the right bytes were stored"
        )
        known.looked_for += ", or an MD5 as ETag"
    return known


def _read(
    run: Run,
    op: Md5check,
    names: Iterable[str],
    folder: Location,
    sources: dict[str, ObjectInfo],
    notes: list[str],
    *,
    separate: bool,
) -> Expectations:
    """What the checksum files of a folder say of these names."""
    keys = {name: info.key for name, info in sources.items() if info.size <= MAX_SIZE}
    notes += bounded(
        [f"{name}: too large for a checksum file, not read" for name in sorted(sources.keys() - keys)]
    )
    read = ChecksumReader(run.control, folder.store, keys)
    return collect_expectations(names, keys, read, algorithm=op.algorithm, separate_folder=separate)


# -- --against ------------------------------------------------------------------------------------


def _against(run: Run, op: Md5check, data: DataSet, against: str) -> KnownChecksums:
    found = find(run, against)
    place = found.location.place
    known = KnownChecksums(place, f"checksum files in {place}")
    if found.single is not None:
        return _one_file(run, op, data, found, known)
    remote = not isinstance(found.location.store, LocalStore)
    if remote:
        known.looked_for += f", and objects there with the names of the files and {_kind(op)}"
    if data.single and not has_glob(against) and _quick(run, op, data, found.location, known):
        return known
    sources: dict[str, ObjectInfo] = {}
    objects = run.row_file("against")
    for entry in found.entries:
        if is_ours(entry.path):
            continue
        sums = is_checksum_file(entry.path)
        if sums or has_glob(against):
            sources[entry.path] = entry.info
        # Checksum files that are on both sides are files like others.
        if remote and not has_glob(against) and (not sums or entry.path in data.sources):
            objects.add(Row(entry.path, "", entry.info.size, detail_of(entry.info)))
    objects.close()
    if sources:
        known.take(_elsewhere(run, op, data, found.location, sources, known.notes))
    if remote:
        _take_objects(known, data, objects)
    return known


def _kind(op: Md5check) -> str:
    return "a checksum or an ETag that tells the MD5" if op.algorithm == "auto" else f"a {op.algorithm}"


def _one_file(run: Run, op: Md5check, data: DataSet, found: Found, known: KnownChecksums) -> KnownChecksums:
    """``--against`` a checksum file, or the object that a single file is to equal."""
    assert found.single is not None
    name = posixpath.basename(found.single.key)
    remote = not isinstance(found.location.store, LocalStore)
    if remote and data.single == name and not is_checksum_file(name):
        known.objects[data.single] = found.single
        known.looked_for = f"{_kind(op)} of {found.location.place}"
        return known
    known.looked_for = f"a checksum in {found.location.place}"
    folder = parent(found.location)
    known.take(_elsewhere(run, op, data, folder, {name: found.single}, known.notes))
    return known


def _quick(run: Run, op: Md5check, data: DataSet, folder: Location, known: KnownChecksums) -> bool:
    """Whether what has the single file's name vouches for it: saves listing a large folder."""
    sources = {entry.path: entry.info for entry in beside(run.control, folder, data.single)}
    if sources:
        read = _read(run, op, data.names, folder, sources, known.notes, separate=True)
        if data.single in read.expected:
            known.take(read)
            return True
    if isinstance(folder.store, LocalStore):
        return False
    try:
        found = retrying(run.control, lambda: folder.store.head(folder.key + data.single))
    except (NotFound, AccessDenied):
        return False
    known.objects[data.single] = found
    return True


def _elsewhere(
    run: Run, op: Md5check, data: DataSet, folder: Location, sources: dict[str, ObjectInfo], notes: list[str]
) -> Expectations:
    """What checksum files of another folder say.

    Those of a folder above the data may name the files from there (``md5sum data/* > data.md5``) or from
    within; whichever tells more is meant.
    """
    names = data.names | data.sources.keys()  # a list may name the checksum files of the data too
    within = (
        data.folder.place.removeprefix(folder.place) if data.folder.place.startswith(folder.place) else ""
    )
    read = _read(run, op, names, folder, sources, notes, separate=data.folder.place != folder.place)
    if within and len(read.expected) < len(data.names):
        above = _read(run, op, (within + name for name in names), folder, sources, [], separate=True)
        if len(above.expected) > len(read.expected):
            read = _below(above, within)
    return read


def _below(above: Expectations, within: str) -> Expectations:
    """What is said of one folder, with paths relative to it."""
    cut = len(within)

    def here(names: Iterable[str]) -> list[str]:
        return [name[cut:] for name in names if name.startswith(within)]

    return Expectations(
        {name[cut:]: expected for name, expected in above.expected.items()},
        here(above.extra),
        here(above.unverifiable),
        here(above.missing),
        {name[cut:]: expected for name, expected in above.lost.items() if name.startswith(within)},
        [
            type(p)(p.source, p.message, p.name[cut:] if p.name and p.name.startswith(within) else None)
            for p in above.problems
        ],
    )


def _take_objects(known: KnownChecksums, data: DataSet, objects: Iterable[Row]) -> None:
    """Let the objects of a store vouch for the files for which no checksum file does."""
    not_here: list[str] = []
    there: set[str] = set()
    sums: list[Row] = []
    for row in objects:
        if row.path in data.sources:
            sums.append(row)
        elif row.path in data.names:
            there.add(row.path)
            # Where checksum files contradict each other, a third voice does not settle it.
            if row.path not in known.expected and row.path not in known.reasons:
                known.objects[row.path] = info_of(row)
        else:
            not_here.append(row.path)
            known.objects.setdefault(row.path, info_of(row))
    if there:  # else these are not the data, but what is said of them
        known.objects |= {row.path: info_of(row) for row in sums if row.path not in known.expected}
    if there or not data.names:
        known.missing = sorted({*known.missing, *not_here})
        known.extra = data.names - there - known.expected.keys() - known.reasons.keys()
