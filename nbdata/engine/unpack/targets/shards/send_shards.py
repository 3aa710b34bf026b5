"""Send the members of an archive into tar shards, without unpacking them in between.

Adjacent members with the same key form a sample, as in WebDataset. A sample is never split between shards. As with
`pack`, a shard ends before the sample that would make it larger than `--shard-size`. So the same archive and options
give the same shards, and an interrupted command knows from its records which shards are still to be written.

* An existing shard is only compared, by the digest of the names, sizes and contents that it was made of.
* Any other shard is written while the archive is read (`nbdata.engine.planning.growing_outputs`), and gets its name
  when it is complete. A record before that says that it may exist, and one after that says what it holds.
* Checkpoints lie between shards, at the first member of a sample.

Memory holds the parts of shards that are being sent, and a sample until it is known whether it fits into the shard.
At most `HELD` bytes of a sample are held; a larger one begins a new shard.
"""

from __future__ import annotations

import hashlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from isal.isal_zlib import crc32

from nbdata.archives.member import Member
from nbdata.archives.place import EVERYTHING, Place
from nbdata.engine.job.outcomes import BAD, Outcome
from nbdata.engine.job.run import Run
from nbdata.engine.planning.growing_outputs import GrowingOutput, GrowingOutputs
from nbdata.engine.unpack.targets.links_and_folders import Folders, left_out
from nbdata.engine.unpack.targets.shards.keys_again import KeysAgain
from nbdata.engine.unpack.targets.shards.members_left_out import MembersLeftOut, why_in_no_sample
from nbdata.engine.unpack.targets.unpacking import Checkpoints, Unpacking
from nbdata.engine.unpack.written import ShardNote, Tag, is_version, offset_of
from nbdata.errors import AccessDenied, BadArchive, BadOption, NbdataError, NotFound
from nbdata.formats.shard_writing import END, member_header, padding
from nbdata.formats.shards import split_member
from nbdata.sizes import counted, format_size
from nbdata.stores.base import Location, ObjectInfo
from nbdata.stores.local import LocalStore
from nbdata.transfer.index import Record
from nbdata.transfer.part_records import validator
from nbdata.verbs.shard_names import ShardNames
from nbdata.verbs.untar_volumes import UntarVolumes
from nbdata.writing.manifest import Manifest, ShardRow, digests

__all__ = ["HELD", "IN_MEMORY", "ShardSender"]

#: Bytes of a sample that are held until it is known whether it fits into the shard.
HELD = 32 << 20
#: Largest shard for a store without multipart uploads: the shard is in memory until it is sent.
IN_MEMORY = 64 << 20
# Bytes per read.
_BLOCK = 1 << 20
# Shards that are finished at a time, while the next one grows.
_FINISHING = 2
# Places between shards that wait until the data before them is verified.
_PLACES = 64


@dataclass
class _Sample:
    """A sample that is being read.

    Attributes
    ----------
    place : Place
        The place before its first member, whose offset is `offset`.
    size : int
        Bytes that the members read so far take in the shard.
    pieces, said : list
        The bytes that are in no shard yet, and the input of the digest for them.
    placed : bool
        Whether its shard is known.
    """

    key: str
    offset: int
    place: Place
    fields: set[str] = field(default_factory=set)
    size: int = 0
    pieces: list[bytes | memoryview] = field(default_factory=list)
    said: list[bytes] = field(default_factory=list)
    placed: bool = False


@dataclass
class _Shard:
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


