"""Collect the known checksums of a data set: from checksum files beside it or elsewhere, or from a store.

``--against`` may name a checksum file, a folder of them, or a store's folder with the data itself. The last two
are distinguished by their content, not by their name: checksum files that refer to the data come first. For files
that they do not name, the stored checksum or ETag of an object at the same relative path counts. If any file has
such an object, the folder counts as a copy of the data: a file only there is then *missing*, and a file only here
is *extra*.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from nbdata.engine.check.datasets import DataSet, beside, parent
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
from nbdata.transfer.checksum_reader import ChecksumReader
from nbdata.transfer.retry import retrying
from nbdata.transfer.sources import Found, find
from nbdata.verbs.md5check import Md5check

__all__ = ["KnownChecksums", "bounded", "known_checksums"]

# Most problems of checksum files that are listed one by one.
_TOLD = 20


@dataclass
class KnownChecksums:
    """The known checksums of a data set.

    Attributes
    ----------
    expected : dict of str to Expected
        The expectations from checksum files.
    objects : dict of str to ObjectInfo
        Objects of a store to compare with, also for missing files; their checksum is read when the file is hashed.
    by_itself : bool
        Whether each object is compared with the checksum in its own store, as there is no other.
    by_repair : bool
        Whether files are compared with the SOURCE of ``--repair``, since no checksum file names any of them.
    place : str
        The place of the checksum files or objects.
    missing : list of str
        Named files that do not exist.
    lost : dict of str to Expected
        The digests of missing files.
    extra : set of str
        Files that are not in a complete list.
    reasons : dict of str to str
        The files whose checksum files contradict each other, or one that contradicts itself, with what they say.
    unreadable : dict of str to str
        The checksum files with lines that cannot be read or used, with the first such line.
    notes : list of str
        Problems of checksum files, limited in number.
    looked_for : str
        A description of what was looked for, and where.
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
    unreadable: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def take(self, expectations: Expectations) -> None:
        """Take over the content of checksum files."""
        self.expected = expectations.expected
        self.missing, self.lost = expectations.missing, expectations.lost
        self.extra = set(expectations.extra)
        self.reasons = {
            p.name: f"{p.message} ({p.source})" for p in expectations.problems if p.name is not None
        }
        self.notes += bounded([f"{p.source}: {p.message}" for p in expectations.problems]) + bounded(
            expectations.notes
        )
        unreadable = [p for p in expectations.problems if p.name is None and not p.harmless]
        lines = Counter(p.source for p in unreadable)
        for problem in unreadable:
            more = f" (and {lines[problem.source] - 1:,} more)" if lines[problem.source] > 1 else ""
            self.unreadable.setdefault(problem.source, problem.message + more)

    def knows(self, data: DataSet) -> bool:
        """True if anything is known about the files of PATH."""
        return any(map(data.in_scope, self.expected)) or any(map(data.in_scope, self.missing))


def bounded(notes: list[str]) -> list[str]:
    """The first notes, and the number of further ones."""
    shown = notes[:_TOLD]
    return shown if len(notes) <= _TOLD else [*shown, f"and {len(notes) - _TOLD:,} more of this kind"]


def known_checksums(run: Run, op: Md5check, data: DataSet) -> KnownChecksums:
    """Find the known checksums of the files; reads listings and checksum files, but no data."""
    if op.against is not None:
        return _against(run, op, data, op.against)
    kind = "checksum" if op.algorithm == "auto" else op.algorithm
    known = KnownChecksums(
        data.folder.place, f"a {kind} in NAME.md5 (.sha256 …) or a manifest such as MD5SUMS beside the files"
    )
    known.take(_read(run, op, data.names, data.folder, data.sources, known.notes, others=data.others))
    if op.repair is not None and not known.knows(data):
        known = _against(run, op, data, op.repair)
        known.by_repair = True
        known.notes.append(
            f"no checksum file lists these files, so each is compared with {redacted(op.repair)}"
        )
        return known
    if not known.knows(data) and not isinstance(data.folder.store, LocalStore):
        known.by_itself = True
        known.extra.clear()
        known.notes.append(
            "no checksum file lists these objects, so each is compared with the checksum in its own store: that "
            "shows damage since the upload, but not whether the right bytes were uploaded"
        )
        known.looked_for += ", or an MD5 as ETag"
    return known


def _unknown() -> None:
    return None


def _read(
    run: Run,
    op: Md5check,
    names: Iterable[str],
    folder: Location,
    sources: dict[str, ObjectInfo],
    notes: list[str],
    *,
    separate: bool = False,
    others: Callable[[], Collection[str] | None] = _unknown,
) -> Expectations:
    """The expectations for these names from the checksum files of a folder."""
    keys = {name: info.key for name, info in sources.items() if info.size <= MAX_SIZE}
    notes += bounded(
        [f"{name}: too large for a checksum file, not read" for name in sorted(sources.keys() - keys)]
    )
    read = ChecksumReader(run.control, folder.store, keys)
    return collect_expectations(
        names, keys, read, algorithm=op.algorithm, separate_folder=separate, others=others
    )


