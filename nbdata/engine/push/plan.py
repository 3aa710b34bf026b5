"""push: plans what to do with each file, from local stats, the target's listing and the index."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from itertools import zip_longest

from nbdata.disk import disk_error
from nbdata.engine.job.run import Run
from nbdata.engine.planning.decide import decide_push
from nbdata.engine.planning.left_out import LeftOut
from nbdata.engine.planning.overlap import refuse_overlap
from nbdata.engine.planning.remote_target import existing_objects, is_text, key_at, name_at, plan_deletions
from nbdata.engine.planning.target_path import refuse_file
from nbdata.errors import BadOption
from nbdata.paths import glob_base, has_glob
from nbdata.report import Plan, Row
from nbdata.sizes import counted, format_size
from nbdata.space.limits import disk_of, round_up
from nbdata.stores.base import ObjectInfo
from nbdata.stores.http.servers import servers_of
from nbdata.transfer.file_source import blocks
from nbdata.transfer.index import Index
from nbdata.transfer.names import decoded
from nbdata.transfer.retry import Tries
from nbdata.transfer.selection import Looked, Selection
from nbdata.transfer.sources import find
from nbdata.verbs.push import Push

__all__ = ["MOVES", "PushRow", "identity_of", "plan"]

#: Actions that read bytes.
MOVES = ("send", "overwrite", "compare")


@dataclass(slots=True, eq=False)
class PushRow:
    """One file of a push: its plan and, while it is sent, the outcome.

    Attributes
    ----------
    path : str
        Relative to the source.
    action : str
        See `nbdata.engine.planning.decide`.
    size : int
    key : str
        The key of its object.
    file : str
        Its absolute path.
    mtime_ns : int
        Its modification time when it was listed.
    etag : str or None
        The ETag of the object at the key; None if there is none.
    reason : str
        Why it is not sent, or ''.
    wrong : ObjectInfo or None
        The store's description of a first try that arrived damaged.
    guarded : bool
        Whether it is a conflict if its bytes differ; see `Decision`.
    pulled : bool
        Whether a pull has a record of it; then a push announces it although it has none.
    tries : Tries or None
        See `nbdata.transfer.batcher.Batched`.
    """

    path: str
    action: str
    size: int
    key: str = ""
    file: str = ""
    mtime_ns: int = 0
    etag: str | None = None
    reason: str = ""
    wrong: ObjectInfo | None = None
    guarded: bool = False
    pulled: bool = False
    tries: Tries | None = None

    @property
    def there(self) -> ObjectInfo:
        """The object at the key, which may be this file."""
        return ObjectInfo(self.key, self.size, self.etag or "")

    def row(self) -> Row:
        """Return its row in the plan."""
        detail: dict[str, object] = {}
        if self.key:
            detail = {"key": self.key, "file": self.file, "mtime_ns": self.mtime_ns}
        if self.reason:
            detail["reason"] = self.reason
        if self.etag is not None:
            detail["etag"] = self.etag
        for name in ("guarded", "pulled"):
            if getattr(self, name):
                detail[name] = True
        return Row(self.path, self.action, self.size, detail)

    @classmethod
    def of(cls, row: Row) -> PushRow:
        """Rebuild a file that is to be sent or compared from its row."""
        told = row.detail
        return cls(
            row.path,
            row.action,
            row.size,
            told["key"],
            told["file"],
            told["mtime_ns"],
            told.get("etag"),
            reason=told.get("reason", ""),
            guarded="guarded" in told,
            pulled="pulled" in told,
        )


def plan(run: Run) -> Plan:
    """Decide for each selected file; reads local stats, the target's listing and the index, writes nothing."""
    op = run.operation
    assert isinstance(op, Push)
    left_out = LeftOut(op)
    found = find(run, op.source, left_out)
    target = run.open(op.target)
    out = Plan("push", *op.places())
    rows = run.row_file("plan")
    single = found.single is not None
    name = name_at(target, os.path.basename(found.single.key) if found.single else "", mirror=op.delete)
    if op.local_target() is not None:
        folder, own = os.path.split(f"/{name}") if name else (f"/{target.key}", "")
        refuse_file(folder)
        refuse_overlap(found, folder, name=own, whole=not has_glob(op.source), mirror=op.delete)
    remote = existing_objects(run, target, name, overwrite=op.overwrite, delete=op.delete)
    root = _root(op, single)
    servers = servers_of([target.store])
    index = run.index(op.source, op.target, identity_of(root), servers)
    pulled = Index(run.context.state_dir, op.target, root, identity_of(root), servers)
    block = disk_of(op.target)[2] if op.local_target() else 0
    taken = set[str]() if op.encode_names else None  # else no two names give the same key
    looked = Looked()
    gone = freed = 0  # files that --delete-source deletes, and their bytes
    for entry in Selection(op).apply(looked.at(found.entries)):
        key = name or key_at(target, decoded(entry.path) if op.encode_names else entry.path)
        why = target.store.unfit(key)
        if not is_text(key):
            why = "its name is not UTF-8, as keys are: rename it, or --exclude it"
        if why or (taken is not None and key in taken):
            why = why or f"another file has the same key, {key}"
            out.count("unrepresentable", entry.info.size)
            rows.add(PushRow(entry.path, "unrepresentable", entry.info.size, reason=why).row())
            continue
        if taken is not None:
            taken.add(key)
        there = remote.get(key)
        if op.delete:
            remote.keep(key)
        path = "/" + entry.info.key
        try:
            local = os.stat(path)
        except FileNotFoundError:  # deleted since it was listed
            continue
        except OSError as error:
            left_out(entry.path, "unreadable", disk_error(error, path))
            continue
        record, mate = index.get(entry.path), pulled.get(entry.path)
        decision = decide_push(
            local,
            there,
            record,
            overwrite=op.overwrite,
            size_only=op.size_only,
            pulled=mate,
            prove=op.delete_source,
        )
        on_disk = name == target.key and op.local_target() is not None
        if on_disk and decision.action == "overwrite" and record is None and mate is None:
            _refuse_unknown(run, op, path, f"/{key}")
        if decision.action in MOVES:
            out.files += 1
            out.bytes += local.st_size
            if block:
                out.needed += round_up(local.st_size, block)
                out.inodes += 1
            if op.delete_source and not os.path.islink(path):
                gone, freed = gone + 1, freed + local.st_size
        out.count(decision.action, local.st_size)
        item = PushRow(entry.path, decision.action, local.st_size, key, path, local.st_mtime_ns)
        item.etag, item.reason = there.etag if there is not None else None, decision.reason
        item.guarded, item.pulled = decision.guarded, mate is not None
        rows.add(item.row())
    for row in left_out.rows():
        out.count(row.action, 0)
        rows.add(row)
    out.notes += (told := left_out.notes())
    if gone:
        what = f"{counted(gone, 'files')} ({format_size(freed)})"
        out.notes.append(f"deletes {what} on the disk, each after TARGET is known to have it")
    if op.delete:
        plan_deletions(run, target, remote, index, out, rows.add, spared=left_out.covers, pulled=pulled)
    if not out.actions and (why := Selection(op).none_left(looked)):
        out.notes.append(why)
        out.empty = True
    elif not out.actions and not told:
        out.notes.append("SOURCE has no files")
    rows.close()
    out.rows = rows.rows()
    out.details = {"root": root, "single": single, "left_out": told}
    return out


