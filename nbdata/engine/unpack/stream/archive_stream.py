"""Read an archive in volumes as a stream of members: join, decompress and parse it, each step reading ahead.

A cancel at once wakes threads that wait for bytes, even if a file system hangs.
"""

from __future__ import annotations

import contextlib
import io
import posixpath
import time
from collections.abc import Generator
from types import TracebackType

from nbdata.archives.decompress import Decompressed, open_decompressed
from nbdata.archives.member import Member
from nbdata.archives.member_budget import MemberBudget
from nbdata.archives.place import EVERYTHING, Place, Restart
from nbdata.archives.remarks import PADDING, Remarks
from nbdata.archives.single_file import Begun, read_file, single_name
from nbdata.archives.stream import REPAIR, JoinedStream, Readahead
from nbdata.archives.suspects import name_suspects
from nbdata.archives.tar import read_members
from nbdata.ending import Daemon
from nbdata.engine.job.run import Run
from nbdata.engine.unpack.stream.member_stream import collect_unmatched
from nbdata.engine.unpack.volumes.finding import VolumeList
from nbdata.errors import BadArchive
from nbdata.redaction import redacted
from nbdata.threads import processors
from nbdata.verbs.untar_volumes import UntarVolumes

__all__ = ["ArchiveStream"]

_SKIPPED = 1 << 20
# Threads that decompress, if there are as many processors.
_DECODERS = 4
# What to do about a damaged volume in a store.
_IN_STORE = "md5check finds it, and copy --overwrite always replaces it by a good copy"


