"""One archive on its way into a target: its members, their records, its results, and the checkpoints on the way."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nbdata.archives.member import Member
from nbdata.archives.place import Place, Restart
from nbdata.engine.job.outcomes import BAD, Outcome
from nbdata.engine.job.results import Results
from nbdata.engine.unpack.stream.member_stream import MemberStream
from nbdata.engine.unpack.targets.checkpoints import Checkpoint, Earlier, before
from nbdata.engine.unpack.volumes.deletion import Deletion
from nbdata.engine.unpack.volumes.finding import VolumeList
from nbdata.engine.unpack.written import Written, sum_of
from nbdata.errors import NbdataError
from nbdata.transfer.control import Control
from nbdata.verbs.untar_volumes import UntarVolumes

__all__ = ["Checkpoints", "Unpacking"]

# Bytes of the volumes between two checkpoints.
EVERY = 64 << 20
# A checkpoint waits for the disk: checkpoints take at most one second in this many.
_SHARE = 20


@dataclass
class Unpacking:
    """One archive while its members are put into a target.

    Attributes
    ----------
    control : Control
    volumes : VolumeList
    stream : MemberStream
        The members, from the checkpoint on; see `opened`.
    written : Written
        The records of what this archive has written there before.
    results : Results
    op : UntarVolumes
    checkpoint : Checkpoint or None
        Where to resume; None to begin at the start.
    earlier : Earlier or None
        The state of the members before the checkpoint.
    deletion : Deletion or None
        Deletes volumes on the way; None if none is deleted before the end.
    reserved : int
        Bytes on the disk that the run has reserved so far.
    behind : int
        Offset of the last checkpoint; 0 if there is none.
    """

    control: Control
    volumes: VolumeList
    stream: MemberStream
    written: Written
    results: Results
    op: UntarVolumes
    checkpoint: Checkpoint | None
    earlier: Earlier | None
    deletion: Deletion | None
    reserved: int
    behind: int = 0

    def __post_init__(self) -> None:
        if self.checkpoint is not None:
            self.behind = self.checkpoint.place.offset

    @property
    def cannot_reread(self) -> bool:
        """True if volumes may be gone, so members before the last checkpoint cannot be read again."""
        return self.deletion is not None or bool(self.volumes.recorded)

    def fingerprint(self) -> str:
        """The fingerprint of the volumes that were read so far."""
        return self.written.fingerprints[self.stream.volume()]

    def tag(self, member: Member, crc: int = 0) -> str:
        """The tag of the record of a member that was read to its end."""
        return self.written.tag(member, self.stream.volume(), crc)

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Open the stream, in the place where reading begins; the index must be open.

        Members before a checkpoint are counted. Without a checkpoint, records for resuming are deleted.
        """
        if self.checkpoint is None or self.earlier is None:
            self.written.start_again()
        else:
            self._resume(self.checkpoint, self.earlier)
        with self.stream:
            yield

    def _resume(self, checkpoint: Checkpoint, earlier: Earlier) -> None:
        """Count the members before the checkpoint, and report those that are lost with deleted volumes."""
        self.written.index.put(earlier.refreshed)
        there = [(path, size) for _, path, _, _, size in earlier.members if size >= 0]
        for path, size in there:
            self.results.add(path, Outcome.UNCHANGED, size)
        for path, size in earlier.gone:
            self.results.add(path, Outcome.MOVED_AWAY, size)
        self.control.advance(files=len(there) + len(earlier.gone), present=checkpoint.restart.compressed)
        for path in earlier.lost or [""] * (not earlier.whole):
            what = "changed or removed" if path else "the record of some unpacked files was lost"
            error = NbdataError(
                f"{what} since it was unpacked, and its volumes were deleted after that",
                remedy="Put these volumes back, and run the command again",
            )
            self.results.fail(path, error)
        if self.deletion is not None and not self.stream.remarks.left_out:
            self.deletion.up_to(checkpoint.restart.compressed)


class Checkpoints:
    """Makes checkpoints while an archive is unpacked, and has volumes deleted that are no longer needed.

    Parameters
    ----------
    archive : Unpacking
        Its stream is open.
    settle : callable, optional
        Makes every member taken so far durable under its final name, and records it; None if the caller of `make` has
        done so.
    """

    def __init__(self, archive: Unpacking, settle: Callable[[], None] | None = None) -> None:
        self._archive, self._stream, self._settle = archive, archive.stream, settle
        self._last, self._at = self._stream.began, self._stream.place.offset
        self._not_before = 0.0
        # Volumes may be deleted up to `_behind`, before which all is proven; `_next` is the candidate to follow it.
        self._behind = self._stream.place.copy()
        self._next = self._behind
        self._due = self._behind, self._last

    def is_due(self, place: Place | None = None) -> bool:
        """True if it is time for a checkpoint and there is a place for it; then call `make`.

        The place is `place` if given, else the one behind the last member taken.
        """
        stream = self._stream
        if place is None:
            place = stream.place if self._archive.deletion is None else self._proven(stream.place)
        if place.offset - self._at < EVERY or place.offset > stream.verified:
            return False
        restart = stream.restart(place.offset)
        self._due = place.copy(), restart
        return restart.compressed - self._last.compressed >= EVERY and time.monotonic() >= self._not_before

    def make(self) -> None:
        """Make the checkpoint that is due."""
        self._make(*self._due)

    def _proven(self, place: Place) -> Place:
        """The last known place before which everything is proven: volumes may be deleted only up to there."""
        self._look_at_next()
        self._next = place.copy()
        self._look_at_next()
        return self._behind

    def _look_at_next(self) -> None:
        if self._next.offset <= self._stream.proven:
            self._behind = self._next

    def make_room(self) -> bool:
        """Delete volumes that are not needed behind the last member; return whether any was deleted."""
        self._look_at_next()
        deletion = self._archive.deletion
        if deletion is None or self._behind.offset > self._stream.verified:
            return False
        deleted = deletion.count
        restart = self._stream.restart(self._behind.offset)
        if restart.compressed > self._last.compressed:
            self._make(self._behind, restart)
        return deletion.count > deleted

    def _make(self, place: Place, restart: Restart) -> None:
        archive, written, stream = self._archive, self._archive.written, self._stream
        began = time.monotonic()
        self._last, self._at = restart, place.offset
        if self._settle is not None:
            self._settle()
        if any(archive.results.counts.get(name) for name in (*BAD, Outcome.SKIPPED)):
            self._not_before = math.inf  # something before this place is missing
            return
        digest = sum_of((path, record.tag) for path, record, _ in before(written, place.offset))
        left_out = stream.remarks.left_out
        Checkpoint(
            place, restart, stream.format, archive.fingerprint(), archive.op.overwrite, list(left_out), digest
        ).record(written)
        archive.behind = place.offset
        if archive.deletion is not None and not left_out:
            archive.deletion.up_to(restart.compressed)
        now = time.monotonic()
        self._not_before = now + (now - began) * (_SHARE - 1)
