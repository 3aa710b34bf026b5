"""Find leftovers of nbdata: partials, temporaries, files it wrote, and unfinished uploads at stores.

This module only finds them; `nbdata.engine.upkeep.cleanup` removes them.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from nbdata.cache.folder import LOCK, cache_folders
from nbdata.cache.kept_folder import KeptFolder
from nbdata.cache.kept_names import BLOCKS, KEPT, is_any_cache, kept_in
from nbdata.disk import PARTIAL, disk_error, is_unfinished
from nbdata.engine.job.run import Run
from nbdata.engine.upkeep.proofs import is_made, strange_files
from nbdata.errors import BadOption, NotFound
from nbdata.guarded_trees import is_mounted
from nbdata.lock_files import LockFile
from nbdata.made_folders import MADE, MadeFolders
from nbdata.optional_calls import flock
from nbdata.own_files import is_ours
from nbdata.paths import CONVERTING, OWN_FOLDER, is_inside, is_own_name
from nbdata.report import Plan, Row
from nbdata.seals import Seals
from nbdata.sizes import counted
from nbdata.transfer.index import Index, written_below
from nbdata.transfer.locks import TargetLock
from nbdata.transfer.marks import is_temporary, worker_elsewhere
from nbdata.transfer.part_records import is_partial
from nbdata.transfer.retry import retrying
from nbdata.transfer.uploads import begun_at, known_as, remembered
from nbdata.verbs.cleanup import Cleanup

__all__ = [
    "AS_CACHE",
    "CHANGED",
    "Inside",
    "Leftover",
    "Written",
    "holder",
    "left_at_store",
    "left_on_disk",
    "leftover",
    "walk",
]

#: Why a file that nbdata wrote is kept.
CHANGED = "changed since nbdata wrote it"
#: Why a cache in use is kept.
AS_CACHE = (
    "it is in use as a cache, until 30 s after the last program that reads it, or until its mounts have ended"
)
# Why an unfinished file is kept.
_GROWS = "a program is writing it, or another one beside it"
# Why one of nbdata's own folders, or a folder below one, is kept.
_MOUNTED = "a file system is mounted there"
# Why a folder below one is kept.
_UNPROVEN = "nothing proves that nbdata made it, and others could have put it there. Look what is in it, and remove it"
# Why an unused cache is kept.
_FOR_LATER = "a cache that is found again; --all removes it"
# Seconds after which an unchanged temporary of a store counts as a leftover.
_STILL = 60.0
# The same on a disk without locks, where a process may write to it all the same.
_LONG_STILL = 86_400.0
# How many folders of other users, and how many unproven ones, are named.
_NAMED = 5


class Written(NamedTuple):
    """The index record of a file or folder that nbdata wrote.

    `records` is the file of the index, or empty if none has the file. `root` is the folder of the index, and `name` is
    the path below it, with a slash at the end for a folder. Size, mtime and ctime (in ns) are as recorded.
    """

    records: str
    root: str
    name: str
    size: int
    mtime_ns: int
    ctime_ns: int


@dataclass(slots=True, eq=False)
class Leftover:
    """One leftover of nbdata.

    Attributes
    ----------
    path : str
        Path relative to the cleaned folder; for an upload, its key.
    action : str
        ``remove`` (ours in any case), ``delete`` (what nbdata wrote), ``keep`` (that changed since), ``abort`` (an
        upload) or ``in use``.
    size : int
        Bytes of the disk that its removal frees.
    folder : str
        The folder that is locked while it is removed.
    reason : str
        Why it is kept or in use, or ''.
    upload : str
        The id of an upload, or ''.
    written : Written or None
        The record of what is to be deleted.
    kind : str
        Of files that ``--stored`` looks at: see `stored`.
    """

    path: str
    action: str
    size: int = 0
    folder: str = ""
    reason: str = ""
    upload: str = ""
    written: Written | None = None
    kind: str = ""

    def row(self) -> Row:
        """Convert to a row of the plan."""
        detail = {
            name: value
            for name, value in (
                ("folder", self.folder),
                ("reason", self.reason),
                ("upload", self.upload),
                ("written", self.written),
                ("kind", self.kind),
            )
            if value
        }
        return Row(self.path, self.action, self.size, detail)

    @classmethod
    def of(cls, row: Row) -> Leftover:
        """Convert from a row of the plan."""
        told = row.detail.get
        written = told("written")
        record = Written(*written) if written else None
        folder, reason, upload = told("folder", ""), told("reason", ""), told("upload", "")
        return cls(row.path, row.action, row.size, folder, reason, upload, record, told("kind", ""))


@dataclass
class _Strange:
    """Files with the place or the suffix of nbdata's, and names that nbdata gives to nothing."""

    count: int = 0
    first: str = ""

    def add(self, path: str) -> None:
        self.count += 1
        self.first = self.first or path


