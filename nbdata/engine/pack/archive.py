"""pack into one archive: plan and perform.

The archive is one stream made from a listing, cut into frames (`frames`), which are appended to growing volumes
(`volumes`). What a volume stands for is recorded when it has its name: the range of the stream, and a digest of the
names, sizes, times and versions in it. The same line keeps each volume whose record still fits where the stream has
come to, and makes the others.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.engine.pack.frames import AHEAD, Frame, TarFrames, in_turn
from nbdata.engine.pack.members import Members, find_members
from nbdata.engine.pack.tar_stream import TarStream
from nbdata.engine.pack.volumes import (
    Kept,
    Volume,
    VolumeWriter,
    record_of,
    recorded,
    refuse_target,
    standing,
)
from nbdata.engine.pack.windows import Fetching, Proof
from nbdata.engine.planning.both_ends import both_ends
from nbdata.errors import BadOption
from nbdata.formats.frames import FRAME, LEAST_FRAME
from nbdata.reading.fetcher import WIDTH
from nbdata.report import Plan, Report, Row
from nbdata.space.limits import disk_of, round_up
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.index import Index
from nbdata.verbs.archive_names import SIDECAR
from nbdata.verbs.pack import Pack

__all__ = ["perform", "plan"]

# No local folder belongs to the records of a pack.
_NOWHERE = (0, 0)
# Volumes that are being finished at a time, while the next one grows.
_FINISHING = 2
# What is said of how volumes were made; another number makes all anew.
_WAY = 1


class _Kept(NamedTuple):
    """What the plan has found out."""

    members: Members
    stream: TarStream
    there: dict[str, ObjectInfo]


def plan(run: Run) -> Plan:
    """Decide which volumes are there and right, and how many more there will be; reads the listings of both ends."""
    op = run.operation
    assert isinstance(op, Pack)
    at_source, at_target = both_ends(run)
    folder = at_target.open(op.archive_names.folder)
    members = find_members(at_source, op, folder, os.path.join(run.folder, "members.jsonl"))
    stream = TarStream(members)
    refuse_target(op, folder, min(op.volume_size or stream.size, stream.size))
    there = standing(at_target, op, folder)
    run.kept = _Kept(members, stream, there)
    volumes = _Volumes(op, stream, there, run.index(*op.places(), _NOWHERE))
    out, rows = Plan("pack", *op.places()), run.row_file("plan")
    block = disk_of(op.archive_names.folder)[2] if op.local_target() else 0
    at = number = 0
    while at < stream.size:
        name = volumes.name(number)
        size = min(stream.size - at, op.volume_size or stream.size)
        kept = volumes.kept(number, at)
        if kept is not None:
            rows.add(Row(name, "unchanged", there[name].size, {}))
            out.count("unchanged", there[name].size)
            size = kept.end - at
        else:
            action = "overwrite" if name in there else "pack"
            rows.add(Row(name, action, size, {}))
            out.count(action, size)
            out.files += 1
            out.bytes += size
            if block:
                out.needed += round_up(size, block)
                out.inodes += 1
        at += size
        number += 1
    if op.overwrite == "never" and out.files and there:
        raise BadOption(
            f"{min(there)} is there, and --overwrite never", path=op.target, remedy="Choose another name"
        )
    _refuse_others(op, volumes, there)
    if op.archive != "tar" and out.needed:  # how much it packs tighter shows when it is done
        out.needed, out.at_least = min(out.needed, round_up(AHEAD * FRAME, block)), True
    rows.close()
    out.rows = rows.rows()
    out.details = {"members": len(members), "stream": stream.size}
    most = "" if op.archive == "tar" else "at most "
    out.notes.append(f"{len(members):,} members in {most}{number:,} volume{'s' * (number != 1)}")
    out.notes += members.left_out
    return out


def _refuse_others(op: Pack, volumes: _Volumes, there: dict[str, ObjectInfo]) -> None:
    """BadOption for volumes of somebody else's with numbers that this archive will surely not have."""
    others = [name for name in there if volumes.is_behind(name) and not volumes.is_ours(name)]
    if others:
        raise BadOption(
            f"{len(others):,} volumes with higher numbers are there, such as {min(others)}: who joins them all would "
            "get what does not belong to the archive",
            path=op.target,
            remedy="Delete them, or choose another name",
        )


