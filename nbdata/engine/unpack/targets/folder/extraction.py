"""Extract the members of an archive to the disk: decide, write temporaries, commit and record them.

Every member is extracted in one of these ways, under its final name or not at all:

* a *file* is written to a temporary (a small one by a writer thread, so parsing continues meanwhile),
  gets the archive's mode and time, and is committed as `nbdata.transfer.committer` says;
* a *symbolic link* is made under a temporary name and replaces what was there; so does a *hard link*,
  once the file that it is linked to is committed;
* a *folder* is made at once; it gets its time at the end, when nothing more is put into it.

The index records each written member with the archive's fingerprint and the member's offset. A recorded member
whose file looks as recorded is *unchanged*: its bytes only stream past. With ``--skip-written``, a member whose
file is gone is *moved away*, if the archive still holds the recorded content.

No path leads through a symbolic link: `nbdata.archives.safety` refuses the archive's own links. This module refuses
links that were in the target before, even if they stay inside.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator

from isal.isal_zlib import crc32

from nbdata.archives.member import Member
from nbdata.disk import disk_error
from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.run import Run
from nbdata.engine.planning.growing_space import GrowingSpace
from nbdata.engine.unpack.targets.expansion import Expansion
from nbdata.engine.unpack.targets.folder.folders import ArchiveFolders
from nbdata.engine.unpack.targets.folder.hard_links import HardLinks, make_link
from nbdata.engine.unpack.targets.folder.writers import SmallMember, Writers
from nbdata.engine.unpack.targets.unpacking import Checkpoints, Unpacking
from nbdata.engine.unpack.written import crc32_of, is_gone, offset_of
from nbdata.errors import BadArchive, NbdataError, NotEnoughSpace, UnsafeMember
from nbdata.optional_calls import set_time
from nbdata.report import Row
from nbdata.space.limits import disk_of
from nbdata.transfer.committer import Committer, PendingFile
from nbdata.transfer.index import Record

__all__ = ["Extraction"]

_BLOCK = 1 << 20
# Files up to this size are written by writer threads.
_SMALL = 1 << 20
# More than one was measured to be no faster: they wait for each other in the folder of temporaries.
_WRITERS = 1


class Extraction:
    """Writes members into one target folder; a context manager.

    Parameters
    ----------
    run : Run
    root : str
        The target folder, absolute.
    archive : Unpacking
    named : str or None
        The folder above the target that the user named; see `TargetFolder`.
    """

    def __init__(self, run: Run, root: str, archive: Unpacking, *, named: str | None) -> None:
        self._run, self._root, self._archive = run, root, archive
        self._written, self._results = written, results = archive.written, archive.results
        self._space = GrowingSpace(run, disk_of(root)[2], archive.reserved)
        made = list[str]()
        self._committer = Committer(
            root,
            run.control,
            umask=run.context.umask,
            committed=self._committed,
            announce=lambda batch: written.index.announce({file.path: file.tag for file in batch}),
            made=made.append,
            named=named,
            opened=run.folders,
        )
        self._below = root.rstrip("/") + "/"
        self._pending: dict[str, Outcome] = {}  # path that is not committed yet -> its outcome
        self._folders = ArchiveFolders(root, self._committer.target, results, made, self._claim_folders)
        self._expansion = Expansion(archive.op.max_expansion)
        self._links = HardLinks(root, written, self._committer.target, self._claim, run.control.checkpoint)
        self._missing: set[str] = set()  # names whose last member was skipped or has failed
        self._stream_error: BaseException | None = None
        self._buffer = memoryview(bytearray(_BLOCK))
        self._writers = Writers[SmallMember](_WRITERS, self._write_all)

    def __enter__(self) -> Extraction:
        with contextlib.ExitStack() as undo:
            undo.enter_context(self._committer)
            self._folders.enter()
            self._written.index.open(self._committer.target.identity)
            self._go_on()
            undo.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        whole = False
        try:
            self._close(*exc)
            whole = exc[1] is None
        finally:
            if not whole:
                self._folders.remove_empty()

    def _close(self, *exc: object) -> None:
        try:
            self._writers.close(drop=self._run.control.is_set())
        finally:
            self._buffer = memoryview(b"")
            self._committer.__exit__(*exc)
            self._written.index.put(self._links.records())

    def _go_on(self) -> None:
        """Count everything before the checkpoint as written by this run."""
        behind, earlier = self._archive.behind, self._archive.earlier
        if earlier is None:
            return
        for path, record in self._written.records():
            if path.endswith("/") and self._written.is_of_line(record) and offset_of(record) < behind:
                if not os.path.lexists(self._below + path[:-1]) and self._written.may_be_gone(record):
                    continue
                self._folders.remember(path[:-1], record.mtime_ns, record.tag)
        for names in earlier.names.values():
            self._links.restore(names)

    # -- one member ---------------------------------------------------------------------------

    def take_all(self) -> int:
        """Take all members; return the offset up to which reading found only members that were there already."""
        stream, checkpoints = self._archive.stream, Checkpoints(self._archive, self.settle)
        if self._archive.deletion is not None:
            self._space.make_room = checkpoints.make_room
        again_to = 0
        for member in stream.members:
            self._run.control.checkpoint()
            if not self.take(member):
                again_to = stream.place.offset
            if checkpoints.is_due():
                checkpoints.make()
        self._run.control.checkpoint()  # a cancel may look like the end
        self._finish()
        return again_to

    def take(self, member: Member) -> bool:
        """Extract one member, before the next is requested; return False if it is there already.

        Raises
        ------
        UnsafeMember
            If its path leads through a symbolic link of the target.
        NotEnoughSpace
            If the disk is full, or the limit allows no more.
        BadArchive, SourceChanged, StoreUnavailable …
            If its bytes cannot be read.
        """
        if member.name in self._pending:  # twice in the archive: the later one must be committed later
            self._flush()
        try:
            if member.kind == "folder":
                self._folders.make(member, self._archive.tag(member))
            elif member.kind == "file":
                return self._file(member)
            elif self._verdict(member) == "write":
                self._link(member, self._place(member))
            else:
                return False
        except UnsafeMember:
            raise
        except (NbdataError, OSError) as error:
            if error is self._stream_error:
                raise
            self._failed(member.name, error)
        return True

    def _verdict(self, member: Member) -> str:
        """Decide: ``write``; ``unchanged`` or ``moved away`` if the content is the same; ``leave`` is reported here."""
        path, record = member.name, self._written.index.get(member.name)
        overwrite = self._archive.op.overwrite
        if overwrite == "always" or (record is None and overwrite == "changed"):
            return "write"
        try:
            status = os.lstat(os.path.join(self._root, path))
        except OSError as error:
            if not is_gone(error):
                raise disk_error(error, path) from error
            return self._gone(member, record)
        same = record is not None and (record.local_same(status) or self._links.was_same(record, status))
        if record is not None and same and self._written.is_ours(record):
            if self._written.is_older(record, member):
                return "leave"  # a later member of the same name was written already
            if self._written.is_of(record, member.offset):
                if self._written.is_doubtful(record):
                    return "write"
                self._links.saw(path, status)
                if member.kind == "file":
                    return "unchanged"
                if record.local_same(status):
                    self._done(member, record, Outcome.UNCHANGED)
                    return "leave"
        if overwrite == "never" and not (record and same and self._written.is_doubtful(record)):
            self._tell(member, Outcome.SKIPPED, reason="exists, and --overwrite never")
            return "leave"
        if record is not None and not same and not self._written.is_ours(record):
            reason = "changed on both sides since it was unpacked; --overwrite always replaces it"
            self._tell(member, Outcome.CONFLICT, reason=reason)
            return "leave"
        if record is not None and self._is_left(member, record, status):
            return "leave"
        self._links.replacing(record, status)
        return "write"

    def _is_left(self, member: Member, record: Record, status: os.stat_result) -> bool:
        """True if this is the remaining second name of a file whose first name was moved away; then it is unchanged.

        The move changed the ctime of the file, so its record no longer fits and the content decides.
        """
        first = self._written.index.get(member.linkname) if member.kind == "hardlink" else None
        if (
            first is None
            or not self._written.may_be_gone(first)
            or not self._written.is_of(record, member.offset)
        ):
            return False
        place = self._below + member.name
        looks = stat.S_ISREG(status.st_mode) and (status.st_size, status.st_mtime_ns) == record[2:4]
        if os.path.lexists(self._below + member.linkname) or not looks:
            return False
        if not self._written.is_same(first, crc32_of(place)):
            return False
        record = Record.of(record.tag, record.size, status)
        self._written.index.put({member.name: record})
        self._done(member, record, Outcome.UNCHANGED)
        return True

    def _gone(self, member: Member, record: Record | None) -> str:
        """Decide for a member that is not there."""
        if record is None or not self._written.may_be_gone(record):
            return "write"
        if self._written.is_older(record, member):
            return "leave"
        if not self._written.is_of(record, member.offset):
            return "write"
        if member.kind == "file":
            return "moved away"
        self._done(member, record, Outcome.MOVED_AWAY)
        return "leave"

    def _tell(self, member: Member, outcome: Outcome, **detail: str) -> None:
        self._results.add(member.name, outcome, max(member.size, 0), moved=False, **detail)
        failed = outcome is Outcome.CONFLICT
        if failed or outcome is Outcome.SKIPPED:
            self._missing.add(member.name)
        self._run.control.advance(files=0 if failed else 1, failures=int(failed))

    def _done(self, member: Member, record: Record, outcome: Outcome) -> None:
        self._written.adopt(member.name, record)
        self._missing.discard(member.name)
        self._tell(member, outcome)

    def _place(self, member: Member) -> str:
        """Make the parent folder of a member to be written; return the folder for its temporary."""
        path = member.name
        record = self._written.index.get(path) if self._archive.behind else None
        known = record is not None and self._written.is_of_line(record)
        if known and record is not None and offset_of(record) < self._archive.behind <= member.offset:
            self._written.replacing(record, path, member.offset)
            if self._archive.cannot_reread:
                self._written.index.sync()
        parent = path.rpartition("/")[0]
        return self._folders.staging.get(parent) or self._folders.prepare(parent, path)

    def _file(self, member: Member) -> bool:
        verdict = self._verdict(member)
        if verdict == "leave":
            return False
        if verdict != "write" and member.crc is not None:  # known without reading it
            record = self._written.index.get(member.name)
            if record is not None and self._written.is_same(record, member.crc):
                self._done(member, record, Outcome(verdict))
                return False
            verdict = "write"
        small = 0 <= member.size <= _SMALL
        blocks: Iterable[bytes | memoryview] = (self._content(member),) if small else self._blocks(member)
        if verdict != "write":
            crc = size = 0
            for block in blocks:
                crc, size = crc32(block, crc), size + len(block)
            member.size = size
            record = self._written.index.get(member.name)
            if record is not None and self._written.is_same(record, crc):
                self._done(member, record, Outcome(verdict))
                return False
            if not small:  # its bytes have been read already
                self._written.index.put({member.name: None})
                raise BadArchive(
                    "an earlier run wrote other bytes than the archive holds",
                    path=member.name,
                    remedy="Run the command again: it writes this file anew",
                )
        staging = self._place(member)
        if member.size >= 0:
            self._claim(member.size)
        else:
            blocks = self._claimed(blocks)
        self._pending[member.name] = Outcome.EXTRACTED
        if small:
            self._writers.put(
                SmallMember(member, staging, blocks, self._archive.stream.volume()), member.size
            )
        else:
            self._committer.commit(self._write(member, staging, blocks, None))
        return True

    def _claim(self, size: int) -> None:
        """Claim room for a member. Until it is committed, it counts twice: on the disk and as reserved."""
        try:
            self._expansion.spend(size)
            self._space.claim(size)
        except BadArchive as error:  # ends the job, as the limit of the stream does
            self._stream_error = error
            raise
        except NotEnoughSpace:
            self._flush()
            self._space.claim(size, fresh=True)

    def _claim_folders(self, count: int) -> None:
        """Claim room for folders that were just made: on many disks each takes a block."""
        self._claim(count * self._space.block)
        self._space.note(count * self._space.block)

    def _claimed(self, blocks: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
        """Yield blocks of a file whose size is known only at its end; claim room for each."""
        for block in blocks:
            self._space.claim(len(block))
            yield block

    def _content(self, member: Member) -> bytes | memoryview:
        try:
            return member.reader.content()
        except BaseException as error:
            self._stream_error = error
            raise

    def _blocks(self, member: Member) -> Iterator[memoryview]:
        while True:
            try:
                self._run.control.checkpoint()
                count = member.reader.readinto(self._buffer)
            except BaseException as error:
                self._stream_error = error
                raise
            if not count:
                return
            yield self._buffer[:count]

    def _write_all(self, items: list[SmallMember]) -> None:
        """Write small files; runs in a writer thread."""
        whole: list[PendingFile] = []
        try:
            for item in items:
                try:
                    whole.append(self._write(*item))
                except (NbdataError, OSError) as error:
                    self._failed(item.member.name, error)
        finally:
            self._committer.commit_all(whole)

    def _write(
        self, member: Member, staging: str, blocks: Iterable[bytes | memoryview], volume: int | None
    ) -> PendingFile:
        fd, temporary = self._committer.target.temporary(staging)
        crc = size = 0
        try:
            for block in blocks:
                done = os.write(fd, block)
                while done < len(block):
                    done += os.write(fd, block[done:])
                crc = crc32(block, crc)
                if volume is None:  # large: else its bytes would count twice, as reserved and as used
                    size += len(block)
                    self._space.note(len(block))
            self._committer.target.set_mode(fd, self._below + member.name, member.mode or 0o600)
            set_time(fd, member.mtime_ns)
            written = os.fstat(fd)
        except BaseException as error:
            self._committer.target.discard(temporary)
            self._space.note(-size)
            if isinstance(error, OSError) and not isinstance(error, NbdataError):
                raise disk_error(error, self._below + member.name) from error
            raise
        finally:
            os.close(fd)
        if member.size < 0:
            member.size = size
        tag = self._written.tag(member, self._archive.stream.volume() if volume is None else volume, crc)
        return PendingFile(member.name, temporary, self._below + member.name, member.size, written, tag=tag)

    def _link(self, member: Member, staging: str) -> None:
        temporary = self._committer.target.unused(staging)
        at, name = self._committer.target.relative(temporary)
        written: os.stat_result | str = member.linkname
        try:
            if member.kind == "symlink":
                make_link(member.linkname, name, at)
                set_time(name, member.mtime_ns, dir_fd=at)
            else:
                if member.linkname in self._pending:
                    self._flush()
                self._refuse_missing(member)
                self._refuse_orphan(member)
                self._folders.refuse_links(os.path.dirname(member.linkname), member.name)
                written = self._links.make(member, temporary)
        except OSError as error:
            if isinstance(error, NbdataError):
                raise
            raise disk_error(error, os.path.join(self._root, member.name)) from error
        self._pending[member.name] = Outcome.LINK
        final, tag = os.path.join(self._root, member.name), self._archive.tag(member)
        self._committer.commit(PendingFile(member.name, temporary, final, 0, written, synced=True, tag=tag))

    def _refuse_missing(self, member: Member) -> None:
        """Raise NbdataError if a hard link's original is not there as in the archive: an earlier one may be."""
        other = member.linkname
        if other in self._missing:
            raise NbdataError(
                f"{other}, to which it is a hard link, was not written",
                path=member.name,
                remedy=f"Make room for {other} first, or run the command with --overwrite always",
            )

    def _refuse_orphan(self, member: Member) -> None:
        """Raise NbdataError if a hard link's original was moved away: only the original's member holds the content."""
        other = member.linkname
        record = self._written.index.get(other)
        if record is None or not self._written.may_be_gone(record):
            return
        if os.path.lexists(self._below + other):
            return
        if self._archive.cannot_reread and offset_of(record) < self._archive.behind:
            remedy = f"Copy {other} from where it is now: the volumes that hold it were deleted"
        else:
            self._written.index.put({other: None})
            remedy = "Run the command again: it writes both"
        raise NbdataError(
            f"{other}, to which it is a hard link, was moved away", path=member.name, remedy=remedy
        )

    def _failed(self, path: str, error: NbdataError | OSError) -> None:
        self._pending.pop(path, None)
        self._missing.add(path)
        self._results.fail(path, error)

    def _flush(self) -> None:
        """Wait until everything taken so far is committed."""
        self._writers.drain()
        self._committer.flush()

    # -- afterwards ---------------------------------------------------------------------------

    def _committed(self, batch: list[PendingFile]) -> None:
        """Record files that are durable under their final names; runs in the committer's thread."""
        good = [f for f in batch if f.error is None]
        self._written.index.put(
            {f.path: Record.of(f.tag, f.size, f.stat) for f in good if f.stat is not None}
        )
        self._run.control.advance(files=len(good))
        # Bytes of large files were counted while they were written.
        self._space.note_written([f.size for f in good if f.size <= _SMALL], len(good))
        moved: list[Row] = []
        for file in good:
            self._missing.discard(file.path)
            outcome = self._pending.pop(file.path, Outcome.EXTRACTED)
            if outcome is Outcome.EXTRACTED:
                moved.append(Row(file.path, outcome, file.size, {}))
            else:
                self._results.add(file.path, outcome, file.size)
        self._results.add_moved(moved)
        for file in batch:
            if file.error is not None:
                self._failed(file.path, file.error)

    def settle(self) -> None:
        """Wait until everything taken so far is durable under final names, and recorded."""
        self._flush()
        self._folders.sync()
        records: dict[str, Record | None] = {**self._links.records(), **self._folders.records()}
        index = self._written.index
        index.put({path: record for path, record in records.items() if index.get(path) != record})
        self._folders.keep()

    def _finish(self) -> None:
        """After all members were taken: commit the rest, set the times of folders, and record them."""
        self.settle()
        self._folders.give_times()
