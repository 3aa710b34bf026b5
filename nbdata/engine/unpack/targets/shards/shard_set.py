"""The shards that an archive becomes: each is kept if it exists and is right, or written, recorded and given its name.

Shards are finished by a thread of their own, in the background, while the next one grows.
"""

from __future__ import annotations

import hashlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from nbdata.engine.job.outcomes import BAD, Outcome
from nbdata.engine.job.run import Run
from nbdata.engine.planning.growing_outputs import GrowingOutput, GrowingOutputs
from nbdata.engine.unpack.targets.unpacking import Unpacking
from nbdata.engine.unpack.written import ShardNote, Tag, is_version, offset_of
from nbdata.errors import AccessDenied, BadArchive, BadOption, NbdataError
from nbdata.formats.shard_writing import END
from nbdata.sizes import counted
from nbdata.stores.base import Location, ObjectInfo
from nbdata.stores.local import LocalStore
from nbdata.transfer.index import Record
from nbdata.transfer.part_records import validator
from nbdata.verbs.shard_names import ShardNames
from nbdata.writing.manifest import Manifest, ShardRow, digests

__all__ = ["Shard", "ShardSet"]

# Shards that are finished at a time, while the next one grows.
_FINISHING = 2


@dataclass
class Shard:
    """A shard whose samples are being read.

    Attributes
    ----------
    offset : int
        Offset of its first member in the archive.
    end : int
        For an existing shard, the offset of the first member behind it; else 0.
    size : int
        Bytes of the samples in it.
    again : int
        Samples in it whose key came before.
    growing : GrowingOutput or None
        The output; None if the shard exists already, or has failed.
    md5 : hash or None
        MD5 of its bytes, if no store reports it.
    """

    name: str
    offset: int
    end: int = 0
    size: int = 0
    samples: int = 0
    again: int = 0
    growing: GrowingOutput | None = None
    md5: Any = None
    digest: Any = field(default_factory=lambda: hashlib.blake2b(digest_size=8))


