r"""Find the files that the names in a list of checksums mean.

A list that another machine made may have ``sub\f1.bin``, ``D:\data\sub\f1.bin`` or ``/home/u/data/sub/f1.bin``. A
name is looked for as it is written, relative to the folder of the list; then with ``/`` for ``\``. Of a name that leads
elsewhere the longest tail counts that only one file has: ``sub/f1.bin``, else ``f1.bin``. These are absolute names, and
those with a drive.

A list that was made in a folder above has relative names, of which none is there as it is written: ``data/sub/f1.bin``.
Of these, too, the longest tail counts, but only in the folder of the list, and for two names or more. So a file that
was deleted is missing, although a copy of it may lie somewhere else.

Such names have a folder in common. What most of the found ones have counts for the others, too: a missing file is
missing under the name that it would have here. If several files have a tail, none of them is taken.
"""

from __future__ import annotations

import bisect
import posixpath
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

__all__ = ["DataNames", "Resolved", "beside", "resolve", "written"]

# What Windows begins an absolute path with: a drive, or a server.
_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")
# Relative names that must have their folder in common, before it is taken for the folder of another machine.
_LEAST_ALIKE = 2
# Files with one tail that are looked through for those in a folder.
_MOST_ALIKE = 1000


@dataclass(frozen=True)
class Resolved:
    r"""The files that the names in a list mean.

    Attributes
    ----------
    paths : list of str or None
        The path of each, also of a file that is missing; None if the name means none that could be here.
    moved : int
        How many files were found otherwise than as they are written.
    example : tuple of str or None
        One of these: as written, and its path.
    """

    paths: list[str | None]
    moved: int = 0
    example: tuple[str, str] | None = None


class DataNames:
    """The paths of the files of a data set, and by their tails."""

    def __init__(self, files: Collection[str]) -> None:
        self.files = files

    def only(self, tail: Sequence[str], folder: str) -> str | None:
        """Return the only file below a folder whose path ends with these parts; None if there is none, or another."""
        wanted = "".join(f"{part}/" for part in reversed(tail))
        first = bisect.bisect_left(self._turned, wanted)
        behind = bisect.bisect_left(self._turned, wanted + chr(0x10FFFF), first)
        if behind - first > (_MOST_ALIKE if folder else 1):
            return None
        found = [_turned(one.rstrip("/")) for one in self._turned[first:behind]]
        within = [one for one in found if not folder or one.startswith(f"{folder}/")]
        return within[0] if len(within) == 1 else None

    @cached_property
    def _turned(self) -> list[str]:
        """The paths with their parts from the last to the first, sorted."""
        return sorted(f"{_turned(name)}/" for name in self.files)


def _turned(path: str) -> str:
    return "/".join(reversed(path.split("/")))


def written(folder: str, name: str | None) -> str | None:
    """Return the path that a name in a list in `folder` means as it is written; None if it could lead outside.

    Any ``..`` is refused, even one that stays inside: through a symbolic link, ``a/../b`` need not be ``b``.
    """
    if name is None or name.startswith("/") or (".." in name and ".." in name.split("/")):
        return None
    path = f"{folder}/{name}" if folder else name
    if name and path[0] not in "./" and path[-1] != "/" and "//" not in path and "/." not in path:
        return path  # `normpath` would not change it
    return posixpath.normpath(posixpath.join(folder, name))


def resolve(names: Sequence[str | None], data: DataNames, folder: str, within: str) -> Resolved:
    """Find the files that names mean.

    Parameters
    ----------
    names : sequence of str or None
        As the list writes them.
    data : DataNames
    folder : str
        The folder of the list, relative to the root of the data.
    within : str
        The folder below which tails are looked for.
    """
    paths = [written(folder, name) for name in names]
    left = [
        number for number, path in enumerate(paths) if path not in data.files and names[number] is not None
    ]
    if not left:
        return Resolved(paths)
    there = {path for path in paths if path in data.files}
    turned = {
        number: slashed for number in left if (slashed := _slashed(folder, str(names[number]))) is not None
    }
    moved = {number: path for number, path in turned.items() if path in data.files}
    if moved:  # the list is one of Windows
        paths = [turned.get(number, path) for number, path in enumerate(paths)]
    relative = not (there or moved)
    tails = {
        number: parts
        for number in left
        if number not in moved and (parts := _tail(str(names[number]), relative=relative))
    }
    for number in left:
        if _is_absolute(names[number]):
            paths[number] = None
    for number, path in _by_tails(names, tails, data, folder, within).items():
        if path not in there:
            paths[number] = path
            if path in data.files:
                moved[number] = path
    example = next(((str(names[number]), path) for number, path in sorted(moved.items())), None)
    return Resolved(paths, len(moved), example)


