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
import os.path
import posixpath
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import dropwhile

__all__ = ["DataNames", "Resolved", "beside", "resolve", "written"]

# What Windows begins an absolute path with: a drive, or a server.
_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")
# Relative names that must have their folder in common, before it is taken for the folder of another machine.
_LEAST_ALIKE = 2


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
        self._folder: str | None = None
        self._turned: list[str] = []

    def ending(self, name: str, folder: str) -> tuple[int, str | None]:
        """Find the longest tail of a name that files below a folder have. This takes one search, however long it is.

        Parameters
        ----------
        name : str
            Its parts, with ``/`` between them.
        folder : str

        Returns
        -------
        begin : int
            Where the tail begins in the name; its end if no file has any of them.
        only : str or None
            The file; None if several have this tail.
        """
        turned, wanted = self._below(folder), _turned(name)
        at = bisect.bisect_left(turned, wanted)
        # Of all paths, the neighbours share most with the name.
        shared = max((_shared(wanted, one) for one in turned[max(0, at - 1) : at + 1]), key=len, default="")
        if not shared:
            return len(name), None
        first = bisect.bisect_left(turned, shared)
        several = first + 1 < len(turned) and turned[first + 1].startswith(shared)
        return len(name) - (len(shared) - 1), None if several else _turned(turned[first][:-1])[:-1]

    def _below(self, folder: str) -> list[str]:
        """Return the paths below a folder with their parts from the last to the first, sorted."""
        if folder != self._folder:  # lists of one folder follow each other
            first = bisect.bisect_left(self._sorted, f"{folder}/") if folder else 0
            behind = bisect.bisect_left(self._sorted, f"{folder}0") if folder else len(self._sorted)
            self._turned = sorted(map(_turned, self._sorted[first:behind]))
            self._folder = folder
        return self._turned

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self.files)


def _turned(path: str) -> str:
    """Return a path with its parts from the last to the first, and a ``/`` after each."""
    return "/".join([*reversed(path.split("/")), ""])


def _shared(one: str, other: str) -> str:
    """Return the first parts that two turned paths share."""
    common = os.path.commonprefix([one, other])  # noqa: RUF071  paths are keys, which may have empty parts
    return common[: common.rfind("/") + 1]


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
        number: tail
        for number in left
        if number not in moved and (tail := _tail(str(names[number]), relative=relative))
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
    names: Sequence[str | None], tails: dict[int, str], data: DataNames, folder: str, within: str
) -> dict[int, str]:
    """Return the paths that names mean by their tails, by number; also of files that are missing."""
    found = {
        number: one
        for number, tail in tails.items()
        if (one := _longest(str(names[number]), tail, data, folder, within)) is not None
    }
    shift, alike = _shift((tails[number], *one) for number, one in found.items())
    meant: dict[int, str] = {}
    if shift is not None and shift[1].startswith(f"{within}/" if within else ""):
        before, here = shift
        meant = {
            number: here + tail.removeprefix(before)
            for number, tail in tails.items()
            if tail.startswith(before) and (alike >= _LEAST_ALIKE or _is_absolute(names[number]))
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
    tails = [_tail(name, relative=False) for name in names]
    if not all(tails):
        return [*names]
    common = posixpath.commonpath([posixpath.dirname(tail) for tail in tails])
    return [tail.removeprefix(f"{common}/") for tail in tails]


def _slashed(folder: str, name: str) -> str | None:
    r"""Return the path that a name with ``\`` for ``/`` means; None if it has none, or leads elsewhere."""
    if "\\" not in name or _WINDOWS.match(name):
        return None
    return written(folder, name.replace("\\", "/"))


def _tail(name: str, *, relative: bool) -> str:
    """Return the parts of a name that leads elsewhere, with ``/`` between them; empty if it does not lead there."""
    if not (relative or _is_absolute(name)):
        return ""
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
    if relative:
        parts = [*dropwhile("..".__eq__, parts)]
    return "/".join(parts) if ".." not in parts else ""


def _is_absolute(name: str | None) -> bool:
    return name is not None and (name.startswith("/") or _WINDOWS.match(name) is not None)


def _longest(name: str, tail: str, data: DataNames, folder: str, within: str) -> tuple[int, str] | None:
    """Return where the longest tail that a file has begins in the parts of a name, and the file.

    Of a relative name only a file counts that lies as if the list were made above.
    """
    absolute = _is_absolute(name)
    begin, only = data.ending(tail, within)
    while begin < len(tail):
        path = f"{folder}/{tail[begin:]}" if folder else tail[begin:]
        if path in data.files and (absolute or begin):
            return begin, path
        if absolute and only is not None:
            return begin, only
        # Other files have the shorter tails, too, so only the one in the folder of the list can be meant.
        begin, only = tail.find("/", begin) + 1 or len(tail), None
    return None


def _shift(found: Iterable[tuple[str, int, str]]) -> tuple[tuple[str, str] | None, int]:
    """Return what most names have before their tails, and their files here; and how many these are."""
    counts = Counter((tail[:begin], path[: len(path) - (len(tail) - begin)]) for tail, begin, path in found)
    if not counts:
        return None, 0
    most, count = counts.most_common(1)[0]
    return (most if 2 * count > counts.total() else None), count
