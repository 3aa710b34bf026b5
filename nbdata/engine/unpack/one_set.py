"""Plan one archive and unpack it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from nbdata.archives.single_file import single_name
from nbdata.archives.stream import FAULT, WRONG_CHECKSUM
from nbdata.archives.suspects import odd_sized
from nbdata.engine.job.outcomes import BAD, Outcome
from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.engine.unpack.stream.archive_stream import ArchiveStream
from nbdata.engine.unpack.stream.member_stream import MemberStream
from nbdata.engine.unpack.stream.zip_stream import ZipStream
from nbdata.engine.unpack.targets.resolve import source_run, target_of
from nbdata.engine.unpack.targets.space import plan_deletion
from nbdata.engine.unpack.targets.target import Target
from nbdata.engine.unpack.targets.unpacking import Unpacking
from nbdata.engine.unpack.volume_comparison import compare_unpacked, note_compared, plan_comparison, proven
from nbdata.engine.unpack.volume_set import ArchiveSet, find_archive, look_at, recorded_set
from nbdata.engine.unpack.volumes.checksum_files import ChecksumFiles
from nbdata.engine.unpack.volumes.deletion import Deletion
from nbdata.engine.unpack.volumes.finding import Candidates, VolumeList, rows_of, volumes_of
from nbdata.engine.unpack.written import Sound, Written
from nbdata.errors import BadArchive, ChecksumMismatch, NbdataError
from nbdata.rendering import member_cells
from nbdata.report import Plan, Report
from nbdata.sizes import counted, format_size
from nbdata.verbs.untar_volumes import UntarVolumes

__all__ = ["plan_set", "unpack_set"]

# Number of members that a listing names in its text.
_NAMED = 20


def plan_set(run: Run, around: Candidates | None = None, checksums: ChecksumFiles | None = None) -> Plan:
    """List the volumes and check what is there already.

    Reads listings, checksum files, the index and the first bytes of the archive, and of a second volume; more only if
    these leave a doubt. Writes nothing.

    Parameters
    ----------
    run : Run
    around : Candidates, optional
        What is at the source, if it was listed already.
    checksums : ChecksumFiles, optional
        The checksum files to compare the volumes with; None for those beside them.
    """
    op = run.operation
    assert isinstance(op, UntarVolumes)
    out = Plan("untar_volumes", *op.places())
    target = target_of(run, op)
    run.kept = target
    archive_set = find_archive(source_run(run, op), op, target, around)
    volumes, checkpoint = archive_set.volumes, archive_set.checkpoint
    start = checkpoint.restart.compressed if checkpoint is not None else 0
    out.details = {"title": volumes.title, "volumes": len(volumes.volumes), "complete": archive_set.complete}
    out.details["recorded"] = bool(volumes.recorded)
    if not archive_set.complete:
        out.details["format"] = checkpoint.format if checkpoint is not None else _format(op, volumes)
    digests = plan_comparison(out, op, archive_set, checksums or volumes.checksums)
    rows = run.row_file("plan")
    for row in rows_of(volumes, start, digests):
        rows.add(row)
        if not archive_set.complete:
            out.count(row.action, row.size)
    rows.close()
    out.rows = rows.rows()
    if archive_set.complete:
        sound = target.look(archive_set.written)
        for action, records in ((Outcome.UNCHANGED, sound.there), (Outcome.MOVED_AWAY, sound.gone)):
            for record in records.values():
                out.count(action, record.size)
        return out
    single = single_name(volumes.title)
    if single is not None and out.details["format"] not in ("tar", "zip") and checkpoint is None:
        out.notes.append(f"if it contains no tar archive, it is a single file and becomes {single}")
    out.bytes, out.present = (volumes.size or 0) - start, start
    out.notes += _odd(
        volumes,
        "unless it was made that way, it was not stored completely: compare its digest, for example with md5check",
    )
    if op.delete_volumes:
        plan_deletion(run, volumes, out)
    if op.target is not None and not op.list:
        target.refuse(volumes, archive_set.written)
        again = op.overwrite == "always" and checkpoint is None
        sound = Sound({}, {}, whole=False) if again else target.look(archive_set.written)
        done = [record.size for record in (*sound.there.values(), *sound.gone.values())]
        target.plan_space(volumes, out, done)
        if sound.gone:
            size = format_size(sum(record.size for record in sound.gone.values()))
            out.notes.append(
                f"{counted(len(sound.gone), 'members', 'were')} moved away ({size}), not to be written again"
            )
    return out


def _format(op: UntarVolumes, volumes: VolumeList) -> str:
    """The format by the option or the first bytes; BadArchive if these are no archive's, whatever the name."""
    return volumes.detect() if op.format == "auto" else op.format.rpartition(".")[2]