def _by_tails(
    names: Sequence[str | None], tails: dict[int, list[str]], data: DataNames, folder: str, within: str
) -> dict[int, str]:
    """Return the paths that names mean by their tails, by number; also of files that are missing."""
    found = {
        number: one
        for number, parts in tails.items()
        if (one := _longest(str(names[number]), parts, data, folder, within)) is not None
    }
    shift, alike = _shift((tails[number], *one) for number, one in found.items())
    meant: dict[int, str] = {}
    if shift is not None:
        before, here = shift
        meant = {
            number: "/".join([*here, *parts[len(before) :]])
            for number, parts in tails.items()
            if parts[: len(before)] == before and (alike >= _LEAST_ALIKE or _is_absolute(names[number]))
        }
    others = {
        number: path
        for number, (_, path) in found.items()
        if number not in meant and _is_absolute(names[number])
    }
    counts = Counter([*meant.values(), *others.values()])
    return meant | {number: path for number, path in others.items() if counts[path] == 1}


def beside(names: Sequence[str]) -> list[str]:
    r"""Return names as they are beside their list, if it was made elsewhere: with ``/``, without their common folder.

    Names that are relative already, and have no ``\``, come back as they are.
    """
    turned = (
        [name.replace("\\", "/") for name in names] if not any("/" in name for name in names) else [*names]
    )
    if not names or not all(map(_is_absolute, names)):
        return turned
    parts = [_tail(name, relative=False) for name in names]
    common = 0
    while all(len(one) > common + 1 and one[common] == parts[0][common] for one in parts):
        common += 1
    return ["/".join(one[common:]) for one in parts] if all(parts) else [*names]


def _slashed(folder: str, name: str) -> str | None:
    r"""Return the path that a name with ``\`` for ``/`` means; None if it has none, or leads elsewhere."""
    if "\\" not in name or _WINDOWS.match(name):
        return None
    return written(folder, name.replace("\\", "/"))


def _tail(name: str, *, relative: bool) -> list[str]:
    """Return the parts of a name that leads elsewhere; none if it does not, and is not to be taken for one."""
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
    while relative and parts and parts[0] == "..":
        del parts[0]
    return parts if ".." not in parts and (relative or _is_absolute(name)) else []


def _is_absolute(name: str | None) -> bool:
    return name is not None and (name.startswith("/") or _WINDOWS.match(name) is not None)


def _longest(
    name: str, parts: list[str], data: DataNames, folder: str, within: str
) -> tuple[int, str] | None:
    """Return how many parts the longest tail lacks, and the file that has it.

    Of a relative name only a file counts that lies as if the list were made above.
    """
    absolute = _is_absolute(name)
    for cut in range(not absolute, len(parts)):
        path = "/".join([folder, *parts[cut:]] if folder else parts[cut:])
        if path in data.files:
            return cut, path
        only = data.only(parts[cut:], within) if absolute else None
        if only is not None:
            return cut, only
    return None


def _shift(found: Iterable[tuple[list[str], int, str]]) -> tuple[tuple[list[str], list[str]] | None, int]:
    """Return what most names have before their tails, and their files here; and how many these are."""
    counts: Counter[tuple[tuple[str, ...], tuple[str, ...]]] = Counter()
    for parts, cut, path in found:
        here = path.split("/")
        counts[tuple(parts[:cut]), tuple(here[: len(here) - (len(parts) - cut)])] += 1
    if not counts:
        return None, 0
    (before, here_before), count = counts.most_common(1)[0]
    return (([*before], [*here_before]) if 2 * count > counts.total() else None), count
