"""Make an archive: the common part of tar and zip."""

from __future__ import annotations

import abc
import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.engine.pack import own_files
from nbdata.engine.pack.frames import AHEAD
from nbdata.engine.pack.known_volumes import KnownVolumes
from nbdata.engine.pack.volumes import Kept, VolumeWriter, record_of
from nbdata.engine.pack.windows import Fetching, Proof
from nbdata.engine.planning.both_ends import both_ends
from nbdata.engine.planning.growing_outputs import GrowingOutput
from nbdata.reading.fetcher import WIDTH
from nbdata.report import Plan, Report
from nbdata.sizes import counted
from nbdata.stores.base import Store
from nbdata.stores.http.servers import servers_of
from nbdata.verbs.archive_names import SIDECAR
from nbdata.verbs.pack import Pack

__all__ = ["NOWHERE", "Archiving", "Growing"]

#: Records of a pack belong to no local folder.
NOWHERE = (0, 0)
# Volumes that are finished at a time, while the next one grows.
_FINISHING = 2


class Growing:
    """A growing volume, with its MD5 if asked.

    Attributes
    ----------
    start : int
        Offset of the stream at which it begins.
    """

    def __init__(self, volume: GrowingOutput, start: int, *, hash_it: bool) -> None:
        self.volume, self.start = volume, start
        self._md5 = hashlib.md5(usedforsecurity=False) if hash_it else None

    def write(self, pieces: Iterable[bytes | memoryview]) -> None:
        """Append some bytes."""
        for piece in pieces:
            self.volume.write(piece)
            if self._md5 is not None:
                self._md5.update(piece)

    @property
    def md5(self) -> str:
        """The MD5 in hex, or an empty string."""
        return self._md5.hexdigest() if self._md5 is not None else ""


