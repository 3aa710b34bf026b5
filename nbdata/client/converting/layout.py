"""Decides which files a split becomes and where they lie, and checks which exist already."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from nbdata.acls import default_of, drop_foreign
from nbdata.client.converting.contract import Split
from nbdata.client.converting.finished import (
    close_as,
    has_only_its_files,
    is_changed,
    is_proven,
    is_sealed,
    read_record,
    sealed_values,
    version,
)
from nbdata.client.converting.split_files import RECORD, refuse_others
from nbdata.disk import make_folders, sync_folder, write_file
from nbdata.errors import BadOption, NbdataError
from nbdata.formats.ffrecord import FIXED, SUFFIX, count_in, head_size
from nbdata.guarded_folders import GuardedFolders, exchanged_folder
from nbdata.guarded_trees import Below
from nbdata.made_folders import MadeFolders, unproven
from nbdata.optional_calls import fsync
from nbdata.own_files import (
    is_own_file,
    make_own_folder,
    open_own_folder,
    own_folder,
    without_waiting,
)
from nbdata.paths import CONVERTING
from nbdata.seals import Seals

__all__ = [
    "Part",
    "SplitPlan",
    "make_unfinished_folder",
    "mend",
    "opened_unfinished_folder",
    "planned",
    "unfinished_folder",
]

# Beside the folder of an unfinished split: the identity of the conversion and its whole parts, with a seal.
_BEGUN = ".begun"
# Flags to hold what has a name, whatever it is.
_ANYTHING = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Suffix of the folder that a finished split replaces.
_OLD = ".old"
# Samples whose size is read beforehand, and most files of a split: the values of FFRecord's converters.
_LOOKED_AT = 100
_MOST_FILES = 200


def unfinished_folder(folder: str, *names: str) -> str:
    """Return the folder of splits that are still being made, or a folder below it.

    Raises
    ------
    UnsafeMember
        If one of nbdata's own folders there is a link.
    """
    return own_folder(folder, CONVERTING, *names)


def make_unfinished_folder(folder: str) -> str:
    """Make the folder of splits that are still being made, if it is not there, and return its path.

    Only this user can enter it. The folders of the splits in it have the permissions of any new folder, because they
    get their final names later.

    Raises
    ------
    UnsafeMember
        As `unfinished_folder`.
    FileNotFoundError
        If another conversion that ended has removed it. Try again.
    """
    make_folders(folder, 0o777)
    make_own_folder(folder)
    _, own = open_own_folder(folder)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(CONVERTING, 0o700, dir_fd=own)
        with contextlib.suppress(OSError):  # not every disk can
            fsync(own)
    finally:
        os.close(own)
    with contextlib.suppress(OSError):
        sync_folder(folder)
    return unfinished_folder(folder)


@contextlib.contextmanager
def opened_unfinished_folder(folder: str) -> Iterator[tuple[int, int]]:
    """Open the own folder of a data set, and the folder of its unfinished splits in there, through no link."""
    unfinished_folder(folder)
    _, own = open_own_folder(folder)
    try:
        fd = os.open(CONVERTING, _FOLDER, dir_fd=own)
        try:
            yield own, fd
        finally:
            os.close(fd)
    finally:
        os.close(own)


@dataclass(frozen=True)
class Part:
    """One file of a split, and its samples."""

    name: str
    start: int
    stop: int


@dataclass
class SplitPlan:
    """The plan for one split.

    Attributes
    ----------
    split : Split
    folder : str
        The folder of the data set.
    identity : str
        A digest of all that decides which bytes end where.
    mean : float
        Average bytes of a sample.
    parts : list of Part
    action : str
        ``convert``, ``replace`` or ``unchanged``.
    seals : Seals
    names : GuardedFolders
        Holds the folder of the data set open.
    there : int
        The descriptor of what has the split's name, open until the split is finished; -1 if nothing has.
    kept : dict of str to list of int
        Parts that this user has finished, in this run or an earlier one: size in bytes, and time in nanoseconds.
    unproven : int
        How many parts are made anew because what is there may be somebody else's.
    """

    split: Split
    folder: str
    identity: str
    mean: float
    parts: list[Part]
    seals: Seals
    names: GuardedFolders
    there: int = -1
    action: str = "convert"
    kept: dict[str, list[int]] = field(default_factory=dict)
    unproven: int = 0

    @property
    def final(self) -> str:
        """The split's final folder."""
        return os.path.join(self.folder, self.split.name)

    @property
    def unfinished(self) -> str:
        """The split's folder until it is whole."""
        return unfinished_folder(self.folder, self.split.name)

    @property
    def parts_folder(self) -> str:
        """The folder in which the parts are made."""
        return unfinished_folder(self.folder, self.split.name, *filter(None, [self.split.folder]))

    def path(self, part: Part) -> str:
        """Return the path at which a part is made."""
        return os.path.join(self.parts_folder, part.name)

    def size(self, part: Part) -> int:
        """Estimate the bytes of a part."""
        count = part.stop - part.start
        return head_size(count) + round(self.mean * count)

    @property
    def missing(self) -> list[Part]:
        """The parts that are still to be made."""
        return (
            [] if self.action == "unchanged" else [part for part in self.parts if part.name not in self.kept]
        )

    def begin(self) -> None:
        """Make the unfinished folder, or clear it of all but the parts that are kept."""
        name = self.split.name
        with _opened(self.names, self.folder, self.seals, make=True) as (below, _):
            if not self.kept:
                below.remove_tree(name)
                below.remove_tree(name + _BEGUN)
            for folder in dict.fromkeys((name, os.path.join(name, self.split.folder).rstrip("/"))):
                below.mkdir(folder)
            self._clear(below)
            self._record(below)

    def _clear(self, below: Below) -> None:
        """Remove everything in the unfinished folder but the kept parts."""
        stay = {os.path.join(self.split.folder, name) for name in self.kept} | {self.split.folder}
        for inside in {"", self.split.folder}:
            unfinished_folder(self.folder, self.split.name, *filter(None, [inside]))
            names = below.names(os.path.join(self.split.name, inside).rstrip("/"))
            for path in {os.path.join(inside, name) for name in names} - stay:
                try:
                    with contextlib.suppress(FileNotFoundError):
                        below.remove(os.path.join(self.split.name, path))
                except OSError as error:
                    raise NbdataError(
                        "something else lies in the folder of an unfinished split, and cannot be removed",
                        path=os.path.join(self.unfinished, path),
                        remedy="Remove it, then run the command again",
                    ) from error

    def note_whole(self, name: str) -> None:
        """Record a part that is whole, so that a later run keeps it."""
        written = version(path := os.path.join(self.parts_folder, name))
        if written is None or not is_own_file(path):
            raise _changed(path)
        self.kept[name] = written
        with _opened(self.names, self.folder, self.seals) as (below, _):
            self._record(below)

    def _record(self, below: Below) -> None:
        record = {"identity": self.identity, "parts": self.kept, "seal": self._seal(self.kept)}
        at, _ = below.at(self.split.name)
        write_file(self.unfinished + _BEGUN, [json.dumps(record).encode()], folder=at)

    def _seal(self, parts: object) -> str:
        return self.seals.of("converting", self.split.name, self.identity, parts)

    def find_kept(self) -> None:
        """Find the whole parts that an earlier run has made."""
        whole = {part.name for part in self.parts if _is_whole(self.path(part), part.stop - part.start)}
        begun = read_record(self.unfinished + _BEGUN)
        parts = begun.get("parts")
        if isinstance(parts, dict) and self.seals.holds(
            begun.get("seal"), "converting", self.split.name, self.identity, parts
        ):
            for name in sorted(whole & set(parts)):
                written = version(path := os.path.join(self.parts_folder, name))
                if written is not None and parts[name] == written and is_own_file(path):
                    self.kept[name] = written
        self.unproven = len(self.missing) if self.unproven else len(whole) - len(self.kept)

    def finish(self) -> list[str]:
        """Write the files beside the parts, and rename the folder to its final name; return notes."""
        beside = self.split.beside()
        with _opened(self.names, self.folder, self.seals) as (below, above):
            self._clear(below)
            at, _ = below.at(os.path.join(self.split.name, RECORD))
            for name, content in beside.files.items():
                write_file(os.path.join(self.unfinished, name), [content], folder=at)
            record: dict[str, Any] = {
                "version": 1,
                "identity": self.identity,
                "samples": self.split.count,
                "of": self.split.of,
                "stored": self.split.stored,
                "files": [self._described(part) for part in self.parts],
            }
            record["seal"] = self.seals.of(*sealed_values(record, self.split.name))
            write_file(
                os.path.join(self.unfinished, RECORD), [json.dumps(record, indent=1).encode()], folder=at
            )
            fsync(below.at(os.path.join(self.split.name, self.split.folder, RECORD))[0])
            self._swap(below, above)
        return beside.notes

    def _swap(self, below: Below, above: int) -> None:
        """Give the split its final name, and remove what had it when the split was planned."""
        name = self.split.name
        below.remove_tree(name + _OLD)
        at, _ = below.at(name)
        if self.there >= 0:
            refuse_others(self.there, self.final)
            self._close(at, default_of(above))
            with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
                os.rename(name, name + _OLD, src_dir_fd=above, dst_dir_fd=at)
                if not os.path.samestat(os.lstat(name + _OLD, dir_fd=at), os.fstat(self.there)):
                    os.rename(name + _OLD, name, src_dir_fd=at, dst_dir_fd=above)
                    raise _taken(self.final)
            os.close(self.there)
            self.there = -1
        elif _has(name, above):
            raise _taken(self.final)
        os.rename(name, name, src_dir_fd=at, dst_dir_fd=above)
        fsync(above)
        fsync(at)
        below.remove_tree(name + _OLD)
        below.remove_tree(name + _BEGUN)

    def _close(self, at: int, default: bytes | None) -> None:
        fd = os.open(self.split.name, _FOLDER, dir_fd=at)
        try:
            close_as(self.there, fd, default)
        finally:
            os.close(fd)

    def _described(self, part: Part) -> dict[str, Any]:
        """Return the entry of a part in the record; refuses one that changed after it was whole."""
        path = self.path(part)
        found = version(path)
        if found is None or found != self.kept.get(part.name) or not is_own_file(path):
            raise _changed(path)
        name = os.path.join(self.split.folder, part.name)
        return {"name": name, "size": found[0], "mtime_ns": found[1], "samples": part.stop - part.start}

    def has_parts(self, record: dict[str, Any]) -> bool:
        """True if the record of a finished split names the planned files."""
        planned = [
            (os.path.join(self.split.folder, part.name), part.stop - part.start) for part in self.parts
        ]
        return planned == [(one["name"], one["samples"]) for one in record["files"]]


