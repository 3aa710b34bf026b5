"""Which digest each file of a data set should have, and which checksum file says so.

A checksum file is read in one of two ways.

*Sidecar*: ``NAME.md5`` is for ``NAME`` if it holds the digest alone, or one entry whose base name is that of
``NAME`` (its folder may be one of the creator's machine: ``/home/x/NAME``, ``./NAME``). If such an entry,
taken as a path, leads to another file of the data set, it is for that one, as ``md5sum -c`` would have it.

*List*: everything else: manifests (``MD5SUMS``, ``checksums.txt`` …), and ``*.md5`` with several entries or
with one that names another file. Names are relative to the folder of the list.

If the checksum files are in another folder, they mirror the data set, or lie there in any other way as long
as that is unambiguous. A sidecar whose own path leads to no file, and whose folder the data set does not have
either, is for the only file of that base name. The names in a list are relative to the list's folder or to
the root of the data set, whichever finds more of them.

Nothing is guessed where sources disagree or a name is unsafe: that is a `Problem`.
"""

from __future__ import annotations

import ntpath
import posixpath
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nbdata.errors import BadOption
from nbdata.integrity.checksum_files import ChecksumFile, Entry, parse_checksums
from nbdata.integrity.checksum_names import (
    SIDECAR_SUFFIXES,
    algorithm_in,
    is_checksum_file,
    is_manifest,
    owner_of,
)
from nbdata.integrity.digests import ALGORITHMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "SIDECAR_SUFFIXES",
    "Expectations",
    "Expected",
    "Problem",
    "collect_expectations",
    "is_checksum_file",
]


@dataclass(frozen=True, slots=True)
class Expected:
    """The digest that a file should have.

    Attributes
    ----------
    algorithm, digest : str
        One of `ALGORITHMS`, and lower-case hexadecimal digits.
    source : str
        Who says so: the name of the checksum file.
    conclusive : bool
        False if an equal digest proves the bytes but a different one proves nothing (see
        `nbdata.integrity.etags`).
    """

    algorithm: str
    digest: str
    source: str
    conclusive: bool = True


@dataclass(frozen=True)
class Problem:
    """What keeps a checksum file, or a part of it, from being used.

    Attributes
    ----------
    source : str
        The checksum file; several are joined by ``", "``.
    message : str
        What is wrong with it.
    name : str or None
        The data file that is without an expectation because of it, if it is about one.
    """

    source: str
    message: str
    name: str | None = None


@dataclass(frozen=True)
class Expectations:
    """What is expected of a data set; each of its files is in exactly one of the first three.

    Attributes
    ----------
    expected : dict of str to Expected
        The files with a digest.
    extra : list of str
        Files that nothing names, in a folder of which a *complete* manifest names other files. A list is
        complete if each of its lines could be read and used, and if it bears the name of a manifest or
        names several files.
    unverifiable : list of str
        All other files: nothing names them, or not with the algorithm asked for, or the sources disagree.
    missing : list of str
        Files that a checksum file names but the data set does not have.
    lost : dict of str to Expected
        The digests of those that are missing, where the sources agree.
    problems : list of Problem
        To be reported; a check with problems has not checked everything.
    """

    expected: dict[str, Expected] = field(default_factory=dict)
    extra: list[str] = field(default_factory=list)
    unverifiable: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    lost: dict[str, Expected] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def collect_expectations(
    data_names: Iterable[str],
    checksum_names: Iterable[str],
    read: Callable[[str], bytes],
    *,
    algorithm: str = "auto",
    separate_folder: bool = False,
) -> Expectations:
    """Find the digest that each file should have.

    Parameters
    ----------
    data_names : iterable of str
        The files to check, all of them, relative to the root of the data set, with ``/``: a file that is
        left out here and named in a checksum file counts as missing.
    checksum_names : iterable of str
        The checksum files, relative to their root. They are not checked themselves, unless they are
        among `data_names` too; no list is asked about itself, as it cannot hold its own digest.
    read : callable
        Gives the bytes of a checksum file, called once for each; its errors pass through.
    algorithm : str
        One of `ALGORITHMS`; ``"auto"``: the strongest that is known for a file.
    separate_folder : bool
        Whether the checksum files have a root of their own (``--against``).

    Raises
    ------
    BadOption
        If there is no such algorithm.
    """
    if algorithm != "auto" and algorithm not in ALGORITHMS:
        raise BadOption(
            f"algorithm: {algorithm!r} is not known", remedy=f"Choose auto or one of {', '.join(ALGORITHMS)}"
        )
    collector = _Collector(data_names, checksum_names, separate_folder=separate_folder)
    for source in sorted(collector.sources):
        collector.add(source, read(source))
    return collector.result((algorithm,) if algorithm != "auto" else ALGORITHMS)


