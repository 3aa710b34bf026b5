"""Send the members of an archive to a store: each file becomes an object, and nothing touches the disk.

One worker of a pool at a time parses the archive, and the others send the members that it has read:

* a small file is sent in a batch with others, and a larger one in one piece; a file of more than `PART` bytes is sent
  in parts while the archive is read, if the store supports parts;
* a hard link becomes an object with the content of the file that it names, as stores have no links; at the end, so
  does a symbolic link to a file of the archive. The content of both is read back from the store;
* a folder becomes nothing; empty folders, and symbolic links to no file, are left out and named in the report.

Each upload is compared with the store's answer, and recorded with the version of the object. So an interrupted command
sends nothing twice when it resumes. `nbdata.engine.unpack.targets.store.members_in_memory` limits the bytes in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from isal.isal_zlib import crc32

from nbdata.archives.member import Member
from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.run import Run
from nbdata.engine.planning.begun_uploads import BegunUploads
from nbdata.engine.planning.existing_objects import ExistingObjects
from nbdata.engine.planning.remote_target import is_text, key_at
from nbdata.engine.planning.small_uploads import BATCH, Content, Sending, SmallUploads
from nbdata.engine.unpack.targets.expansion import Expansion
from nbdata.engine.unpack.targets.links_and_folders import Folders, left_out
from nbdata.engine.unpack.targets.store.link_copies import LinkCopies
from nbdata.engine.unpack.targets.store.linked_members import LinkedMembers
from nbdata.engine.unpack.targets.store.member_verdict import Verdict
from nbdata.engine.unpack.targets.store.members_in_memory import (
    HeldBytes,
    MembersInMemory,
    PassingBytes,
    part_in_memory,
)
from nbdata.engine.unpack.targets.store.send_growing import GrowingSend, larger_than_its_parts
from nbdata.engine.unpack.targets.store.sent_members import SentMember, SentMembers
from nbdata.engine.unpack.targets.unpacking import Checkpoints, Unpacking
from nbdata.engine.unpack.written import Tag
from nbdata.errors import BadArchive, NbdataError, UnsafeMember
from nbdata.integrity.etags import parse_etag
from nbdata.stores.base import Location, ObjectInfo
from nbdata.transfer.send import answer_of, send_whole
from nbdata.transfer.worker_pool import Unit, WorkerPool
from nbdata.verification.sent_checker import SentHasher

__all__ = ["PART", "MemberSender"]

#: Bytes of a part, and of the largest member that is sent in one piece to a store that takes parts.
PART = 8 << 20
# The part size of a single file allows for it to be this many times larger than its volumes.
_EXPANSION = 8
# Bytes per read of a file that is only compared.
_BLOCK = 1 << 20


class MemberSender:
    """Sends members to one place in a store; a context manager.

    Parameters
    ----------
    at_target : Run
        The run with the target's storage options.
    place : Location
        The target.
    objects : ExistingObjects
        The objects at the target when the run began.
    archive : Unpacking
    """

    def __init__(self, at_target: Run, place: Location, objects: ExistingObjects, archive: Unpacking) -> None:
        op, control = archive.op, archive.control
        self._archive, self._control, self._place, self._store = archive, control, place, place.store
        self._volume_keys = archive.volumes.keys_in(place.store)
        self._workers = WorkerPool(control, op.concurrency, sends=True)
        self._memory = MembersInMemory(control, lambda: self._workers.broken)
        self._sent_members = SentMembers(archive, objects, self._memory)
        self._small = SmallUploads[SentMember](
            control, self._workers, self._store, self._send_small, self._whole
        )
        assert op.target is not None
        self._uploads = BegunUploads(at_target, op.target, self._store)
        self._expansion = Expansion(op.max_expansion)
        copies = LinkCopies(control, self._store, self._uploads, self._part_size)
        self._links = LinkedMembers(archive, place, self._sent_members, copies, self._expansion)
        self._batch: list[SentMember] = []
        self._again_to = 0  # end of the last member that was there already
        self._folders = Folders()

    @property
    def _part_size(self) -> int:
        return self._archive.op.part_size or PART

    def __enter__(self) -> MemberSender:
        return self

    def __exit__(self, *exc: object) -> None:
        self._uploads.close()

    def take_all(self) -> int:
        """Send all members; return the offset up to which reading found only members that were there already."""
        units = self._units(Checkpoints(self._archive))
        try:
            self._workers.run(units)
        finally:
            units.close()  # type: ignore[attr-defined]
        self._control.checkpoint()  # a cancel may look like the end
        self._finish()
        return self._again_to

    def _finish(self) -> None:
        """Report what was left out, and what could not be verified."""
        notes = self._archive.results.notes
        notes += left_out("empty folder", "empty folders", self._folders.empty)
        notes += left_out(
            "symbolic link to no file that was unpacked",
            "symbolic links to no file that was unpacked",
            self._links.lead_nowhere,
        )
        if self._sent_members.unverified:
            notes.append(
                f"{self._sent_members.unverified:,} could not be verified: the store returned no checksum"
            )
        notes += filter(None, [self._archive.written.index.problem])

    # -- all members --------------------------------------------------------------------------

    def _units(self, checkpoints: Checkpoints) -> Iterator[Unit]:
        """Yield units of work in the archive's order; the thread that asks for the next unit reads the archive."""
        for member in self._archive.stream.members:
            self._control.checkpoint()
            yield from self._take(member)
            if checkpoints.is_due():
                yield from self._all_sent()
                checkpoints.make()
        yield from self._all_sent()
        yield from self._links.symbolic_links()
        yield from self._all_sent()

    def _take(self, member: Member) -> Iterator[Unit]:
        if member.name in self._memory or member.name in self._links.being_copied:
            yield from self._all_sent()  # twice in the archive: the later one must come later
        self._folders.saw(member)
        if member.kind == "folder":
            return
        key = key_at(self._place, member.name)
        if key in self._volume_keys:
            raise UnsafeMember(
                f"member {member.name!r} would replace a volume that it is unpacked from",
                path=key,
                remedy="Unpack to another place",
            )
        if not is_text(key):
            error = NbdataError(
                "its name is not UTF-8, as keys are",
                path=member.name,
                remedy="Unpack it to a folder, and rename it there",
            )
            self._sent_members.fail(member.name, error)
            return
        if member.kind == "symlink":
            self._links.remember(member)
            return
        self._links.replaced(member.name)
        if member.kind == "hardlink":
            if member.linkname in self._memory:
                yield from self._all_sent()
            yield from self._links.hard_link(member, key)
        else:
            size = member.size if member.size >= 0 else None
            yield from self._file(
                member, key, self._sent_members.verdict(member.name, key, member.offset, size)
            )
        if self._sent_members.was_there:
            self._sent_members.was_there, self._again_to = False, self._archive.stream.place.offset

    def _all_sent(self) -> Iterator[Unit]:
        """Yield units until everything taken so far is sent."""
        yield from self._send_batch()
        self._memory.wait_until_empty()
        self._links.being_copied.clear()

    def _send_batch(self) -> Iterator[Unit]:
        batch, self._batch = self._batch, []
        if batch:
            yield self._small.unit(batch)

    # -- files --------------------------------------------------------------------------------

    def _file(self, member: Member, key: str, verdict: Verdict) -> Iterator[Unit]:
        if verdict.action == "unchanged" and member.crc is not None:  # known without reading it
            record = self._archive.written.index.get(member.name)
            if record is not None and self._archive.written.is_same(record, member.crc):
                self._sent_members.unchanged(member.name, record, member.size)
                return
            verdict = Verdict("write")
        if verdict.action == "skip" or (verdict.action == "conflict" and not verdict.compare):
            return
        self._expansion.spend(max(member.size, 0))
        if 0 <= member.size <= PART:
            yield from self._in_memory(member, key, verdict)
        elif verdict.action == "conflict":
            self._sent_members.conflict(member.name, max(member.size, 0))
        elif verdict.action == "unchanged":
            self._compare(member)
        elif self._store.multipart:
            yield from self._in_parts(member, key)
        elif member.size < 0:
            error = NbdataError(
                "its size is known only at its end, and this store accepts no uploads in parts",
                path=member.name,
                remedy="Unpack it to a folder, and push that",
            )
            self._sent_members.fail(member.name, error)
        else:
            self._in_one_stream(member, key)

    def _in_memory(self, member: Member, key: str, verdict: Verdict) -> Iterator[Unit]:
        """Read a file, and send it unless the store has it."""
        if not self._memory.has_room(member.size):
            yield from self._send_batch()
        self._memory.hold(member.size)
        data, record = bytes(member.reader.content()), self._archive.written.index.get(member.name)
        item = self._sent_members.item(member, key, crc32(data), data)
        if verdict.action == "unchanged" and record is not None and item.tag.crc == Tag.of(record).crc:
            self._sent_members.unchanged(member.name, record, member.size)
        elif verdict.compare and (there := self._sent_members.existing(key)) and self._has_md5(item, there):
            self._sent_members.record(item, there)
            self._sent_members.tell(member.name, member.size, Outcome.UNCHANGED)
        elif verdict.action == "conflict":
            self._sent_members.conflict(member.name, member.size)
        else:
            self._sent_members.begin(item)
            if self._small.takes(item.size):
                self._batch.append(item)
                if len(self._batch) == BATCH:
                    yield from self._send_batch()
            else:
                yield partial(self._whole, item)
            return
        self._memory.release(member.size)

    def _has_md5(self, item: SentMember, there: ObjectInfo) -> bool:
        return parse_etag(answer_of(there)).md5 == self._hashed(item).hexdigest()

    def _hashed(self, item: SentMember) -> SentHasher:
        hasher = SentHasher(item.key, "auto")
        hasher.update(memoryview(item.data))
        return hasher

    def _send_small(self, item: SentMember) -> Sending:
        """Send a small file; see `Sending`."""
        try:
            info, verified = yield Content(item.data, self._hashed(item))
            self._sent_members.sent(item, info, verified)
        except Exception as error:
            self._sent_members.failed(item, error)

    def _whole(self, item: SentMember) -> None:
        """Send a file in one piece."""
        try:
            hasher = self._hashed(item)
            info, verified = send_whole(
                self._control,
                self._store,
                item.key,
                lambda _start, _size, _hasher: HeldBytes(item.data, None, md5=hasher.hexdigest()),
                item.size,
                lambda: hasher,
                tries=item.tries,
                wrong=item.wrong,
            )
        except Exception as error:
            self._sent_members.failed(item, error)
        else:
            self._sent_members.sent(item, info, verified)

    def _in_parts(self, member: Member, key: str) -> Iterator[Unit]:
        """Send a large file, or one whose size is known only at its end, while it is read."""
        item = self._sent_members.item(member, key)
        known = member.size if member.size >= 0 else None
        expected = (self._archive.volumes.size or 0) * _EXPANSION if known is None else known
        size = part_in_memory(expected, self._part_size, self._store)
        if known is not None and known > size * self._store.max_parts:
            self._sent_members.fail(item.name, larger_than_its_parts(item.name, self._store.max_parts, size))
            return
        sending = GrowingSend(self._control, self._uploads, key, known)

        def finish() -> None:
            try:
                info, verified = sending.finish()
            except Exception as error:
                self._sent_members.failed(item, error, held=0)
            else:
                item.tag, item.size = item.tag._replace(crc=f"{sending.crc:08x}"), sending.size
                self._sent_members.sent(item, info, verified, held=0)

        self._sent_members.begin(item)
        yield from self._send_batch()  # else the parts might wait for its memory
        yield from sending.units(partial(self._read, member), self._memory, size, finish)

    def _in_one_stream(self, member: Member, key: str) -> None:
        """Send a large file to a store without multipart uploads: an interrupted upload cannot be repeated."""
        item = self._sent_members.item(member, key)
        source = PassingBytes(partial(self._read, member))
        try:
            self._sent_members.announce(item)
            info, verified = send_whole(
                self._control,
                self._store,
                key,
                source.outgoing,
                item.size,
                partial(SentHasher, key, "auto"),
            )
        except Exception as error:
            if source.error is not None:
                raise source.error from None
            self._sent_members.fail(item.name, error)
        else:
            item.tag = item.tag._replace(crc=f"{source.crc:08x}")
            self._sent_members.sent(item, info, verified, held=0)

    def _compare(self, member: Member) -> None:
        """Check whether a large file has the content recorded for its object."""
        record = self._archive.written.index.get(member.name)
        scratch, crc, size = memoryview(bytearray(_BLOCK)), 0, 0
        while count := self._read(member, scratch):
            crc, size = crc32(scratch[:count], crc), size + count
        if record is not None and Tag.of(record).crc == f"{crc:08x}":
            self._sent_members.unchanged(member.name, record, size)
            return
        self._archive.written.index.put({member.name: None})
        raise BadArchive(
            "an earlier run wrote other bytes than the archive holds",
            path=member.name,
            remedy="Run the command again: it writes this object anew",
        )

    def _read(self, member: Member, buffer: memoryview) -> int:
        self._control.checkpoint()
        return member.reader.readinto(buffer)