def _refuse_unknown(run: Run, op: Push, path: str, there: str) -> None:
    """Raise BadOption if TARGET is an unknown file of the disk: a shell may have expanded a glob to two names.

    A file with the same bytes may be that of a run that was killed before it could record it.
    """
    if op.overwrite != "always" and not _same_content(run, path, there):
        raise BadOption(
            "the target is another file on the disk, which this push never wrote",
            path=op.target,
            remedy="Name a folder or a URL; two names may come from a glob that a shell expanded. --overwrite always "
            "replaces the file",
        )


def _same_content(run: Run, *paths: str) -> bool:
    """True if two files of the disk have the same bytes."""
    with contextlib.ExitStack() as opened:
        try:
            one, two = (opened.enter_context(open(path, "rb", buffering=0)) for path in paths)
            size, other = (os.fstat(file.fileno()).st_size for file in (one, two))
        except OSError:  # unknown
            return False
        both = (blocks(run.control, file.fileno(), 0, size, file.name) for file in (one, two))
        return size == other and all(a == b for a, b in zip_longest(*both))


def _root(op: Push, single: bool) -> str:
    source = glob_base(op.source) if has_glob(op.source) else op.source
    return os.path.dirname(source) if single else source.rstrip("/") or "/"


def identity_of(root: str) -> tuple[int, int]:
    """Return device and inode of a folder."""
    found = os.stat(root)
    return found.st_dev, found.st_ino
