"""What becomes of members that go to a store: announced, recorded, counted, and released from memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from nbdata.archives.member import Member
from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.results import Results
from nbdata.engine.planning.existing_objects import ExistingObjects
from nbdata.engine.unpack.members_in_memory import MembersInMemory
from nbdata.engine.unpack.written import Tag, Written
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.control import Control
from nbdata.transfer.index import Record
from nbdata.transfer.part_records import validator

__all__ = ["SentMember", "SentMembers"]


@dataclass(slots=True, eq=False)
class SentMember:
    """A member that becomes an object; a `SmallObject`."""

    name: str
    key: str
    size: int
    tag: Tag
    data: bytes = b""
    wrong: ObjectInfo | None = None
    over: bool = False  # it was sent, or has failed


class SentMembers:
    """Keeps the books of the members of one archive.

    Parameters
    ----------
    objects : ExistingObjects
        What was there when the run began; what is replaced is dropped from it.
    memory : MembersInMemory
    volume : callable
        The number of the volume up to which the archive was read.

    Attributes
    ----------
    behind : int
        Offset of the last checkpoint; 0 if there is none.
    missing : dict of str to Outcome
        Names of members that were skipped, or have failed: as many as there are.
    was_there : bool
        Whether the last member that was told of was there already.
    unverified : int
        Objects for which the store answered no checksum.
    """

    def __init__(
        self, control: Control, written: Written, results: Results, objects: ExistingObjects,
        memory: MembersInMemory, volume: Callable[[], int],
    ) -> None:  # fmt: skip
        self._control, self._written, self._results = control, written, results
        self._objects, self._memory, self._volume = objects, memory, volume
        self._lock = threading.Lock()
        self.behind = self.unverified = 0
        self.missing: dict[str, Outcome] = {}
        self.was_there = False

    def item(self, member: Member, key: str, crc: int = 0, data: bytes = b"") -> SentMember:
        """A file that is to be sent, with its CRC-32 as far as that is known."""
        record = Record(self._written.tag(member, self._volume(), crc), 0, 0, 0, 0)
        return SentMember(member.name, key, member.size, Tag.of(record), data)

    def begin(self, item: SentMember) -> None:
        """An object is about to be made."""
        self.announce(item)
        self._memory.begin(item.name)

    def announce(self, item: SentMember) -> None:
        """Note that an object is about to be another: else it would look as if somebody had changed it."""
        self._objects.keep(item.key)  # what was listed of it is so no longer
        self.missing.pop(item.name, None)
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

    def record(self, item: SentMember, info: ObjectInfo) -> None:
        """Remember which version of an object the archive has made."""
        tag = item.tag._replace(version=validator(info))
        self._written.index.put({item.name: Record(str(tag), item.size, 0, 0, 0)})

    def sent(
        self, item: SentMember, info: ObjectInfo, verified: bool, *,
        held: int | None = None, outcome: Outcome = Outcome.EXTRACTED,
    ) -> None:  # fmt: skip
        """The store has an object; `held` are the bytes of it that are in memory, if these are not all."""
        try:
            self.record(item, info)
            self._control.advance(files=1)
            with self._lock:
                self.unverified += not verified
            self._results.add(item.name, outcome, item.size, moved=True, verified=verified)
        finally:
            self._over(item, held)

    def failed(self, item: SentMember, error: Exception, *, held: int | None = None) -> None:
        """A member could not be sent."""
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
        """Say what became of a member that is not sent."""
        self._results.add(name, outcome, size, moved=False, **detail)
        self.was_there = outcome is Outcome.UNCHANGED
        if outcome is not Outcome.UNCHANGED:
            self.missing[name] = outcome
        failed = outcome is Outcome.CONFLICT
        self._control.advance(files=0 if failed else 1, failures=int(failed))

    def conflict(self, name: str, size: int) -> None:
        """Leave an object that was changed on both sides."""
        reason = "changed on both sides since it was unpacked; --overwrite always takes the archive's"
        self.tell(name, size, Outcome.CONFLICT, reason=reason)
