"""push: files that are sent in parts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial

from nbdata.engine.planning.begun_uploads import BegunUploads
from nbdata.engine.push.listed_file import open_listed, still_same
from nbdata.engine.push.pushing import Pushing
from nbdata.errors import ChecksumMismatch
from nbdata.report import Row
from nbdata.stores.base import ObjectInfo, Upload
from nbdata.transfer.file_source import FileSource, blocks
from nbdata.transfer.part_records import PART
from nbdata.transfer.send import PartedSend, SentPart, hashed_parts, upload_part_size, withdrawn
from nbdata.verification.sent import MultipartJudge, SentHasher

__all__ = ["PartedFiles"]


class PartedFiles:
    """Those of one push."""

    def __init__(self, pushing: Pushing) -> None:
        self._pushing = pushing
        self._uploads = BegunUploads(pushing.run, pushing.op.target, keep=True)

    def close(self) -> None:
        """Leave what is unfinished to the next run, or give it up."""
        self._uploads.close()

    def has(self, row: Row) -> bool:
        """Whether a file is sent in parts."""
        return self._pushing.target.store.multipart and row.size > PART

    def units(self, row: Row) -> Iterator[Callable[[], None]]:
        """What there is to do for a file in parts."""
        pushing = self._pushing
        try:
            fd, before = open_listed(row)
        except Exception as error:
            pushing.outcome.fail(row.path, error)
            return
        store, key = pushing.target.store, row.detail["key"]

        def begin() -> Upload:
            pushing.announce(row, before)
            return self._uploads.begin(store, key, row.size)

        def done(info: ObjectInfo, verified: bool) -> None:
            del self._uploads.unfinished[row.path]
            os.close(fd)
            self._uploads.finished(key)
            pushing.outcome.present += sending.present
            pushing.sent(row, before, info, verified)

        def failed(error: Exception) -> None:
            del self._uploads.unfinished[row.path]
            os.close(fd)
            pushing.outcome.fail(row.path, error)

        control, hashers = pushing.run.control, partial(SentHasher, key, pushing.op.verify)
        sending = PartedSend(
            control,
            row.size,
            upload_part_size(row.size, pushing.op.part_size, store),
            hashed_parts(control, partial(FileSource, control, fd), hashers),
            begin=begin,
            abandon=partial(self._uploads.abandon, key),
            before=lambda _: still_same(fd, before, row.detail["file"]),
            whole=MultipartJudge(key, pushing.op.verify),
            done=done,
            failed=failed,
            there=partial(self._there, fd, row),
            withdraw=partial(withdrawn, control, store, key),
        )

        def give_up() -> None:
            sending.give_up()
            os.close(fd)

        self._uploads.unfinished[row.path] = give_up
        yield from sending.units()

    def _there(self, fd: int, row: Row, start: int, size: int, answer: str) -> SentPart | None:
        """The part that an earlier run sent, if its ETag is the MD5 of what is to be there."""
        hasher = SentHasher(row.detail["key"], "auto")
        for block in blocks(self._pushing.run.control, fd, start, size, row.detail["file"]):
            hasher.update(block)
        try:
            verified = hasher.verify(answer)
        except ChecksumMismatch:
            return None
        return SentPart(answer, hasher.hexdigest(), verified) if verified else None
