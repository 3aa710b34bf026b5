"""Find the digest that each file of a data set should have, and the checksum file that states it.

A checksum file is read in one of two ways.

*Sidecar*: ``NAME.md5`` is for ``NAME`` if it holds only the digest, or one entry with the base name of ``NAME``. The
entry's folder may be one of the creator's machine: ``/home/x/NAME``, ``./NAME``. If the entry, taken as a path, leads
to another file of the data set, it is for that file, as in ``md5sum -c``.

*List*: all other checksum files. These are manifests (``MD5SUMS``, ``checksums.txt`` …), and ``*.md5`` files with
several entries or with one entry for another file. Names are relative to the folder of the list, if they are there
(`nbdata.integrity.listed_names`).

A digest without a name in a checksum file whose own name leads to no file, such as ``f1.md5`` beside ``f1.bin``, is for
the only file of its folder that it fits: of those that are called ``f1.…``, else of all.

Checksum files in a separate folder mirror the data set, or lie there in any other unambiguous way. Consider a sidecar
whose own path leads to no file, and whose folder the data set does not have. It is for the only file of that base name.
Names in a list are relative to the list's folder or to the root of the data set, whichever finds more files.

If sources disagree, or a name is unsafe, nothing is guessed: that is a `Problem`.
"""

from __future__ import annotations

import ntpath
import posixpath
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from nbdata.algorithms import ALGORITHMS
from nbdata.errors import BadOption
from nbdata.integrity.checksum_files import ChecksumFile, Entry, parse_checksums
from nbdata.integrity.checksum_names import (
    SIDECAR_SUFFIXES,
    is_checksum_file,
    is_manifest,
    owner_of,
)
from nbdata.integrity.listed_names import DataNames, resolve, written
from nbdata.redaction import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

__all__ = [
    "SIDECAR_SUFFIXES",
    "Expectations",
    "Expected",
    "Problem",
    "collect_expectations",
    "is_checksum_file",
]


