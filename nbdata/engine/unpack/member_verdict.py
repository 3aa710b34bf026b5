"""Whether a file of an archive is to be sent, given the object at its target: a pure function."""

from __future__ import annotations

from typing import NamedTuple

from nbdata.archives.member import Member
from nbdata.engine.unpack.written import Written, is_version
from nbdata.integrity.etags import parse_etag
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.send import answer_of

__all__ = ["Verdict", "verdict_of"]


class Verdict(NamedTuple):
    """What is to be done with a member.

    Attributes
    ----------
    action : str
        ``write``; ``unchanged``, if its content is as recorded; ``skip``, since it exists; ``conflict``, since both
        were changed; or ``older``, since a later member of the same name is there.
    compare : bool
        Whether the object may be the same nevertheless: its size is, and its MD5 would prove it.
    """

    action: str
    compare: bool = False


def verdict_of(written: Written, member: Member, there: ObjectInfo | None, *, overwrite: str) -> Verdict:
    """Decide for one member, given the object that has its key (None: there is none)."""
    record = written.index.get(member.name)
    if there is None or overwrite == "always":
        return Verdict("write")
    ours = record is not None and written.is_ours(record)
    same = record is not None and is_version(record, there)
    if record is not None and ours and same:
        if written.is_older(record, member):
            return Verdict("older")
        if written.is_of(record, member) and not written.is_doubtful(record):
            return Verdict("unchanged")
    if overwrite == "never":
        return Verdict("skip")
    comparable = member.kind == "file" and there.size == member.size
    compare = comparable and parse_etag(answer_of(there)).kind == "md5"
    changed = record is not None and not ours and not same
    return Verdict("conflict" if changed else "write", compare)
