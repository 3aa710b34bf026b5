"""untar_volumes: plan and perform."""

from __future__ import annotations

import contextlib
import io
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from nbdata.archives.decompress import open_decompressed
from nbdata.archives.stream import JoinedStream, Readahead
from nbdata.archives.tar import Member, read_members
from nbdata.engine.extract import Extraction
from nbdata.engine.run import BAD, Outcome, Run
from nbdata.engine.volumes import VolumeList, find_volumes, rows_of, volumes_of
from nbdata.engine.written import Written
from nbdata.errors import BadOption, MissingVolume, NotFound
from nbdata.paths import OWN_FOLDER
from nbdata.report import Plan, Report
from nbdata.sizes import format_size
from nbdata.space.limits import disk_of, round_up
from nbdata.transfer.index import Index
from nbdata.transfer.landing import Landing
from nbdata.verbs.untar_volumes import UntarVolumes

__all__ = ["perform", "plan"]

# Members that a listing names in its text.
_NAMED = 20


def plan(run: Run) -> Plan:
    """List the volumes and look at what is there already.

    Reads listings, the index and at most 512 bytes of the archive; writes nothing.
    """
    op = run.operation
    assert isinstance(op, UntarVolumes)
    out = Plan("untar_volumes", *op.places())
    volumes, complete = _find(run, op)
    rows = run.row_file("plan")
    for row in rows_of(volumes):
        rows.add(row)
    rows.close()
    out.rows = rows.rows()
    out.details = {"title": volumes.title, "volumes": len(volumes.volumes), "complete": complete is not None}
    if complete is not None:
        sizes = [record.size for path, record in complete.records() if not path.endswith("/")]
        out.actions["unchanged"] = [len(sizes), sum(sizes)]
        return out
    format_ = out.details["format"] = _format(op, volumes)
    size = volumes.size
    if op.target is not None and not op.list:
        root = _root(op.target)
        block = disk_of(root)[2]
        sound = {} if op.overwrite == "always" else _written(run, op, volumes).sound(root)[0]
        out.needed = max(
            block, round_up(size or 0, block) - sum(round_up(r.size, block) for r in sound.values())
        )
        if format_ != "tar" or size is None:
            out.notes.append(
                "what it unpacks to is not known beforehand: space is reserved step by step while it grows"
            )
    for volume in volumes.volumes:
        out.count("read", volume.info.size)
    out.bytes = size or 0
    return out


def _find(run: Run, op: UntarVolumes) -> tuple[VolumeList, Written | None]:
    """The volumes, and what they have written if that is all there: then they need not be read.

    Where an earlier run of this line deleted the volumes, those that it left over, or none.
    """
    try:
        volumes = find_volumes(run, op.source)
    except (NotFound, MissingVolume):
        before = _before_deletion(run, op)
        if before is None:
            raise
        return VolumeList(op.places()[0], None, ()), before
    if op.list or op.overwrite == "always":
        return volumes, None
    written = _written(run, op, volumes)
    if written.is_complete() and written.sound(_root(op.target or ""))[1]:
        return volumes, written
    before = _before_deletion(run, op)
    if before is not None and before.has_deleted(volumes):
        return volumes, before
    return volumes, None


def _before_deletion(run: Run, op: UntarVolumes) -> Written | None:
    """What the volumes that were deleted have written, if all of it is there still."""
    if not op.delete_volumes or op.overwrite == "always":
        return None
    written = Written.before_deletion(_index(run, op), _options(op))
    if written is not None and written.is_complete() and written.sound(_root(op.target or ""))[1]:
        return written
    return None


def _format(op: UntarVolumes, volumes: VolumeList) -> str:
    """By the option, the name, or the first bytes."""
    found = op.format if op.format != "auto" else (volumes.format or "").rpartition(".")[2]
    if found in ("", "zip"):
        found = volumes.detect()
    if found == "zip":
        raise BadOption(
            "zip archives are not supported yet", path=volumes.title,
            remedy="Unpack it with unzip (a set .z01 … .zip: join it with zip -s 0 first)",
        )  # fmt: skip
    return found


def _root(target: str) -> str:
    return target.rstrip("/") or "/"


def _index(run: Run, op: UntarVolumes) -> Index:
    root = _root(op.target or "")
    try:
        found = os.stat(root)
        identity = (found.st_dev, found.st_ino)
    except OSError:
        identity = None
    source = op.source if isinstance(op.source, str) else "\0".join(op.source)
    return Index(run.context.state_dir, source, root, identity)


def _options(op: UntarVolumes) -> list[object]:
    return [sorted(op.members), op.strip_components]


def _written(run: Run, op: UntarVolumes, volumes: VolumeList) -> Written:
    return Written(_index(run, op), volumes.fingerprints(), _options(op))


def perform(run: Run, planned: Plan) -> Report:
    """Do what the plan says.

    A member that would leave the target ends the whole at once (UnsafeMember), and so does damage
    (BadArchive). What came before it stays: each file under its final name is whole. The same line continues.
    """
    op = run.operation
    assert isinstance(op, UntarVolumes)
    volumes = volumes_of(run, op.source, planned.rows, planned.details["title"])
    outcome = Outcome(run)
    details: dict[str, Any] = {"volumes": len(volumes.volumes), "compressed": 0}
    if op.list:
        return _list(run, op, volumes, outcome, details)
    whole = True
    if planned.details["complete"]:
        written = _before_deletion(run, op) or _written(run, op, volumes)
        for path, record in written.records():
            if not path.endswith("/"):
                outcome.add(path, "unchanged", record.size)
        _tidy(run, op)
    else:
        written = _written(run, op, volumes)
        whole = _extract(run, op, volumes, outcome, written, planned, details)
    if op.delete_volumes and volumes.volumes:
        _delete(run, op, volumes, outcome, whole)
    return outcome.report(**details)


