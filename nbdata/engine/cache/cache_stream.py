"""Plan and perform cache_stream: group objects into items, and set the disk space of the cache."""

from __future__ import annotations

from dataclasses import replace

from nbdata.cache.folder import CacheFolder
from nbdata.engine.cache.item_cache import ItemCache
from nbdata.engine.cache.items import ItemFile, all_named, grouped
from nbdata.engine.job.run import Run
from nbdata.engine.planning.target_path import refuse_file
from nbdata.errors import BadOption, NbdataError, NotFound
from nbdata.report import Plan, Report, Row
from nbdata.sizes import counted, format_size
from nbdata.space.ledger import Ledger, not_enough
from nbdata.space.limits import disk_of, limited_folders
from nbdata.transfer.selection import Looked, Selection
from nbdata.transfer.sources import find
from nbdata.verbs.cache_stream import CacheStream

__all__ = ["perform", "plan"]

# In the details of the error of a source that has files and no folders.
_NO_FOLDERS = "no folders"
# Number of files outside folders that a note names.
_NAMED = 5


def plan(run: Run) -> Plan:
    """Group the selected objects into items, and check that the largest fits the limit; writes nothing."""
    op = run.operation
    assert isinstance(op, CacheStream)
    refuse_file(op.local_target())
    if op.by != "auto":
        return _planned(run, op)
    try:
        return _planned(run, replace(op, by="folder"))
    except BadOption as error:
        if not error.details.get(_NO_FOLDERS):
            raise
        out = _planned(run, replace(op, by="file"))
        out.notes.insert(0, "each item is a file, as SOURCE has no folders")
        return out


def _planned(run: Run, op: CacheStream) -> Plan:
    """Plan a stream whose unit is known."""
    block = disk_of(op.cache_dir)[2]
    out = Plan("cache_stream", op.source)
    rows = run.row_file("plan")
    loose = list[str]()
    total = largest = files = 0
    largest_key = ""
    source = find(run, op.source)
    looked = Looked()
    listed = all_named(op.source, source.entries) if op.by == "shard" else source.entries
    groups = grouped(Selection(op).apply(looked.at(listed)), op.by, loose.append)
    for group in ItemFile(run.folder, block).write(groups):
        run.control.checkpoint()
        refused = group.refused()
        room = 0 if refused else group.room(block)
        total += room
        files += len(group.entries)
        if room > largest:
            largest, largest_key = room, group.key
        action = "unrepresentable" if refused else "stream"
        detail = {"files": len(group.entries), **({"reason": ": ".join(refused)} if refused else {})}
        out.count(action, max(group.size, 0))
        rows.add(Row(group.key, action, group.size, detail))
    rows.close()
    out.rows = rows.rows()
    if not out.actions:
        raise _nothing(op, len(loose), looked)
    if loose:
        out.notes.append(_left_out(op, loose))
    overhead = CacheFolder.OVERHEAD_BLOCKS * block
    out.needed = min(_capacity(run, op, largest + overhead, largest_key), total + overhead)
    out.inodes = min(2 * files, out.needed // block) + CacheFolder.OVERHEAD_BLOCKS
    out.details["largest"] = largest
    items, size = out.actions.get("stream", [0, 0])
    number, of = op.share()
    out.files = len(range(number, items, of)) * op.epochs
    out.bytes = size * op.epochs if of == 1 else 0  # each epoch draws the items of a part anew
    return out


def _nothing(op: CacheStream, loose: int, looked: Looked) -> NbdataError:
    if loose and op.by == "shard":
        return BadOption(
            f"cache_stream: no tar shards below {op.source}, and {counted(loose, 'other files')}",
            expected="names that end in .tar, .tar.gz, .tar.zst, .tar.xz or .tar.bz2",
            remedy="Use --by file for other files",
        )
    if loose:
        return BadOption(
            f"cache_stream: no folders below {op.source}, and {counted(loose, 'files')}",
            remedy="Use --by file or --by sample, or name the folder that holds the folders",
            details={_NO_FOLDERS: True},
        )
    why = Selection(op).none_left(looked)
    return NotFound(
        why or "there is nothing to stream", path=op.source, remedy="Loosen the filters" if why else ""
    )


def _left_out(op: CacheStream, loose: list[str]) -> str:
    named = ", ".join(loose[:_NAMED]) + (", …" if len(loose) > _NAMED else "")
    where = "beside the shards" if op.by == "shard" else "beside the folders"
    what = f"{counted(len(loose), 'files')} {where} {'is' if len(loose) == 1 else 'are'}"
    return f"{what} not streamed: {named} (--by file streams all files)"


def _capacity(run: Run, op: CacheStream, least: int, key: str) -> int:
    """The bytes that the cache may hold; if too few, raise an error with a sufficient size."""
    good = 3 * least
    if op.max_size is not None:
        if op.max_size < least:
            raise BadOption(
                f"--max-size: {format_size(op.max_size)} is less than the largest item, {key}, takes on the disk",
                expected=f"at least {least:,} bytes ({format_size(least)})",
                remedy=f"{format_size(good)} or more lets items be fetched while one is used; a finer --by makes "
                "smaller items",
            )
        return op.max_size
    limited = limited_folders(run.context.state_dir, run.context.env)
    parts = 2 * op.share()[1]  # the other parts need room too
    room = Ledger().room(op.cache_dir, limited)[0]
    if room.free // parts < least and room.age > 0:  # room may have been made since the count
        room = Ledger().room(op.cache_dir, limited, fresh=True)[0]
    half = room.free // parts
    if half < least and not op.ignore_space:
        if room.free < least:
            raise not_enough(op.cache_dir, least, 0, room, less=op.with_less)
        half = least
    return half


def perform(run: Run, planned: Plan) -> Report:
    """Do what the plan says."""
    op = run.operation
    assert isinstance(op, CacheStream)
    assert run.leases is not None
    try:
        return ItemCache(run, planned, op).run_all()
    except NbdataError as error:
        run.leases.end(error)  # before any deletion, so waiting consumers end at once
        raise
