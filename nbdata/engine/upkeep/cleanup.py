"""cleanup: find leftovers of nbdata below a folder or a URL, and remove them.

Only unused leftovers are removed: each folder is locked during the removal, as a job would lock it. Files that
nbdata wrote (``--all``), or that a store has (``--stored``), are deleted only if they look as recorded, and those that
are only here (``--only-here``) only if they look as in the plan. A file that was changed, replaced or touched stays.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Iterable, Iterator

from nbdata.cache.folder import LOCK
from nbdata.cache.kept_folder import lock_of
from nbdata.cache.kept_names import kept_in
from nbdata.disk import disk_error, sync_folder
from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.engine.upkeep.leftovers import (
    AS_CACHE,
    CHANGED,
    Leftover,
    Written,
    left_at_store,
    left_on_disk,
)
from nbdata.engine.upkeep.proofs import whole_folder
from nbdata.engine.upkeep.stored import NOT_ASKED, ONLY_HERE, STORED, stored_below
from nbdata.errors import AccessDenied, NbdataError
from nbdata.guarded_folders import NamedFolders, exchanged_folder
from nbdata.guarded_trees import Below
from nbdata.lock_files import file_lock, is_lockable
from nbdata.made_folders import MadeFolders
from nbdata.own_files import folder_of, own_folder
from nbdata.paths import OWN_FOLDER, is_inside, is_url
from nbdata.report import Plan, Report
from nbdata.seals import Seals
from nbdata.sizes import counted, format_size
from nbdata.space.holders import dead_holders
from nbdata.space.ledger import Ledger
from nbdata.space.mounts import dead_mounts
from nbdata.transfer.index import Index
from nbdata.transfer.locks import TargetLock, dead_locks
from nbdata.transfer.retry import retrying
from nbdata.transfer.uploads import forget, remembered
from nbdata.verbs.cleanup import Cleanup

__all__ = ["perform", "plan"]

# Deleted names that an index still records, by the index and its folder.
_Gone = dict[tuple[str, str], set[str]]
# Most files that are deleted under one lock, and held in memory.
_TOGETHER = 20_000
# Why a file that is in no index is kept.
_CHANGED_NOW = "changed since the plan"


def plan(run: Run) -> Plan:
    """List what would be removed, what is in use and what is kept; removes nothing."""
    op = run.operation
    assert isinstance(op, Cleanup)
    planned = Plan("cleanup", op.source)
    run.kept = op.source if is_url(op.source) else _opened(run.folders, op.source)
    rows = run.row_file("plan")
    local = not is_url(op.source)
    planned.details["dead"] = dead_locks(remove=False) + dead_holders(remove=False) if local else 0
    if local and (dead := dead_mounts(run.kept, remove=False)):
        planned.notes.append(f"mounts whose process was killed, and that are released: {dead:,}")
    freed = dict.fromkeys(("", STORED, ONLY_HERE), 0)
    kept = dict.fromkeys((ONLY_HERE, NOT_ASKED), 0)
    for row in _found(run, op, run.kept, planned):
        run.control.checkpoint()
        planned.count(row.action, row.size)
        if row.action in ("remove", "delete"):
            freed[row.kind] += row.size
        elif row.kind in kept:
            kept[row.kind] += row.size
        rows.add(row.row())
    rows.close()
    if op.stored:
        planned.details["frees"] = {"own": freed[""], "stored": freed[STORED], "only_here": freed[ONLY_HERE]}
        planned.details["stays"] = {"only_here": kept[ONLY_HERE], "not_asked": kept[NOT_ASKED]}
        planned.notes.insert(0, _told(freed, kept))
    planned.rows = rows.rows()
    return planned


def _found(run: Run, op: Cleanup, root: str, planned: Plan) -> Iterator[Leftover]:
    if is_url(op.source):
        yield from left_at_store(run, op, planned)
        return
    yield from left_on_disk(run, op, root, planned)
    if op.stored and os.path.isdir(root):
        yield from stored_below(run, root, planned)


def _told(freed: dict[str, int], kept: dict[str, int]) -> str:
    """Return what ``--stored`` frees, and what of it is lost or stays, as a sentence."""
    words = [
        f"frees {format_size(sum(freed.values()))}",
        f"{format_size(freed[STORED])} can be fetched again",
    ]
    if freed[ONLY_HERE]:
        words.append(f"{format_size(freed[ONLY_HERE])} are only here and are lost")
    if kept[ONLY_HERE]:
        words.append(f"{format_size(kept[ONLY_HERE])} only here stay")
    if kept[NOT_ASKED]:
        words.append(f"{format_size(kept[NOT_ASKED])} stay because no store could be asked for them")
    return "; ".join(words)


def _batches(found: Iterable[Leftover]) -> Iterator[tuple[str, list[Leftover]]]:
    """Yield leftovers by the folder that is locked meanwhile, files in batches of at most `_TOGETHER`."""
    for folder, rows in itertools.groupby(found, lambda row: row.folder):
        batch = list[Leftover]()
        for row in rows:
            batch.append(row)
            if len(batch) >= _TOGETHER and row.kind:  # what belongs together, such as a cache, has no kind
                yield folder, batch
                batch = []
        if batch:
            yield folder, batch


def _opened(folders: NamedFolders, source: str) -> str:
    """Open the place that the user named, and return its path without links."""
    folders.hold(source)
    root = os.path.realpath(source)
    folders.hold(root)
    named, real = folders.get(source.rstrip("/") or "/"), folders.get(root)
    if named and real and not os.path.samestat(os.fstat(named.fd), os.fstat(real.fd)):
        raise exchanged_folder(source)
    return root


def perform(run: Run, planned: Plan) -> Report:
    """Remove the leftovers of the plan that are still unchanged."""
    return _Cleaning(run, planned).run_all()


class _Cleaning:
    """Performs one cleanup."""

    def __init__(self, run: Run, planned: Plan) -> None:
        assert isinstance(run.operation, Cleanup)
        assert isinstance(run.kept, str)
        self.run, self.op, self.plan = run, run.operation, planned
        self.results = Results(run)
        self.results.notes.extend(planned.notes)
        self.root = run.kept
        self._made = MadeFolders(Seals(run.context.state_dir))
        self.freed = 0
        self.busy: dict[str, str] = {}

    def run_all(self) -> Report:
        if is_url(self.op.source):
            self._abort_all()
        else:
            if dead := dead_locks() + dead_holders():
                self.results.counts["dead locks"] = dead
            if dead := dead_mounts(self.root):
                self.results.counts["dead mounts"] = dead
            found = map(Leftover.of, self.plan.rows)
            for folder, rows in _batches(found):
                self._below(folder, rows)
            if self.freed:
                Ledger().freed(self.root)
        self.results.notes += [f"{target}: {reason}" for target, reason in list(self.busy.items())[:10]]
        report = self.results.report(freed=self.freed)
        words = [counted(count, name) for name, count in report.counts.items()]
        report.headline = (
            ", ".join(words) + f"; {format_size(self.freed)} freed" if words else "nothing was left"
        )
        return report

    def _abort_all(self) -> None:
        store = self.run.open(self.op.source).store
        known = remembered(self.run.context.state_dir)
        for row in map(Leftover.of, self.plan.rows):
            begun = known.get(row.upload)
            if row.action != "abort":
                self.results.add(row.path, Outcome.IN_USE, reason=row.reason)
                continue
            if begun is None:  # another process has ended it since
                continue
            if reason := begun.in_use():  # or resumed it
                self.results.add(row.path, Outcome.IN_USE, reason=reason)
                continue
            try:
                retrying(self.run.control, lambda row=row: store.abort(row.path, row.upload))  # type: ignore[misc]
                forget(self.run.context.state_dir, begun.id)
                self.results.add(row.path, Outcome.ABORTED)
            except (NbdataError, OSError) as error:
                self.results.fail(row.path, error)

    def _below(self, target: str, rows: list[Leftover]) -> None:
        """Remove the leftovers in one target while it is locked."""
        lock = TargetLock(target, "cleanup")
        held = lock.acquire(claims=True)
        caches = dict[str, file_lock | None]()
        wholes = dict[str, Below | None]()
        below: Below | None = None
        try:
            gone: _Gone = {}
            base = target if os.path.isdir(target) else os.path.dirname(target)
            # From the folder that the user named on, nothing is reached through a link.
            at = self.root if is_inside(base, self.root) else base
            below = Below(at, self._held() if at == self.root else None)
            for row in rows:
                self.run.control.checkpoint()
                kept = kept_in(os.path.join(self.root, row.path)) if row.action == "remove" else None
                if kept is not None and kept not in caches:
                    caches[kept] = _locked(kept)
                if row.action == "keep":
                    self.results.add(row.path, Outcome.KEPT, row.size, reason=row.reason)
                elif kept is not None and caches[kept] is None:  # a process has begun to use it since
                    self.results.add(row.path, Outcome.IN_USE, row.size, reason=AS_CACHE)
                elif held is not None or row.action == "in use":
                    reason = row.reason or f"job {held} works there"
                    self.results.add(row.path, Outcome.IN_USE, row.size, reason=reason)
                    self.busy[target] = reason
                elif not (whole := whole_folder(os.path.normpath(os.path.join(self.root, row.path)))):
                    self._remove(row, gone, below, at)
                else:
                    if whole not in wholes:
                        wholes[whole] = self._opened(whole, below, at)
                    if (opened := wholes[whole]) is not None:  # else it was removed or exchanged since
                        self._remove(row, gone, opened, whole)
            for (path, root), names in gone.items():
                _sync(root, names)
                _forget(path, root, names)
            for kept, cache in caches.items():
                if cache is not None and not os.path.lexists(kept):  # the lock may be made by this cleanup
                    with contextlib.suppress(OSError):
                        if cache.stands():
                            os.unlink(kept + LOCK)
            if held is None:
                self._remove_empty(below, at, base, rows)
        except OSError as error:
            raise disk_error(error, target) from error
        finally:
            for opened in filter(None, (below, *wholes.values())):
                opened.close()
            for cache in filter(None, caches.values()):
                cache.release()
            lock.release()

    def _held(self) -> int | None:
        """Return a new descriptor of the folder that was looked at; raises TargetLost if its name leads elsewhere."""
        named = self.run.folders.get(self.root)
        if named is None:  # a file, or nothing any more
            return None
        named.check()
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=named.fd)

    def _opened(self, whole: str, below: Below, base: str) -> Below | None:
        """Open a folder to delete what is in it; None if it is not there, or not the one that was looked at."""
        try:
            above, name = below.at(os.path.relpath(whole, base))
            fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
        except OSError:
            return None
        if self._made.has(name, fd):
            return Below(whole, fd)
        os.close(fd)
        return None

    def _remove(self, row: Leftover, gone: _Gone, below: Below, base: str) -> None:
        path = os.path.normpath(os.path.join(self.root, row.path))  # the lock of a cache is beside it
        name = path.removeprefix(base.rstrip("/") + "/")
        try:
            found = below.lstat(name)
            if row.written is not None and not _still(found, row.written):
                reason = CHANGED if row.written.records else _CHANGED_NOW
                self.results.add(row.path, Outcome.KEPT, row.size, reason=reason)
                return
            if stat.S_ISDIR(found.st_mode):
                with contextlib.suppress(OSError):  # its content is not ours
                    below.rmdir(name)
                    _note(row, gone)
                return
            below.unlink(name)
        except (FileNotFoundError, NotADirectoryError):  # or a link has the place of one of its folders
            return
        except OSError as error:
            self.results.fail(row.path, disk_error(error, path))
            return
        self.freed += row.size
        self.run.control.advance(files=1)
        self.results.add(row.path, Outcome.DELETED if row.action == "delete" else Outcome.REMOVED, row.size)
        _note(row, gone)

    def _remove_empty(self, below: Below, root: str, base: str, rows: list[Leftover]) -> None:
        """Remove nbdata's own folder, and folders that became empty by the deletion."""
        with contextlib.suppress(OSError, NbdataError):
            below.rmdir(os.path.relpath(own_folder(base), root))
        emptied = {
            os.path.dirname(os.path.join(self.root, row.path)) for row in rows if row.action == "delete"
        }
        for folder in sorted(emptied, key=len, reverse=True):
            at = folder
            while at != self.root and is_inside(at, self.root):
                try:
                    below.rmdir(os.path.relpath(at, root))
                except OSError:
                    break
                at = os.path.dirname(at)


