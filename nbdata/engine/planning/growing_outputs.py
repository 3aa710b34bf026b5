"""Writes growing shards or volumes to one folder, on the disk or in a store; each gets its name once it is whole."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol

from nbdata.engine.job.run import Run
from nbdata.engine.planning.begun_uploads import BegunUploads
from nbdata.engine.planning.growing_space import GrowingSpace
from nbdata.errors import NotFound
from nbdata.space.limits import disk_of
from nbdata.stores.base import Location, ObjectInfo
from nbdata.stores.local import LocalStore
from nbdata.transfer.retry import retrying
from nbdata.transfer.uploads import forget, remembered
from nbdata.writing.growing_file import GrowingFile, remove_left
from nbdata.writing.growing_shard import SENT_AT_A_TIME, GrowingShard, Target
from nbdata.writing.manifest import Digests

__all__ = ["GrowingOutput", "GrowingOutputs"]


class GrowingOutput(Protocol):
    """One shard or volume that is being written; for one thread."""

    name: str
    size: int
    made: ObjectInfo | None
    verified: bool

    def write(self, data: bytes | memoryview, /) -> None:
        """Append some bytes."""

    def end(self) -> None:
        """Say that all bytes are written."""

    def finish(self) -> Digests:
        """Give it its final name; return the known digests of its bytes."""

    def give_up(self) -> None:
        """Remove what is unfinished; waits for requests in flight."""


class GrowingOutputs:
    """Writes shards or volumes to one folder.

    Parameters
    ----------
    run : Run
        The run of the target's end.
    folder : Location
    place : str
        The folder, as the user wrote it.
    verify : str
        See `nbdata.verbs.options.Verifying`.
    most : int
        Approximate bytes of a shard or volume.
    needed : int
        Bytes of the disk to reserve.
    """

    def __init__(
        self, run: Run, folder: Location, place: str, *, verify: str, most: int, needed: int
    ) -> None:
        self._run, self._folder, self._verify = run, folder, verify
        self._target = Target(
            run.control, folder, run.context.state_dir, run.context.env, verify, min(most, 5 << 40)
        )
        self._uploads = BegunUploads(run, place, folder.store)
        # One for all: several outputs may wait, for example for the proof of an object that spans them.
        self._room = self._target.room()
        self._pool = ThreadPoolExecutor(SENT_AT_A_TIME, "nbdata-growing")
        self._open: set[GrowingOutput] = set()
        self._lock = threading.Lock()
        self._space: GrowingSpace | None = None
        if isinstance(folder.store, LocalStore):
            self._space = GrowingSpace(run, disk_of(folder.place)[2], needed)

    def prepare(self, names: Sequence[str]) -> None:
        """Make the folder, and remove unfinished files of these names that killed processes left."""
        if isinstance(self._folder.store, LocalStore):
            remove_left(self._folder.store, self._folder.key, names.__getitem__, len(names))

    def give_up_left(self, prefix: str, is_ours: Callable[[str], bool]) -> None:
        """Abort the uploads that a killed run left, including those whose ids it could not note.

        Their names start with `prefix`; `is_ours` checks that a name is one of this folder's outputs.
        """
        folder, state = self._folder, self._run.context.state_dir
        known = remembered(state)
        left = retrying(self._run.control, lambda: list(folder.store.pending(folder.key + prefix)))
        for key, upload_id in left:
            begun = known.get(upload_id)
            if not is_ours(key[len(folder.key) :]) or (begun is not None and begun.in_use()):
                continue
            with contextlib.suppress(NotFound):
                retrying(self._run.control, partial(folder.store.abort, key, upload_id))
            if begun is not None:
                forget(state, upload_id)

    def begin(self, name: str) -> GrowingOutput:
        """Start an output."""
        output: GrowingOutput
        if self._space is not None:
            assert isinstance(self._folder.store, LocalStore)
            output = GrowingFile(self._folder.store, self._folder.key, name, self._space.claim)
        else:
            output = GrowingShard(self._target, name, self._pool, self._uploads, self._room)
        with self._lock:
            self._open.add(output)
        return output

    def finish(self, output: GrowingOutput) -> tuple[ObjectInfo, Digests]:
        """Give an output its final name; return the store's description and the known digests of its bytes."""
        described = output.finish()
        assert output.made is not None
        with self._lock:
            self._open.discard(output)
        if self._space is not None:
            self._space.note_written([output.size], 1)
        return output.made, described

    def drop(self, output: GrowingOutput) -> None:
        """Give up an output that has failed, and hold nothing of it; waits for its requests in flight."""
        with self._lock:
            self._open.discard(output)
        output.give_up()

    def delete(self, names: list[str]) -> None:
        """Delete the files or objects of these names."""
        keys = [self._folder.key + name for name in names]
        if keys:
            retrying(self._run.control, lambda: self._folder.store.delete(keys))

    def close(self) -> None:
        """Give up unfinished outputs, and wait for that, but not for long."""
        with self._lock:
            left = list(self._open)
        for output in left:
            output.give_up()
        self._pool.shutdown(wait=not self._run.control.is_set())
        self._uploads.close()
