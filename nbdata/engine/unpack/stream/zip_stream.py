"""Read a zip archive in volumes as a stream of members; unwanted members are not read."""

from __future__ import annotations

import io
from collections.abc import Callable, Generator, Sequence
from itertools import accumulate
from types import TracebackType
from typing import TYPE_CHECKING

from nbdata.archives.member import Member
from nbdata.archives.member_budget import MemberBudget
from nbdata.archives.place import EVERYTHING, Place, Restart
from nbdata.archives.remarks import Remarks
from nbdata.archives.stream import JoinedStream, Readahead
from nbdata.archives.zip import read_zip
from nbdata.engine.job.run import Run
from nbdata.engine.unpack.stream.member_stream import collect_unmatched
from nbdata.engine.unpack.volumes.finding import VolumeList
from nbdata.errors import BadOption
from nbdata.verbs.untar_volumes import UntarVolumes

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["ZipStream"]

# A range of at least this many bytes is read ahead by a separate thread.
_AHEAD = 4 << 20


class ZipStream:
    """The members of a zip archive; see `nbdata.engine.unpack.stream.member_stream.MemberStream`.

    Each member is verified by its own CRC-32, and members that are there already are not read. So there are no
    checkpoints, and no member before a damaged one is in doubt.
    """

    members: Generator[Member, None, None]

    def __init__(
        self, run: Run, op: UntarVolumes, volumes: VolumeList, unmatched: list[str] | None = None
    ) -> None:
        if volumes.size is None:
            raise BadOption(
                "the server does not tell how large the zip archive is, and its directory stands at its end",
                path=volumes.title,
                remedy="Pull it, and unpack it from the disk",
            )
        self._run, self._op, self._volumes, self._unmatched = run, op, volumes, unmatched
        self.remarks, self.place, self.began, self.format = Remarks(), Place(), Restart(), "zip"
        self.read = 0

    @property
    def volume_begun(self) -> int:
        return 0

    @property
    def verified(self) -> int:
        return EVERYTHING

    @property
    def proven(self) -> int:
        return EVERYTHING

    def volume(self) -> int:
        """The number of the last volume, which holds the directory."""
        return len(self._volumes.volumes) - 1

    def restart(self, offset: int) -> Restart:
        del offset
        return Restart()

    def __enter__(self) -> ZipStream:
        op = self._op
        members = read_zip(
            _Ranges(self._run, self._volumes, self._progress),
            members=op.members,
            exclude=op.exclude,
            strip_components=op.strip_components,
            max_expansion=op.max_expansion,
            remarks=self.remarks,
            name=self._volumes.title,
            listing=op.list,
            max_window=op.max_window,
            names_encoding=op.names_encoding,
            budget=MemberBudget(lambda: self.read),
        )
        if self._unmatched is not None:
            members = collect_unmatched(members, self._unmatched)
        self.members = members
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.members.close()

    def _progress(self, count: int) -> None:
        self.read += count
        self._run.control.advance(bytes=count)


class _Ranges:
    """The volumes as the source of a zip archive; implements `ZipSource`."""

    def __init__(self, run: Run, volumes: VolumeList, progress: Callable[[int], None]) -> None:
        self._run, self._volumes, self._progress = run, volumes, progress
        sizes = [volume.size or 0 for volume in volumes.volumes]
        self.starts: Sequence[int] = [0, *accumulate(sizes[:-1])]
        self.size = sum(sizes)

    def range(self, start: int, end: int) -> bytes:
        data = b""
        for volume, begins in zip(self._volumes.volumes, self.starts, strict=True):
            low, high = max(start - begins, 0), min(end - begins, volume.size or 0)
            if low < high:
                data += volume.range(low, high)
        self._progress(len(data))
        return data

    def stream(self, start: int, end: int) -> io.RawIOBase:
        joined = JoinedStream(self._volumes.volumes, on_progress=self._progress, until=end)
        joined.seek(start)
        return _ReadAhead(self._run, joined) if end - start > _AHEAD else joined


class _ReadAhead(io.RawIOBase):
    """A stream that is read ahead; a cancel wakes waiting readers."""

    def __init__(self, run: Run, source: io.RawIOBase) -> None:
        super().__init__()
        self._control, self._ahead = run.control, Readahead(source)
        self._control.add(self._ahead.abandon)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        count = self._ahead.readinto(buffer)
        if not count:
            self._control.checkpoint()  # a cancel looks like the end
        return count

    def close(self) -> None:
        if not self.closed:
            self._control.remove(self._ahead.abandon)
            self._ahead.close()
        super().close()