class Archiving(abc.ABC):
    """Makes one archive.

    Parameters
    ----------
    run : Run
    planned : Plan
    source : Store
        The store of the members.
    size : int
        Approximate bytes of the archive.
    volumes : KnownVolumes
    """

    def __init__(self, run: Run, planned: Plan, source: Store, size: int, volumes: KnownVolumes) -> None:
        assert isinstance(run.operation, Pack)
        self._run, self._op, self._plan, self._control = run, run.operation, planned, run.control
        self._known, self._there = volumes, volumes.there
        self._expected = {row.path for row in planned.rows if row.action == "unchanged"}
        self._results = Results(run)
        self._results.notes.extend(planned.notes[1:])
        self._kept: list[tuple[int, int]] = []  # ranges of the stream in kept volumes, in order
        _, at_target = both_ends(run)
        folder = at_target.open(self._op.archive_names.folder)
        servers = servers_of([source], [folder.store])
        self._index = run.index(*self._op.places(), NOWHERE, servers)
        most = min(size, self._op.volume_size or size)
        self._writer = VolumeWriter(at_target, self._op, folder, most, planned.needed)
        self._fetching = Fetching(
            run.control, [source], verify=self._op.verify, width=self._op.concurrency or WIDTH
        )
        self._proof = Proof(run.control, self._op.verify)
        self._finishing: deque[Future[None]] = deque()
        self._pool = ThreadPoolExecutor(min(self._op.concurrency or AHEAD, AHEAD), "nbdata-frames")
        self._finisher = ThreadPoolExecutor(1, "nbdata-volume")

    @abc.abstractmethod
    def _make_all(self) -> int:
        """Make the missing volumes; return the number of all volumes."""

    @abc.abstractmethod
    def _members_within(self, start: int, end: int) -> int:
        """The number of members that lie wholly between two offsets of the stream."""

    def run_all(self) -> Report:
        """Make the archive, and report the outcome of each volume."""
        self._index.open(NOWHERE, needed=False)
        made = False
        try:
            if own_files.has_begun(self._index):  # its last upload may not be recorded
                self._writer.abort_left()
            own_files.begin(self._index)
            names = [self._known.name(number) for number in range(self._known.most)]
            self._writer.prepare([*names, *(name + SIDECAR for name in names)])
            count = self._make_all()
            self._remove_others(count)
            self._remove_superseded()
            own_files.end(self._index)
            made = True
            # The number of compressed volumes was not known before.
            self._control.expect_more(files=count - len(self._plan.rows), bytes=0)
        except Exception as error:
            self._results.fail(self._op.archive_names.name, error)
        finally:
            self._finisher.shutdown(wait=not self._control.is_set(), cancel_futures=True)
            self._fetching.close()
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._writer.close()
            self._index.close()
        unverified = self._proof.unverified + self._fetching.unverified
        if unverified and self._op.verify != "none":
            self._results.notes.append(
                f"{counted(unverified, 'objects')} had no checksum in the store to compare with"
            )
        self._results.notes += filter(None, [self._index.problem])
        volumes = self._count_members(made=made)
        return self._results.report(**self._plan.details, volumes=volumes)

    def _count_members(self, *, made: bool) -> int:
        """Make the report count members, and volumes separately; return the number of volumes."""
        counts = self._results.counts
        anew, kept = counts.pop(Outcome.PACKED, 0), counts.pop(Outcome.UNCHANGED, 0)
        by_state: dict[str, int] = {}
        if made:
            unchanged = sum(self._members_within(start, end) for start, end in _joined(self._kept))
            by_state = {
                Outcome.PACKED: self._plan.details["members"] - unchanged,
                Outcome.UNCHANGED: unchanged,
            }
        if self._op.volume_size is not None:
            by_state[Outcome.VOLUME] = anew + kept
            if anew and kept:
                self._results.notes.append(
                    f"{kept:,} of {counted(anew + kept, 'volumes', 'were')} there already"
                )
        self._results.counts = {name: count for name, count in {**by_state, **counts}.items() if count}
        return anew + kept

    def _begin(self, number: int, start: int) -> Growing:
        """Begin a volume."""
        volume = self._writer.begin(self._known.name(number))
        return Growing(volume, start, hash_it=self._op.md5)

    def _keep(self, number: int, kept: Kept) -> None:
        """Leave a volume as it is."""
        name = self._known.name(number)
        self._kept.append((kept.start, kept.end))
        if self._op.md5:
            self._writer.write_sidecar(name, kept.md5, self._there.get(name + SIDECAR))
        if name not in self._expected:  # only now is it known to fit behind the new volumes
            self._control.advance(files=1, present=kept.end - kept.start)
        self._results.add(name, Outcome.UNCHANGED, self._there[name].size, **_told(kept.md5))

    def _finish_aside(self, volume: GrowingOutput, kept: Kept) -> None:
        """Finish a volume in parallel with the work on the next one."""
        self._settle(_FINISHING - 1)
        self._finishing.append(self._finisher.submit(self._finish, volume, kept))

    def _settle(self, most: int = 0) -> None:
        """Wait until at most `most` volumes are being finished; raise the first error."""
        while len(self._finishing) > most or (self._finishing and self._finishing[0].done()):
            self._finishing.popleft().result()

    def _finish(self, volume: GrowingOutput, kept: Kept) -> None:
        """Give a volume its name, then record it, then write its checksum beside it."""
        own_files.making(self._index, [volume.name])
        if volume.name + SIDECAR in self._there:  # it belongs to another volume
            self._writer.delete([volume.name + SIDECAR])
        made, _ = self._writer.finish(volume)
        self._index.put({volume.name: record_of(kept, made, volume.size)})
        if kept.md5:
            self._writer.write_sidecar(volume.name, kept.md5, None)
        self._results.add(
            volume.name, Outcome.PACKED, volume.size, moved=True, verified=volume.verified, **_told(kept.md5)
        )
        self._control.advance(files=1)

    def _remove_others(self, count: int) -> None:
        """Remove surplus volumes of an earlier, larger archive of this command; report those of others."""
        mine, gone = {self._known.name(number) for number in range(count)}, list[str]()
        for name in sorted(self._there):
            volume = name.removesuffix(SIDECAR)
            if volume in mine or (name != volume and volume not in self._there):
                continue
            if self._known.is_ours(volume):
                self._writer.delete([name])
                if name == volume:
                    gone.append(name)
                    self._results.add(name, Outcome.REMOVED, self._there[name].size)
            elif name == volume:
                self._results.add(
                    name,
                    Outcome.CONFLICT,
                    self._there[name].size,
                    reason="a volume behind the last one, which this command has not made: delete it",
                )
                self._control.advance(failures=1)
        self._index.put(dict.fromkeys(gone))  # at the end: a checksum is known by the record of its volume

    def _remove_superseded(self) -> None:
        """Remove the archive in its other form (one file or volumes) that an earlier run of this command made."""
        for name in self._known.superseded():
            self._writer.delete([name])
            self._index.put({name: None})
            if not name.endswith(SIDECAR):
                self._results.add(name, Outcome.REMOVED, self._known.otherwise[name].size)


def _joined(ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Merge adjacent ranges, in order."""
    begin = end = -1
    for start, following in ranges:
        if start != end:
            if begin >= 0:
                yield begin, end
            begin = start
        end = following
    if begin >= 0:
        yield begin, end


def _told(md5: str) -> dict[str, Any]:
    return {"md5": md5} if md5 else {}
