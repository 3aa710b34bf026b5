"""Decides whether to move an object; a pure function of the source, the target and the record."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from nbdata.disk import special_kind
from nbdata.integrity.etags import parse_etag
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.index import Record
from nbdata.transfer.part_records import validator

__all__ = ["Decision", "copied", "decide_copy", "decide_pull", "decide_push"]


class Decision(NamedTuple):
    """An action of the plan and, where needed, its reason.

    Actions that move: ``fetch``, ``send`` or ``copy`` (new), ``overwrite``, ``compare`` (hashed during performing, and
    moved if it differs). Others: ``unchanged``, ``moved away``, ``skip``, ``conflict``.

    A *guarded* comparison ends as ``unchanged`` or, if the bytes differ, as ``conflict``: it moves nothing.
    """

    action: str
    reason: str = ""
    guarded: bool = False


def _by_options(overwrite: str, size_only: bool, *, same_size: bool) -> Decision | None:
    """Decide by the options alone for an object that exists at the target; None if they leave it open."""
    if overwrite == "always":
        return Decision("overwrite")
    if overwrite == "never":
        return Decision("skip", "exists, and --overwrite never")
    if size_only:
        return Decision("unchanged" if same_size else "overwrite")
    return None


def _compared(info: ObjectInfo, size: int) -> str:
    """Decide for a file of this size if only its bytes can show whether it is the object."""
    comparable = parse_etag(info.etag).kind in ("md5", "multipart") or info.checksums
    return "compare" if comparable and info.size == size else "overwrite"


def _conflict(info: ObjectInfo, size: int, reason: str) -> Decision:
    """A conflict, unless both sides turn out to have the same bytes, as after a kill between a move and its record."""
    if _compared(info, size) == "compare":
        return Decision("compare", reason, guarded=True)
    return Decision("conflict", reason)


def decide_pull(
    info: ObjectInfo,
    local: os.stat_result | None,
    record: Record | None,
    *,
    overwrite: str,
    size_only: bool,
    pushed: Record | None = None,
    skip_written: bool = False,
) -> Decision:
    """Decide what to do with one object of the source, given the local file (None: there is none).

    *Unchanged* needs a record: the listing's validator as recorded **and** the local stat as recorded. Without a
    record, the bytes are compared if the store has a checksum, and moved if not. `pushed` is the record of a push of
    the same folder to the same place: what was pushed is as well known as what was pulled. With `skip_written`, an
    object of the same version that was written here before may be gone by now.
    """
    if local is None:
        whole = record is not None and record.ours and record.local_size >= 0  # not only announced
        if skip_written and whole and record is not None and record.tag and record.tag == validator(info):
            return Decision("moved away")
        return Decision("fetch")
    if not stat.S_ISREG(local.st_mode):
        if stat.S_ISDIR(local.st_mode):
            return Decision("conflict", "a folder with this name exists")
        if kind := special_kind(local.st_mode):
            return Decision("conflict", f"a {kind} with this name exists")
        # A link, which anybody may lead elsewhere later: it is replaced, whatever it leads to now.
        return _by_options(overwrite, size_only, same_size=False) or Decision(
            "overwrite", "a link has this name"
        )
    if decided := _by_options(overwrite, size_only, same_size=local.st_size == info.size):
        return decided
    if pushed is not None and not pushed.tag:  # its push was interrupted, or the store tells no versions
        pushed = None
    known = [one for one in (record, pushed) if one is not None]
    if not known:
        return Decision(_compared(info, local.st_size))
    if any(one.local_same(local) and _is_version(one, info) for one in known):
        return Decision("unchanged")
    if any(one.local_same(local) for one in known):
        return Decision("overwrite")
    if any(_is_version(one, info) for one in known):
        return Decision(_compared(info, local.st_size), "the local file was changed or touched")
    since = "pulled" if record is not None else "pushed"
    reason = f"changed on both sides since it was {since}; --overwrite always replaces it"
    return _conflict(info, local.st_size, reason)


def _is_version(record: Record, info: ObjectInfo) -> bool:
    """Whether the object is the version that was recorded."""
    return bool(record.tag) and record.tag == validator(info)


def _is_announced(record: Record) -> bool:
    """Whether the record only says that the file is being replaced, so that it may be either version."""
    return record.local_size < 0


def decide_push(
    local: os.stat_result,
    remote: ObjectInfo | None,
    record: Record | None,
    *,
    overwrite: str,
    size_only: bool,
    pulled: Record | None = None,
    prove: bool = False,
) -> Decision:
    """Decide what to do with one local file, given the object at its target (None: there is none).

    `pulled` is the record of a pull of the same place into the same folder. A file that was pulled may replace only the
    version that it was made from: if another version is there now, somebody else's change would be lost. With `prove`,
    a file that the record calls unchanged is still compared if the store has a checksum, because the file will be
    deleted.
    """
    if remote is None:
        return Decision("send")
    if decided := _by_options(overwrite, size_only, same_size=local.st_size == remote.size):
        return decided
    interrupted = pulled is not None and _is_announced(pulled)
    if pulled is not None and (interrupted or not pulled.tag):
        pulled = None
    known = [one for one in (record, pulled) if one is not None]
    if not known and not interrupted:
        return Decision(_compared(remote, local.st_size))
    if any(one.local_same(local) and _is_version(one, remote) for one in known):
        proven = prove and _compared(remote, local.st_size) == "compare"
        return Decision("compare", "it is to be deleted") if proven else Decision("unchanged")
    if any(_is_version(one, remote) for one in known):
        return Decision("overwrite")
    if record is not None and record.local_same(local) and not record.tag:
        # Its push was interrupted, or the store tells no versions.
        return Decision(_compared(remote, local.st_size), "the object in the store was changed")
    if interrupted:
        reason = "a pull of it was interrupted; run that again, or use --overwrite always"
        return _conflict(remote, local.st_size, reason)
    since = "pushed" if pulled is None else "pulled"
    if any(one.local_same(local) for one in known):
        reason = (
            f"changed in the store since it was {since}; pull it first, or replace it with --overwrite always"
        )
    else:
        reason = f"changed on both sides since it was {since}; --overwrite always replaces the object"
    return _conflict(remote, local.st_size, reason)


def copied(source: ObjectInfo, target: ObjectInfo) -> Record:
    """Return the record of an object that was copied between stores: both validators, and no local file."""
    return Record(f"{validator(source)}\n{validator(target)}", source.size, -1, 0, 0)


def decide_copy(
    info: ObjectInfo,
    there: ObjectInfo | None,
    record: Record | None,
    *,
    overwrite: str,
    size_only: bool,
) -> Decision:
    """Decide what to do with one object of the source, given the object at its target (None: there is none).

    Without a record, equal ETags that are digests prove that the objects are equal. A record without a tag says that a
    run was replacing the object when it was killed: the object may be of that run.
    """
    if there is None:
        return Decision("copy")
    if decided := _by_options(overwrite, size_only, same_size=there.size == info.size):
        return decided
    ours, theirs = parse_etag(info.etag), parse_etag(there.etag)
    if info.size == there.size and ours == theirs and ours.kind in ("md5", "multipart"):
        return Decision("unchanged")
    if record is None or not record.tag:
        return Decision("overwrite")
    source_tag, _, target_tag = record.tag.partition("\n")
    same_source = bool(source_tag) and source_tag == validator(info)
    same_target = bool(target_tag) and target_tag == validator(there)
    if same_source and same_target:
        return Decision("unchanged")
    if same_source:
        return Decision("overwrite", "the object at the target was changed")
    if same_target:
        return Decision("overwrite")
    return Decision("conflict", "changed on both sides since it was copied; --overwrite always replaces it")