@contextlib.contextmanager
def _opened(
    names: GuardedFolders, folder: str, seals: Seals, *, make: bool = False
) -> Iterator[tuple[Below, int]]:
    """Open the folder of unfinished splits, and that of the data set, which must be the one around it.

    With `make`, a missing one is made, and sealed while this job holds its lock.

    Raises
    ------
    UnsafeMember
        If others could have put the first one there: trees in it are deleted.
    """
    names.check()
    with Below(make_unfinished_folder(folder) if make else unfinished_folder(folder)) as below:
        above = names.open_to_write(folder, make=make)
        try:
            if not os.path.samestat(below.lstat("../.."), os.fstat(above)):
                raise exchanged_folder(folder)
            fd, _ = below.at(_BEGUN)
            made = MadeFolders(seals)
            if make:
                made.seal(CONVERTING, fd)
            if not made.has(CONVERTING, fd):
                raise unproven(unfinished_folder(folder))
            drop_foreign(fd, above)
            yield below, above
        finally:
            os.close(above)


def _has(name: str, above: int) -> bool:
    """True if something in an open folder has a name."""
    try:
        os.lstat(name, dir_fd=above)
    except FileNotFoundError:
        return False
    return True


def _taken(final: str) -> NbdataError:
    return NbdataError(
        "something else got the name of a split while the split was made",
        path=final,
        expected="what was there when the conversion began",
        remedy="Look where it came from, then run the command again",
    )