def unpack_set(run: Run, planned: Plan, *, unmatched: list[str] | None = None) -> Report:
    """Do what the plan says.

    Patterns of ``--members`` that match nothing go into `unmatched`, if given, and are no error.

    A member that would leave the target ends the run at once (UnsafeMember), and so does damage (BadArchive).
    ``--on-error report`` puts the error into the Report; for several archives, the caller makes that Report.
    Members before the error stay: each file under its final name is complete. Run the command again to resume.
    """
    op, target = run.operation, run.kept
    assert isinstance(op, UntarVolumes)
    assert isinstance(target, Target)
    recorded = recorded_set(op, target) if planned.details["recorded"] else None
    fingerprints = recorded.fingerprints if recorded is not None else []
    volumes = volumes_of(source_run(run, op), op, planned.rows, planned.details["title"], fingerprints)
    results = Results(run)
    details: dict[str, Any] = {"volumes": len(volumes.volumes), "compressed": 0}
    try:
        if op.list:
            zipped = planned.details["format"] == "zip"
            return _list(run, op, volumes, results, details, unmatched, zipped=zipped)
        _put_all(run, target, volumes, results, planned, details, unmatched)
    except NbdataError as error:
        if unmatched is not None or op.on_error != "report" or "patterns" in error.details:
            raise
        results.fail(volumes.title, error)
    return results.report(**details)


def _put_all(
    run: Run,
    target: Target,
    volumes: VolumeList,
    results: Results,
    planned: Plan,
    details: dict[str, Any],
    unmatched: list[str] | None,
) -> None:
    """Unpack all members into the target, and delete volumes if asked."""
    op = run.operation
    assert isinstance(op, UntarVolumes)
    archive_set = look_at(op, target, volumes, thorough=True)
    deletion = None
    if op.delete_volumes:
        deletion = Deletion(source_run(run, op), volumes, archive_set.written, results)
    results.notes += planned.details["unusable"]
    if planned.details["complete"]:
        if planned.details["compare"]:
            target.open_index(archive_set.written.index)
            with contextlib.closing(archive_set.written.index):
                compare_unpacked(
                    run, volumes, archive_set.written, results, details, planned.details["published"]
                )
        sound = target.look(archive_set.written)
        for outcome, records in ((Outcome.UNCHANGED, sound.there), (Outcome.MOVED_AWAY, sound.gone)):
            for path, record in records.items():
                results.add(path, outcome, record.size)
        whole = not archive_set.written.has_left_out()
        target.tidy()
    else:
        amid = deletion if planned.details.get("deletion") != "at the end" else None
        whole = _unpack(run, target, archive_set, results, planned, details, amid, unmatched)
    if deletion is not None:
        _delete_rest(target, archive_set.written, deletion, results, whole=whole)


def _unpack(
    run: Run,
    target: Target,
    archive_set: ArchiveSet,
    results: Results,
    planned: Plan,
    details: dict[str, Any],
    deletion: Deletion | None,
    unmatched: list[str] | None,
) -> bool:
    """Put all members into the target; return whether everything in the archive is there now."""
    op, written = run.operation, archive_set.written
    assert isinstance(op, UntarVolumes)
    with contextlib.closing(written.index):
        stream = _stream(run, op, archive_set, planned.details["format"], unmatched)
        archive = Unpacking(
            run.control,
            archive_set.volumes,
            stream,
            written,
            results,
            op,
            archive_set.checkpoint,
            archive_set.earlier,
            deletion,
            planned.needed,
        )
        resumed_at = archive.behind
        with _doubting(archive):
            again_to = max(resumed_at, target.unpack(archive))
        done = not any(results.counts.get(name) for name in (*BAD, Outcome.SKIPPED))
        whole = stream.remarks.complete and not results.counts.get(Outcome.LEFT_OUT)
        if (
            done and not unmatched
        ):  # and no leftover of ours is in the target, as no later run would look there
            mark = planned.details["published"] if proven(archive_set.volumes) else 0
            written.complete(left_out=not whole, compared=mark)
    details.update(compressed=stream.read, format=stream.format)
    _note_read_again(results, details, stream, again_to)
    note_compared(results, details, archive_set.volumes, stream)
    _note_odd(results, archive_set.volumes, stream)
    results.notes += stream.remarks.notes()
    return done and whole


@contextlib.contextmanager
def _doubting(archive: Unpacking) -> Iterator[None]:
    """If the archive turns out to be damaged, mark what was written but is not verified as doubtful.

    This includes members before a checkpoint, and then the checkpoint is dropped. If volumes may be gone, members
    before the checkpoint are not in doubt.
    """
    try:
        yield
    except (BadArchive, ChecksumMismatch) as error:
        if archive.control.is_set():  # the cancel may look like the end of the data
            raise
        written, stream = archive.written, archive.stream
        # The frames of Zstandard and LZ4 may have no checksums.
        unsure = stream.format in ("zst", "lz4") and isinstance(error, ChecksumMismatch)
        right = 0 if unsure else min(stream.verified, stream.proven)
        if archive.cannot_reread:
            right = max(right, archive.behind)
        elif right < archive.behind:
            written.start_again()
        doubtful = written.doubt(right)
        if isinstance(error, BadArchive) and error.details.get(FAULT) == WRONG_CHECKSUM:
            anew = f", which writes {counted(doubtful, 'files')} of them anew" if doubtful else ""
            error.remedy = f"{error.remedy}{anew}"
            error.scrub()
        raise


