"""Record and report the members of an archive that cannot be in a sample of a shard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from nbdata.archives.member import Member
from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.results import Results
from nbdata.engine.unpack.written import Written, own_data, own_record
from nbdata.formats.samples import is_hidden
from nbdata.formats.shards import is_meta, split_member
from nbdata.sizes import counted

__all__ = ["MemberLeftOut", "MembersLeftOut", "why_in_no_sample"]

# Field names that readers of samples reserve.
_RESERVED = ("__key__", "__url__")
# Number of names in a note.
_NAMED = 3


def why_in_no_sample(member: Member) -> str:
    """The reason why a member that is not a folder cannot be in a sample; empty if it can.

    The rule is WebDataset's (see `nbdata.formats.shards`), which reads only regular files, except that hidden files get
    into no new shard.
    """
    if member.kind == "hardlink":
        return "a hard link"
    if member.kind == "symlink":
        return "a symbolic link"
    try:
        member.name.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    if is_hidden(member.name):
        return "a hidden file"
    key_and_field = split_member(member.name)
    if is_meta(member.name) or (key_and_field is not None and key_and_field[1] in _RESERVED):
        return "a name that WebDataset reserves"
    return "" if key_and_field is not None else "no key or no extension in its name"


class MemberLeftOut(NamedTuple):
    """A member that was left out.

    Attributes
    ----------
    name : str
    offset : int
        Offset of its header in the archive.
    why : str
    linkname : str
        The target of a symbolic link.
    """

    name: str
    offset: int
    why: str
    linkname: str


class MembersLeftOut:
    """Remembers the members in the index, so a resumed command also reports those of the runs before it."""

    def __init__(self, written: Written) -> None:
        self._written = written
        self._prefix = f"{written.own('left')}/"

    def remember(self, member: Member, why: str) -> None:
        """Record a member."""
        linkname = member.linkname if member.kind == "symlink" else ""
        data = [member.offset, why, linkname]
        self._written.index.put({f"{self._prefix}{member.name}\0{member.offset}": own_record(data)})

    def all(self) -> Iterator[MemberLeftOut]:
        """The remembered members, in no order."""
        for path, record in self._written.index.records():
            if path.startswith(self._prefix):
                data: Any = own_data(record)
                name = path.removeprefix(self._prefix).rpartition("\0")[0]
                yield MemberLeftOut(name, *data)

    def tell(self, results: Results) -> None:
        """List them in the report, and count each kind in its notes."""
        counts, names = dict[str, int](), dict[str, list[str]]()
        for left in self.all():
            results.add(left.name, Outcome.LEFT_OUT, reason=left.why)
            counts[left.why] = counts.get(left.why, 0) + 1
            shown = names.setdefault(left.why, [])
            if len(shown) < _NAMED:
                shown.append(left.name)
        for why, count in sorted(counts.items()):
            left_out = counted(count, "members", "are")
            more = " …" if count > _NAMED else ""
            results.notes.append(f"{left_out} in no sample ({why}): {', '.join(names[why])}{more}")
