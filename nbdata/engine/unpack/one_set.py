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
from nbdata.engine.unpack.targets.checkpoints import Checkpoint, Earlier
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
    performing = _Performing(run, planned, unmatched)
    try:
        if performing.op.list:
            return performing.listing()
        performing.unpack()
    except NbdataError as error:
        if unmatched is not None or performing.op.on_error != "report" or "patterns" in error.details:
            raise
        performing.results.fail(performing.volumes.title, error)
    return performing.report()


class _Performing:
    """Performs the plan of one archive.

    Attributes
    ----------
    op : UntarVolumes
    volumes : VolumeList
    results : Results
    """

    def __init__(self, run: Run, planned: Plan, unmatched: list[str] | None) -> None:
        op, target = run.operation, run.kept
        assert isinstance(op, UntarVolumes)
        assert isinstance(target, Target)
        self._run, self.op, self._target = run, op, target
        self._planned, self._unmatched = planned, unmatched
        recorded = recorded_set(op, target) if planned.details["recorded"] else None
        fingerprints = recorded.fingerprints if recorded is not None else []
        title = planned.details["title"]
        self.volumes = volumes_of(source_run(run, op), op, planned.rows, title, fingerprints)
        self.results = Results(run)
        self._details: dict[str, Any] = {"volumes": len(self.volumes.volumes), "compressed": 0}

    def report(self, **more: Any) -> Report:
        """The report of everything done so far."""
        return self.results.report(**self._details, **more)

    # -- unpack -------------------------------------------------------------------------------

    def unpack(self) -> None:
        """Unpack all members into the target, and delete volumes if asked."""
        archive_set = look_at(self.op, self._target, self.volumes, thorough=True)
        deletion = None
        if self.op.delete_volumes:
            source = source_run(self._run, self.op)
            deletion = Deletion(source, self.volumes, archive_set.written, self.results)
        self.results.notes += self._planned.details["unusable"]
        if self._planned.details["complete"]:
            whole = self._keep_all(archive_set.written)
        else:
            amid = deletion if self._planned.details.get("deletion") != "at the end" else None
            whole = self._put_all(archive_set, amid)
        if deletion is not None:
            self._delete_rest(archive_set.written, deletion, whole=whole)

    def _keep_all(self, written: Written) -> bool:
        """Report that everything is there; return whether nothing in the archive was left out."""
        if self._planned.details["compare"]:
            mark = self._planned.details["published"]
            self._target.open_index(written.index)
            with contextlib.closing(written.index):
                compare_unpacked(self._run, self.volumes, written, self.results, self._details, mark)
        sound = self._target.look(written)
        for outcome, records in ((Outcome.UNCHANGED, sound.there), (Outcome.MOVED_AWAY, sound.gone)):
            for path, record in records.items():
                self.results.add(path, outcome, record.size)
        whole = not written.has_left_out()
        self._target.tidy()
        return whole

    def _put_all(self, archive_set: ArchiveSet, deletion: Deletion | None) -> bool:
        """Put all members into the target; return whether everything in the archive is there now."""
        written, results = archive_set.written, self.results
        with contextlib.closing(written.index):
            stream = self._stream(archive_set.checkpoint, archive_set.earlier)
            archive = Unpacking(
                control=self._run.control,
                op=self.op,
                volumes=self.volumes,
                stream=stream,
                written=written,
                results=results,
                checkpoint=archive_set.checkpoint,
                earlier=archive_set.earlier,
                deletion=deletion,
                reserved=self._planned.needed,
            )
            resumed_at = archive.behind
            with _doubting(archive):
                again_to = max(resumed_at, self._target.unpack(archive))
            done = not any(results.counts.get(name) for name in (*BAD, Outcome.SKIPPED))
            whole = stream.remarks.complete and not results.counts.get(Outcome.LEFT_OUT)
            # A complete archive is not looked at again, so no leftover of this run may be in the target by now.
            if done and not self._unmatched:
                mark = self._planned.details["published"] if proven(self.volumes) else 0
                written.complete(left_out=not whole, compared=mark)
        self._details.update(compressed=stream.read, format=stream.format)
        self._note_read_again(stream, again_to)
        note_compared(results, self._details, self.volumes, stream)
        if stream.format == "tar":  # it has no checksum that would show missing data
            results.notes += _odd(
                self.volumes,
                "unless it was made that way, data is missing, and plain tar has no checksum to show it: compare the "
                "digests",
            )
        results.notes += stream.remarks.notes()
        return done and whole

    def _stream(self, checkpoint: Checkpoint | None = None, earlier: Earlier | None = None) -> MemberStream:
        """The members of the archive, from the checkpoint on if there is one."""
        if self._planned.details["format"] == "zip":
            return ZipStream(self._run, self.op, self.volumes, self._unmatched)
        if checkpoint is None or earlier is None:
            return ArchiveStream(self._run, self.op, self.volumes, self._unmatched)
        place = checkpoint.place.copy()
        place.earlier, place.forgotten = earlier.entries(), self.op.shards is not None
        stream = ArchiveStream(
            self._run,
            self.op,
            self.volumes,
            self._unmatched,
            place=place,
            restart=checkpoint.restart,
            format=checkpoint.format,
        )
        stream.remarks.left_out.extend(checkpoint.left_out)
        return stream

    def _note_read_again(self, stream: MemberStream, again_to: int) -> None:
        """Report how far the stream had to be read again."""
        began = stream.began
        self._details["resumed_at"], self._details["read_again"] = (
            began.compressed,
            max(0, again_to - began.expanded),
        )
        if not again_to or not any(
            self.results.counts.get(o) for o in (Outcome.UNCHANGED, Outcome.MOVED_AWAY)
        ):
            return
        note = f"{format_size(self._details['read_again'])} of the tar stream had to be read again"
        if began.compressed:
            note = f"resumed at byte {began.compressed:,} of the volumes; {note}"
        elif stream.format != "tar" and not stream.restart(again_to).compressed:
            note += ": an archive compressed as one piece can only be read from its start"
        self.results.notes.append(note)

    def _delete_rest(self, written: Written, deletion: Deletion, *, whole: bool) -> None:
        """Delete the remaining volumes, if everything in them was written."""
        if not whole:
            left = [
                f"{self.results.counts[outcome]:,} {outcome}"
                for outcome in (*BAD, Outcome.SKIPPED, Outcome.LEFT_OUT)
                if self.results.counts.get(outcome)
            ]
            self.results.notes.append(
                "some volumes were kept, because not everything in them is unpacked"
                + (f" ({', '.join(left)}): delete them yourself if you do not need the rest" if left else "")
            )
            return
        self._target.open_index(written.index)
        try:
            written.index.sync()
            deletion.rest()
        finally:
            written.index.close()

    # -- list ---------------------------------------------------------------------------------

    def listing(self) -> Report:
        """List the members; the report's text names the first ones."""
        size, named = 0, list[list[str]]()
        with self._stream() as stream:
            for member in stream.members:
                self._run.control.checkpoint()
                size += max(member.size, 0)
                if len(named) < _NAMED:
                    cells = member_cells(member.size, member.kind, member.mtime_ns / 10**9)
                    named.append([member.name, *cells])
                more: dict[str, Any] = {"link": member.linkname} if member.linkname else {}
                self.results.add(
                    member.name,
                    Outcome.MEMBER,
                    member.size,
                    kind=member.kind,
                    mtime=member.mtime_ns // 10**9,
                    **more,
                )
                self._run.control.advance(files=1)
        self._run.control.checkpoint()
        self._details.update(compressed=stream.read, format=stream.format)
        self.results.notes += stream.remarks.notes()
        report = self.report(size=size)
        count = report.counts.get(Outcome.MEMBER, 0)
        if named:
            all_named = count <= _NAMED
            first = f"the first {_NAMED} of {counted(count, 'members')}; the report's rows name all"
            caption = "members" if all_named else first
            report.tables = [{"caption": caption, "head": ["name", "size", "time"], "rows": named}]
        return report


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


def _odd(volumes: VolumeList, what: str) -> list[str]:
    """A note that names volumes smaller than the others, and says what that means."""
    odd = odd_sized(volumes.volumes)
    shown = ", ".join(volume.name for volume in odd[:3]) + (" …" if len(odd) > 3 else "")
    return [f"smaller than the other volumes: {shown}; {what}"] if odd else []
