"""pull: plans what to do with each object, from the listing, local stats and the index."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from nbdata.disk import disk_error
from nbdata.engine.job.run import Run
from nbdata.engine.planning.decide import decide_pull
from nbdata.engine.planning.left_out import LeftOut
from nbdata.engine.planning.mirror import looks, plan_local_deletions
from nbdata.engine.planning.overlap import refuse_overlap
from nbdata.engine.planning.rows import detail_of, info_of
from nbdata.engine.planning.target_path import refuse_file
from nbdata.own_files import open_own_folder, own_folder
from nbdata.paths import has_glob
from nbdata.report import Plan, Row
from nbdata.space.limits import disk_of, existing_ancestor, round_up
from nbdata.stores.base import ObjectInfo
from nbdata.stores.http.servers import servers_of
from nbdata.transfer.fetch import BIG
from nbdata.transfer.index import Index, Record
from nbdata.transfer.names import LocalNames, folds_case, too_long, unrepresentable
from nbdata.transfer.part_records import Begun
from nbdata.transfer.retry import Tries
from nbdata.transfer.selection import Looked, Selection
from nbdata.transfer.sources import Found, find, known_as
from nbdata.transfer.staging import Staging
from nbdata.transfer.worker_pool import MOST
from nbdata.verbs.pull import Pull

__all__ = ["MOVES", "PullRow", "identity_of", "plan", "plan_of"]

#: Actions that read bytes.
MOVES = ("fetch", "overwrite", "compare")
# Inodes that a job uses beside files and their folders: a folder for temporaries, and its mark.
_OWN_INODES = 2


@dataclass(slots=True, eq=False)
class PullRow:
    """One object of a pull: its plan and, while it is fetched, its progress.

    Attributes
    ----------
    path : str
        The file's path, relative to the target.
    action : str
        See `nbdata.engine.planning.decide`.
    info : ObjectInfo
        The object as it was listed.
    needed : int
        Bytes of disk that it needs, beyond those that an earlier run has fetched.
    present : int
        Bytes that an earlier run has fetched.
    reason : str
        Why it is not fetched, or ''.
    edited : bool
        Whether it replaces a file that was edited here.
    differs : bool
        Whether a comparison found that it differs from the existing file; no inode was planned for it.
    claimed : int
        Bytes reserved for it while it is being fetched.
    verified : bool
        Whether its bytes were compared with a checksum.
    guarded : bool
        Whether it is a conflict if its bytes differ; see `Decision`.
    seen : list of int or None
        The look of the known file that it replaces, see `looks`.
    tries : Tries or None
        See `nbdata.transfer.batcher.Batched`.
    """

    path: str
    action: str
    info: ObjectInfo
    needed: int = 0
    present: int = 0
    reason: str = ""
    edited: bool = False
    differs: bool = False
    claimed: int = 0
    verified: bool = False
    guarded: bool = False
    seen: list[int] | None = None
    tries: Tries | None = None

    def row(self) -> Row:
        """Return its row in the plan."""
        if self.action == "unchanged":  # its details are not needed any more
            return Row(self.path, self.action, self.info.size, {})
        detail = detail_of(self.info)
        detail["needed"] = self.needed
        if self.present:
            detail["present"] = self.present
        if self.reason:
            detail["reason"] = self.reason
        if self.edited:
            detail["edited"] = True
        if self.guarded:
            detail["guarded"] = True
        if self.seen:
            detail["seen"] = self.seen
        return Row(self.path, self.action, self.info.size, detail)

    @classmethod
    def of(cls, row: Row) -> PullRow:
        """Rebuild an object that is to be fetched or compared from its row."""
        detail_of = row.detail.get
        return cls(
            row.path,
            row.action,
            info_of(row),
            detail_of("needed", 0),
            detail_of("present", 0),
            reason=detail_of("reason", ""),
            edited="edited" in row.detail,
            guarded="guarded" in row.detail,
            seen=detail_of("seen"),
        )


def plan(run: Run) -> Plan:
    """Decide for each selected object; reads the listing, local stats and the index, writes nothing."""
    op = run.operation
    assert isinstance(op, Pull)
    left_out = LeftOut(op) if op.delete else None
    return plan_of(run, find(run, op.source, left_out), left_out)


def plan_of(run: Run, source: Found, left_out: LeftOut | None = None) -> Plan:
    """Make the plan for objects that are already found.

    `left_out` has the entries of the source that are no files, once they are listed. A mirror needs it.
    """
    op = run.operation
    assert isinstance(op, Pull)
    root, rename = _target_of(op, source)
    refuse_file(root)
    refuse_overlap(source, root, name=rename, whole=not has_glob(op.source), mirror=op.delete)
    out = Plan("pull", *op.places())
    rows = run.row_file("plan")
    servers, source_name = servers_of([source.location.store]), known_as(run, op.source)
    index = run.index(op.source, root, identity_of(root), servers)
    pushed = Index(run.context.state_dir, root, op.source, identity_of(root), servers)
    block = disk_of(root)[2]
    begun = Begun(_staging(root))
    names = LocalNames(encode=op.encode_names, blind=folds_case(existing_ancestor(root)))
    # Of a file that has a name of its own, TARGET is the file, and not the folder around it.
    kept = set[str]() if op.delete and not rename else None
    base = root.rstrip("/") + "/"
    empty = _missing(root)  # then no local file needs to be looked at
    folders, parted = _NewFolders(root), 0
    looked = Looked()
    for entry in Selection(op).apply(looked.at(source.entries)):
        info = entry.info
        path, reason = (rename, unrepresentable(rename)) if rename else names.name(entry.path)
        if reason and not (rename or op.encode_names):
            reason += "; --encode-names fetches it under another name"
        item = PullRow(path, "unrepresentable", info, reason=reason or too_long(base, path) or "")
        if not item.reason:
            local = None if empty else _lstat(base + path)
            gone = local is None and op.skip_written and not os.path.lexists(base + path)
            record = None if local is None and not gone else index.get(path)
            sent = None if local is None else pushed.get(path)
            item.action, item.reason, item.guarded = decide_pull(
                info,
                local,
                record,
                overwrite=op.overwrite,
                size_only=op.size_only,
                pushed=sent,
                skip_written=gone,
            )
            if item.action in MOVES:
                if source.location.store.ranges:
                    item.present = begun.present(path, source_name, info)
                out.files += 1
                out.bytes += max(info.size, 0)
                item.edited = (
                    local is not None
                    and record is not None
                    and _is_edited(record, local, item.action)
                    and not (sent is not None and sent.local_same(local))
                )
                if item.action == "overwrite" and local is not None and (record or sent) and not item.edited:
                    item.seen = looks(local)
                if item.action != "compare":  # which reserves room once it is found to differ
                    out.present += item.present
                    item.needed = round_up(info.size, block) - round_up(item.present, block)
                    new_folders = folders.before(path)
                    out.needed += item.needed + new_folders * block  # which each takes on many disks
                    out.inodes += 1 + new_folders
                    parted += info.size >= BIG
        if kept is not None:
            kept.add(path)
        out.count(item.action, info.size)
        rows.add(item.row())
    notes = list[str]()
    if left_out is not None and left_out.unreadable:
        raise left_out.unreadable[0][1]
    if left_out is not None and kept is not None:
        notes = plan_local_deletions(op, root, kept, index, out, rows, left_out)
    if not out.actions and (why := Selection(op).none_left(looked)):
        out.notes.append(why)
        out.empty = True
    rows.close()
    if out.inodes:
        out.inodes += _OWN_INODES + min(parted, MOST)  # a record of parts for each object in flight
    out.rows = rows.rows()
    out.notes += notes
    out.details = {"root": root, "left_out": notes}
    return out


def _is_edited(record: Record, local: os.stat_result, action: str) -> bool:
    """True if a file to be replaced was edited since it was pulled.

    Before a comparison, a changed status is enough: the file is only replaced if its bytes differ.
    """
    touched = not record.local_same(local)
    return touched and (action == "compare" or record[2:4] != (local.st_size, local.st_mtime_ns))


def _staging(root: str) -> Staging | None:
    """Open the folder for temporaries of earlier runs; None if there is none."""
    own_folder(root)  # raises the errors of a folder that cannot be used
    try:
        return Staging(*open_own_folder(root))
    except OSError:
        return None


class _NewFolders:
    """Counts the folders to make for files whose names come folder by folder, as in listings.

    In another order a folder may count twice; that reserves too much, never too little.
    """

    def __init__(self, root: str) -> None:
        self._root, self._root_missing = root, _missing(root)
        ancestor = existing_ancestor(root)
        self._above = root[len(ancestor) :].strip("/").count("/") + 1 if self._root_missing else 0
        self._parent: str | None = None  # of the last file
        self._way: list[tuple[str, bool]] = []  # the folders on its path, and whether each is missing

    def before(self, path: str) -> int:
        """Return the folders that are new for this file; for the first file also the root and its parents."""
        parent = path.rpartition("/")[0]
        if parent == self._parent:
            return 0
        count = self._above if self._parent is None else 0
        self._parent = parent
        names = parent.split("/") if parent else []
        same = 0
        while same < min(len(names), len(self._way)) and names[same] == self._way[same][0]:
            same += 1
        del self._way[same:]
        missing = self._way[-1][1] if self._way else self._root_missing
        for depth in range(same, len(names)):
            missing = missing or _missing("/".join([self._root, *names[: depth + 1]]))
            self._way.append((names[depth], missing))
            count += missing
        return count


def _target_of(op: Pull, source: Found) -> tuple[str, str]:
    """Return the target folder, and the file's name there if a single object was requested under a name."""
    target = op.target
    assert target is not None  # Pull.check
    if source.single is not None and not target.endswith("/") and not os.path.isdir(target):
        return os.path.dirname(target), os.path.basename(target)
    return target.rstrip("/") or "/", ""


def identity_of(root: str) -> tuple[int, int] | None:
    """Return device and inode of a folder; None if it does not exist yet."""
    try:
        status = os.stat(root)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _missing(path: str) -> bool:
    """True if nothing exists there; False if access is denied, which later steps report."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _lstat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        # A loop of links above it, or a name too long for this system: no file can be there.
        if error.errno in (errno.ELOOP, errno.ENAMETOOLONG):
            return None
        raise disk_error(error, path) from error