def _locked(kept: str) -> file_lock | None:
    """Take the lock of a kept cache; None if a process holds it. Nobody can use a cache with a link for a lock."""
    lock = kept + LOCK
    return lock_of(kept) if is_lockable(lock) or not os.path.lexists(lock) else file_lock(lock)


def _note(row: Leftover, gone: _Gone) -> None:
    """Note that a recorded file is gone."""
    if (written := row.written) is not None and written.records:
        gone.setdefault((written.records, written.root), set()).add(written.name)


def _still(found: os.stat_result, written: Written) -> bool:
    """True if a file is as recorded, now that its folder is locked."""
    if written.name.endswith("/"):
        return stat.S_ISDIR(found.st_mode)
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns) == written[3:]


def _sync(root: str, names: set[str]) -> None:
    """Make deletions durable: files that reappear after a crash would be in no index."""
    for folder in {os.path.dirname(os.path.join(root, name.rstrip("/"))) for name in names}:
        with contextlib.suppress(OSError):  # the folder is gone, or cannot be synced
            sync_folder(folder)


def _forget(path: str, root: str, names: set[str]) -> None:
    """Remove deleted files from an index; delete the index if it becomes empty."""
    found = os.stat(root)
    index = Index.at(path, root, (found.st_dev, found.st_ino))
    if all(name in names or name.startswith(OWN_FOLDER + "/") for name, _ in index.records()):
        with contextlib.suppress(FileNotFoundError), folder_of(path) as (at, name):
            os.unlink(name, dir_fd=at)
        return
    try:
        index.open((found.st_dev, found.st_ino))
        index.put(dict.fromkeys(names))
    except OSError as error:
        raise AccessDenied("the index cannot be written", path=path) from error
    finally:
        index.close()
