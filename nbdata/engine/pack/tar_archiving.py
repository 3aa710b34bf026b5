"""Make a tar: keep valid volumes, and continue the stream behind them."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Generator
from typing import NamedTuple

from nbdata.engine.job.run import Run
from nbdata.engine.pack.archiving import Archiving, Growing
from nbdata.engine.pack.frames import Frame, TarFrames, in_turn
from nbdata.engine.pack.known_volumes import TarVolumes
from nbdata.engine.pack.tar_stream import TarStream
from nbdata.engine.pack.volumes import Kept
from nbdata.engine.planning.growing_outputs import GrowingOutput
from nbdata.report import Plan

__all__ = ["TarArchiving"]


class _Written(NamedTuple):
    """A completely written volume without its final name.

    Attributes
    ----------
    proven : int
        The offset of the stream at which all content of the volume is verified.
    """

    volume: GrowingOutput
    kept: Kept
    proven: int


class TarArchiving(Archiving):
    """Makes one tar, compressed or not."""

    def __init__(self, run: Run, planned: Plan, stream: TarStream, volumes: TarVolumes) -> None:
        super().__init__(run, planned, stream.store, stream.size, volumes)
        self._stream, self._volumes = stream, volumes
        op = self._op
        assert op.archive is not None
        self._frames = TarFrames(stream, op.archive, op.volume_size, self._fetching, op.verify)
        self._written: deque[_Written] = deque()

    def _members_within(self, start: int, end: int) -> int:
        return self._stream.members_within(start, end)

    def _make_all(self) -> int:
        at = number = 0
        while at < self._stream.size:
            kept = self._volumes.kept(number, at)
            if kept is None:
                at, number = self._make(at, number)
            else:
                self._keep(number, kept)
                at, number = kept.end, number + 1
        return number

    def _make(self, at: int, number: int) -> tuple[int, int]:
        """Make volumes from an offset on until the next one exists; return that one's offset and number."""
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
                    growing = growing or self._begin(number, frame.start)
                    growing.write(frame.data)
                    self._control.advance(bytes=frame.end - frame.start)
                    self._control.checkpoint()  # the rate limit also counts the last frame, often the only one
                    if frame.end == self._stream.size:
                        self._end(growing, frame.end)
                        growing, at, number, over = None, frame.end, number + 1, True
                self._finish_proven(frame.end)
                if over and not self._written:  # else reading continues only to verify them
                    break
        self._settle()
        return at, number

    def _coming(self, at: int) -> Generator[Frame, None, None]:
        """The frames from an offset on; if a large member spans it, also that member's frames before, to verify it."""
        around = self._stream.large_around(at) if self._op.verify != "none" else None
        return in_turn(
            self._frames.ranges(at if around is None else around[0]), self._frames.make, self._pool
        )

    def _end(self, growing: Growing, end: int) -> None:
        """End a volume after its last byte: it gets its name once all objects in it are verified."""
        around = self._stream.large_around(end) if self._op.verify != "none" else None
        if around is not None:
            growing.volume.end()
        start = growing.start
        kept = Kept(start, end, growing.md5, self._volumes.digest(start, end))
        self._written.append(_Written(growing.volume, kept, end if around is None else around[1]))

    def _finish_proven(self, proven: int) -> None:
        """Finish the volumes whose content is verified up to an offset."""
        while self._written and self._written[0].proven <= proven:
            volume, kept, _ = self._written.popleft()
            self._finish_aside(volume, kept)
