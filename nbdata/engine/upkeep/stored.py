"""Find files that can be fetched again, and those that are only here, for ``cleanup --stored``.

A file can be fetched again if the record of its pull or push says that it is unchanged since, and the store has the
object in that version still: the store is asked while the plan is made. The record of jobs tells the store. Memory
holds 8 bytes for each such file, and the indexes of one store or of the folders around the current one.
"""

from __future__ import annotations

import itertools
import os
import shlex
import stat
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from nbdata.connections import connected
from nbdata.disk import PARTIAL
from nbdata.engine.job.run import Run
from nbdata.engine.planning.decide import decide_pull
from nbdata.engine.planning.known_files import KnownFiles
from nbdata.engine.upkeep.leftovers import Inside, Leftover, Written, holder, leftover, walk
from nbdata.errors import Cancelled, NbdataError, NotFound
from nbdata.history import past_jobs
from nbdata.paths import is_inside, is_own_name, is_url
from nbdata.redaction import redacted
from nbdata.report import Plan
from nbdata.space.limits import mount_points
from nbdata.transfer.index import Index, index_file
from nbdata.transfer.names import unrepresentable
from nbdata.transfer.sources import find, servers_at
from nbdata.verbs.cleanup import Cleanup
from nbdata.verbs.parsing import pairs
from nbdata.verbs.pull import Pull

__all__ = ["NOT_ASKED", "ONLY_HERE", "STORED", "stored_below"]

#: The kinds of files, as rows of the plan name them.
STORED, ONLY_HERE, NOT_ASKED = "stored", "only here", "not asked"

_ONLY_HERE = "only here; --only-here deletes it too"
_NOT_ASKED = "nbdata moved or unpacked it, but no store could be asked whether it has it still"


class _Place(NamedTuple):
    """A store that a local folder was pulled from or pushed to.

    `name` is the name of the file if a single object was pulled under another name; else empty.
    """

    url: str
    folder: str
    name: str
    options: dict[str, Any]


def stored_below(run: Run, root: str, planned: Plan) -> Iterator[Leftover]:
    """Yield the files below a folder that a store has, and then all others.

    `root` is the path of the folder without links. Other file systems are not entered, and links are left alone.
    """
    return _Stored(run, root, planned).rows()


