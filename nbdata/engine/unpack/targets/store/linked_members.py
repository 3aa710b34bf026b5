"""Make objects of the links of an archive: each has the content of the file that the link leads to.

A hard link is copied when its member comes. A symbolic link is remembered, and copied after all members: what it leads
to may come later.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from nbdata.archives.member import Member
from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.planning.remote_target import key_at
from nbdata.engine.unpack.targets.expansion import Expansion
from nbdata.engine.unpack.targets.links_and_folders import AT_THE_END, SymbolicLinks
from nbdata.engine.unpack.targets.store.link_copies import LinkCopies
from nbdata.engine.unpack.targets.store.sent_members import SentMember, SentMembers
from nbdata.engine.unpack.targets.unpacking import Unpacking
from nbdata.engine.unpack.written import Tag, offset_of
from nbdata.errors import NbdataError
from nbdata.stores.base import Location
from nbdata.transfer.index import Record
from nbdata.transfer.worker_pool import Unit

__all__ = ["LinkedMembers"]


class LinkedMembers:
    """The links of one archive.

    Parameters
    ----------
    archive : Unpacking
    place : Location
        The target.
    sent_members : SentMembers
    copies : LinkCopies
    expansion : Expansion
        Counts the copies.

    Attributes
    ----------
    being_copied : set of str
        Names of files whose copies may be under way.
    lead_nowhere : list of str
        Symbolic links to no file that was unpacked.
    """

    def __init__(
        self,
        archive: Unpacking,
        place: Location,
        sent_members: SentMembers,
        copies: LinkCopies,
        expansion: Expansion,
    ) -> None:
        self._archive, self._written, self._place = archive, archive.written, place
        self._sent_members, self._copies, self._expansion = sent_members, copies, expansion
        self._symbolic_links = SymbolicLinks(archive.written)
        self.being_copied: set[str] = set()
        self.lead_nowhere: list[str] = []

    def remember(self, member: Member) -> None:
        """Note a symbolic link."""
        self._symbolic_links.remember(member, self._archive.fingerprint())

    def replaced(self, name: str) -> None:
        """Note that another member takes the place of a symbolic link, if there was one."""
        self._symbolic_links.forget(name)

    def hard_link(self, member: Member, key: str) -> Iterator[Unit]:
        """Make an object for a hard link; the file that it names is sent already."""
        fingerprint = self._archive.fingerprint()
        yield from self._copy_of(member.name, key, member.offset, fingerprint, member.linkname)

    def symbolic_links(self) -> Iterator[Unit]:
        """Make an object for each symbolic link to a file that was sent, with the content of that file."""
        for link in self._symbolic_links.all():
            self._archive.control.checkpoint()
            first = None if link.leads_to is None else self._written.index.get(link.leads_to)
            if link.leads_to in self._sent_members.missing or (first is not None and self._is_sent(first)):
                assert link.leads_to is not None
                key, offset = key_at(self._place, link.name), link.offset + AT_THE_END
                yield from self._copy_of(link.name, key, offset, link.fingerprint, link.leads_to)
                continue
            reason = "a symbolic link to no file that was unpacked"
            self._archive.results.add(link.name, Outcome.LEFT_OUT, reason=reason)
            self.lead_nowhere.append(link.name)

    def _is_sent(self, record: Record) -> bool:
        """True if a record belongs to an object that this archive has made."""
        return self._written.is_ours(record) and record.local_size >= 0

    def _copy_of(self, name: str, key: str, offset: int, fingerprint: str, first_name: str) -> Iterator[Unit]:
        """Make an object with the content of another one, unless it is there already."""
        verdict = self._sent_members.verdict(name, key, offset, None)
        if verdict.action in ("skip", "conflict"):
            return
        first, record = self._written.index.get(first_name), self._written.index.get(name)
        later = offset < AT_THE_END and first is not None and offset_of(first) > offset
        usable = (
            first is not None
            and self._is_sent(first)
            and not later
            and first_name not in self._sent_members.missing
        )
        if verdict.action == "unchanged" and record is not None:
            same = first is not None and usable and Tag.of(record).crc == Tag.of(first).crc
            if same or offset < AT_THE_END:  # the content of a hard link cannot change
                self._sent_members.unchanged(name, record, record.size)
                return
        if first is None or not usable:
            self._no_copy(name, first_name)
            return
        tag = Tag.of(first)._replace(offset=offset, fingerprint=fingerprint)
        self._expansion.spend(first.size)
        item = SentMember(name, key, first.size, tag)
        self._sent_members.begin(item)
        self.being_copied.add(first_name)
        yield partial(self._send_copy, item, first, key_at(self._place, first_name))

    def _no_copy(self, name: str, first_name: str) -> None:
        """Fail a link: the file it leads to is not there as in this archive."""
        if self._sent_members.missing.get(first_name) is Outcome.SKIPPED:
            reason = f"{first_name}, to which it leads, exists, and --overwrite never"
            self._sent_members.tell(name, 0, Outcome.SKIPPED, reason=reason)
            return
        error = NbdataError(
            f"{first_name}, to which it leads, differs from the archive",
            path=name,
            remedy="Restore that file first, or run the command with --overwrite always",
        )
        self._sent_members.fail(name, error)

    def _send_copy(self, item: SentMember, first: Record, key: str) -> None:
        try:
            info, verified = self._copies.send(item.key, first, key)
        except Exception as error:
            self._sent_members.failed(item, error, held=0)
        else:
            self._sent_members.sent(item, info, verified, held=0, outcome=Outcome.LINK)
