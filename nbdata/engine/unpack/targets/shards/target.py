"""Tar shards as the target of an archive: list the existing ones, and know whose they are and what they hold."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cached_property

from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.engine.planning.both_ends import both_ends
from nbdata.engine.unpack.targets.checkpoints import SHARD, Checkpoint, Earlier, Taking
from nbdata.engine.unpack.targets.shards.members_left_out import MembersLeftOut
from nbdata.engine.unpack.targets.shards.send_shards import IN_MEMORY, ShardSender
from nbdata.engine.unpack.targets.space import plan_space
from nbdata.engine.unpack.volumes.finding import VolumeList
from nbdata.engine.unpack.written import Sound, Written, is_version
from nbdata.errors import BadOption, NotFound
from nbdata.reading.shards.packing import refuse_own_source
from nbdata.report import Plan
from nbdata.sizes import counted, format_size
from nbdata.stores.base import ObjectInfo
from nbdata.stores.local import LocalStore
from nbdata.transfer.index import Index, Record
from nbdata.transfer.retry import listing_of_folder, retrying
from nbdata.verbs.shard_names import ShardNames
from nbdata.verbs.untar_volumes import UntarVolumes
from nbdata.writing.manifest import Manifest

__all__ = ["ShardsTarget"]

# Records of shards belong to no local folder.
_NOWHERE = (0, 0)


class ShardsTarget:
    """Shards in one folder, on the disk or in a store; the folder is listed once.

    See `nbdata.engine.unpack.targets.target.Target`.

    Attributes
    ----------
    folder : Location
    """

    def __init__(self, run: Run, op: UntarVolumes, names: ShardNames) -> None:
        self._run, self._op, self._names = run, op, names
        self._at_target = both_ends(run)[1]
        self.folder = self._at_target.open(names.folder)

    @cached_property
    def _there(self) -> dict[str, ObjectInfo]:
        """The existing shards and their index, by name."""
        control, store, prefix = self._run.control, self.folder.store, self.folder.key
        found = dict[str, ObjectInfo]()
        for info in listing_of_folder(control, store, prefix + self._names.before):
            if not info.key.startswith(prefix):  # these may be shards, but not of this folder
                raise BadOption(
                    f"the store lists {info.key!r} when it is asked for {prefix!r}",
                    remedy="Write the place as it lists it: it may take two slashes for one",
                )
            name = info.key[len(prefix) :]
            if self._names.is_one(name):
                found[name] = info
        manifest = self._names.manifest
        with contextlib.suppress(NotFound):
            found[manifest] = retrying(control, lambda: store.head(prefix + manifest))
        return found

    def index(self) -> Index:
        return Index(self._run.context.state_dir, self._op.all_sources(), self._op.target or "", _NOWHERE)

    def prepare(self) -> None:
        """Do nothing: the folder is made with the first shard."""

    def open_index(self, index: Index) -> None:
        index.open(_NOWHERE)

    def look(self, written: Written) -> Sound:
        sound = Sound({}, {}, whole=self._names.manifest in self._there)
        for name, record in written.records():
            if self._is_there(name, record):
                sound.there[name] = record
            else:
                sound.whole = False
        return sound

    def _is_there(self, name: str, record: Record) -> bool:
        return is_version(record, self._there.get(name))

    def earlier(self, written: Written, checkpoint: Checkpoint, *, thorough: bool) -> Earlier:
        del thorough
        found = Earlier.in_store(written, checkpoint, self._is_there, SHARD)
        for left in MembersLeftOut(written).all():
            if left.linkname and left.offset < checkpoint.place.offset:
                found.members.append((left.offset, left.name, "symlink", left.linkname, -1))
        found.members.sort()
        return found

    def refuse_own(self, volumes: VolumeList) -> None:
        sources = (volume.place for volume in volumes.volumes)
        refuse_own_source(self._names, [self.folder], sources, self._op.target)

    def refuse(self, written: Written) -> None:
        store, op = self.folder.store, self._op
        if store.read_only:
            raise BadOption(
                "the target is read-only", path=self.folder.place,
                remedy="Write to a store, or to the disk",
            )  # fmt: skip
        if not store.multipart and not isinstance(store, LocalStore) and op.most_bytes > IN_MEMORY:
            raise BadOption(
                f"{self.folder.place.partition('://')[0]}:// takes whole objects only, so that a shard has to be in "
                "memory",
                expected=f"--shard-size {format_size(IN_MEMORY)} at most",
                remedy="Use --shard-size 64MiB",
            )
        Manifest(self._run.control, store, self.folder.key + self._names.manifest).refuse_others(
            self._names.is_one
        )
        shards = [name for name in self._there if name != self._names.manifest]
        others = [name for name in shards if not self._is_ours(written, name)]
        if others and op.overwrite != "always":
            raise BadOption(
                f"{counted(len(others), 'shards', 'are')} there that this command has not made, such as {min(others)}",
                path=op.target,
                remedy="Give the new ones another name, or say --overwrite always to replace these",
            )
        right = {name for name, record in written.records() if written.is_of_line(record)}
        stale = [name for name in shards if name not in right]
        if stale and op.overwrite == "never":
            raise BadOption(
                f"{min(stale)} is there, and --overwrite never", path=op.target, remedy="Choose another name"
            )

    def _is_ours(self, written: Written, name: str) -> bool:
        """True if a command with this source and target has made the shard, or was making it when it was killed."""
        note, record = written.shard(name), written.index.get(name)
        if note is None:
            return False
        return record is None or self._is_there(name, record)

    def plan_space(self, volumes: VolumeList, out: Plan, there: list[int]) -> None:
        size = format_size(self._op.most_bytes)
        out.notes.append(f"samples go into shards of at most {size}: {self._names.name(0)} and so on")
        if isinstance(self.folder.store, LocalStore):
            plan_space(self._run, volumes, out, self._names.folder, there)
            out.details.pop("instead", None)

    def taking(
        self,
        written: Written,
        results: Results,
        volumes: VolumeList,
        volume: Callable[[], int],
        reserved: int,
    ) -> Taking:
        del volumes
        return ShardSender(
            self._run, self._at_target, self.folder, self._names, self._there, written, results, volume,
            reserved=reserved, open_index=self.open_index,
        )  # fmt: skip

    def tidy(self) -> None:
        """Do nothing: unfinished uploads are recorded, and the next run or cleanup aborts them."""