def _tidy(run: Run, op: UntarVolumes) -> None:
    """Take away what a run has left in the target whose machine was lost when all was done."""
    root = _root(op.target or "")
    if os.path.isdir(os.path.join(root, OWN_FOLDER)):
        with Landing(root, run.control, umask=run.context.umask, landed=lambda _: None):
            pass


def _extract(
    run: Run, op: UntarVolumes, volumes: VolumeList, outcome: Outcome, written: Written, planned: Plan,
    details: dict[str, Any],
) -> bool:  # fmt: skip
    """Write all members; returns whether all that the archive holds is there now."""
    root, stripped = _root(op.target or ""), list[str]()

    def left_out(name: str) -> None:
        stripped[:] = [*stripped[:3], name]

    with contextlib.ExitStack() as stack:
        stack.callback(written.index.close)
        extraction = stack.enter_context(
            Extraction(
                run, root, written, outcome, overwrite=op.overwrite, reserved=planned.needed,
                volume=lambda: volumes.volume_at(details["compressed"]),
            )
        )  # fmt: skip
        with _members(run, op, volumes, details, left_out) as members:
            for member in members:
                run.control.checkpoint()
                extraction.take(member)
        run.control.checkpoint()  # a cancel may look like the end
        extraction.finish()
        done = not any(outcome.counts.get(name) for name in (*BAD, "skip"))
        if done:
            written.complete()
    if stripped:
        outcome.notes.append(
            f"files with no more components than were stripped are left out: {', '.join(stripped[:3])}"
            + (" …" if len(stripped) > 3 else "")
        )
    return done and not stripped


def _list(
    run: Run, op: UntarVolumes, volumes: VolumeList, outcome: Outcome, details: dict[str, Any]
) -> Report:
    size, named = 0, list[list[str]]()
    with _members(run, op, volumes, details, lambda _: None) as members:
        for member in members:
            run.control.checkpoint()
            size += member.size
            if len(named) < _NAMED:
                named.append(
                    [member.name, format_size(member.size) if member.kind == "file" else member.kind]
                )
            more: dict[str, Any] = {"link": member.linkname} if member.linkname else {}
            outcome.add(
                member.name, "members", member.size, kind=member.kind, mtime=member.mtime_ns // 10**9, **more
            )
            run.control.advance(files=1)
    run.control.checkpoint()
    report = outcome.report(**details, size=size)
    count = report.counts.get("members", 0)
    if named:
        caption = (
            "members"
            if count <= _NAMED
            else f"the first {_NAMED} of {count:,} members; the report's rows name all"
        )
        report.tables = [{"caption": caption, "head": ["name", "size"], "rows": named}]
    return report


@contextlib.contextmanager
def _members(
    run: Run,
    op: UntarVolumes,
    volumes: VolumeList,
    details: dict[str, Any],
    stripped: Callable[[str], None],
) -> Iterator[Iterator[Member]]:
    """The members of the archive, from a chain of streams that a cancel wakes at once."""

    def progress(count: int) -> None:
        details["compressed"] += count
        run.control.advance(bytes=count)

    with contextlib.ExitStack() as stack:
        ahead = Readahead(JoinedStream(volumes.volumes, on_progress=progress))
        top: io.RawIOBase = ahead
        stack.callback(lambda: _close(run, top))
        _wake_on_cancel(run, stack, ahead)
        top, details["format"] = open_decompressed(ahead, format=op.format, name=volumes.title)
        if details["format"] != "tar":
            top = ahead = Readahead(top)
            _wake_on_cancel(run, stack, ahead)
        members = read_members(
            top, members=op.members, strip_components=op.strip_components, max_expansion=op.max_expansion,
            stripped=stripped, name=volumes.title,
        )  # fmt: skip
        with contextlib.closing(members):
            yield members


def _wake_on_cancel(run: Run, stack: contextlib.ExitStack, ahead: Readahead) -> None:
    run.control.add(ahead.abandon)
    stack.callback(run.control.remove, ahead.abandon)


def _close(run: Run, stream: io.RawIOBase) -> None:
    """Close the chain; when the run is cancelled, a store that hangs in a read is not waited for."""
    if run.control.is_set():
        closing = threading.Thread(target=stream.close, name="closing", daemon=True)
        closing.start()
        closing.join(0.3)
    else:
        stream.close()


def _delete(run: Run, op: UntarVolumes, volumes: VolumeList, outcome: Outcome, whole: bool) -> None:
    """Delete the volumes, if all that they hold was written; recorded first, so that the line goes on."""
    if not whole:
        outcome.notes.append("the volumes were not deleted, because not everything was unpacked")
        return
    if _before_deletion(run, op) is None:
        written = _written(run, op, volumes)
        found = os.stat(_root(op.target or ""))
        written.index.open((found.st_dev, found.st_ino))
        try:
            written.deleting(volumes)
        finally:
            written.index.close()
    for volume in volumes.volumes:
        run.control.checkpoint()
        if volume.delete():
            outcome.add(volume.name, "deleted", volume.info.size)
        else:
            outcome.notes.append(f"{volume.name} changed since it was read, and was not deleted")