class ArchiveStream:
    """The members of a tar archive; see `MemberStream`.

    Parameters
    ----------
    run : Run
    op : UntarVolumes
    volumes : VolumeList
    unmatched : list of str or None
        Receives the patterns that match no member, which else raise NotFound.
    place : Place, optional
        Where to begin, with the `restart` point before it and the `format` of the volumes.
    """

    members: Generator[Member, None, None]

    def __init__(
        self,
        run: Run,
        op: UntarVolumes,
        volumes: VolumeList,
        unmatched: list[str] | None = None,
        *,
        place: Place | None = None,
        restart: Restart | None = None,
        format: str = "",  # noqa: A002
    ) -> None:
        self._run, self._op, self._volumes, self._unmatched = run, op, volumes, unmatched
        self.remarks = Remarks()
        self.place, self.began, self.format = place or Place(), restart or Restart(), format or op.format
        self.read = 0
        self._looked = -1, 0  # bytes read at the last look-up of the volume, and its number
        self._stack = contextlib.ExitStack()
        self._top: io.RawIOBase | None = None
        self._decompressed: Decompressed | None = None  # None until it is open

    def volume(self) -> int:
        """The number of the last volume that was read from."""
        read, number = self._looked
        if read != self.read:  # one read gives many members
            read = self.read
            number = self._volumes.volume_at(self.began.compressed + read)
            self._looked = read, number
        return number

    @property
    def volume_begun(self) -> int:
        """The number of the volume in which reading began."""
        return self._volumes.volume_at(self.began.compressed) if self.began.compressed else 0

    @property
    def verified(self) -> int:
        """The offset up to which the checksums of the compression prove the tar stream."""
        return 0 if self._decompressed is None else self._decompressed.verified

    @property
    def proven(self) -> int:
        """The offset up to which the checksums of wholly read volumes prove the tar stream.

        This limits only plain tar, which has no checksums of its own.
        """
        if self.format != "tar" or not self._volumes.verified():
            return EVERYTHING
        return self._volumes.begun_at(self.began.compressed + self.read)

    def restart(self, offset: int) -> Restart:
        """The restart point from which an offset of the tar stream can be reached."""
        return Restart() if self._decompressed is None else self._decompressed.restart(offset)

    def __enter__(self) -> ArchiveStream:
        try:
            self._open()
        except BaseException as error:
            self._stack.close()
            self._name_suspects(error)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        self._name_suspects(error)

    def _name_suspects(self, error: BaseException | None) -> None:
        if isinstance(error, BadArchive):
            name_suspects(error, self._volumes.volumes, self._place())
            if error.remedy and not self._volumes.is_local():
                error.remedy = error.remedy.replace(REPAIR, _IN_STORE)

    def _place(self) -> str:
        """The place of the volumes as md5check takes it: their folder, if the source is one of them."""
        source = self._op.source
        if not isinstance(source, str):
            return ""
        folder, _, name = source.rpartition("/")
        if any(posixpath.basename(volume.name) == name for volume in self._volumes.volumes):
            source = f"{folder}/" if folder else "."
        return redacted(source)

    def _open(self) -> None:
        op, title = self._op, self._volumes.title
        joined = JoinedStream(self._volumes.volumes, on_progress=self._progress)
        if self.began.compressed:
            joined.seek(self.began.compressed)
        self._top = ahead = Readahead(joined)
        self._stack.callback(self._close)
        self._wake_on_cancel(ahead)
        decompressed, self.format = open_decompressed(
            ahead,
            format=self.format,
            name=title,
            start=self.began,
            threads=min(processors(), _DECODERS),
            max_window=op.max_window,
        )
        self._decompressed = decompressed
        top: io.RawIOBase = decompressed
        self._top = top
        if self.format != "tar":
            self._top = top = ahead = Readahead(top)
            self._wake_on_cancel(ahead)
        self._pass_over(top, self.place.offset - self.began.expanded)
        members: Generator[Member, None, None] | None = None
        single = single_name(title) if self.format != "tar" and not self.place.offset else None
        if single is not None:
            top = begun = Begun(top)
            if not begun.is_tar and op.shards is not None:
                raise BadArchive(
                    "it is a single compressed file and not an archive, so it makes no shards",
                    path=title,
                    expected="a tar or zip archive",
                    remedy="Unpack it to a folder, or as an object",
                )
            if not begun.is_tar:
                members = read_file(
                    top,
                    single,
                    self._made_ns(),
                    members=op.members,
                    exclude=op.exclude,
                    strip_components=op.strip_components,
                    max_expansion=op.max_expansion,
                    remarks=self.remarks,
                    to_the_end=not op.list,
                )
        if members is None:
            members = read_members(
                top,
                members=op.members,
                exclude=op.exclude,
                strip_components=op.strip_components,
                max_expansion=op.max_expansion,
                remarks=self.remarks,
                name=title,
                place=self.place,
                listing=op.list,
                budget=MemberBudget(lambda: self.began.compressed + self.read),
            )
        members = self._to_the_end(members)
        if self._unmatched is not None:
            members = collect_unmatched(members, self._unmatched)
        self.members = self._stack.enter_context(contextlib.closing(members))

    def _made_ns(self) -> int:
        """The modification time of a single compressed file: the time of its first volume, as gunzip does it."""
        modified = self._volumes.volumes[0].info.modified
        return int((time.time() if modified is None else modified) * 1e9)

    def _to_the_end(self, members: Generator[Member, None, None]) -> Generator[Member, None, None]:
        yield from members
        if self._decompressed is not None:
            self.remarks.trailing = self._decompressed.trailing
            self._look_at_zeros(self._decompressed.padding)

    def _look_at_zeros(self, padding: int) -> None:
        """Check whether the zeros behind the end fill whole volumes."""
        zeros = self.remarks.zeros if self.format == "tar" else padding
        self.remarks.zeros += padding
        if zeros > PADDING:
            end = self.began.compressed + self.read
            self.remarks.only_zeros = self._volumes.begins_behind(end - zeros)

    def _progress(self, count: int) -> None:
        self.read += count
        self._run.control.advance(bytes=count)

    def _pass_over(self, stream: io.RawIOBase, count: int) -> None:
        scratch = memoryview(bytearray(min(count, _SKIPPED)))
        while count:
            done = stream.readinto(scratch[:count])
            self._run.control.checkpoint()  # a cancel may look like the end
            if not done:
                raise BadArchive("the archive ends before the place to resume from", path=self._volumes.title)
            count -= done

    def _wake_on_cancel(self, ahead: Readahead) -> None:
        self._run.control.add(ahead.abandon)
        self._stack.callback(self._run.control.remove, ahead.abandon)

    def _close(self) -> None:
        """Close the chain; if the run is cancelled, do not wait for a store that hangs in a read."""
        stream = self._top
        assert stream is not None
        if self._run.control.is_set():
            closing = Daemon(stream.close, name="closing")
            closing.start()
            closing.join(0.3)
        else:
            stream.close()