class _Stored:
    """The search below one folder."""

    def __init__(self, run: Run, root: str, planned: Plan) -> None:
        assert isinstance(run.operation, Cleanup)
        self._run, self._op, self._root, self._plan = run, run.operation, root, planned
        self._device = os.stat(root).st_dev
        self._inodes = array("Q")  # of the files that a store has, sorted
        self._asked = set[str]()  # the files of indexes whose stores have answered

    def rows(self) -> Iterator[Leftover]:
        """Yield all files."""
        for place in _places(self._run, self._root):
            try:
                yield from self._of(place)
            except Cancelled:
                raise
            except (NbdataError, OSError) as error:
                self._plan.notes.append(f"{redacted(place.url)} could not be asked: {error}")
            finally:
                self._run.control.bad_entries.take()  # an entry that cannot be used proves nothing
        yield from self._others()

    def _of(self, place: _Place) -> Iterator[Leftover]:
        """Yield the files that a store has, in the order of its listing."""
        identity = os.stat(place.folder)
        state, both = self._run.context.state_dir, (identity.st_dev, identity.st_ino)
        context = replace(self._run.context, storage_options=place.options)
        part = replace(self._run, operation=Pull(source=place.url, target=place.folder), context=context)
        servers = servers_at(part, [place.url])
        pulled = Index(state, place.url, place.folder, both, servers)
        pushed = Index(state, place.folder, place.url, both, servers)
        target = os.path.realpath(place.folder)
        where = target if is_inside(target, self._root) else self._root
        held, here = holder(where), array("Q")
        try:
            for path, found in self._unchanged(part, place, target, pulled, pushed):
                here.append(found.st_ino)
                records = "" if pulled.get(path) is None else pulled.path
                seen = (found.st_size, found.st_mtime_ns, found.st_ctime_ns)
                written = Written(records, place.folder, path, *seen)
                full = os.path.join(target, path)
                yield leftover(self._root, full, "delete", where, held, written, kind=STORED)
            self._asked |= {pulled.path, pushed.path}
        finally:  # also if the listing broke off: what it has told is true
            self._inodes = array("Q", sorted(self._inodes + here))

    def _unchanged(
        self, part: Run, place: _Place, target: str, pulled: Index, pushed: Index
    ) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the files that are unchanged here and in the store, by their names in the folder."""
        inside = Inside(target)
        for entry in find(part, place.url).entries:
            self._run.control.checkpoint()
            path = place.name or entry.path
            full = os.path.join(target, path)
            if unrepresentable(path) or not is_inside(full, self._root) or full not in inside:
                continue
            try:
                found = os.lstat(full)
            except OSError:
                continue
            if found.st_dev != self._device or found.st_size != entry.info.size:
                continue
            known, sent = pulled.get(path), pushed.get(path)
            decision = decide_pull(
                entry.info, found, known, overwrite="changed", size_only=False, pushed=sent
            )
            if decision.action == "unchanged" and not self._is_stored(found.st_ino):
                yield path, found

    def _others(self) -> Iterator[Leftover]:
        """Yield all other files: nobody has said that a store has them."""
        known = KnownFiles(self._run.context.state_dir, self._root, without=self._asked)
        held, mounts = holder(self._root), mount_points()
        around = list[str]()
        for folder, folders, names in walk(self._root, lambda _: None):
            self._run.control.checkpoint()
            while around and not is_inside(folder, around[-1]):
                known.leave(around.pop())
            around.append(folder)
            known.enter(folder)
            folders[:] = [name for name in folders if self._enters(os.path.join(folder, name), name, mounts)]
            for name in names:
                path = os.path.join(folder, name)
                try:
                    found = os.lstat(path)
                except OSError:
                    continue
                if not stat.S_ISREG(found.st_mode) or name.endswith(PARTIAL) or self._is_stored(found.st_ino):
                    continue
                yield self._other(path, found, held, is_known=known.has(path, found))

    def _other(self, path: str, found: os.stat_result, held: str | None, *, is_known: bool) -> Leftover:
        if is_known:
            return leftover(self._root, path, "keep", self._root, reason=_NOT_ASKED, kind=NOT_ASKED)
        if not self._op.only_here:
            return leftover(self._root, path, "keep", self._root, reason=_ONLY_HERE, kind=ONLY_HERE)
        name = os.path.relpath(path, self._root)
        written = Written("", self._root, name, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        return leftover(self._root, path, "delete", self._root, held, written, kind=ONLY_HERE)

    def _enters(self, path: str, name: str, mounts: set[str]) -> bool:
        if is_own_name(name) or path in mounts:
            return False
        try:
            return os.lstat(path).st_dev == self._device
        except OSError:
            return False

    def _is_stored(self, inode: int) -> bool:
        at = bisect_left(self._inodes, inode)
        return at < len(self._inodes) and self._inodes[at] == inode


def _places(run: Run, root: str) -> list[_Place]:
    """Return the stores that folders around or below a folder came from or went to, the newest first."""
    found = dict[tuple[str, str, str], _Place]()
    for past in reversed(past_jobs(run.context.state_dir)):
        now = past.snapshot
        if now.verb not in ("pull", "push"):
            continue
        url, folder = (
            (now.source, now.target) if now.verb == "pull" else (f"{now.target.rstrip('/')}/", now.source)
        )
        name = ""
        if now.verb == "pull" and not os.path.isdir(folder) and not folder.endswith("/"):
            folder, name = os.path.split(folder)
        folder = folder.rstrip("/") or "/"
        real = os.path.realpath(folder)
        if not is_url(url) or is_url(folder) or not (is_inside(real, root) or is_inside(root, real)):
            continue
        state = run.context.state_dir
        if not os.path.isdir(folder) or not any(
            map(os.path.exists, (index_file(state, url, folder), index_file(state, folder, url)))
        ):
            continue
        given = run.context.storage_options or _options_of(now.command, url, state)
        found.setdefault((url, folder, name), _Place(url, folder, name, given))
    return list(found.values())


def _options_of(command: str, url: str, state: str) -> dict[str, Any]:
    """Return the storage options of a job on record; it has no secret ones, and none if they cannot be read.

    Those of the connection that it names come with their secrets.
    """
    try:
        words = shlex.split(command)
        given = pairs([word for before, word in itertools.pairwise(words) if before == "--option"], {})
        return connected(given, [url], state)[0]
    except (ValueError, NotFound):  # BadOption is a ValueError
        return {}