class ShardSender:
    """Puts members into shards of one folder; a context manager.

    Parameters
    ----------
    run : Run
    at_target : Run
        The same run with the target's storage options.
    folder : Location
    names : ShardNames
    there : dict
        The shards and their index that existed when the run began, by name.
    archive : Unpacking
    """

    def __init__(
        self,
        run: Run,
        at_target: Run,
        folder: Location,
        names: ShardNames,
        there: dict[str, ObjectInfo],
        archive: Unpacking,
    ) -> None:
        op = run.operation
        assert isinstance(op, UntarVolumes)
        self._op, self._control, self._folder, self._names = op, run.control, folder, names
        self._there, self._archive = there, archive
        self._written, self._results = archive.written, archive.results
        self._local = isinstance(folder.store, LocalStore)
        self._outputs = GrowingOutputs(
            at_target, folder, names.folder, verify="auto", most=op.most_bytes, needed=archive.reserved
        )
        self._manifest = Manifest(run.control, folder.store, folder.key + names.manifest)
        self._finisher = ThreadPoolExecutor(1, "nbdata-shard")
        self._finishing: deque[Future[None]] = deque()
        self._sample: _Sample | None = None
        self._shard: _Shard | None = None
        self._count = 0  # shards that were begun
        self._rows: dict[str, ShardRow] = {}  # of the shards that exist
        self._places: deque[Place] = deque()
        self._scratch = memoryview(bytearray(_BLOCK))
        self._left_out, self._folders = MembersLeftOut(archive.written), Folders()
        self._keys, self._unverified = KeysAgain(), 0
        self._again_to = 0

    def __enter__(self) -> ShardSender:
        begun = [
            name
            for name in self._written.shards()
            if (note := self._written.shard(name)) is not None and not note.end
        ]
        self._outputs.prepare(begun)
        if begun and not self._local:
            self._outputs.give_up_left(self._names.before, self._names.is_one)
        self._go_on()
        return self

    def __exit__(self, *exc: object) -> None:
        self._finisher.shutdown(wait=not self._control.is_set(), cancel_futures=True)
        self._outputs.close()

    def _go_on(self) -> None:
        """Count the shards before the checkpoint."""
        again = 0
        for name, record in self._written.records():
            if self._written.is_of_line(record) and offset_of(record) < self._archive.behind:
                self._count += 1
                again += self._note_row(name, record.size).again
        if self._archive.behind:
            self._keys.go_on(again)

    def take_all(self) -> int:
        """Take all members; return the offset up to which reading found only shards that were there already."""
        stream, checkpoints = self._archive.stream, Checkpoints(self._archive, self.settle)
        before = stream.place.copy()
        for member in stream.members:
            self._control.checkpoint()
            self._take(member, before)
            before = stream.place.copy()
            if self._is_due(checkpoints):
                checkpoints.make()
        self._control.checkpoint()  # a cancel may look like the end
        self._end_sample()
        self._end_shard(EVERYTHING)
        self.settle()
        self._control.checkpoint()
        self._finish_all()
        return self._again_to

    def settle(self) -> None:
        """Give all ended shards their names; raise the error of any that failed."""
        self._settle()

    def _settle(self, most: int = 0) -> None:
        while len(self._finishing) > most or (self._finishing and self._finishing[0].done()):
            self._finishing.popleft().result()

    def _is_due(self, checkpoints: Checkpoints) -> bool:
        """True if it is time for a checkpoint between two shards."""
        while len(self._places) > 1 and self._places[1].offset <= self._archive.stream.verified:
            self._places.popleft()
        return bool(self._places) and checkpoints.is_due(self._places[0])

    # -- members ------------------------------------------------------------------------------

    def _take(self, member: Member, before: Place) -> None:
        self._folders.saw(member)
        if member.kind == "folder":
            return
        if why := why_in_no_sample(member):
            self._left_out.remember(member, why)
            return
        if self._shard is not None and 0 < self._shard.end <= member.offset:
            self._end_sample()
            self._end_shard(member.offset)
        found = split_member(member.name)
        assert found is not None
        key, name = found
        sample = self._sample
        if sample is None or sample.key != key:
            self._end_sample()
            sample = self._sample = _Sample(key, member.offset, before)
        if name in sample.fields:
            self._left_out.remember(member, "its sample has a field of this name already")
            return
        sample.fields.add(name)
        self._add(sample, member)

    def _add(self, sample: _Sample, member: Member) -> None:
        """Put a member into the shard of its sample, or hold it until the shard is known."""
        header, after = member_header(member.name, member.size), bytes(padding(member.size))
        sample.size += len(header) + member.size + len(after)
        self._refuse_large(sample)
        shard = self._place(sample)
        if shard is None:
            data = member.reader.content()
            sample.pieces += [header, bytes(data), after]
            sample.said.append(_said(member, crc32(data)))
            return
        if shard.growing is None and member.crc is not None:  # known without reading it
            shard.digest.update(_said(member, member.crc))
            return
        self._write(shard, header)
        crc = 0
        while count := self._read(member):
            crc = crc32(self._scratch[:count], crc)
            self._write(shard, self._scratch[:count])
        self._write(shard, after)
        shard.digest.update(_said(member, crc))

    def _refuse_large(self, sample: _Sample) -> None:
        """Raise BadOption for a sample that must be in memory as a whole and is too large for that."""
        whole = not self._folder.store.multipart and not self._local
        if whole and sample.size + len(END) > IN_MEMORY:
            raise BadOption(
                f"{self._folder.place.partition('://')[0]}:// takes whole objects only, so that a sample has to be in "
                "memory",
                path=sample.key, expected=f"{format_size(IN_MEMORY)} at most", got=f"{sample.size:,} bytes or more",
                remedy="Make the shards on the disk and push them, or leave this sample out with --exclude",
            )  # fmt: skip

    def _read(self, member: Member) -> int:
        self._control.checkpoint()
        return member.reader.readinto(self._scratch)

    # -- samples ------------------------------------------------------------------------------

    def _place(self, sample: _Sample) -> _Shard | None:
        """The shard of a sample that is still being read; None if it is not known yet."""
        shard = self._shard
        if sample.placed:
            assert shard is not None
            return shard
        if shard is not None and not shard.end:
            most = self._op.most_bytes
            if shard.size + sample.size + len(END) <= most and sample.size <= HELD:
                return None
            self._end_shard(sample.offset)
            self._note_place(sample.place)
            shard = None
        if shard is None:
            shard = self._shard = self._begin_shard(sample.offset)
        self._put(sample, shard)
        return shard

    def _put(self, sample: _Sample, shard: _Shard) -> None:
        """Move the held bytes of a sample into a shard."""
        for piece in sample.pieces:
            self._write(shard, piece)
        for said in sample.said:
            shard.digest.update(said)
        sample.pieces, sample.said, sample.placed = [], [], True

    def _end_sample(self) -> None:
        """End the sample after its last member."""
        sample, self._sample = self._sample, None
        if sample is None:
            return
        shard = self._shard
        assert shard is not None
        if not sample.placed:
            self._put(sample, shard)
        shard.size += sample.size
        shard.samples += 1
        shard.again += self._keys.saw(sample.key)

    # -- shards -------------------------------------------------------------------------------

    def _note_place(self, place: Place) -> None:
        """Remember the end of a shard as the place of a possible checkpoint."""
        if len(self._places) == _PLACES:
            self._places.pop()
        self._places.append(place)

    def _begin_shard(self, offset: int) -> _Shard:
        number, most = self._count, self._names.most
        if most is not None and number >= most:
            raise BadOption(
                f"{self._op.target} has numbers for {counted(most, 'shards')}, and more are needed",
                remedy="Use a larger range of numbers, or a larger --shard-size",
            )
        self._count += 1
        shard = _Shard(self._names.name(number), offset)
        if end := self._kept_until(shard):
            shard.end = end
            return shard
        if self._names.manifest in self._there:  # from now on it would be wrong
            self._outputs.delete([self._names.manifest])
            del self._there[self._names.manifest]
        if not self._folder.store.multipart and not self._local:
            self._settle()  # each is in memory until it is sent
        self._written.begin_shard(shard.name)
        shard.md5 = hashlib.md5(usedforsecurity=False) if self._local else None
        shard.growing = self._outputs.begin(shard.name)
        return shard

    def _kept_until(self, shard: _Shard) -> int:
        """The end offset of a shard that exists and is right by its record; 0 if it is to be written."""
        record, note = self._written.index.get(shard.name), self._written.shard(shard.name)
        if record is None or note is None or self._op.overwrite == "always":
            return 0
        same = self._written.is_of_line(record) and offset_of(record) == shard.offset
        right = same and not self._written.is_doubtful(record)
        return note.end if right and is_version(record, self._there.get(shard.name)) else 0

    def _write(self, shard: _Shard, data: bytes | memoryview) -> None:
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

    def _failed(self, growing: GrowingOutput, error: NbdataError) -> None:
        """Drop a failed shard; the others are still made, unless the target accepts none."""
        self._outputs.drop(growing)
        if isinstance(error, AccessDenied):
            raise error
        self._results.fail(growing.name, error)

    def _end_shard(self, end: int) -> None:
        """End a shard after its last sample; `end` is the offset of the next member."""
        shard, self._shard = self._shard, None
        if shard is None:
            return
        if shard.end:
            self._compare(shard)
            self._again_to = end if end < EVERYTHING else self._again_to
            return
        self._write(shard, END)
        if shard.growing is None:
            return
        self._settle(_FINISHING - 1)
        fingerprint = self._archive.fingerprint()
        self._finishing.append(self._finisher.submit(self._finish, shard, shard.growing, end, fingerprint))

    def _compare(self, shard: _Shard) -> None:
        """Check whether an existing shard holds the members just read."""
        record = self._written.index.get(shard.name)
        assert record is not None
        if Tag.of(record).crc == shard.digest.hexdigest():
            self._note_row(shard.name, record.size)
            self._results.add(shard.name, Outcome.UNCHANGED, record.size, samples=shard.samples)
            self._control.advance(files=1)
            return
        self._written.begin_shard(shard.name)
        raise BadArchive(
            "an earlier run wrote another shard than the archive makes", path=shard.name,
            remedy="Run the command again: it writes this shard anew",
        )  # fmt: skip

    def _finish(self, shard: _Shard, growing: GrowingOutput, end: int, fingerprint: str) -> None:
        """Give a shard its name, and record it."""
        try:
            made, said = self._outputs.finish(growing)
        except NbdataError as error:
            self._failed(growing, error)
            return
        if shard.md5 is not None:
            said = digests("", shard.md5.hexdigest())
        digest = shard.digest.hexdigest()
        tag = self._written.shard_tag(fingerprint, shard.offset, digest, validator(made))
        self._written.put_shard(
            shard.name, Record(tag, growing.size, 0, 0, 0), ShardNote(end, shard.samples, said, shard.again)
        )
        self._rows[shard.name] = ShardRow(shard.name, growing.size, shard.samples, said)
        self._unverified += not growing.verified
        self._results.add(
            shard.name, Outcome.PACKED, growing.size, moved=True, verified=growing.verified, samples=shard.samples
        )  # fmt: skip
        self._control.advance(files=1)

    # -- the end ------------------------------------------------------------------------------

    def _finish_all(self) -> None:
        """Write the index beside the shards, remove surplus shards, and report what was left out."""
        notes = self._results.notes
        if not self._count:
            raise NotFound(
                "no member of the archive can be in a sample", path=self._op.places()[0],
                expected="files with a key and an extension, such as n01/12.jpg",
                remedy="Unpack it to a folder or a store; --list names the members",
            )  # fmt: skip
        if self._has_all():
            self._remove_others()
        if self._has_all():
            rows = [self._rows[self._names.name(number)] for number in range(self._count)]
            self._manifest.write(self._names.before.rstrip("-_."), rows, "auto")
            notes.append(
                f"{counted(sum(row.samples for row in rows), 'samples')} in {counted(len(rows), 'shards')}"
            )
        self._left_out.tell(self._results)
        notes += left_out("empty folder", "empty folders", self._folders.empty, where="shards")
        if self._unverified and not self._local:
            notes.append(
                f"{counted(self._unverified, 'shards')} could not be verified: the store returned no checksum"
            )
        notes += filter(None, [self._keys.note(), self._written.index.problem])

    def _has_all(self) -> bool:
        """True if nothing has failed."""
        return not any(self._results.counts.get(name) for name in BAD)

    def _note_row(self, name: str, size: int) -> ShardNote:
        """Add the recorded data of an existing shard to the index."""
        note = self._written.shard(name)
        assert note is not None
        self._rows[name] = ShardRow(name, size, note.samples, note.said)
        return note

    def _remove_others(self) -> None:
        """Remove surplus shards of an earlier run of this command; report those of others."""
        mine = {self._names.name(number) for number in range(self._count)}
        for name in sorted(self._there.keys() - mine - {self._names.manifest}):
            record = self._written.index.get(name)
            if record is not None and is_version(record, self._there[name]):
                self._outputs.delete([name])
                self._results.add(name, Outcome.REMOVED, self._there[name].size)
            else:
                reason = "a shard behind the last one, which this command has not made: delete it"
                self._results.add(name, Outcome.CONFLICT, self._there[name].size, reason=reason)
                self._control.advance(failures=1)
        for name in set(self._written.shards()) - mine:
            self._written.forget_shard(name)


def _said(member: Member, crc: int) -> bytes:
    """The input of the shard's digest for one member."""
    return f"{member.name}\0{member.size}\0{crc:08x}\0".encode()
