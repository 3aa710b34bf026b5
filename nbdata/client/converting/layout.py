"""Decides which files a split becomes and where they lie, and checks which exist already."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from nbdata.client.converting.contract import Split
from nbdata.disk import PARTIAL, make_folders, sync_folder, write_file
from nbdata.errors import BadOption, NbdataError
from nbdata.formats.ffrecord import FIXED, SUFFIX, count_in, head_size
from nbdata.own_files import own_folder, without_waiting
from nbdata.paths import CONVERTING

__all__ = ["RECORD", "Part", "SplitPlan", "copied_size", "mend", "planned", "unfinished_folder"]

#: The file in a split's folder that records how the split was made.
RECORD = "nbdata.json"
# The same for an unfinished split; it records the identity of the conversion.
_BEGUN = "begun.json"
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
    kept : set of str
        Parts that an earlier run has finished.
    """

    split: Split
    folder: str
    identity: str
    mean: float
    parts: list[Part]
    action: str = "convert"
    kept: set[str] = field(default_factory=set)

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
        """Make the unfinished folder, or clear it of files that another conversion left there."""
        inside = self.parts_folder
        begun = os.path.join(self.unfinished, _BEGUN)
        if not self.kept:
            shutil.rmtree(self.unfinished, ignore_errors=True)
        make_folders(inside, 0o777)
        for name in os.listdir(inside):
            if name.endswith(PARTIAL) or (name.endswith(SUFFIX) and name not in self.kept):
                os.unlink(os.path.join(inside, name))
        write_file(begun, [json.dumps({"identity": self.identity}).encode()])

    def finish(self) -> list[str]:
        """Write the files beside the parts, and rename the folder to its final name; return notes."""
        notes = self.split.finish(self.unfinished)
        files = [
            {"name": os.path.join(self.split.folder, part.name), "size": os.path.getsize(self.path(part)),
             "samples": part.stop - part.start}
            for part in self.parts
        ]  # fmt: skip
        said = {
            "version": 1, "identity": self.identity, "samples": self.split.count, "of": self.split.of,
            "stored": self.split.stored, "files": files,
        }  # fmt: skip
        write_file(os.path.join(self.unfinished, RECORD), [json.dumps(said, indent=1).encode()])
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.unfinished, _BEGUN))
        _sync(self.unfinished)
        _swap(self.unfinished, self.final)
        return notes


def planned(split: Split, folder: str, file_size: int, overwrite: str) -> SplitPlan:
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
    said = [1, split.name, split.count, split.stored, split.folder, split.said, file_size, digest.hexdigest()]
    identity = hashlib.sha256(json.dumps(said).encode()).hexdigest()
    mean = size / max(1, looked)
    plan = SplitPlan(split, folder, identity, mean, _parts(split.count, mean, file_size))
    plan.action = _action(plan, overwrite)
    begun = _read(os.path.join(plan.unfinished, _BEGUN)) or _read(os.path.join(plan.unfinished, RECORD))
    if plan.action != "unchanged" and overwrite != "always" and begun.get("identity") == identity:
        plan.kept = {part.name for part in plan.parts if _is_whole(plan.path(part), part.stop - part.start)}
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
    record = _read(os.path.join(final, RECORD))
    same = record.get("identity") == plan.identity and _all_there(final, record)
    if same and overwrite != "always":
        return "unchanged"
    if overwrite == "never":
        raise BadOption(
            f"split {plan.split.name!r} is there, and holds something else", path=final,
            remedy="Give NAME another name, or leave --overwrite never out to replace it",
        )  # fmt: skip
    if not record and not _holds_records(final):
        raise BadOption(
            f"the name of split {plan.split.name!r} is taken by something else", path=final,
            remedy="Move it away, or give NAME another name",
        )  # fmt: skip
    return "replace"


def _holds_records(final: str) -> bool:
    """True if a folder holds a split that another converter made."""
    for folder in (os.path.join(final, "ffrdata"), final):
        with contextlib.suppress(OSError):
            if any(name.endswith(SUFFIX) for name in os.listdir(folder)):
                return True
    return False


def _all_there(final: str, record: dict[str, Any]) -> bool:
    try:
        return all(
            os.path.getsize(os.path.join(final, one["name"])) == one["size"] for one in record["files"]
        )
    except (OSError, KeyError, TypeError):
        return False


def _is_whole(path: str, count: int) -> bool:
    """True if a part exists; it gets its name only when it is whole."""
    try:
        with open(path, "rb", opener=without_waiting) as file:
            return count_in(file.read(FIXED), os.fstat(file.fileno()).st_size, path) == count
    except (OSError, NbdataError):
        return False


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb", opener=without_waiting) as file:
            found = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _old(unfinished: str) -> str:
    return f"{unfinished}.old"


def _swap(unfinished: str, final: str) -> None:
    """Rename a folder to its final name, and remove the one that had the name."""
    old = _old(unfinished)
    shutil.rmtree(old, ignore_errors=True)
    if os.path.lexists(final):
        os.rename(final, old)
    os.rename(unfinished, final)
    sync_folder(os.path.dirname(final))
    sync_folder(os.path.dirname(unfinished))
    if os.path.islink(old):
        os.unlink(old)
    shutil.rmtree(old, ignore_errors=True)


def mend(folder: str, name: str) -> None:
    """Finish a split that was killed between the two renames to its final name."""
    unfinished, final = unfinished_folder(folder, name), os.path.join(folder, name)
    old = _old(unfinished)
    if not os.path.lexists(final) and os.path.lexists(old):
        whole = os.path.exists(os.path.join(unfinished, RECORD)) and not os.path.exists(
            os.path.join(unfinished, _BEGUN)
        )
        os.rename(unfinished if whole else old, final)


def _sync(folder: str) -> None:
    """Sync the files beside the parts; the parts themselves are durable already."""
    for at, _, names in os.walk(folder):
        for name in names:
            if not name.endswith(SUFFIX):
                fd = os.open(os.path.join(at, name), os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
        sync_folder(at)


def copied_size(copies: Iterable[tuple[str, str]]) -> int:
    """Return the total bytes of the files to copy."""
    return sum(os.path.getsize(path) for path, _ in copies)