def planned(
    split: Split, folder: str, file_size: int, overwrite: str, seals: Seals, names: GuardedFolders
) -> SplitPlan:
    """Plan a split from its first samples and the existing files; writes nothing.

    Raises
    ------
    BadOption
        If something exists at its place that may not be replaced.
    """
    looked, digest, size = min(split.count, _LOOKED_AT), hashlib.sha256(), 0
    for number in range(looked):
        data = split.sample(number)
        size += len(data)
        digest.update(len(data).to_bytes(8, "little") + data)
    facts = [
        1,
        split.name,
        split.count,
        split.stored,
        split.folder,
        split.said,
        file_size,
        digest.hexdigest(),
    ]
    identity = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    mean = size / max(1, looked)
    plan = SplitPlan(split, folder, identity, mean, _parts(split.count, mean, file_size), seals, names)
    with contextlib.suppress(FileNotFoundError):
        plan.there = os.open(plan.final, _ANYTHING)
    plan.action = _action(plan, overwrite)
    if plan.action != "unchanged" and overwrite != "always":
        plan.find_kept()
    return plan


def _parts(count: int, mean: float, file_size: int) -> list[Part]:
    """Divide the samples into files of equally many; the last has fewer."""
    fit = int(file_size / max(1.0, mean)) + 1
    files = max(1, min(_MOST_FILES, -(-count // fit)))
    each = max(1, -(-count // files))
    starts = range(0, count, each) if count else [0]
    return [Part(f"PART_{number:05}{SUFFIX}", at, min(at + each, count)) for number, at in enumerate(starts)]


def _action(plan: SplitPlan, overwrite: str) -> str:
    final = plan.final
    if not os.path.lexists(final):
        return "convert"
    record = read_record(os.path.join(final, RECORD))
    if record.get("identity") == plan.identity and overwrite != "always":
        if not is_sealed(record, plan.split.name, plan.seals) or is_changed(final, record):
            plan.unproven = len(plan.parts)
        elif plan.has_parts(record) and has_only_its_files(final, record):
            return "unchanged"
    if overwrite == "never":
        raise BadOption(
            f"split {plan.split.name!r} is there, and holds something else",
            path=final,
            remedy="Give NAME another name, or leave --overwrite never out to replace it",
        )
    refuse_others(plan.there, final)
    return "replace"


def _changed(path: str) -> NbdataError:
    return NbdataError(
        "a file of an unfinished split was changed or removed by somebody else",
        path=path,
        expected="the file that the conversion wrote",
        remedy="Run the command again: it makes this file anew",
    )


def _is_whole(path: str, count: int) -> bool:
    """True if a part exists; it gets its name only when it is whole."""
    try:
        with open(path, "rb", opener=without_waiting) as file:
            return count_in(file.read(FIXED), os.fstat(file.fileno()).st_size, path) == count
    except (OSError, NbdataError):
        return False


def mend(folder: str, name: str, seals: Seals, names: GuardedFolders) -> None:
    """Finish a split that was killed between the two renames to its final name, or after them."""
    unfinished, final = unfinished_folder(folder, name), os.path.join(folder, name)
    old = unfinished + _OLD
    if not os.path.lexists(final) and os.path.isdir(old) and not os.path.islink(old):
        for whole in (name, name + _OLD):
            path = os.path.join(os.path.dirname(unfinished), whole)
            if is_proven(path, name, seals):
                with _opened(names, folder, seals) as (below, above):
                    os.rename(whole, name, src_dir_fd=below.at(whole)[0], dst_dir_fd=above)
                break
    if os.path.lexists(final) and not os.path.lexists(unfinished) and os.path.lexists(unfinished + _BEGUN):
        with _opened(names, folder, seals) as (below, _):
            below.remove_tree(name + _OLD)
            below.remove_tree(name + _BEGUN)