# -- --against ------------------------------------------------------------------------------------


def _against(run: Run, op: Md5check, data: DataSet, against: str) -> KnownChecksums:
    source = find(run, against)
    place = source.location.place
    known = KnownChecksums(place, f"checksum files in {place}")
    if source.single is not None:
        return _one_file(run, op, data, source, known)
    remote = not isinstance(source.location.store, LocalStore)
    if remote:
        known.looked_for += f", and objects there with the names of the files and {_kind(op)}"
    if data.single and not has_glob(against) and _quick(run, op, data, source.location, known):
        return known
    sources: dict[str, ObjectInfo] = {}
    objects = run.row_file("against")
    for entry in source.entries:
        if is_ours(entry.path):
            continue
        sums = is_checksum_file(entry.path)
        if sums or has_glob(against):
            sources[entry.path] = entry.info
        # Checksum files that exist on both sides count as data.
        if remote and not has_glob(against) and (not sums or entry.path in data.sources):
            objects.add(Row(entry.path, "", entry.info.size, detail_of(entry.info)))
    objects.close()
    if sources:
        known.take(_elsewhere(run, op, data, source.location, sources, known.notes))
    if remote:
        _take_objects(known, data, objects)
    return known


def _kind(op: Md5check) -> str:
    return "a checksum, or an ETag that is an MD5" if op.algorithm == "auto" else f"a {op.algorithm}"


def _one_file(run: Run, op: Md5check, data: DataSet, source: Found, known: KnownChecksums) -> KnownChecksums:
    """Handle ``--against`` a checksum file, or an object that a single file must equal."""
    assert source.single is not None
    name = posixpath.basename(source.single.key)
    remote = not isinstance(source.location.store, LocalStore)
    if remote and data.single == name and not is_checksum_file(name):
        known.objects[data.single] = source.single
        known.looked_for = f"{_kind(op)} of {source.location.place}"
        return known
    known.looked_for = f"a checksum in {source.location.place}"
    folder = parent(source.location)
    known.take(_elsewhere(run, op, data, folder, {name: source.single}, known.notes))
    return known


def _quick(run: Run, op: Md5check, data: DataSet, folder: Location, known: KnownChecksums) -> bool:
    """Look up the checksum of a single file by name, to avoid listing a large folder; True if there is one."""
    sources = {entry.path: entry.info for entry in beside(run.control, folder, data.single)}
    if sources:
        read = _read(run, op, data.names, folder, sources, known.notes, separate=True)
        # If checksum files contradict each other, an object does not decide.
        if data.single in read.expected or any(p.name == data.single for p in read.problems):
            known.take(read)
            return True
    if isinstance(folder.store, LocalStore):
        return False
    try:
        info = retrying(run.control, lambda: folder.store.head(folder.key + data.single))
    except (NotFound, AccessDenied):
        return False
    known.objects[data.single] = info
    return True


def _elsewhere(
    run: Run, op: Md5check, data: DataSet, folder: Location, sources: dict[str, ObjectInfo], notes: list[str]
) -> Expectations:
    """The expectations from checksum files of another folder.

    Checksum files in a folder above the data may name files relative to that folder (``md5sum data/* > data.md5``) or
    to the data folder; the reading that matches more files is used, and of two alike that of the names as written.
    """
    names = data.names | data.sources.keys()  # a list may also name the checksum files of the data
    within = (
        data.folder.place.removeprefix(folder.place) if data.folder.place.startswith(folder.place) else ""
    )
    read = _read(run, op, names, folder, sources, notes, separate=data.folder.place != folder.place)
    if within and (len(read.expected) < len(data.names) or read.notes):
        above = _read(run, op, (within + name for name in names), folder, sources, [], separate=True)
        if (len(above.expected), not above.notes) > (len(read.expected), not read.notes):
            read = _below(above, within)
    return read


def _below(above: Expectations, within: str) -> Expectations:
    """The expectations for one folder, with paths relative to it."""
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
            replace(p, name=p.name[cut:] if p.name.startswith(within) else None) if p.name else p
            for p in above.problems
        ],
        above.notes,
    )


def _take_objects(known: KnownChecksums, data: DataSet, objects: Iterable[Row]) -> None:
    """Compare files that no checksum file names with the objects of a store."""
    not_here: list[str] = []
    there: set[str] = set()
    sums: list[Row] = []
    for row in objects:
        if row.path in data.sources:
            sums.append(row)
        elif row.path in data.names:
            there.add(row.path)
            # If checksum files contradict each other, an object does not decide.
            if row.path not in known.expected and row.path not in known.reasons:
                known.objects[row.path] = info_of(row)
        else:
            not_here.append(row.path)
            known.objects.setdefault(row.path, info_of(row))
    if there:  # else this is no copy of the data, but a folder of checksum files
        known.objects |= {row.path: info_of(row) for row in sums if row.path not in known.expected}
    if there or not data.names:
        known.missing = sorted({*known.missing, *not_here})
        known.extra = data.names - there - known.expected.keys() - known.reasons.keys()
