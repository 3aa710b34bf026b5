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

from collections import deque
from dataclasses import dataclass, field

from isal.isal_zlib import crc32

from nbdata.archives.member import Member
from nbdata.archives.place import EVERYTHING, Place
from nbdata.engine.unpack.targets.links_and_folders import Folders, left_out
from nbdata.engine.unpack.targets.shards.keys_again import KeysAgain
from nbdata.engine.unpack.targets.shards.members_left_out import MembersLeftOut, why_in_no_sample
from nbdata.engine.unpack.targets.shards.shard_set import Shard, ShardSet
from nbdata.engine.unpack.targets.unpacking import Checkpoints, Unpacking
from nbdata.errors import BadOption, NotFound
from nbdata.formats.shard_writing import END, member_header, padding
from nbdata.formats.shards import split_member
from nbdata.sizes import format_size

__all__ = ["HELD", "IN_MEMORY", "ShardSender"]

#: Bytes of a sample that are held until it is known whether it fits into the shard.
HELD = 32 << 20
#: Largest shard for a store without multipart uploads: the shard is in memory until it is sent.
IN_MEMORY = 64 << 20
# Bytes per read.
_BLOCK = 1 << 20
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
    pieces, digest_input : list
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
    digest_input: list[bytes] = field(default_factory=list)
    placed: bool = False


class ShardSender:
    """Makes samples of members, and puts them into shards.

    Parameters
    ----------
    shards : ShardSet
    archive : Unpacking
    """

    def __init__(self, shards: ShardSet, archive: Unpacking) -> None:
        self._shards, self._archive = shards, archive
        self._sample: _Sample | None = None
        self._shard: Shard | None = None
        self._places: deque[Place] = deque()
        self._scratch = memoryview(bytearray(_BLOCK))
        self._left_out, self._folders = MembersLeftOut(archive.written), Folders()
        self._keys = KeysAgain()
        if archive.behind:
            self._keys.go_on(shards.resume(archive.behind))
        self._again_to = 0

    def take_all(self) -> int:
        """Take all members; return the offset up to which reading found only shards that were there already."""
        archive, stream = self._archive, self._archive.stream
        checkpoints = Checkpoints(archive, self._shards.settle)
        before = stream.place.copy()
        for member in stream.members:
            archive.control.checkpoint()
            self._take(member, before)
            before = stream.place.copy()
            if self._is_due(checkpoints):
                checkpoints.make()
        archive.control.checkpoint()  # a cancel may look like the end
        self._end_sample()
        self._end_shard(EVERYTHING)
        self._shards.settle()
        archive.control.checkpoint()
        self._finish()
        return self._again_to

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
        key_and_field = split_member(member.name)
        assert key_and_field is not None
        key, name = key_and_field
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
        shard = self._shard_of(sample)
        if shard is None:
            data = member.reader.content()
            sample.pieces += [header, bytes(data), after]
            sample.digest_input.append(_digest_input(member, crc32(data)))
            return
        if shard.growing is None and member.crc is not None:  # known without reading it
            shard.digest.update(_digest_input(member, member.crc))
            return
        self._shards.write(shard, header)
        crc = 0
        while count := self._read(member):
            crc = crc32(self._scratch[:count], crc)
            self._shards.write(shard, self._scratch[:count])
        self._shards.write(shard, after)
        shard.digest.update(_digest_input(member, crc))

    def _refuse_large(self, sample: _Sample) -> None:
        """Raise BadOption for a sample that must be in memory as a whole and is too large for that."""
        if self._shards.in_memory and sample.size + len(END) > IN_MEMORY:
            raise BadOption(
                f"{self._shards.scheme}:// takes whole objects only, so that a sample has to be in memory",
                path=sample.key,
                expected=f"{format_size(IN_MEMORY)} at most",
                got=f"{sample.size:,} bytes or more",
                remedy="Make the shards on the disk and push them, or leave this sample out with --exclude",
            )

    def _read(self, member: Member) -> int:
        self._archive.control.checkpoint()
        return member.reader.readinto(self._scratch)

    # -- samples ------------------------------------------------------------------------------

    def _shard_of(self, sample: _Sample) -> Shard | None:
        """The shard of a sample that is still being read; None if it is not known yet."""
        shard = self._shard
        if sample.placed:
            assert shard is not None
            return shard
        if shard is not None and not shard.end:
            if self._shards.has_room(shard, sample.size) and sample.size <= HELD:
                return None
            self._end_shard(sample.offset)
            self._note_place(sample.place)
            shard = None
        if shard is None:
            shard = self._shard = self._shards.begin(sample.offset)
        self._put(sample, shard)
        return shard

    def _put(self, sample: _Sample, shard: Shard) -> None:
        """Move the held bytes of a sample into a shard."""
        for piece in sample.pieces:
            self._shards.write(shard, piece)
        for data in sample.digest_input:
            shard.digest.update(data)
        sample.pieces, sample.digest_input, sample.placed = [], [], True

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

    def _end_shard(self, end: int) -> None:
        """End a shard after its last sample; `end` is the offset of the next member."""
        shard, self._shard = self._shard, None
        if shard is None:
            return
        self._shards.end(shard, end)
        if shard.end and end < EVERYTHING:
            self._again_to = end

    def _finish(self) -> None:
        """Finish the shards, and report what was left out."""
        if not self._shards.count:
            raise NotFound(
                "no member of the archive can be in a sample",
                path=self._archive.op.places()[0],
                expected="files with a key and an extension, such as n01/12.jpg",
                remedy="Unpack it to a folder or a store; --list names the members",
            )
        self._shards.finish()
        results = self._archive.results
        self._left_out.tell(results)
        results.notes += left_out("empty folder", "empty folders", self._folders.empty, where="shards")
        notes = (self._shards.unverified_note(), self._keys.note(), self._archive.written.index.problem)
        results.notes += filter(None, notes)


def _digest_input(member: Member, crc: int) -> bytes:
    """The input of the shard's digest for one member."""
    return f"{member.name}\0{member.size}\0{crc:08x}\0".encode()
