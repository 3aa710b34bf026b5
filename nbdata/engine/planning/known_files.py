"""Says which local files are unchanged since nbdata pulled, pushed or unpacked them, by its index records.

No store is asked, so the object may have been changed or deleted since.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from nbdata.history import Past, past_jobs
from nbdata.paths import is_inside, is_url
from nbdata.transfer.index import Index, index_file, recorded_below

__all__ = ["KnownFiles", "pushes_of"]


class KnownFiles:
    """Looks files up while a walk enters and leaves their folders.

    Memory holds the indexes of the folders around the current one: about 100 bytes per record.

    Parameters
    ----------
    state_dir : str
        The state folder.
    root : str
        The folder to walk, absolute and without links.
    without : set of str
        Files of indexes that are not asked.
    """

    def __init__(self, state_dir: str, root: str, *, without: AbstractSet[str] = frozenset()) -> None:
        self._state_dir = state_dir
        self._around: list[tuple[str, Index]] = []  # by folder, outermost first
        self._files: dict[str, list[tuple[str, str, tuple[int, int]]]] = {}
        for file, target, identity in recorded_below(state_dir, root):
            self._files.setdefault(os.path.realpath(target), []).append((file, target, identity))
        for folder, url in pushes_of(state_dir, root):
            if (now := _identity(folder)) is not None:
                file = index_file(state_dir, folder, url)
                self._files.setdefault(os.path.realpath(folder), []).append((file, "", now))
        for found in self._files.values():
            found[:] = [one for one in found if one[0] not in without]
        for folder in sorted((at for at in self._files if at != root and is_inside(root, at)), key=len):
            self.enter(folder)

    def enter(self, folder: str) -> None:
        """Read the indexes of a folder; its files, and those below it, are asked for next."""
        for file, target, identity in self._files.get(folder, ()):
            self._around.append((folder, Index.at(file, target, identity)))

    def leave(self, folder: str) -> None:
        """Drop the indexes of a folder."""
        while self._around and self._around[-1][0] == folder:
            self._around.pop()

    def has(self, path: str, found: os.stat_result) -> bool:
        """True if a file looks as one of the records says."""
        for folder, index in self._around:
            record = index.get(os.path.relpath(path, folder) if folder != "/" else path[1:])
            if record is not None and record.tag and record.local_same(found):
                return True
        return False


def pushes_of(state_dir: str, root: str) -> Iterator[tuple[str, str]]:
    """Yield the folders around or below a folder that were pushed, and the URLs, as far as jobs are on record."""
    told = dict.fromkeys((p.snapshot.source, p.snapshot.target) for p in past_jobs(state_dir) if _is_push(p))
    for source, target in told:
        real = os.path.realpath(source)
        if is_inside(real, root) or is_inside(root, real):
            yield source.rstrip("/") or "/", target


def _is_push(past: Past) -> bool:
    now = past.snapshot
    return now.verb == "push" and not is_url(now.source) and is_url(now.target)


def _identity(folder: str) -> tuple[int, int] | None:
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return found.st_dev, found.st_ino
