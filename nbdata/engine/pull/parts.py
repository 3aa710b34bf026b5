"""pull: objects that are fetched in parts, or from where an earlier run was broken off."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from nbdata.disk import disk_error
from nbdata.engine.pull.pulling import Pulling
from nbdata.errors import ChecksumMismatch, NbdataError
from nbdata.report import Row
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.fetch import BIG, PartedFetch
from nbdata.transfer.landing import Landed
from nbdata.transfer.part_records import part_size_for, validator
from nbdata.transfer.partials import Partial
from nbdata.transfer.reader import Check, RangesIgnored
from nbdata.transfer.retry import retrying

__all__ = ["PartedObjects"]


class PartedObjects:
    """Those of one pull.

    Parameters
    ----------
    pulling : Pulling
    whole : callable
        Fetches an object in one piece, whose store turns out to give no ranges.
    """

    def __init__(self, pulling: Pulling, whole: Callable[[Row, ObjectInfo], None]) -> None:
        self._pulling, self._whole = pulling, whole
        self._unfinished: dict[str, Partial] = {}  # those whose parts were begun

    def close(self) -> None:
        """Leave what is unfinished to the next run."""
        for parts in self._unfinished.values():
            parts.close()

    def has(self, row: Row, info: ObjectInfo) -> bool:
        """Whether an object goes by a partial: all that are big, and those of which an earlier run left something."""
        store = self._pulling.store
        # Of versions that nothing tells apart the parts may not fit together.
        big = store.ranges and info.size >= BIG and part_size_for(info.size) < info.size
        return (big and bool(validator(info))) or "present" in row.detail

    def take(self, row: Row, info: ObjectInfo) -> None:
        """Find out what there is to do for an object in parts, and bring it to the crew."""
        pulling = self._pulling
        try:
            final, staging = pulling.landing.target.prepare(row.path)
            told = info
            if pulling.op.verify != "none":  # listings tell neither checksums nor whether the ETag is an MD5
                told = retrying(pulling.run.control, lambda: pulling.store.head(info.key))
            judge = pulling.judge(told) if pulling.promised is None else None
            parts = Partial(
                staging,
                row.path,
                pulling.op.source,
                info,
                pulling.landing.target.file_mode,
                layout=judge.layout if judge is not None else None,
                ours=pulling.landing.target.check,
                marked=partial(pulling.part_landed, row.path),
            )
            pulling.landing.target.sync_folders()
        except NbdataError as error:
            pulling.outcome.fail(row.path, error)
            return
        if parts.restarted:
            pulling.anew(row.path)

        def done(verified: bool) -> None:
            try:
                os.fchmod(parts.fd, pulling.landing.target.file_mode)
                os.fdatasync(parts.fd)
            except OSError as error:
                failed(disk_error(error, final))
                return
            inode = os.fstat(parts.fd).st_ino
            self._unfinished.pop(row.path).close()
            pulling.verified[row.path] = verified
            pulling.present[row.path] = fetch.present
            pulling.landing.land(
                Landed(row.path, parts.data, final, info.size, synced=True, tag=validator(info), inode=inode)
            )

        def failed(error: Exception) -> None:
            del self._unfinished[row.path]
            if isinstance(error, RangesIgnored):
                parts.discard()
                pulling.run.control.advance(present=-fetch.present)
                row.detail.pop("present", None)
                pulling.part_landed(row.path, pulling.claimed[row.path] - row.detail["needed"])
                self._whole(row, info)
                return
            parts.close()
            if isinstance(error, ChecksumMismatch):
                parts.discard()
            pulling.outcome.fail(row.path, error)

        def check(_: ObjectInfo) -> Check:
            return pulling.check(told) if judge is None else judge.check(parts.part_size)

        fetch = PartedFetch(pulling.run.control, pulling.store, info, parts, check, done=done, failed=failed)
        self._unfinished[row.path] = parts
        pulling.claimed[row.path] = row.detail["needed"]
        pulling.crew.bring(fetch.units())
