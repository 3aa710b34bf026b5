"""A folder on the disk as the target of an archive."""

from __future__ import annotations

import os

from nbdata.engine.job.run import Run
from nbdata.engine.unpack.targets.checkpoints import Checkpoint, Earlier
from nbdata.engine.unpack.targets.folder.extraction import Extraction
from nbdata.engine.unpack.targets.space import plan_space
from nbdata.engine.unpack.targets.target import Target
from nbdata.engine.unpack.targets.unpacking import Unpacking
from nbdata.engine.unpack.volumes.finding import VolumeList
from nbdata.engine.unpack.written import Sound, Written
from nbdata.own_files import own_folder
from nbdata.report import Plan
from nbdata.transfer.committer import Committer
from nbdata.transfer.index import Index
from nbdata.verbs.untar_volumes import UntarVolumes

__all__ = ["FolderTarget"]


class FolderTarget(Target):
    """A folder on the disk. Nothing is refused beforehand: each file is checked when its member comes."""

    def __init__(self, run: Run, op: UntarVolumes) -> None:
        super().__init__(run, op)
        self._root = (op.target or "").rstrip("/") or "/"
        self._named = run.listed.get(op.target or "")

    def index(self) -> Index:
        try:
            folder = os.stat(self._root)
            identity = (folder.st_dev, folder.st_ino)
        except OSError:
            identity = None
        state = self._run.context.state_dir
        return Index(state, self._op.all_sources(), self._root, identity, self._servers)

    def open_index(self, index: Index) -> None:
        folder = os.stat(self._root)
        index.open((folder.st_dev, folder.st_ino))

    def look(self, written: Written) -> Sound:
        return written.look(self._root)

    def earlier(self, written: Written, checkpoint: Checkpoint, *, thorough: bool) -> Earlier:
        return Earlier.look(written, checkpoint, self._root, thorough=thorough)

    def plan_space(self, volumes: VolumeList, out: Plan, there: list[int]) -> None:
        plan_space(self._run, volumes, out, self._root, there)

    def unpack(self, archive: Unpacking) -> int:
        with Extraction(self._run, self._root, archive, named=self._named) as extraction, archive.opened():
            return extraction.take_all()

    def prepare(self) -> None:
        with Committer(
            self._root,
            self._run.control,
            umask=self._run.context.umask,
            committed=lambda _: None,
            named=self._named,
            opened=self._run.folders,
        ):
            pass

    def tidy(self) -> None:
        if os.path.isdir(own_folder(self._root)):
            self.prepare()
