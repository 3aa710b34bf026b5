"""Decide whether to send a file of an archive, given the object at its target: a pure function."""

from __future__ import annotations

from typing import NamedTuple

from nbdata.engine.unpack.written import Written, is_version
from nbdata.integrity.etags import parse_etag
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.send import answer_of

__all__ = ["Verdict", "verdict_of"]


class Verdict(NamedTuple):
    """The action to take for a member.

    Attributes
    ----------
    action : str
        ``write``; ``unchanged``, if its content is as recorded; ``skip``, since it exists; or ``conflict``, since both
        were changed.
    compare : bool
        Whether the object may still be the same: its size matches, and its MD5 could prove it.
    """

    action: str
    compare: bool = False


def verdict_of(
    written: Written, name: str, offset: int, there: ObjectInfo | None, *, overwrite: str, size: int | None
) -> Verdict:
    """Decide for one member, given the object under its key.

    If a name comes twice, the earlier member is written too, as hard links to it may follow.

    Parameters
    ----------
    name : str
    offset : int
        Offset of its header.
    there : ObjectInfo or None
        The object; None if there is none, or this run has replaced it.
    overwrite : str
        The command's option.
    size : int or None
        Bytes of a file whose content can be compared; None for a link.
    """
    record = written.index.get(name)
    if there is None or overwrite == "always":
        return Verdict("write")
    ours = record is not None and written.is_ours(record)
    same = record is not None and is_version(record, there)
    if record is not None and same and written.is_of(record, offset) and not written.is_doubtful(record):
        return Verdict("unchanged")
    wrong = record is not None and same and written.is_doubtful(record)  # written from a damaged volume
    if overwrite == "never" and not wrong:
        return Verdict("skip")
    compare = there.size == size and parse_etag(answer_of(there)).kind == "md5"
    changed = record is not None and not ours and not same
    return Verdict("conflict" if changed else "write", compare)