class _Volumes:
    """The volumes as names, and as what is recorded of them."""

    def __init__(self, op: Pack, stream: TarStream, there: dict[str, ObjectInfo], index: Index) -> None:
        self._op, self._stream, self._there, self._index = op, stream, there, index
        self._names = op.archive_names
        self._how = f"{op.archive} {op.volume_size or 0} {_WAY}"
        self.most = _most_volumes(op, stream.size)

    def name(self, number: int) -> str:
        """The name of a volume, by its number from 0."""
        return self._names.volume(number, self.most)

    def is_behind(self, name: str) -> bool:
        """Whether it is a volume with a number that is never reached."""
        number = self._names.number(name)
        return number is not None and number >= self.most

    def is_ours(self, name: str) -> bool:
        """Whether it is there as this line has made it."""
        return recorded(self._index.get(name), self._there.get(name)) is not None

    def digest(self, start: int, end: int) -> str:
        """What tells a volume from another one of the same range."""
        return hashlib.blake2b(
            f"{self._how}\0{self._stream.digest(start, end)}".encode(), digest_size=16
        ).hexdigest()

    def kept(self, number: int, at: int) -> Kept | None:
        """What is recorded of a volume that is there, and still right if it begins at this offset; else None."""
        name, op = self.name(number), self._op
        found = recorded(self._index.get(name), self._there.get(name))
        if found is None or op.overwrite == "always" or found.start != at or found.end > self._stream.size:
            return None
        if (op.md5 and not found.md5) or (not self._names.numbered and found.end != self._stream.size):
            return None
        return found if found.digest == self.digest(found.start, found.end) else None


