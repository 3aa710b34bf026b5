"""Announce, record and count the members that are sent to a store, and release their memory."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from nbdata.archives.member import Member
from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.planning.existing_objects import ExistingObjects
from nbdata.engine.unpack.targets.store.member_verdict import Verdict, verdict_of
from nbdata.engine.unpack.targets.store.members_in_memory import MembersInMemory
from nbdata.engine.unpack.targets.unpacking import Unpacking
from nbdata.engine.unpack.written import Tag
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.index import Record
from nbdata.transfer.part_records import validator
from nbdata.transfer.retry import Tries

__all__ = ["SentMember", "SentMembers"]


@dataclass(slots=True, eq=False)
class SentMember:
    """A member that becomes an object; implements `SmallObject`."""

    name: str
    key: str
    size: int
    tag: Tag
    data: bytes = b""
    wrong: ObjectInfo | None = None
    tries: Tries | None = None
    over: bool = False  # True if it was sent or has failed


class SentMembers:
    """Tracks the members of one archive while they are sent.

    Parameters
    ----------
    archive : Unpacking
    objects : ExistingObjects
        The objects at the target when the run began; a replaced object is dropped from it.
    memory : MembersInMemory

    Attributes
    ----------
    missing : dict of str to Outcome
        Names of all members that were skipped or have failed.
    was_there : bool
        Whether the last reported member was there already.
    unverified : int
        Number of objects for which the store returned no checksum.
    """

    def __init__(self, archive: Unpacking, objects: ExistingObjects, memory: MembersInMemory) -> None:
        self._archive, self._objects, self._memory = archive, objects, memory
        self._control, self._written, self._results = archive.control, archive.written, archive.results
        self._lock = threading.Lock()
        self.unverified = 0
        self.missing: dict[str, Outcome] = {}
        self.was_there = False

    def item(self, member: Member, key: str, crc: int = 0, data: bytes = b"") -> SentMember:
        """A file to be sent, with its CRC-32 if known."""
        record = Record(self._archive.tag(member, crc), 0, 0, 0, 0)
        return SentMember(member.name, key, member.size, Tag.of(record), data)

    def existing(self, key: str) -> ObjectInfo | None:
        """The object under a key when the run began; None if there was none, or this run has replaced it."""
        return self._objects.get(key)

    def verdict(self, name: str, key: str, offset: int, size: int | None) -> Verdict:
        """Decide what to do with a member; if it is left as it is, report that."""
        overwrite = self._archive.op.overwrite
        verdict = verdict_of(self._written, name, offset, self.existing(key), overwrite=overwrite, size=size)
        if verdict.action == "skip":
            self.tell(name, size or 0, Outcome.SKIPPED, reason="exists, and --overwrite never")
        elif verdict.action == "conflict" and not verdict.compare:
            self.conflict(name, size or 0)
        return verdict

    def begin(self, item: SentMember) -> None:
        """Note that an object is about to be made."""
        self.announce(item)
        self._memory.begin(item.name)

    def announce(self, item: SentMember) -> None:
        """Record that an object is about to be replaced: else it would look as if another program had changed it."""
        self._objects.keep(item.key)  # its listed entry is out of date
        self.missing.pop(item.name, None)
        record = self._written.index.get(item.name)
        if record is None:
            return
        behind = self._archive.behind
        if behind and self._written.is_of_line(record) and Tag.of(record).offset < behind <= item.tag.offset:
            self._written.replacing(record, item.name, item.tag.offset)
        self._written.index.announce({item.name: str(item.tag)})

    def record(self, item: SentMember, info: ObjectInfo) -> None:
        """Record the version of an object that the archive has made."""
        tag = item.tag._replace(version=validator(info))
        self._written.index.put({item.name: Record(str(tag), item.size, 0, 0, 0)})

    def sent(
        self,
        item: SentMember,
        info: ObjectInfo,
        verified: bool,
        *,
        held: int | None = None,
        outcome: Outcome = Outcome.EXTRACTED,
    ) -> None:
        """Note that an object was sent; `held` is the number of its bytes in memory, if not all."""
        try:
            self.record(item, info)
            self._control.advance(files=1)
            with self._lock:
                self.unverified += not verified
            self._results.add(item.name, outcome, item.size, moved=True, verified=verified)
        finally:
            self._over(item, held)

    def failed(self, item: SentMember, error: Exception, *, held: int | None = None) -> None:
        """Note that a member could not be sent."""
        self.missing[item.name] = Outcome.FAILED
        try:
            self._results.fail(item.name, error)
        finally:
            self._over(item, held)

    def _over(self, item: SentMember, held: int | None) -> None:
        if not item.over:
            item.over = True
            self._memory.release(item.size if held is None else held, item.name)

    def tell(self, name: str, size: int, outcome: Outcome, **detail: str) -> None:
        """Report the outcome of a member that is not sent."""
        self._results.add(name, outcome, size, moved=False, **detail)
        self.was_there = outcome is Outcome.UNCHANGED
        if outcome is not Outcome.UNCHANGED:
            self.missing[name] = outcome
        failed = outcome is Outcome.CONFLICT
        self._control.advance(files=0 if failed else 1, failures=int(failed))

    def unchanged(self, name: str, record: Record, size: int) -> None:
        """Report an object that has the content of its member already."""
        self._written.adopt(name, record)
        self.tell(name, size, Outcome.UNCHANGED)

    def fail(self, name: str, error: Exception) -> None:
        """Report a member that cannot be sent, before any of it was read."""
        self.missing[name] = Outcome.FAILED
        self._results.fail(name, error)

    def conflict(self, name: str, size: int) -> None:
        """Report an object that was changed on both sides and is left as it is."""
        reason = "changed on both sides since it was unpacked; --overwrite always replaces it"
        self.tell(name, size, Outcome.CONFLICT, reason=reason)