class ShardSet:
    """The shards of one archive in one folder, in order; a context manager.

    Parameters
    ----------
    at_target : Run
        The run with the target's storage options.
    folder : Location
    names : ShardNames
    existing : dict
        The shards and their index that existed when the run began, by name.
    archive : Unpacking

    Attributes
    ----------
    count : int
        Shards that were begun, in this run or before its checkpoint.
    in_memory : bool
        Whether a shard has to be in memory until it is sent.
    scheme : str
        That of the target's URL.
    """

    def __init__(
        self,
        at_target: Run,
        folder: Location,
        names: ShardNames,
        existing: dict[str, ObjectInfo],
        archive: Unpacking,
    ) -> None:
        self._names, self._existing, self._archive = names, existing, archive
        self._written, self._results = archive.written, archive.results
        self._local = isinstance(folder.store, LocalStore)
        self.in_memory = not folder.store.multipart and not self._local
        self.scheme = folder.place.partition("://")[0]
        self._outputs = GrowingOutputs(
            at_target,
            folder,
            names.folder,
            verify="auto",
            most=archive.op.most_bytes,
            needed=archive.reserved,
        )
        self._manifest = Manifest(archive.control, folder.store, folder.key + names.manifest)
        self._finisher = ThreadPoolExecutor(1, "nbdata-shard")
        self._finishing: deque[Future[None]] = deque()
        self._rows: dict[str, ShardRow] = {}  # of the shards that exist
        self._unverified = 0
        self.count = 0

    def __enter__(self) -> ShardSet:
        begun = [
            name
            for name in self._written.shards()
            if (note := self._written.shard(name)) is not None and not note.end
        ]
        self._outputs.prepare(begun)
        if begun and not self._local:
            self._outputs.give_up_left(self._names.before, self._names.is_one)
        return self

    def __exit__(self, *exc: object) -> None:
        self._finisher.shutdown(wait=not self._archive.control.is_set(), cancel_futures=True)
        self._outputs.close()

    def resume(self, behind: int) -> int:
        """Count the shards before a checkpoint; return how many samples in them repeat a key."""
        again = 0
        for name, record in self._written.records():
            if self._written.is_of_line(record) and offset_of(record) < behind:
                self.count += 1
                again += self._note_row(name, record.size).again
        return again

    def begin(self, offset: int) -> Shard:
        """Begin the shard whose first member is at an offset: an existing one that is right is only compared."""
        number, most = self.count, self._names.most
        if most is not None and number >= most:
            raise BadOption(
                f"{self._archive.op.target} has numbers for {counted(most, 'shards')}, and more are needed",
                remedy="Use a larger range of numbers, or a larger --shard-size",
            )
        self.count += 1
        shard = Shard(self._names.name(number), offset)
        if end := self._kept_until(shard):
            shard.end = end
            return shard
        if self._names.manifest in self._existing:  # from now on it would be wrong
            self._outputs.delete([self._names.manifest])
            del self._existing[self._names.manifest]
        if self.in_memory:  # at most one at a time
            self.settle()
        self._written.begin_shard(shard.name)
        shard.md5 = hashlib.md5(usedforsecurity=False) if self._local else None
        shard.growing = self._outputs.begin(shard.name)
        return shard

    def _kept_until(self, shard: Shard) -> int:
        """The end offset of a shard that exists and is right by its record; 0 if it is to be written."""
        record, note = self._written.index.get(shard.name), self._written.shard(shard.name)
        if record is None or note is None or self._archive.op.overwrite == "always":
            return 0
        same = self._written.is_of_line(record) and offset_of(record) == shard.offset
        right = same and not self._written.is_doubtful(record)
        return note.end if right and is_version(record, self._existing.get(shard.name)) else 0

    def write(self, shard: Shard, data: bytes | memoryview) -> None:
        """Add bytes to a shard, unless it exists or has failed."""
        if shard.growing is None:
            return
        try:
            shard.growing.write(data)
        except NbdataError as error:
            growing, shard.growing = shard.growing, None
            self._failed(growing, error)
            return
        if shard.md5 is not None:
            shard.md5.update(data)

    def has_room(self, shard: Shard, size: int) -> bool:
        """True if a sample of this size fits into a shard."""
        return shard.size + size + len(END) <= self._archive.op.most_bytes

    def _failed(self, growing: GrowingOutput, error: NbdataError) -> None:
        """Drop a failed shard; the others are still made, unless the target accepts none."""
        self._outputs.drop(growing)
        if isinstance(error, AccessDenied):
            raise error
        self._results.fail(growing.name, error)

    def end(self, shard: Shard, end: int) -> None:
        """End a shard after its last sample; `end` is the offset of the next member."""
        if shard.end:
            self._compare(shard)
            return
        self.write(shard, END)
        if shard.growing is None:
            return
        self.settle(_FINISHING - 1)
        fingerprint = self._archive.fingerprint()
        self._finishing.append(self._finisher.submit(self._finish, shard, shard.growing, end, fingerprint))

    def _compare(self, shard: Shard) -> None:
        """Check whether an existing shard holds the members just read."""
        record = self._written.index.get(shard.name)
        assert record is not None
        if Tag.of(record).crc == shard.digest.hexdigest():
            self._note_row(shard.name, record.size)
            self._results.add(shard.name, Outcome.UNCHANGED, record.size, samples=shard.samples)
            self._archive.control.advance(files=1)
            return
        self._written.begin_shard(shard.name)
        raise BadArchive(
            "an earlier run wrote another shard than the archive makes",
            path=shard.name,
            remedy="Run the command again: it writes this shard anew",
        )

    def _finish(self, shard: Shard, growing: GrowingOutput, end: int, fingerprint: str) -> None:
        """Give a shard its name, and record it."""
        try:
            made, row_digests = self._outputs.finish(growing)
        except NbdataError as error:
            self._failed(growing, error)
            return
        if shard.md5 is not None:
            row_digests = digests("", shard.md5.hexdigest())
        digest = shard.digest.hexdigest()
        tag = self._written.shard_tag(fingerprint, shard.offset, digest, validator(made))
        self._written.put_shard(
            shard.name,
            Record(tag, growing.size, 0, 0, 0),
            ShardNote(end, shard.samples, row_digests, shard.again),
        )
        self._rows[shard.name] = ShardRow(shard.name, growing.size, shard.samples, row_digests)
        self._unverified += not growing.verified
        self._results.add(
            shard.name,
            Outcome.PACKED,
            growing.size,
            moved=True,
            verified=growing.verified,
            samples=shard.samples,
        )
        self._archive.control.advance(files=1)

    def settle(self, most: int = 0) -> None:
        """Give ended shards their names, until at most that many wait; raise the error of any that failed."""
        while len(self._finishing) > most or (self._finishing and self._finishing[0].done()):
            self._finishing.popleft().result()

    # -- the end ------------------------------------------------------------------------------

    def finish(self) -> None:
        """Remove surplus shards, and write the index beside the shards, if all of them are made."""
        if self._has_all():
            self._remove_others()
        if self._has_all():
            rows = [self._rows[self._names.name(number)] for number in range(self.count)]
            self._manifest.write(self._names.before.rstrip("-_."), rows, "auto")
            samples, shards = sum(row.samples for row in rows), counted(len(rows), "shards")
            self._results.notes.append(f"{counted(samples, 'samples')} in {shards}")

    def unverified_note(self) -> str:
        """A note for the report about shards for which the store returned no checksum; empty if there are none."""
        if self._local or not self._unverified:
            return ""
        return f"{counted(self._unverified, 'shards')} could not be verified: the store returned no checksum"

    def _has_all(self) -> bool:
        """True if nothing has failed."""
        return not any(self._results.counts.get(name) for name in BAD)

    def _note_row(self, name: str, size: int) -> ShardNote:
        """Add the recorded data of an existing shard to the index."""
        note = self._written.shard(name)
        assert note is not None
        self._rows[name] = ShardRow(name, size, note.samples, note.digests)
        return note

    def _remove_others(self) -> None:
        """Remove surplus shards of an earlier run of this command; report those of others."""
        mine = {self._names.name(number) for number in range(self.count)}
        for name in sorted(self._existing.keys() - mine - {self._names.manifest}):
            record = self._written.index.get(name)
            if record is not None and is_version(record, self._existing[name]):
                self._outputs.delete([name])
                self._results.add(name, Outcome.REMOVED, self._existing[name].size)
            else:
                reason = "a shard behind the last one, which this command has not made: delete it"
                self._results.add(name, Outcome.CONFLICT, self._existing[name].size, reason=reason)
                self._archive.control.advance(failures=1)
        for name in set(self._written.shards()) - mine:
            self._written.forget_shard(name)
