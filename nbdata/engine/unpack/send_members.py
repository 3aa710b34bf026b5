"""Members of an archive on their way to a store: each file becomes an object, and nothing touches the disk.

The archive is parsed by one worker of a pool at a time, and the others send what it has read:

* a small file goes with many others, a larger one in one piece, and one of more than `PART` bytes in parts while the
  archive is read, where the store takes parts;
* a hard link becomes an object with the content of the file that it names, and so does, at the end, a symbolic link to
  a file of the archive: stores know no links. Both are read back from the store;
* a folder becomes nothing; empty ones, and symbolic links to no file, are left out and named.

What was sent is compared with what the store answers, and recorded with the version of the object, so that a line that
was interrupted sends nothing twice. How many bytes are in memory says `nbdata.engine.unpack.members_in_memory`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from isal.isal_zlib import crc32

from nbdata.archives.member import Member
from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.engine.planning.begun_uploads import BegunUploads
from nbdata.engine.planning.existing_objects import ExistingObjects
from nbdata.engine.planning.remote_target import is_text, key_at
from nbdata.engine.planning.small_uploads import BATCH, Content, SmallUploads
from nbdata.engine.unpack.checkpoints import Checkpoints
from nbdata.engine.unpack.link_copies import LinkCopies
from nbdata.engine.unpack.links_and_folders import Folders, SymbolicLinks, left_out
from nbdata.engine.unpack.member_stream import MemberStream
from nbdata.engine.unpack.member_verdict import Verdict, verdict_of
from nbdata.engine.unpack.members_in_memory import HeldBytes, MembersInMemory, PassingBytes
from nbdata.engine.unpack.volumes import VolumeList
from nbdata.engine.unpack.written import Tag, Written, is_version
from nbdata.errors import BadArchive, NbdataError, UnsafeMember
from nbdata.integrity.etags import parse_etag
from nbdata.stores.base import Location, ObjectInfo, Upload
from nbdata.transfer.index import Index, Record
from nbdata.transfer.part_records import validator
from nbdata.transfer.send import (
    PartedSend,
    answer_of,
    hashed_parts,
    send_whole,
    upload_part_size,
    withdrawn,
)
from nbdata.transfer.worker_pool import Unit, WorkerPool
from nbdata.verbs.untar_volumes import UntarVolumes
from nbdata.verification.sent_checker import MultipartChecker, SentHasher

__all__ = ["PART", "MemberSender"]

#: Bytes of a part, and of the largest member that is sent in one piece to a store that takes parts.
PART = 8 << 20
# Bytes that are read at a time of what is only looked at.
_BLOCK = 1 << 20


@dataclass(slots=True, eq=False)
class _Item:
    """A file that is sent; a `SmallObject`."""

    name: str
    key: str
    size: int
    tag: Tag
    data: bytes = b""
    wrong: ObjectInfo | None = None


class MemberSender:
    """Sends members to one place in a store; see `nbdata.engine.unpack.checkpoints.Taking`.

    Parameters
    ----------
    run : Run
    at_target : Run
        The same, as the target's end sees it.
    place : Location
        The target.
    objects : ExistingObjects
        What was there when the run began.
    written : Written
        What this archive has written there before.
    volumes : VolumeList
        What is read, and must not be replaced.
    volume : callable
        The number of the volume up to which the archive was read.
    open_index : callable
        Begins to write records.
    """

    def __init__(
        self, run: Run, at_target: Run, place: Location, objects: ExistingObjects, written: Written,
        results: Results, volumes: VolumeList, volume: Callable[[], int], *, open_index: Callable[[Index], None],
    ) -> None:  # fmt: skip
        op = run.operation
        assert isinstance(op, UntarVolumes)
        self._op, self._control, self._place, self._store = op, run.control, place, place.store
        self._objects, self._written, self._results = objects, written, results
        self._volume, self._open_index = volume, open_index
        self._volume_keys = volumes.keys_in(place.store)
        self.behind, self.careful = 0, False
        self._workers = WorkerPool(run.control, op.concurrency, sends=True)
        self._small = SmallUploads[_Item](
            run.control, self._workers, self._store,
            content=self._content_of, sent=self._small_sent, whole=self._whole, failed=self._failed,
        )  # fmt: skip
        assert op.target is not None
        self._uploads = BegunUploads(at_target, op.target)
        self._links = LinkCopies(run.control, self._store, self._uploads, op.part_size or PART)
        self._memory = MembersInMemory(run.control, lambda: self._workers.broken)
        self._batch: list[_Item] = []
        self._again, self._again_to = (
            False,
            0,
        )  # whether the last member was there, and where the last such ended
        self._lock = threading.Lock()
        self._unverified = 0
        self._folders, self._symbolic_links = Folders(), SymbolicLinks(written)
        self._leads_nowhere: list[str] = []  # symbolic links

    def __enter__(self) -> MemberSender:
        self._open_index(self._written.index)
        return self

    def __exit__(self, *exc: object) -> None:
        self._uploads.close()

    def go_on(self, behind: int, names: Iterable[list[str]]) -> None:
        self.behind = behind

    def room_from(self, make_room: Callable[[], bool]) -> None:
        """No room is needed on the disk."""

    def take_all(self, stream: MemberStream, checkpoints: Checkpoints) -> int:
        units = self._units(stream, checkpoints)
        try:
            self._workers.run(units)
        finally:
            units.close()  # type: ignore[attr-defined]
        return self._again_to

    def settle(self) -> None:
        """All that was taken is sent when a checkpoint is made: see `_units`."""

    def finish(self) -> None:
        """Say what was left out, and what could not be verified."""
        notes = self._results.notes
        notes += left_out("empty folder", "empty folders", self._folders.empty)
        notes += left_out(
            "symbolic link to no file that was unpacked", "symbolic links to no file that was unpacked",
            self._leads_nowhere,
        )  # fmt: skip
        if self._unverified:
            notes.append(f"{self._unverified:,} could not be verified: the store answered no checksum")
        notes += filter(None, [self._written.index.problem])

    # -- all members --------------------------------------------------------------------------

    def _units(self, stream: MemberStream, checkpoints: Checkpoints) -> Iterator[Unit]:
        """What there is to do, in the archive's order; whoever asks for the next unit reads the archive."""
        for member in stream.members:
            self._control.checkpoint()
            yield from self._take(member, stream)
            if checkpoints.is_due():
                yield from self._all_sent()
                checkpoints.make()
        yield from self._all_sent()
        yield from self._copies_of_links()
        yield from self._all_sent()

    def _take(self, member: Member, stream: MemberStream) -> Iterator[Unit]:
        if member.name in self._memory:  # twice in the archive: the later one must come later
            yield from self._all_sent()
        self._folders.saw(member)
        if member.kind == "folder":
            return
        key = key_at(self._place, member.name)
        if key in self._volume_keys:
            raise UnsafeMember(
                f"member {member.name!r} would replace a volume that it is unpacked from",
                path=key, remedy="Unpack to another place",
            )  # fmt: skip
        if not is_text(key):
            error = NbdataError(
                "its name is not UTF-8, as keys are", path=member.name,
                remedy="Unpack it to a folder, and rename it there",
            )  # fmt: skip
            self._results.fail(member.name, error)
            return
        if member.kind == "symlink":
            self._symbolic_links.remember(member, self._volume())
            return
        self._symbolic_links.forget(member.name)
        verdict = verdict_of(self._written, member, self._objects.get(key), overwrite=self._op.overwrite)
        if verdict.action == "skip":
            self._tell(member, Outcome.SKIPPED, reason="exists, and --overwrite never")
        elif member.kind == "hardlink":
            yield from self._hard_link(member, key)
        elif verdict.action != "older":
            yield from self._file(member, key, verdict)
        if self._again:
            self._again, self._again_to = False, stream.place.offset

    def _all_sent(self) -> Iterator[Unit]:
        """Have everything sent that was taken."""
        yield from self._send_batch()
        self._memory.wait_until_empty()

    def _send_batch(self) -> Iterator[Unit]:
        batch, self._batch = self._batch, []
        if batch:
            yield self._small.unit(batch)

    # -- files --------------------------------------------------------------------------------

    def _file(self, member: Member, key: str, verdict: Verdict) -> Iterator[Unit]:
        if verdict.action == "unchanged" and member.crc is not None:  # known without reading it
            record = self._written.index.get(member.name)
            if record is not None and self._written.is_same(record, member.crc):
                self._written.adopt(member.name, record)
                self._tell(member, Outcome.UNCHANGED)
                return
            verdict = Verdict("write")
        if member.size <= PART:
            yield from self._in_memory(member, key, verdict)
        elif verdict.action == "conflict":
            self._conflict(member)
        elif verdict.action == "unchanged":
            self._compare(member)
        elif self._store.multipart:
            yield from self._in_parts(member, key)
        else:
            self._in_one_stream(member, key)

    def _in_memory(self, member: Member, key: str, verdict: Verdict) -> Iterator[Unit]:
        """Read a file, and have it sent unless the store has it."""
        if not self._memory.has_room(member.size):
            yield from self._send_batch()
        self._memory.hold(member.size)
        data, record = bytes(member.reader.content()), self._written.index.get(member.name)
        item = self._item(member, key, crc32(data), data)
        if verdict.action == "unchanged" and record is not None and item.tag.crc == Tag.of(record).crc:
            self._written.adopt(member.name, record)
            self._tell(member, Outcome.UNCHANGED)
        elif verdict.compare and (there := self._objects.get(key)) and self._has_md5(item, there):
            self._record(item, there)
            self._tell(member, Outcome.UNCHANGED)
        elif verdict.action == "conflict":
            self._conflict(member)
        else:
            self._begin(item)
            if self._small.takes(item.size):
                self._batch.append(item)
                if len(self._batch) == BATCH:
                    yield from self._send_batch()
            else:
                yield partial(self._whole, item, None)
            return
        self._memory.release(member.size)

    def _has_md5(self, item: _Item, there: ObjectInfo) -> bool:
        return parse_etag(answer_of(there)).md5 == self._hashed(item).hexdigest()

    def _hashed(self, item: _Item) -> SentHasher:
        hasher = SentHasher(item.key, "auto")
        hasher.update(memoryview(item.data))
        return hasher

    def _content_of(self, item: _Item) -> Content:
        return Content(item.data, self._hashed(item))

    def _small_sent(self, item: _Item, content: Content, info: ObjectInfo, verified: bool) -> None:
        self._sent(item, info, verified)

    def _whole(self, item: _Item, failed: NbdataError | None) -> None:
        """Send a file in one piece; `failed` is why a first try did not do it."""
        try:
            hasher = self._hashed(item)
            info, verified = send_whole(
                self._control, self._store, item.key,
                lambda _start, _size, _hasher: HeldBytes(item.data, None, md5=hasher.hexdigest()),
                item.size, lambda: hasher, failed=failed, wrong=item.wrong,
            )  # fmt: skip
        except Exception as error:
            self._failed(item, error)
        else:
            self._sent(item, info, verified)

    def _in_parts(self, member: Member, key: str) -> Iterator[Unit]:
        """Send a large file while it is read."""
        item = self._item(member, key)
        size = upload_part_size(member.size, self._op.part_size or PART, self._store)
        parts: dict[int, memoryview] = {}  # by offset

        def begin() -> Upload:
            return self._uploads.begin(self._store, key, item.size)

        def done(info: ObjectInfo, verified: bool) -> None:
            del self._uploads.unfinished[key]
            self._uploads.finished(key)
            self._sent(item, info, verified, held=0)

        def failed(error: Exception) -> None:
            del self._uploads.unfinished[key]
            self._failed(item, error, held=0)

        reader = hashed_parts(
            self._control,
            lambda start, _size, hasher: HeldBytes(parts[start], hasher),
            partial(SentHasher, key, "auto"),
        )
        sending = PartedSend(
            self._control, item.size, size, reader,
            begin=begin, abandon=partial(self._uploads.abandon, key), before=lambda _: None,
            whole=MultipartChecker(key, "auto"), done=done, failed=failed,
            withdraw=partial(withdrawn, self._control, self._store, key), counted=False,
        )  # fmt: skip
        self._uploads.unfinished[key] = sending.give_up
        self._begin(item)
        crc = 0
        for number, unit in enumerate(sending.units()):
            start = number * size
            count = min(size, item.size - start)
            if not self._memory.has_room(count):
                yield from self._send_batch()
            self._memory.hold(count)
            data, filled = memoryview(bytearray(count)), 0
            while filled < count:
                filled += self._read(member, data[filled : filled + _BLOCK])
            crc = crc32(data, crc)
            item.tag = item.tag._replace(crc=f"{crc:08x}")
            parts[start] = data
            yield partial(self._part, unit, parts, start, count)

    def _part(self, unit: Unit, parts: dict[int, memoryview], start: int, count: int) -> None:
        try:
            unit()
        finally:
            parts.pop(start, None)
            self._memory.release(count)

    def _in_one_stream(self, member: Member, key: str) -> None:
        """Send a large file to a store that takes no parts: what breaks off cannot be repeated."""
        item = self._item(member, key)
        source = PassingBytes(partial(self._read, member))
        try:
            self._announce(item)
            info, verified = send_whole(
                self._control, self._store, key, source.outgoing, item.size, partial(SentHasher, key, "auto")
            )
        except Exception as error:
            if source.error is not None:
                raise source.error from None
            self._results.fail(item.name, error)
        else:
            item.tag = item.tag._replace(crc=f"{source.crc:08x}")
            self._sent(item, info, verified, held=0)

    def _compare(self, member: Member) -> None:
        """See whether a large file has the content that is recorded of its object."""
        record = self._written.index.get(member.name)
        scratch, crc, left = memoryview(bytearray(_BLOCK)), 0, member.size
        while left:
            count = self._read(member, scratch[:left])
            crc, left = crc32(scratch[:count], crc), left - count
        if record is not None and Tag.of(record).crc == f"{crc:08x}":
            self._written.adopt(member.name, record)
            self._tell(member, Outcome.UNCHANGED)
            return
        self._written.index.put({member.name: None})
        raise BadArchive(
            "an earlier run wrote other bytes than the archive holds", path=member.name,
            remedy="Run the same line again: it writes this object anew",
        )  # fmt: skip

    # -- links --------------------------------------------------------------------------------

    def _hard_link(self, member: Member, key: str) -> Iterator[Unit]:
        if member.linkname in self._memory:
            yield from self._all_sent()
        first = self._written.index.get(member.linkname)
        if first is not None and self._is_sent(first):
            yield from self._copy_of(member.name, key, member.offset, self._volume(), first, member.linkname)
            return
        error = NbdataError(
            f"{member.linkname}, to which it is a hard link, is not what this archive holds",
            path=member.name, remedy="Run the line with --overwrite always",
        )  # fmt: skip
        self._results.fail(member.name, error)

    def _is_sent(self, record: Record) -> bool:
        """Whether a record is that of an object which this archive has made."""
        return self._written.is_ours(record) and record.local_size >= 0

    def _copy_of(
        self, name: str, key: str, offset: int, volume: int, first: Record, first_name: str
    ) -> Iterator[Unit]:
        """Make an object with the content of another one, unless it is there."""
        tag = Tag.of(first)._replace(offset=offset, fingerprint=self._written.fingerprints[volume])
        record, there = self._written.index.get(name), self._objects.get(key)
        if record is not None and is_version(record, there) and Tag.of(record)[:4] == tag[:4]:
            self._results.add(name, Outcome.UNCHANGED, first.size)
            self._control.advance(files=1)
            return
        item = _Item(name, key, first.size, tag)
        self._begin(item)
        yield partial(self._send_copy, item, first, key_at(self._place, first_name))

    def _send_copy(self, item: _Item, first: Record, key: str) -> None:
        try:
            info, verified = self._links.send(item.key, first, key)
        except Exception as error:
            self._failed(item, error, held=0)
        else:
            self._sent(item, info, verified, held=0, outcome=Outcome.LINK)

    def _copies_of_links(self) -> Iterator[Unit]:
        """Make objects of the symbolic links to files that were sent, with the content of these."""
        for link in self._symbolic_links.all():
            self._control.checkpoint()
            first = None if link.leads_to is None else self._written.index.get(link.leads_to)
            if link.leads_to is None or first is None or not self._is_sent(first):
                reason = "a symbolic link to no file that was unpacked"
                self._results.add(link.name, Outcome.LEFT_OUT, reason=reason)
                self._leads_nowhere.append(link.name)
                continue
            key = key_at(self._place, link.name)
            yield from self._copy_of(link.name, key, link.offset, link.volume, first, link.leads_to)

    # -- what becomes of them -----------------------------------------------------------------

    def _item(self, member: Member, key: str, crc: int = 0, data: bytes = b"") -> _Item:
        record = Record(self._written.tag(member, self._volume(), crc), 0, 0, 0, 0)
        return _Item(member.name, key, member.size, Tag.of(record), data)

    def _begin(self, item: _Item) -> None:
        """An object is about to be made."""
        self._announce(item)
        self._memory.begin(item.name)

    def _announce(self, item: _Item) -> None:
        """Note that an object is about to be another: else it would look as if somebody had changed it."""
        record = self._written.index.get(item.name)
        if record is None:
            return
        if (
            self.behind
            and self._written.is_of_line(record)
            and Tag.of(record).offset < self.behind <= item.tag.offset
        ):
            self._written.replacing(record, item.name, item.tag.offset)
        self._written.index.announce({item.name: str(item.tag)})

    def _record(self, item: _Item, info: ObjectInfo) -> None:
        tag = item.tag._replace(version=validator(info))
        self._written.index.put({item.name: Record(str(tag), item.size, 0, 0, 0)})

    def _sent(
        self, item: _Item, info: ObjectInfo, verified: bool, *,
        held: int | None = None, outcome: Outcome = Outcome.EXTRACTED,
    ) -> None:  # fmt: skip
        """The store has an object; `held` are the bytes of it that are in memory, if these are not all."""
        try:
            self._record(item, info)
            self._control.advance(files=1)
            with self._lock:
                self._unverified += not verified
            self._results.add(item.name, outcome, item.size, moved=True, verified=verified)
        finally:
            self._memory.release(item.size if held is None else held, item.name)

    def _failed(self, item: _Item, error: Exception, *, held: int | None = None) -> None:
        try:
            self._results.fail(item.name, error)
        finally:
            self._memory.release(item.size if held is None else held, item.name)

    def _tell(self, member: Member, outcome: Outcome, **detail: str) -> None:
        self._results.add(member.name, outcome, member.size, moved=False, **detail)
        self._again = outcome is Outcome.UNCHANGED
        failed = outcome is Outcome.CONFLICT
        self._control.advance(files=0 if failed else 1, failures=int(failed))

    def _conflict(self, member: Member) -> None:
        reason = "changed on both sides since it was unpacked; --overwrite always takes the archive's"
        self._tell(member, Outcome.CONFLICT, reason=reason)

    def _read(self, member: Member, buffer: memoryview) -> int:
        self._control.checkpoint()
        return member.reader.readinto(buffer)
