"""Whether a file of an archive is to be sent, given the object at its target: a pure function."""

from __future__ import annotations

from typing import NamedTuple

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
        ``write``; ``unchanged``, if its content is as recorded; ``skip``, since it exists; or ``conflict``, since both
        were changed.
    compare : bool
        Whether the object may be the same nevertheless: its size is, and its MD5 would prove it.
    """

    action: str
    compare: bool = False


def verdict_of(
    written: Written, name: str, offset: int, there: ObjectInfo | None, *, overwrite: str, size: int | None
) -> Verdict:
    """Decide for one member, given the object that has its key.

    An earlier member of a name that comes twice is written, too, as hard links to it may come behind it.

    Parameters
    ----------
    name : str
    offset : int
        Of its header.
    there : ObjectInfo or None
        None: there is none, or this run has replaced it.
    overwrite : str
        The option.
    size : int or None
        Bytes of a file whose content could be compared; None of a link.
    """
    record = written.index.get(name)
    if there is None or overwrite == "always":
        return Verdict("write")
    ours = record is not None and written.is_ours(record)
    same = record is not None and is_version(record, there)
    if record is not None and same and written.is_of(record, offset) and not written.is_doubtful(record):
        return Verdict("unchanged")
    if overwrite == "never":
        return Verdict("skip")
    compare = there.size == size and parse_etag(answer_of(there)).kind == "md5"
    changed = record is not None and not ours and not same
    return Verdict("conflict" if changed else "write", compare)
