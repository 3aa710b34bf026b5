"""Tar shards as the target of an archive: list the existing ones, and know whose they are and what they hold."""

from __future__ import annotations

import contextlib
from functools import cached_property

from nbdata.engine.job.run import Run
from nbdata.engine.unpack.targets.checkpoints import SHARD, Checkpoint, Earlier
from nbdata.engine.unpack.targets.shards.members_left_out import MembersLeftOut
from nbdata.engine.unpack.targets.shards.send_shards import IN_MEMORY, ShardSender
from nbdata.engine.unpack.targets.shards.shard_set import ShardSet
from nbdata.engine.unpack.targets.space import plan_space
from nbdata.engine.unpack.targets.store.target import StoreTarget
from nbdata.engine.unpack.targets.unpacking import Unpacking
from nbdata.engine.unpack.volumes.finding import VolumeList
from nbdata.engine.unpack.written import Sound, Written
from nbdata.errors import BadOption, NotFound
from nbdata.reading.shards.packing import refuse_own_source
from nbdata.report import Plan
from nbdata.sizes import counted, format_size
from nbdata.stores.base import ObjectInfo
from nbdata.stores.local import LocalStore
from nbdata.transfer.retry import listing_of_folder, retrying
from nbdata.verbs.shard_names import ShardNames
from nbdata.verbs.untar_volumes import UntarVolumes
from nbdata.writing.manifest import Manifest

__all__ = ["ShardsTarget"]


class ShardsTarget(StoreTarget):
    """Shards in one folder, on the disk or in a store; the folder is listed once."""

    def __init__(self, run: Run, op: UntarVolumes, names: ShardNames) -> None:
        super().__init__(run, op, names.folder)
        self._names = names

    @cached_property
    def _there(self) -> dict[str, ObjectInfo]:
        """The existing shards and their index, by name."""
        control, store, prefix = self._run.control, self.location.store, self.location.key
        existing = dict[str, ObjectInfo]()
        for info in listing_of_folder(control, store, prefix + self._names.before):
            if not info.key.startswith(prefix):  # these may be shards, but not of this folder
                raise BadOption(
                    f"the store lists {info.key!r} when it is asked for {prefix!r}",
                    remedy="Write the place as it lists it: it may take two slashes for one",
                )
            name = info.key[len(prefix) :]
            if self._names.is_one(name):
                existing[name] = info
        manifest = self._names.manifest
        with contextlib.suppress(NotFound):
            existing[manifest] = retrying(control, lambda: store.head(prefix + manifest))
        return existing

    def look(self, written: Written) -> Sound:
        sound = super().look(written)
        sound.whole = sound.whole and self._names.manifest in self._there
        return sound

    def _existing(self, path: str) -> ObjectInfo | None:
        return self._there.get(path)

    def earlier(self, written: Written, checkpoint: Checkpoint, *, thorough: bool) -> Earlier:
        del thorough
        earlier = Earlier.in_store(written, checkpoint, self._is_there, SHARD)
        for left in MembersLeftOut(written).all():
            if left.linkname and left.offset < checkpoint.place.offset:
                earlier.members.append((left.offset, left.name, "symlink", left.linkname, -1))
        earlier.members.sort()
        return earlier

    def refuse(self, volumes: VolumeList, written: Written) -> None:
        sources = (volume.place for volume in volumes.volumes)
        refuse_own_source(self._names, [self.location], sources, self._op.target)
        store, op = self.location.store, self._op
        if store.read_only:
            raise BadOption(
                "the target is read-only", path=self.location.place, remedy="Write to a store, or to the disk"
            )
        if not store.multipart and not isinstance(store, LocalStore) and op.most_bytes > IN_MEMORY:
            raise BadOption(
                f"{self.location.place.partition('://')[0]}:// takes whole objects only, so that a shard has to be in "
                "memory",
                expected=f"--shard-size {format_size(IN_MEMORY)} at most",
                remedy="Use --shard-size 64MiB",
            )
        Manifest(self._run.control, store, self.location.key + self._names.manifest).refuse_others(
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
        if isinstance(self.location.store, LocalStore):
            plan_space(self._run, volumes, out, self._names.folder, there)
            out.details.pop("instead", None)

    def unpack(self, archive: Unpacking) -> int:
        self.open_index(archive.written.index)
        shards = ShardSet(self._at_target, self.location, self._names, self._there, archive)
        with shards, archive.opened():
            return ShardSender(shards, archive).take_all()