# The most digests in all checksum files together: so many, and so many more for each file.
_MOST_DIGESTS, _MOST_FOR_A_FILE = 2_000_000, 8
# The most digests of a list, of those that are for no file here, that are told one by one.
_TOLD = 1000


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected digest of a file.

    Attributes
    ----------
    algorithm, digest : str
        One of `nbdata.algorithms.ALGORITHMS`, and the digest in lower-case hex.
    source : str
        The name of the checksum file with this digest.
    conclusive : bool
        False if an equal digest proves the bytes but a different one proves nothing (see `nbdata.integrity.etags`).
    """

    algorithm: str
    digest: str
    source: str
    conclusive: bool = True


@dataclass(frozen=True)
class Problem:
    """A reason why a checksum file, or a part of it, cannot be used.

    Attributes
    ----------
    source : str
        The checksum file; several are joined by ``", "``.
    message : str
        What is wrong with it.
    name : str or None
        The data file that has no expectation for this reason, if it concerns one.
    harmless : bool
        True if no checksum is lost by it: the line is plain text, or of an algorithm that nbdata does not know.
    """

    source: str
    message: str
    name: str | None = None
    harmless: bool = False


@dataclass(frozen=True)
class Expectations:
    """The expectations for a data set. Each of its files is in exactly one of the first three.

    Attributes
    ----------
    expected : dict of str to Expected
        The expected digests of files.
    extra : list of str
        Files that no source names, in a folder of which a *complete* manifest names other files. A list is complete if
        each of its lines could be read and used, and if it has the name of a manifest or names several files.
    unverifiable : list of str
        All other files: no source names them, or none with the requested algorithm, or the sources disagree.
    missing : list of str
        Files that a checksum file names but that the data set does not have.
    lost : dict of str to Expected
        The digests of missing files, if the sources agree.
    problems : list of Problem
        Problems to report. A check with problems has not checked everything.
    notes : list of str
        Names that were taken for files which they do not name as they are written.
    """

    expected: dict[str, Expected] = field(default_factory=dict)
    extra: list[str] = field(default_factory=list)
    unverifiable: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    lost: dict[str, Expected] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def collect_expectations(
    data_names: Iterable[str],
    checksum_names: Iterable[str],
    read: Callable[[str], bytes],
    *,
    algorithm: str = "auto",
    separate_folder: bool = False,
    others: Callable[[], Collection[str] | None] = tuple,
) -> Expectations:
    """Find the digest that each file should have.

    Parameters
    ----------
    data_names : iterable of str
        All files to check, relative to the root of the data set, with ``/``. A file that is not listed here but is
        named in a checksum file counts as missing.
    checksum_names : iterable of str
        The checksum files, relative to their root. They are not checked themselves, unless they are among `data_names`
        too. A list's entry for itself is ignored, since a list cannot hold its own digest.
    read : callable
        Returns the bytes of a checksum file. Called once per file; its errors are passed on.
    algorithm : str
        One of `nbdata.algorithms.ALGORITHMS`. ``"auto"`` takes the strongest algorithm known for each file.
    separate_folder : bool
        Whether the checksum files have their own root (``--against``).
    others : callable
        Returns the files there that are not to be checked, to which a digest without a name could belong as well; None
        if they are not known: then it belongs to none. Called at most once, and only for such a digest.

    Raises
    ------
    BadOption
        If the algorithm is unknown.
    """
    if algorithm != "auto" and algorithm not in ALGORITHMS:
        raise BadOption(
            f"algorithm: {algorithm!r} is not known", remedy=f"Choose auto or one of {', '.join(ALGORITHMS)}"
        )
    collector = _Collector(data_names, checksum_names, separate_folder=separate_folder, others=others)
    for source in sorted(collector.sources):
        try:
            content = read(source)
        except BadOption:
            collector.problems.append(Problem(source, "too large for a checksum file, not read"))
        else:
            collector.add(source, content)
    return collector.result((algorithm,) if algorithm != "auto" else tuple(ALGORITHMS))


class _Collector:
    """Collects the claims of all checksum files, and decides only when all are read."""

    def __init__(
        self,
        data: Iterable[str],
        sources: Iterable[str],
        *,
        separate_folder: bool,
        others: Callable[[], Collection[str] | None],
    ) -> None:
        self.data = set(data)
        self.sources = set(sources)
        self.separate, self.others = separate_folder, others
        self.claims: defaultdict[str, list[Expected]] = defaultdict(list)
        self.left = _MOST_DIGESTS + _MOST_FOR_A_FILE * len(self.data)
        self.complete_folders: set[str] = set()
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.names = DataNames(self.data)
        if separate_folder:
            self.data_folders = set(map(posixpath.dirname, self.data))
            self.data_by_base = _by_base_name(self.data)
            self.sources_by_base = _by_base_name(self.sources)
            self.namesakes: dict[str, tuple[list[str], list[str]]] = {}

    def add(self, source: str, content: bytes) -> None:
        """Read one checksum file."""
        if self.left < 0:
            self.problems.append(Problem(source, "not read: the lists before it have too many digests"))
            return
        parsed = parse_checksums(content, name=source)
        self.left -= len(parsed.entries)
        for problem in parsed.problems:
            where = f"line {problem.line}: " if problem.line else ""
            self.problems.append(Problem(source, where + problem.message, harmless=problem.harmless))
        if not parsed.entries and not parsed.problems:
            self.problems.append(Problem(source, "holds no checksum"))
        owner = owner_of(source)
        if owner not in self.data and len(parsed.entries) == 1 and parsed.entries[0].name is None:
            fits = self._only_fit(source, owner)
            if fits is not None:
                self.notes.append(
                    f"{source}: its digest has no name, and was taken for that of {shortened(fits)}"
                )
                self._claim(fits, parsed.entries[0], source)
                return
        if owner in self.data and not parsed.entries:
            self.claims[owner]  # named, though without a known digest: so it is not extra
        elif owner and self._is_sidecar(parsed.entries, owner):
            self._add_sidecar(source, owner, parsed.entries[0])
        else:
            self._add_list(source, posixpath.dirname(source), parsed)

    def _only_fit(self, source: str, owner: str | None) -> str | None:
        """Return the only file of a checksum file's folder that a digest without a name can be for."""
        there = [] if self.separate else self.by_folder.get(posixpath.dirname(source), [])
        alike = [name for name in there if owner is not None and name.startswith(f"{owner}.")]
        (only,) = alike or there if len(alike or there) == 1 else (None,)
        return only if only in self.data else None

    @cached_property
    def by_folder(self) -> dict[str, list[str]]:
        """The files that have no sidecar of their own, and the others, by folder; empty if these are not known."""
        others = self.others()
        if others is None:
            return {}
        with_sidecar = {owner for source in self.sources if (owner := owner_of(source))}
        grouped: defaultdict[str, list[str]] = defaultdict(list)
        for name in {*self.data, *others} - with_sidecar:
            grouped[posixpath.dirname(name)].append(name)
        return dict(grouped)

    def _is_sidecar(self, entries: list[Entry], owner: str) -> bool:
        if len(entries) != 1:
            return False
        name = entries[0].name
        if name is None:
            return True
        folder, base = posixpath.split(owner)
        if base not in (posixpath.basename(name), ntpath.basename(name)):
            return False
        named = written(folder, name)
        return named == owner or named not in self.data

    def _add_sidecar(self, source: str, owner: str, entry: Entry) -> None:
        if self.separate and owner not in self.data:
            files, sidecars = self._namesakes(source, owner)
            folder = posixpath.dirname(source)
            if files and (not folder or folder not in self.data_folders):
                if len(files) > 1 or len(sidecars) > 1:
                    message = (
                        f"cannot tell whose it is: {len(files)} files, {len(sidecars)} sidecars of that name"
                    )
                    self.problems.append(Problem(source, message))
                    return
                owner = files[0]
        self._claim(owner, entry, source)

    def _namesakes(self, source: str, owner: str) -> tuple[list[str], list[str]]:
        """Return files with the owner's base name but no sidecar at their path, and such sidecars without a file.

        Only these can belong to each other. Computed once per name, because a data set may have one base name in a
        hundred thousand folders.
        """
        base, suffix = posixpath.basename(source), source[len(owner) :]
        if base not in self.namesakes:
            files = self.data_by_base.get(base.removesuffix(suffix), [])
            sidecars = self.sources_by_base[base]
            self.namesakes[base] = (
                [name for name in files if name + suffix not in self.sources],
                [name for name in sidecars if name.removesuffix(suffix) not in self.data],
            )
        return self.namesakes[base]

    def _add_list(self, source: str, folder: str, parsed: ChecksumFile) -> None:
        if self.separate and folder:

            def matches(base: str) -> int:
                return sum(written(base, entry.name) in self.data for entry in parsed.entries)

            folder = "" if matches("") > matches(folder) else folder
        resolved = resolve(
            [entry.name for entry in parsed.entries], self.names, folder, "" if self.separate else folder
        )
        if resolved.example is not None:
            self.notes.append(_moved(source, resolved.moved, *resolved.example))
        names: set[str] = set()
        unused = 0
        for entry, name in zip(parsed.entries, resolved.paths, strict=True):
            if name is None:
                unused += 1
                if unused > _TOLD:
                    continue
                message = "a digest among several has no file name"
                if entry.name is not None:
                    message = (
                        f"{shortened(entry.name)!r} leads elsewhere, and no single file here has its last parts: "
                        "it must be relative to the list, without '..'"
                    )
                self.problems.append(Problem(source, message))
            elif name in self.data or name not in self.sources:
                names.add(name)
                if name != source or self.separate:
                    self._claim(name, entry, source)
        if unused > _TOLD:
            self.problems.append(Problem(source, f"{unused - _TOLD:,} more digests are for no file here"))
        if not (unused or parsed.problems) and (is_manifest(source) or len(names) > 1):
            self.complete_folders.update({name.rpartition("/")[0] for name in names})

    def _claim(self, name: str, entry: Entry, source: str) -> None:
        self.claims[name].append(Expected(entry.algorithm, entry.digest, source))

    def result(self, algorithms: tuple[str, ...]) -> Expectations:
        """Return the expectations, with the first of these algorithms that is known for each file."""
        result = Expectations(problems=self.problems, notes=self.notes)
        for name in sorted(self.data | self.claims.keys()):
            heard = self.claims.get(name)
            if heard and len(heard) == 1 and heard[0].algorithm in algorithms and name in self.data:
                result.expected[name] = heard[0]
                continue
            by_algorithm: dict[str, list[Expected]] = {}
            for claim in self.claims.get(name, ()):
                by_algorithm.setdefault(claim.algorithm, []).append(claim)
            disputed = {each for each, claims in by_algorithm.items() if len({c.digest for c in claims}) > 1}
            for each in sorted(disputed):
                sources = ", ".join(sorted({claim.source for claim in by_algorithm[each]}))
                digests = " and ".join(sorted({claim.digest for claim in by_algorithm[each]})[:2])
                message = f"different {each} digests for {name}: {digests}"
                result.problems.append(Problem(sources, message, name))
            chosen = next((each for each in algorithms if each in by_algorithm), None)
            if name not in self.data:
                result.missing.append(name)
                if chosen and chosen not in disputed:
                    result.lost[name] = by_algorithm[chosen][0]
            elif chosen and chosen not in disputed:
                result.expected[name] = by_algorithm[chosen][0]
            elif name not in self.claims and posixpath.dirname(name) in self.complete_folders:
                result.extra.append(name)
            else:
                result.unverifiable.append(name)
        return result


def _by_base_name(names: Iterable[str]) -> dict[str, list[str]]:
    grouped: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        grouped[posixpath.basename(name)].append(name)
    return dict(grouped)


def _moved(source: str, count: int, example: str, path: str) -> str:
    others = f" ({count:,} names of this kind)" if count > 1 else ""
    return f"{source}: {shortened(example)!r} was taken for {shortened(path)}{others}"
