"""Plan and perform packing into one archive.

The archive is one stream made from a listing and cut into frames (`frames`, `zip_frames`), which are appended to
growing volumes (`volumes`). A volume is recorded when it has its name: with its range of the stream, and a digest of
the names, sizes, times and versions in it. The same command keeps volumes that still match, and makes the rest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from nbdata.engine.job.run import Run
from nbdata.engine.pack.archiving import NOWHERE
from nbdata.engine.pack.frames import AHEAD
from nbdata.engine.pack.known_volumes import KnownVolumes, TarVolumes, ZipVolumes
from nbdata.engine.pack.members import Members, find_members
from nbdata.engine.pack.own_files import others_are_there, shown
from nbdata.engine.pack.tar_archiving import TarArchiving
from nbdata.engine.pack.tar_stream import TarStream
from nbdata.engine.pack.volumes import existing, refuse_target
from nbdata.engine.pack.windows import TWICE
from nbdata.engine.pack.zip_archiving import ZipArchiving
from nbdata.engine.pack.zip_frames import ZipStream
from nbdata.engine.planning.both_ends import both_ends
from nbdata.errors import BadOption
from nbdata.formats.frames import FRAME
from nbdata.report import Plan, Report, Row
from nbdata.sizes import counted
from nbdata.space.limits import disk_of, round_up
from nbdata.stores.http.servers import servers_of
from nbdata.verbs.pack import Pack

__all__ = ["perform", "plan"]


class _Kept(NamedTuple):
    """Results of the plan that are kept for performing it."""

    stream: TarStream | ZipStream
    volumes: TarVolumes | ZipVolumes


def plan(run: Run) -> Plan:
    """Decide which volumes exist and match, and how many more are needed; reads the listings of both ends."""
    op = run.operation
    assert isinstance(op, Pack)
    at_source, at_target = both_ends(run)
    folder = at_target.open(op.archive_names.folder)
    members = find_members(at_source, op, folder, os.path.join(run.folder, "members.jsonl"))
    servers = servers_of([members.store], [folder.store])
    found, index = existing(at_target, op, folder), run.index(*op.places(), NOWHERE, servers)
    there = found.there
    stream: TarStream | ZipStream
    volumes: TarVolumes | ZipVolumes
    if op.archive == "zip":
        stream = ZipStream(members)
        volumes = ZipVolumes(op, stream, found, index)
    else:
        stream = TarStream(members)
        volumes = TarVolumes(op, stream, found, index)
    largest = min(op.volume_size or stream.size, stream.size)
    refuse_target(op, folder, largest, _waiting(op, members, stream.size))
    run.kept = _Kept(stream, volumes)
    out, rows = Plan("pack", *op.places()), run.row_file("plan")
    block = disk_of(op.archive_names.folder)[2] if op.local_target() else 0
    number = 0
    for size, kept in _expected(op, stream, volumes):
        name = volumes.name(number)
        number += 1
        if kept:
            action, size = "unchanged", there[name].size
        else:
            action = "overwrite" if name in there else "pack"
            out.files += 1
            out.bytes += size
            out.needed += round_up(size, block) if block else 0
            out.inodes += bool(block)
        rows.add(Row(name, action, size, {}))
        out.count(action, size)
    if op.overwrite == "never" and out.files and (there or found.otherwise):
        raise BadOption(
            f"{min(there or found.otherwise)} is there, and --overwrite never",
            path=op.target,
            remedy="Choose another name",
        )
    _refuse_others(op, volumes)
    if op.archive != "tar" and out.needed:  # the compressed size is known only at the end
        out.needed, out.at_least = min(out.needed, round_up(AHEAD * FRAME, block)), True
    rows.close()
    out.rows = rows.rows()
    out.details = {"members": len(members), "content": stream.size}
    what = f"{counted(len(members), 'members')} in {counted(number, 'volumes')}"
    if op.archive != "tar" and op.volume_size is not None and out.files:
        what += f" if nothing gets smaller; how many shows when it is compressed ({volumes.most:,} at most)"
    out.notes.append(what)
    if superseded := volumes.superseded():
        out.notes.append(
            f"{shown(superseded)}, which this command has made before, goes when the new one is whole"
        )
    out.notes += members.left_out
    return out


def _waiting(op: Pack, members: Members, size: int) -> int:
    """Bytes of volumes that may wait at a time until a zip is complete, or a large member is verified."""
    if op.volume_size is None:
        return 0
    if op.archive == "zip":
        return size
    return members.largest if members.largest > TWICE and op.verify != "none" else 0


def _expected(
    op: Pack, stream: TarStream | ZipStream, volumes: TarVolumes | ZipVolumes
) -> Iterator[tuple[int, bool]]:
    """Yield for each volume, in order, its bytes of the stream, and whether it exists already.

    The range of a compressed volume that is still to be made is not known yet; it is counted as if uncompressed.
    """
    at = number = 0
    if isinstance(volumes, ZipVolumes) and (kept := volumes.kept()):
        yield from ((one.end - one.start, True) for one in kept)
        return
    while at < stream.size or not number:
        known = volumes.kept(number, at) if isinstance(volumes, TarVolumes) else None
        size = known.end - at if known else min(stream.size - at, op.volume_size or stream.size)
        yield size, known is not None
        at += size
        number += 1


def _refuse_others(op: Pack, volumes: KnownVolumes) -> None:
    """Raise BadOption for volumes that this command has not made: they would be lost, or joined with the new ones.

    With ``--overwrite always``, only for volumes that would not be replaced.
    """
    higher = [name for name in volumes.there if volumes.is_behind(name) and not volumes.is_ours(name)]
    if higher:
        raise BadOption(
            f"volumes with higher numbers are there: {len(higher):,}, such as {min(higher)}; who joins them all would "
            "get what does not belong to the archive",
            path=op.target,
            remedy="Delete them, or choose another name",
        )
    others = volumes.others()
    if otherwise := [name for name in others if name in volumes.otherwise]:
        raise BadOption(
            f"{shown(otherwise)} is there, and this command has not made it: there would be two versions of it",
            path=op.target,
            remedy="Delete it, or choose another name",
        )
    if others and op.overwrite != "always":
        raise others_are_there(op, shown(others))


def perform(run: Run, planned: Plan) -> Report:
    """Do what the plan says."""
    assert isinstance(run.kept, _Kept)
    stream, volumes = run.kept
    if isinstance(stream, ZipStream):
        assert isinstance(volumes, ZipVolumes)
        return ZipArchiving(run, planned, stream, volumes).run_all()
    assert isinstance(volumes, TarVolumes)
    return TarArchiving(run, planned, stream, volumes).run_all()
