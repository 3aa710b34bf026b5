"""Unpacks an archive with GNU tar, bsdtar and nbdata, and checks that nbdata does what the other two agree on."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import nbdata
from nbdata.errors import NbdataError

__all__ = ["Comparison", "compare", "look"]

# For each path: kind, content or target, first of its names, owner's executable bit, and time.
Look = dict[bytes, tuple[str, object, bytes | None, bool, int]]


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison.

    Attributes
    ----------
    agreed : bool
        Whether GNU tar and bsdtar both succeeded.
    error : NbdataError or None
        The reason why nbdata refused the archive.
    notes : list of str
        Notes of nbdata's report.
    differences : list of str
        Cases where GNU tar and bsdtar agree and nbdata differs, or where nbdata does what neither of them does.
    """

    agreed: bool
    error: NbdataError | None
    notes: list[str]
    differences: list[str]
    members: int


def compare(archive: Path, place: Path, members: Sequence[str] = ()) -> Comparison:
    """Unpack an archive with all three programs below `place`; with `members`, nbdata unpacks only these."""
    agreed = True
    looks = []
    for program in ("tar", "bsdtar"):
        target = place / program
        target.mkdir(parents=True)
        words = [program, "-xf", str(archive), "-C", str(target), "--no-same-owner", "--no-same-permissions"]
        done = subprocess.run(
            words, capture_output=True, env={**os.environ, "LC_ALL": "C.UTF-8"}, check=False
        )
        agreed = agreed and done.returncode == 0
        looks.append(look(target))
    error, notes = None, []
    try:
        notes = nbdata.untar_volumes(
            [str(archive)], place / "nbdata", members=list(members), quiet=True
        ).notes
    except NbdataError as raised:
        error = raised
    ours = look(place / "nbdata")
    differences = [] if error is not None else list(_differences(ours, *looks))
    return Comparison(agreed, error, notes, differences, len(ours))


def _differences(ours: Look, gnu: Look, bsd: Look) -> list[str]:
    found = []
    for path in sorted(ours.keys() | gnu.keys() | bsd.keys()):
        mine, theirs = ours.get(path), (gnu.get(path), bsd.get(path))
        if None not in theirs and theirs[0][:-1] == theirs[1][:-1] and theirs[0] != theirs[1]:
            mine, theirs = (
                mine and mine[:-1],
                (theirs[0][:-1], theirs[1][:-1]),
            )  # the two programs differ in its time
        if mine is None and all(one is not None and one[0] == "other" for one in theirs):
            continue  # nbdata refuses devices and pipes
        if mine not in theirs:
            shown = ", ".join("nothing" if one is None else str(one)[:80] for one in (mine, *theirs))
            found.append(f"{os.fsdecode(path)}: {shown}")
    return found


def look(root: Path) -> Look:
    """Return everything below a folder that a tar archive records; empty if the folder does not exist."""
    names: dict[tuple[int, int], list[bytes]] = {}
    seen: Look = {}
    top = os.fsencode(root)
    for place, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(place, name)
            found = os.lstat(path)
            relative = os.path.relpath(path, top)
            executable = False
            what: object = None
            if stat.S_ISLNK(found.st_mode):
                kind, what = "link", os.readlink(path)
            elif stat.S_ISDIR(found.st_mode):
                kind = "folder"
            elif stat.S_ISREG(found.st_mode):
                kind, executable = "file", bool(found.st_mode & 0o100)
                with open(path, "rb") as file:
                    what = file.read()
                names.setdefault((found.st_dev, found.st_ino), []).append(relative)
            else:
                kind, what = "other", stat.S_IFMT(found.st_mode)
            seen[relative] = (kind, what, None, executable, found.st_mtime_ns)
    for same in names.values():
        for name in same if len(same) > 1 else ():
            seen[name] = (*seen[name][:2], min(same), *seen[name][3:])
    return seen