def left_at_store(run: Run, op: Cleanup, planned: Plan) -> Iterator[Leftover]:
    """Yield unfinished uploads at a store that nbdata began; others are counted and left."""
    location = run.open(op.source)
    known = remembered(run.context.state_dir)
    others = 0
    if not location.store.multipart:
        planned.notes.append("this store lists no unfinished uploads")
    elif not location.store.lists_uploads:
        planned.notes.append(
            "this store lists no unfinished uploads: only those to this very place are known here"
        )
    pending = retrying(run.control, lambda: list(location.store.pending(location.key)))
    if not location.store.lists_uploads:
        at_place = begun_at(run.context.state_dir, known_as(op.source, location.store))
        pending = [(begun.key, begun.id) for begun in at_place]
    for key, upload_id in pending:
        if location.key and not is_inside(key, location.key):
            continue
        begun = known.get(upload_id)
        if begun is None or begun.key != key:
            others += 1
            continue
        reason = begun.in_use()
        yield Leftover(key, "in use" if reason else "abort", reason=reason, upload=upload_id)
    if others:
        planned.notes.append(f"left alone: {counted(others, 'unfinished uploads')} that nbdata did not begin")


def left_on_disk(run: Run, op: Cleanup, root: str, planned: Plan) -> Iterator[Leftover]:
    """Yield partials and temporaries below a folder and, with ``--all``, files that nbdata wrote there.

    `root` is the path of the folder without links.
    """
    unproven = 0
    for left in _left_on_disk(run, op, root, planned):
        if left.reason == _UNPROVEN:
            unproven += 1
            if unproven <= _NAMED:
                path = os.path.normpath(os.path.join(root, left.path))
                planned.notes.append(f"left alone: {path}: {_UNPROVEN}")
        yield left
    if unproven > _NAMED:
        planned.notes.append(f"so are {counted(unproven - _NAMED, 'other folders')}")


def _left_on_disk(run: Run, op: Cleanup, root: str, planned: Plan) -> Iterator[Leftover]:
    if not os.path.exists(root):
        raise NotFound("no such file or folder", path=op.source, remedy="Check the spelling")
    named = os.path.abspath(op.source)
    if kept_in(named) == named and root != _without_links(named):
        raise BadOption(
            "this has the name of a cache of samples, and is a link to another folder",
            path=op.source,
            got=root,
            remedy=f"Remove the link, or clean up {root} by its own name",
        )
    if kept_in(root) == root:  # PATH is a single cache
        target = os.path.dirname(os.path.dirname(root))
        made = MadeFolders(Seals(run.context.state_dir))
        yield from _kept(root, root, target, made, anyway=_kept_too(op), alive=KeptFolder.is_in_use(root))
        return
    yield from _leftovers(run, op, root, planned)
    if op.all:
        for index in written_below(run.context.state_dir, root):
            yield from _written(index, root)


def _kept_too(op: Cleanup) -> bool:
    return op.all or op.caches


def _without_links(cache: str) -> str:
    """Return the path of a cache if neither it nor its ``.nbdata`` is a link."""
    target, own, name = cache.rsplit("/", 2)
    return os.path.join(os.path.realpath(target), own, name)


def _leftovers(run: Run, op: Cleanup, root: str, planned: Plan) -> Iterator[Leftover]:
    """Yield the content of nbdata's own folders, and temporaries of stores."""

    def failed(error: OSError) -> None:
        if error.filename == root and isinstance(error, PermissionError):
            raise disk_error(error, root) from error
        if not isinstance(error, NotADirectoryError):
            planned.notes.append(f"{error.filename} cannot be looked into ({os.strerror(error.errno or 0)})")

    theirs, strange, seals = list[str](), _Strange(), Seals(run.context.state_dir)
    for folder, folders, names in walk(root, failed):
        run.control.checkpoint()
        held = None
        for name in [each for each in folders if is_own_name(each) and each.islower()]:
            folders.remove(name)
            own = os.path.join(folder, name)
            if not is_ours(own):
                theirs.append(own)
                continue
            if is_mounted(own):
                yield Leftover(os.path.relpath(own, root), "keep", folder=folder, reason=_MOUNTED)
                continue
            held = holder(folder) or _elsewhere(own)
            yield from _own(root, own, folder, held, strange, seals, kept_too=_kept_too(op))
        partials = [os.path.join(folder, name) for name in names if name.endswith(PARTIAL)]
        for path in [path for path in partials if not is_unfinished(os.path.basename(path))]:
            strange.add(path)
            partials.remove(path)
        still = [path for path in partials if _is_still(path)]
        # Files that are whole and wait for their names are closed, while the program writes the next one beside them.
        grows = any(_is_locked(path, of_others=False) for path in (partials if still else ()))
        for path in still:
            held = held or holder(folder)
            action, reason = ("in use", _GROWS) if grows or _is_locked(path) else ("remove", "")
            yield leftover(root, path, action, folder, held, reason=reason)
    planned.notes += [f"{own} is another user's, and is left alone" for own in theirs[:_NAMED]]
    if strange.count:
        what = (
            f"{counted(strange.count, 'files')} with the place or suffix of nbdata's, which it did not make"
        )
        planned.notes.append(f"left alone: {what}: {strange.first}")
    if len(theirs) > _NAMED:
        planned.notes.append(f"so are {counted(len(theirs) - _NAMED, 'other folders')} of nbdata")