class _Collector:
    """Gathers what each checksum file claims; decides only when all have been heard."""

    def __init__(self, data: Iterable[str], sources: Iterable[str], *, separate_folder: bool) -> None:
        self.data = set(data)
        self.sources = set(sources)
        self.separate = separate_folder
        self.claims: defaultdict[str, list[Expected]] = defaultdict(list)
        self.complete_folders: set[str] = set()
        self.problems: list[Problem] = []
        if separate_folder:
            self.data_folders = set(map(posixpath.dirname, self.data))
            self.data_by_base = _by_base_name(self.data)
            self.sources_by_base = _by_base_name(self.sources)
            self.namesakes: dict[str, tuple[list[str], list[str]]] = {}

    def add(self, source: str, content: bytes) -> None:
        """Hear one checksum file."""
        found = parse_checksums(content, algorithm=algorithm_in(source))
        for problem in found.problems:
            where = f"line {problem.line}: " if problem.line else ""
            self.problems.append(Problem(source, where + problem.message))
        if not found.entries and not found.problems:
            self.problems.append(Problem(source, "holds no checksum"))
        owner = owner_of(source)
        if owner in self.data and not found.entries:
            self.claims[owner]  # named, though nobody knows with which digest: not extra
        elif owner and self._is_sidecar(found.entries, owner):
            self._add_sidecar(source, owner, found.entries[0])
        else:
            self._add_list(source, posixpath.dirname(source), found)

    def _is_sidecar(self, entries: list[Entry], owner: str) -> bool:
        if len(entries) != 1:
            return False
        name = entries[0].name
        if name is None:
            return True
        folder, base = posixpath.split(owner)
        if base not in (posixpath.basename(name), ntpath.basename(name)):
            return False
        named = _resolve(folder, name)
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
        """Files of the owner's base name without a sidecar at their path, and such sidecars without a file.

        Only these can be meant for each other. Found once for each name: data sets may have one base name
        in a hundred thousand folders.
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

    def _add_list(self, source: str, folder: str, found: ChecksumFile) -> None:
        if self.separate and folder:

            def matches(base: str) -> int:
                return sum(_resolve(base, entry.name) in self.data for entry in found.entries)

            folder = "" if matches("") > matches(folder) else folder
        names: set[str] = set()
        usable = not found.problems
        for entry in found.entries:
            name = _resolve(folder, entry.name)
            if name is None:
                usable = False
                message = "a digest among several has no file name"
                if entry.name is not None:
                    kind = "absolute" if entry.name.startswith("/") else "unsafe"
                    message = f"{kind} name {entry.name!r}: it must be relative to the list, without '..'"
                self.problems.append(Problem(source, message))
            elif name in self.data or name not in self.sources:
                names.add(name)
                if name != source or self.separate:
                    self._claim(name, entry, source)
        if usable and (is_manifest(source) or len(names) > 1):
            self.complete_folders.update({name.rpartition("/")[0] for name in names})

    def _claim(self, name: str, entry: Entry, source: str) -> None:
        self.claims[name].append(Expected(entry.algorithm, entry.digest, source))

    def result(self, algorithms: tuple[str, ...]) -> Expectations:
        """The expectations, with the first of these algorithms that is known for a file."""
        result = Expectations(problems=self.problems)
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
                result.problems.append(Problem(sources, f"different {each} digests for {name}", name))
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


def _resolve(folder: str, name: str | None) -> str | None:
    """The path that a list in `folder` means; None if it has no name or one that could lead outside.

    Any ``..`` is refused, also one that stays inside: through a link, ``a/../b`` need not be ``b``.
    """
    if name is None or name.startswith("/") or (".." in name and ".." in name.split("/")):
        return None
    path = f"{folder}/{name}" if folder else name
    if name and path[0] not in "./" and path[-1] != "/" and "//" not in path and "/." not in path:
        return path  # as `normpath` would leave it
    return posixpath.normpath(posixpath.join(folder, name))