def _most_volumes(op: Pack, size: int) -> int:
    """How many volumes there are at most."""
    if op.volume_size is None:
        return 1
    if op.archive == "tar":
        return -(-size // op.volume_size)
    # What cannot be compressed gets a little longer, and up to a frame of each volume stays empty.
    return -(-(size + size // 500) // (op.volume_size * 7 // 8 - LEAST_FRAME // 2)) + 1


class _Written(NamedTuple):
    """A volume whose bytes are all written, and that has no name yet.

    Attributes
    ----------
    proven : int
        The offset of the stream behind which all is proven that is in it.
    """

    volume: Volume
    kept: Kept
    proven: int


def perform(run: Run, planned: Plan) -> Report:
    """Do what the plan says."""
    return _Archiving(run, planned).run_all()


class _Archiving:
    """One archive while it is made."""

    def __init__(self, run: Run, planned: Plan) -> None:
        assert isinstance(run.operation, Pack)
        assert isinstance(run.kept, _Kept)
        self._run, self._op, self._plan, self._control = run, run.operation, planned, run.control
        members, self._stream, self._there = run.kept
        self._results = Results(run)
        self._results.notes.extend(planned.notes[1:])
        self._index = run.index(*self._op.places(), _NOWHERE)
        self._volumes = _Volumes(self._op, self._stream, self._there, self._index)
        _, at_target = both_ends(run)
        size = min(self._stream.size, self._op.volume_size or self._stream.size)
        self._writer = VolumeWriter(
            at_target, self._op, at_target.open(self._op.archive_names.folder), size, planned.needed
        )
        self._fetching = Fetching(
            run.control, [members.store], verify=self._op.verify, width=self._op.concurrency or WIDTH
        )
        assert self._op.archive is not None
        self._frames = TarFrames(
            self._stream, self._op.archive, self._op.volume_size, self._fetching, self._op.verify
        )
        self._proof = Proof(run.control, self._op.verify)
        self._written: deque[_Written] = deque()
        self._finishing: deque[Future[None]] = deque()
        self._pool = ThreadPoolExecutor(min(self._op.concurrency or AHEAD, AHEAD), "nbdata-frames")
        self._finisher = ThreadPoolExecutor(1, "nbdata-volume")

    def run_all(self) -> Report:
        self._index.open(_NOWHERE, needed=False)
        at = number = 0
        try:
            self._writer.prepare([self._volumes.name(number) for number in range(self._volumes.most)])
            while at < self._stream.size:
                kept = self._volumes.kept(number, at)
                if kept is None:
                    at, number = self._make(at, number)
                else:
                    self._keep(number, kept)
                    at, number = kept.end, number + 1
            self._remove_others(number)
        except Exception as error:
            self._results.fail(self._volumes.name(number), error)
        finally:
            self._finisher.shutdown(wait=not self._control.is_set(), cancel_futures=True)
            self._fetching.close()
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._writer.close()
            self._index.close()
        unverified = self._proof.unverified + self._fetching.unverified
        if unverified and self._op.verify != "none":
            self._results.notes.append(f"{unverified:,} objects had no checksum in the store to compare with")
        self._results.notes += filter(None, [self._index.problem])
        return self._results.report(**self._plan.details)

    def _keep(self, number: int, kept: Kept) -> None:
        """Leave a volume as it is."""
        name = self._volumes.name(number)
        if self._op.md5:
            self._writer.write_sidecar(name, kept.md5, self._there.get(name + SIDECAR))
        self._results.add(name, Outcome.UNCHANGED, self._there[name].size, **_told(kept.md5))

    def _make(self, at: int, number: int) -> tuple[int, int]:
        """Make volumes from an offset on, until the next one is there already; where that is, and its number."""
        limit, growing, over = self._op.volume_size, None, False
        with contextlib.closing(self._coming(at)) as coming:
            for frame in coming:
                self._control.checkpoint()
                self._proof.take(frame.large)
                if growing is not None and limit is not None and growing.volume.size + frame.size > limit:
                    self._end(growing, frame.start)
                    growing, at, number = None, frame.start, number + 1
                    over = self._volumes.kept(number, at) is not None
                if frame.start >= at and not over:
                    if growing is None:
                        volume = self._writer.begin(self._volumes.name(number))
                        growing = _Growing(volume, frame.start, hash_it=self._op.md5)
                    growing.write(frame)
                    self._control.advance(bytes=frame.end - frame.start)
                    if frame.end == self._stream.size:
                        self._end(growing, frame.end)
                        growing, at, number, over = None, frame.end, number + 1, True
                self._finish_proven(frame.end)
                if over and not self._written:  # else it is read on, for their proof alone
                    break
        self._settle(0)
        return at, number

    def _coming(self, at: int) -> Generator[Frame, None, None]:
        """The frames from an offset on; before it those of a large member that reaches over it, to prove that."""
        around = self._stream.large_around(at) if self._op.verify != "none" else None
        return in_turn(
            self._frames.ranges(at if around is None else around[0]), self._frames.make, self._pool
        )

    def _end(self, growing: _Growing, end: int) -> None:
        """All bytes of a volume are written: it has its name once all objects in it are proven."""
        around = self._stream.large_around(end) if self._op.verify != "none" else None
        if around is not None:
            growing.volume.end()
        start = growing.start
        kept = Kept(start, end, growing.md5, self._volumes.digest(start, end))
        self._written.append(_Written(growing.volume, kept, end if around is None else around[1]))

    def _finish_proven(self, proven: int) -> None:
        """Have those volumes finished in which all is proven, beside the work on the next one."""
        while self._written and self._written[0].proven <= proven:
            self._settle(_FINISHING - 1)
            self._finishing.append(self._finisher.submit(self._finish, self._written.popleft()))

    def _settle(self, most: int) -> None:
        """Wait until so many volumes at most are being finished; raises what went wrong."""
        while len(self._finishing) > most or (self._finishing and self._finishing[0].done()):
            self._finishing.popleft().result()

    def _finish(self, written: _Written) -> None:
        """Give a volume its name, and then say what it is: first in the records, then beside it."""
        volume, kept, _ = written
        sidecar = self._there.get(volume.name + SIDECAR)
        if sidecar is not None:  # it is that of another volume
            self._writer.delete([volume.name + SIDECAR])
        made = self._writer.finish(volume)
        self._index.put({volume.name: record_of(kept, made, volume.size)})
        if kept.md5:
            self._writer.write_sidecar(volume.name, kept.md5, None)
        self._results.add(
            volume.name, Outcome.PACKED, volume.size, moved=True, verified=volume.verified, **_told(kept.md5)
        )
        self._control.advance(files=1)

    def _remove_others(self, count: int) -> None:
        """Remove the volumes of an earlier, larger archive of this line; somebody else's are told."""
        mine = {self._volumes.name(number) for number in range(count)}
        for name in sorted(self._there):
            volume = name.removesuffix(SIDECAR)
            if volume in mine or (name != volume and volume not in self._there):
                continue
            if self._volumes.is_ours(volume):
                self._writer.delete([name])
                if name == volume:
                    self._results.add(name, Outcome.REMOVED, self._there[name].size)
            elif name == volume:
                self._results.add(
                    name, Outcome.CONFLICT, self._there[name].size,
                    reason="a volume behind the last one, which this line has not made: delete it",
                )  # fmt: skip
                self._control.advance(failures=1)


class _Growing:
    """A volume that grows, with its MD5 if somebody asks for it."""

    def __init__(self, volume: Volume, start: int, *, hash_it: bool) -> None:
        self.volume, self.start = volume, start
        self._md5 = hashlib.md5(usedforsecurity=False) if hash_it else None

    def write(self, frame: Frame) -> None:
        for piece in frame.data:
            self.volume.write(piece)
            if self._md5 is not None:
                self._md5.update(piece)

    @property
    def md5(self) -> str:
        return self._md5.hexdigest() if self._md5 is not None else ""


def _told(md5: str) -> dict[str, Any]:
    return {"md5": md5} if md5 else {}