def walk(root: str, failed: Callable[[OSError], None]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each folder with the names of its folders and of everything else; walk the folders left in the list.

    Works like `os.walk` from the top, which cannot descend a thousand levels before Python 3.12.
    """
    pending = [root]
    while pending:
        at = pending.pop()
        folders, names = list[str](), list[str]()
        try:
            with os.scandir(at) as found:
                for entry in found:
                    (folders if entry.is_dir(follow_symlinks=False) else names).append(entry.name)
        except OSError as error:
            failed(error)
            continue
        names.sort()
        yield at, folders, names
        pending += [os.path.join(at, name) for name in sorted(folders, reverse=True)]


def _own(
    root: str, own: str, folder: str, held: str | None, strange: _Strange, seals: Seals, *, kept_too: bool
) -> Iterator[Leftover]:
    """Yield the content of one of nbdata's own folders; paths that nothing proves to be nbdata's go to `strange`.

    Somebody may have given a folder of the user's the name ``.nbdata``.
    """
    made = MadeFolders(seals)
    try:
        names = sorted(os.listdir(own))
        given = {name for name in names if _is_given(name)}
        strangers = strange_files(own, given, seals)
    except OSError as error:
        raise disk_error(error, own) from error
    kept = {**dict(cache_folders(own, KEPT)), **dict(cache_folders(own, BLOCKS))}
    caches = {**dict(cache_folders(own)), **kept}
    for name in names:
        path = os.path.join(own, name)
        with contextlib.suppress(FileNotFoundError):
            if path in kept:
                yield from _kept(root, path, folder, made, anyway=kept_too, alive=kept[path])
            elif path in caches:
                yield from _cache(root, path, folder, made, alive=caches[path])
            elif name == CONVERTING:
                yield from _whole(root, path, folder, made, held)
            elif name not in given or name in strangers:
                strange.add(path)
            elif path.removesuffix(LOCK) not in caches:  # else it is handled with its folder
                yield leftover(root, path, "remove", folder, held)
    if not names and not held:
        yield Leftover(os.path.relpath(own, root), "remove", folder=folder)


def _is_given(name: str) -> bool:
    """True for the names that nbdata gives in its own folders."""
    cache = name.removesuffix(LOCK)
    return is_temporary(name) or is_partial(name) or is_any_cache(cache)


def _kept(
    root: str, path: str, target: str, made: MadeFolders, *, anyway: bool, alive: bool
) -> Iterator[Leftover]:
    """Yield the folder of a reusable cache."""
    if anyway or alive:
        yield from _cache(root, path, target, made, alive=alive)
    else:
        size = sum(one.size for one in _cache(root, path, target, made, alive=False))
        yield Leftover(os.path.relpath(path, root), "keep", size, target, _FOR_LATER)


def _cache(root: str, path: str, target: str, made: MadeFolders, *, alive: bool) -> Iterator[Leftover]:
    """Yield the folder of a cache with all its content, and its lock last."""
    if alive:
        yield Leftover(os.path.relpath(path, root), "in use", folder=target, reason=AS_CACHE)
        return
    yield from _whole(root, path, target, made, None)
    with contextlib.suppress(FileNotFoundError):  # a copied cache may have none
        yield leftover(root, path + LOCK, "remove", target)


def _whole(root: str, path: str, target: str, made: MadeFolders, held: str | None) -> Iterator[Leftover]:
    """Yield a folder after all its content; of a link, the link alone.

    What is mounted in there is kept, and a folder that others could have put there. The seal of the folder goes last.
    """
    if is_mounted(path):
        yield Leftover(os.path.relpath(path, root), "keep", folder=target, reason=_MOUNTED)
        return
    if os.path.isdir(path) and not os.path.islink(path) and not is_made(path, made):
        yield Leftover(os.path.relpath(path, root), "keep", folder=target, reason=_UNPROVEN)
        return
    inner = list[str]()
    for folder, folders, names in walk(path, lambda _: None) if not os.path.islink(path) else ():
        for name in [name for name in folders if is_mounted(os.path.join(folder, name))]:
            folders.remove(name)
            yield Leftover(
                os.path.relpath(os.path.join(folder, name), root), "keep", folder=target, reason=_MOUNTED
            )
        inner += [os.path.join(folder, name) for name in folders]
        for name in names if folder != path else sorted(names, key=lambda name: name == MADE):
            with contextlib.suppress(FileNotFoundError):
                yield leftover(root, os.path.join(folder, name), "remove", target, held)
    for folder in sorted(inner, key=len, reverse=True):
        with contextlib.suppress(FileNotFoundError):
            yield leftover(root, folder, "remove", target, held)
    yield leftover(root, path, "remove", target, held)


def leftover(
    root: str,
    path: str,
    action: str,
    folder: str,
    held: str | None = None,
    written: Written | None = None,
    reason: str = "",
    kind: str = "",
) -> Leftover:
    """Return what is at a path as a leftover, with the bytes of the disk that its removal frees."""
    found = os.lstat(path)
    size = 0 if found.st_nlink > 1 or stat.S_ISDIR(found.st_mode) else found.st_blocks * 512
    if held:
        action, reason = "in use", f"job {held} works there"
    return Leftover(os.path.relpath(path, root), action, size, folder, reason, written=written, kind=kind)


def _is_still(path: str) -> bool:
    """Whether nothing was written to a file for a while."""
    try:
        return time.time() - os.lstat(path).st_mtime > _STILL
    except FileNotFoundError:
        return False


def _is_locked(path: str, *, of_others: bool = True) -> bool:
    """Whether a process writes to an unfinished file of its own, however slowly.

    `of_others` is the answer for a file of another user that cannot be opened.
    """
    file = LockFile()
    try:
        file.open(path)
        # On a disk without locks, only the time tells.
        return not flock(file.fd, wait=False) and time.time() - os.fstat(file.fd).st_mtime < _LONG_STILL
    except BlockingIOError:
        return True
    except PermissionError:  # another user's, who may write to it
        return of_others
    except OSError:
        return False
    finally:
        file.close()


def _elsewhere(own: str) -> str | None:
    machine = None if os.path.islink(own) else worker_elsewhere(own)
    return machine and f"on {machine}"


def holder(target: str) -> str | None:
    """Return the job that works on a folder, or above or below it."""
    return TargetLock(target, "cleanup").holder()


def _written(index: Index, root: str) -> Iterator[Leftover]:
    """Yield files and links below `root` that an index records, and whether they are unchanged."""
    target = os.path.realpath(index.target)
    where = target if is_inside(target, root) else root
    held = holder(where)
    inside = Inside(target)
    for path in sorted(index.paths(), reverse=True):  # children before parents
        full = os.path.join(target, path)
        if path.startswith(OWN_FOLDER + "/") or not is_inside(full, root):
            continue
        record = index.get(path)
        assert record is not None
        if not record.ours:  # it is the user's own file from before
            continue
        try:
            found = os.lstat(full)
        except (FileNotFoundError, NotADirectoryError):
            continue
        written = Written(index.path, index.target, path, *record[2:5])
        if path.endswith("/"):
            if stat.S_ISDIR(found.st_mode):
                yield leftover(root, full, "delete", where, held, written)
        elif stat.S_ISDIR(found.st_mode) or not record.local_same(found) or full not in inside:
            yield leftover(root, full, "keep", where, reason=CHANGED)
        else:
            yield leftover(root, full, "delete", where, held, written)


class Inside:
    """The paths that stay inside a target, not leading out through a link.

    Links are resolved once for consecutive paths of a folder, as resolving costs more than deleting a file.
    """

    def __init__(self, target: str) -> None:
        self._target = os.path.realpath(target)
        self._folder, self._is_inside = "", False

    def __contains__(self, path: str) -> bool:
        folder = os.path.dirname(path.rstrip("/"))
        if folder != self._folder:
            self._folder, self._is_inside = folder, is_inside(os.path.realpath(folder), self._target)
        return self._is_inside
