"""Make a zip from its beginning; its volumes get their names when all of it is written."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from nbdata.engine.job.run import Run
from nbdata.engine.pack.archiving import Archiving, Growing
from nbdata.engine.pack.frames import in_turn
from nbdata.engine.pack.known_volumes import ZipVolumes
from nbdata.engine.pack.volumes import Kept
from nbdata.engine.pack.zip_frames import ZipFrames, ZipStream, ZipWriter
from nbdata.report import Plan

__all__ = ["ZipArchiving"]


class ZipArchiving(Archiving):
    """Makes one zip.

    The content of its volumes is final only at the end, since the directory there lists the offset of each member.
    """

    def __init__(self, run: Run, planned: Plan, stream: ZipStream, volumes: ZipVolumes) -> None:
        super().__init__(run, planned, stream.members.store, stream.most, volumes)
        self._stream, self._volumes = stream, volumes
        self._frames = ZipFrames(stream, self._fetching, self._op.verify)
        self._grown: list[Growing] = []

    def _members_within(self, start: int, end: int) -> int:
        return len(self._stream.members)  # all volumes are kept, or none

    def _make_all(self) -> int:
        if volumes := self._volumes.kept():
            for number, kept in enumerate(volumes):
                self._keep(number, kept)
            return len(volumes)
        writer = ZipWriter(os.path.join(self._run.folder, "directory.zip"))
        coming = in_turn(self._frames.ranges(), self._frames.make, self._pool)
        with contextlib.closing(writer), contextlib.closing(coming):
            for frame in coming:
                self._control.checkpoint()
                self._proof.take(frame.large)
                self._write(writer.added(frame))
                self._control.advance(bytes=frame.size)
                self._control.checkpoint()  # the rate limit also counts the last frame, often the only one
            self._write(writer.tail())
        end, digest = 0, self._volumes.digest(sum(one.volume.size for one in self._grown))
        for growing in self._grown:
            start, end = end, end + growing.volume.size
            self._finish_aside(growing.volume, Kept(start, end, growing.md5, digest))
        self._settle()
        return len(self._grown)

    def _write(self, pieces: Iterable[bytes | memoryview]) -> None:
        """Append bytes, to as many volumes as needed."""
        limit, grown = self._op.volume_size, self._grown
        for piece in pieces:
            view = memoryview(piece)
            while view:
                if not grown or grown[-1].volume.size == limit:
                    if grown:
                        grown[-1].volume.end()
                    grown.append(self._begin(len(grown), 0))
                count = len(view) if limit is None else limit - grown[-1].volume.size
                grown[-1].write([view[:count]])
                view = view[count:]
