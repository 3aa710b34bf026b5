"""Find clashing paths before anything is written: two files with one path, or a file where a folder is needed."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator

from nbdata.errors import BadOption

__all__ = ["Clashes"]


class Clashes:
    """The paths of files to write; memory holds a hash of each path, and one of each folder.

    Parameters
    ----------
    folders : bool
        Whether a file and a folder of one path clash, as on a disk and in a packed folder. Keys in a store do not.
    remedy : str
        The remedy for a clash.
    """

    def __init__(self, *, folders: bool, remedy: str) -> None:
        self._with_folders, self._remedy = folders, remedy
        self._files, self._folders, self._last = array("q"), set[int](), ""

    def add(self, path: str) -> None:
        """Add the path of a file."""
        self._files.append(hash(path))
        folder = path.rpartition("/")[0]
        if self._with_folders and folder != self._last:
            self._folders.update(map(hash, _folders(path)))
            self._last = folder

    def refuse(self, paths: Callable[[], Iterable[str]]) -> None:
        """Check the paths whose hashes clash.

        Parameters
        ----------
        paths : callable
            Returns all paths that were added, once more.

        Raises
        ------
        BadOption
            If two files have one path, or a file has the path of a folder.
        """
        ordered = sorted(self._files)
        suspects = {one for one, other in itertools.pairwise(ordered) if one == other}
        suspects.update(one for one in ordered if one in self._folders)
        if not suspects:
            return
        files = set[str]()
        for path in paths():
            if hash(path) in suspects:
                if path in files:
                    raise BadOption(f"two files would be called {path!r}", remedy=self._remedy)
                files.add(path)
        for path in paths() if self._with_folders else ():
            for folder in _folders(path):
                if folder in files:
                    raise BadOption(f"{folder!r} is a file, and a folder with {path!r}", remedy=self._remedy)


def _folders(path: str) -> Iterator[str]:
    """Yield all folders above a file."""
    while folder := path.rpartition("/")[0]:
        yield folder
        path = folder