def _stream(
    run: Run,
    op: UntarVolumes,
    archive_set: ArchiveSet,
    format: str,  # noqa: A002
    unmatched: list[str] | None,
) -> MemberStream:
    """The members of an archive, from the checkpoint on if there is one."""
    if format == "zip":
        return ZipStream(run, op, archive_set.volumes, unmatched)
    if archive_set.checkpoint is None or archive_set.earlier is None:
        return ArchiveStream(run, op, archive_set.volumes, unmatched)
    place = archive_set.checkpoint.place.copy()
    place.earlier, place.forgotten = archive_set.earlier.entries(), op.shards is not None
    stream = ArchiveStream(
        run,
        op,
        archive_set.volumes,
        unmatched,
        place=place,
        restart=archive_set.checkpoint.restart,
        format=archive_set.checkpoint.format,
    )
    stream.remarks.left_out.extend(archive_set.checkpoint.left_out)
    return stream


def _note_read_again(results: Results, details: dict[str, Any], stream: MemberStream, again_to: int) -> None:
    """Report how far the stream had to be read again."""
    began = stream.began
    details["resumed_at"], details["read_again"] = began.compressed, max(0, again_to - began.expanded)
    if not again_to or not any(results.counts.get(o) for o in (Outcome.UNCHANGED, Outcome.MOVED_AWAY)):
        return
    note = f"{format_size(details['read_again'])} of the tar stream had to be read again"
    if began.compressed:
        note = f"resumed at byte {began.compressed:,} of the volumes; {note}"
    elif stream.format != "tar" and not stream.restart(again_to).compressed:
        note += ": an archive compressed as one piece can only be read from its start"
    results.notes.append(note)


def _note_odd(results: Results, volumes: VolumeList, stream: MemberStream) -> None:
    """Report volumes that may be truncated: a plain tar has no checksums that would show it."""
    if stream.format == "tar":
        results.notes += _odd(
            volumes,
            "unless it was made that way, data is missing, and plain tar has no checksum to show it: compare the "
            "digests",
        )


def _odd(volumes: VolumeList, what: str) -> list[str]:
    """A note that names volumes smaller than the others, and says what that means."""
    odd = odd_sized(volumes.volumes)
    shown = ", ".join(volume.name for volume in odd[:3]) + (" …" if len(odd) > 3 else "")
    return [f"smaller than the other volumes: {shown}; {what}"] if odd else []


def _list(
    run: Run,
    op: UntarVolumes,
    volumes: VolumeList,
    results: Results,
    details: dict[str, Any],
    unmatched: list[str] | None,
    *,
    zipped: bool,
) -> Report:
    size, named = 0, list[list[str]]()
    opened = (ZipStream if zipped else ArchiveStream)(run, op, volumes, unmatched)
    with opened as stream:
        for member in stream.members:
            run.control.checkpoint()
            size += max(member.size, 0)
            if len(named) < _NAMED:
                named.append([member.name, *member_cells(member.size, member.kind, member.mtime_ns / 10**9)])
            more: dict[str, Any] = {"link": member.linkname} if member.linkname else {}
            results.add(
                member.name,
                Outcome.MEMBER,
                member.size,
                kind=member.kind,
                mtime=member.mtime_ns // 10**9,
                **more,
            )
            run.control.advance(files=1)
    run.control.checkpoint()
    details.update(compressed=stream.read, format=stream.format)
    results.notes += stream.remarks.notes()
    report = results.report(**details, size=size)
    count = report.counts.get(Outcome.MEMBER, 0)
    if named:
        caption = (
            "members"
            if count <= _NAMED
            else f"the first {_NAMED} of {counted(count, 'members')}; the report's rows name all"
        )
        report.tables = [{"caption": caption, "head": ["name", "size", "time"], "rows": named}]
    return report


def _delete_rest(
    target: Target, written: Written, deletion: Deletion, results: Results, *, whole: bool
) -> None:
    """Delete the remaining volumes, if everything in them was written."""
    if not whole:
        left = [
            f"{results.counts[outcome]:,} {outcome}"
            for outcome in (*BAD, Outcome.SKIPPED, Outcome.LEFT_OUT)
            if results.counts.get(outcome)
        ]
        results.notes.append(
            "some volumes were kept, because not everything in them is unpacked"
            + (f" ({', '.join(left)}): delete them yourself if you do not need the rest" if left else "")
        )
        return
    target.open_index(written.index)
    try:
        written.index.sync()
        deletion.rest()
    finally:
        written.index.close()
