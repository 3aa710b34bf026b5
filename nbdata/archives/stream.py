"""Joins volumes into one stream and reads ahead in a background thread.

`JoinedStream` does for a reader what ``cat vol-*`` does for a pipe. It is one read-only stream over all volumes,
without a merged file and with at most one volume open. It can tell which volume contains an offset, so errors in
higher layers still name the file to fetch again.

`Readahead` reads its source in a background thread, at most `Readahead.BLOCKS` blocks of `Readahead.BLOCK_SIZE` ahead.
Reading from the network and all decompressors release the GIL. So one Readahead below and one above the decompressor
keep two cores busy::

    JoinedStream -> Readahead -> open_decompressed -> Readahead -> read_members
"""

from __future__ import annotations

import io
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from nbdata.ending import Daemon
from nbdata.errors import BadArchive, BadOption

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["JoinedStream", "Readable", "Readahead", "VolumeSource", "bad_data", "volume_at"]

#: Key in the details of errors from `bad_data`; its value is one of the four kinds of fault.
FAULT = "fault"
DAMAGED, TRUNCATED, FOLLOWED, WRONG_CHECKSUM = "damaged", "truncated", "followed", "wrong checksum"
# Wrong bytes are often noticed long after they were read.
WHAT_THEN = "what was unpacked last may be wrong: run it again"
#: What to do about a volume on the disk; one in a store is not repaired in place.
REPAIR = "md5check --repair finds it and fetches it again"
_REMEDIES = {
    DAMAGED: f"It is damaged, or not whole: {REPAIR}; {WHAT_THEN}",
    WRONG_CHECKSUM: "That checksum covers all bytes before it, so any of them may be wrong, and any file unpacked "
    "so far: get the archive again, and run this again",
    TRUNCATED: "It is cut off: fetch it again. If it has more volumes, name all of them, or their folder",
    FOLLOWED: "Check that all volumes belong to it",
}


class Readable(Protocol):
    """An open volume."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill the buffer from its start and return the number of bytes; 0 only at the end."""

    def close(self) -> None:
        """Close the connection or file."""


class VolumeSource(Protocol):
    """A volume that can be opened; the engine implements it for each kind of store."""

    @property
    def name(self) -> str:
        """Name of the volume in messages."""

    @property
    def size(self) -> int | None:
        """Size in bytes; None if the store does not report it."""

    def open(self, offset: int, end: int | None = None, /) -> Readable:
        """Open a reader from one offset to another, or to the end."""


class JoinedStream(io.RawIOBase):
    """All volumes as one read-only stream.

    Closing it closes the volume that is open. It is seekable if the sizes of all volumes are known;
    a seek costs nothing until the next read, which opens the volume there.

    Parameters
    ----------
    volumes : sequence of VolumeSource
        In the order in which they are joined. A volume is opened when reading reaches it.
    on_progress : callable, optional
        Called with the number of bytes after each read.
    until : int, optional
        Offset after the last wanted byte, for volumes of known sizes. None: all.

    Raises
    ------
    BadArchive
        When read: if a volume ends before its announced size.
    """

    def __init__(
        self,
        volumes: Sequence[VolumeSource],
        *,
        on_progress: Callable[[int], None] | None = None,
        until: int | None = None,
    ) -> None:
        super().__init__()
        self._volumes = list(volumes)
        self._on_progress, self._until = on_progress, until
        self._reader: Readable | None = None
        self._index = 0  # of the current volume
        self._within = 0  # offset in that volume
        self._starts = [0]  # starts of the volumes: all of them if sizes are known, else those reached so far
        for volume in self._volumes:
            if volume.size is None:
                break
            self._starts.append(self._starts[-1] + volume.size)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return len(self._starts) == len(self._volumes) + 1

    def tell(self) -> int:
        return self._starts[self._index] + self._within

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if not self.seekable():
            raise io.UnsupportedOperation("seek in volumes of unknown size")
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self.tell(), io.SEEK_END: self._starts[-1]}[whence]
        target = base + offset
        if not 0 <= target <= self._starts[-1]:
            raise BadOption(f"offset {target} is outside the volumes", expected=f"0 to {self._starts[-1]}")
        if target != self.tell():
            self._close_volume()
            self._index = bisect_right(self._starts, target) - 1
            self._within = target - self._starts[self._index]
        return target

    def volume_at(self, offset: int) -> tuple[str, int] | None:
        """Return the name of the volume that contains an offset, and the offset in that volume.

        An offset at the end of the stream, or beyond the known volumes, belongs to the last known volume. None if there
        are no volumes at all.
        """
        if not self._volumes:
            return None
        index = min(bisect_right(self._starts, offset), len(self._volumes)) - 1
        return self._volumes[index].name, offset - self._starts[index]

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        if self.closed:
            raise ValueError("read from closed volumes")
        view = memoryview(buffer).cast("B")
        if self._until is not None:
            view = view[: max(0, self._until - self.tell())]
        while len(view) and self._index < len(self._volumes):
            count = self._read_volume(view)
            if count:
                if self._on_progress is not None:
                    self._on_progress(count)
                return count
            self._next_volume()
        return 0

    def _read_volume(self, view: memoryview) -> int:
        volume = self._volumes[self._index]
        if volume.size is not None:
            view = view[: volume.size - self._within]
            if not view:
                return 0
        if self._reader is None:
            end = None if self._until is None else self._until - self._starts[self._index]
            within = end is not None and volume.size is not None and end < volume.size
            self._reader = volume.open(self._within, end) if within else volume.open(self._within)
        count = self._reader.readinto(view) or 0
        if not count and volume.size is not None:
            raise BadArchive(
                f"volume {volume.name} ends at byte {self._within:,}",
                expected=f"{volume.size:,} bytes",
                remedy="Fetch this volume again",
                details={"volume": volume.name, "offset": self._within},
            )
        self._within += count
        return count

    def _next_volume(self) -> None:
        self._close_volume()
        self._index += 1
        if self._index == len(self._starts):
            self._starts.append(self._starts[-1] + self._within)
            for volume in self._volumes[self._index :]:
                if volume.size is None:
                    break
                self._starts.append(self._starts[-1] + volume.size)
        self._within = 0

    def _close_volume(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def close(self) -> None:
        if not self.closed:
            self._on_progress = None  # the callback's owner may hold this stream
            try:
                self._close_volume()
            finally:
                super().close()


def volume_at(stream: object, offset: int) -> tuple[str, int] | None:
    """Call `JoinedStream.volume_at` of any stream; None if the stream has no volumes."""
    locate = getattr(stream, "volume_at", None)
    return None if locate is None else locate(offset)


def bad_data(
    fault: str,
    what: str,
    stream: object,
    offset: int,
    *,
    name: str | None,
    unit: str = "byte",
    remedy: str | None = None,
) -> BadArchive:
    """Build the error for damaged data; it states where the damage was noticed.

    The volume to blame can be found only if all volumes are known (`nbdata.archives.suspects`).

    Parameters
    ----------
    fault : str
        `DAMAGED`, `TRUNCATED`, `FOLLOWED` by other data, or `WRONG_CHECKSUM`.
    what : str
        The start of the message.
    stream : object
        The stream that was read; if it is made of volumes, the error names the one with the byte before the offset.
    offset : int
    name : str or None
        Name of the archive in messages.
    unit : str
        The unit of the offset.
    remedy : str, optional
        Replaces the default remedy for the fault.
    """
    words, details = f"{unit} {offset:,}", dict[str, Any]({"offset": offset, FAULT: fault})
    where = volume_at(stream, max(offset - 1, 0))
    if where is not None:
        details["volume"] = where[0]
        words += f", in volume {where[0]}"
    return BadArchive(f"{what} at {words}", path=name, remedy=remedy or _REMEDIES[fault], details=details)


class Readahead(io.RawIOBase):
    """Reads a stream in a background thread, a limited number of blocks ahead.

    The reader gets the bytes in order, then the source's end or its exception, which repeats on every later read.
    Closing ends the thread and closes the source.

    Parameters
    ----------
    source : readable raw stream
        Owned from now on: no other object may read or close it.
    """

    BLOCKS = 8
    BLOCK_SIZE = 1 << 20
    _PATIENCE = 0.25  # seconds to wait for a running read to return by itself
    _LAST_PATIENCE = 0.5

    def __init__(self, source: io.RawIOBase) -> None:
        super().__init__()
        self._source = source
        self._queue = _BlockQueue(self.BLOCKS, self.BLOCK_SIZE)
        self._block = memoryview(b"")
        self._used = 0
        # The thread refers only to the queue and the source. So a Readahead that is dropped without close() can be
        # garbage collected, and its finaliser closes it.
        self._thread = Daemon(self._queue.run, source, name="nbdata-readahead")
        self._thread.start()

    def readable(self) -> bool:
        return True

    def volume_at(self, offset: int) -> tuple[str, int] | None:
        """`JoinedStream.volume_at` of the source."""
        return volume_at(self._source, offset)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        if self.closed:
            raise ValueError("read from a closed Readahead")
        view = memoryview(buffer).cast("B")
        if not view:
            return 0
        if self._used == len(self._block):
            self._block, self._used = self._queue.swap(self._block), 0
        piece = self._block[self._used : self._used + len(view)]
        view[: len(piece)] = piece
        self._used += len(piece)
        return len(piece)

    def block(self) -> memoryview:
        """Return the next bytes in place, valid until the next call; empty at the end."""
        if self.closed:
            raise ValueError("read from a closed Readahead")
        if self._used == len(self._block):
            self._block, self._used = self._queue.swap(self._block), 0
        piece, self._used = self._block[self._used :], len(self._block)
        return piece

    def abandon(self) -> None:
        """Wake a reader that waits for bytes, from any thread and at once.

        The reader gets the blocks already filled and then an end that is not the end of the data. The caller must not
        mistake it for the real end.
        """
        self._queue.stop()

    def close(self) -> None:
        """End the thread, then close the source.

        A thread that waits for room ends at once; a thread that reads ends after that read. If that takes too long, the
        source is closed while it is in use, which ends a read from most sockets and pipes. A thread that still hangs in
        its source is left behind as a daemon; it ends when the read returns.
        """
        if self.closed:
            return
        try:
            self._queue.stop()
            self._thread.join(self._PATIENCE)
            self._source.close()
            self._thread.join(self._LAST_PATIENCE)
        finally:
            self._queue.release()
            self._block = memoryview(b"")
            super().close()


# Output of a source that is smaller than this fraction of a block is copied into a block together with later output.
_COPIED = 8


class _BlockQueue:
    """The blocks exchanged by the two threads: free ones go to the background thread, filled ones come back.

    Blocks that the source allocated itself replace free ones, so the total number of blocks does not grow.
    """

    def __init__(self, blocks: int, block_size: int) -> None:
        self._changed = threading.Condition()
        self._free = deque(memoryview(bytearray(block_size)) for _ in range(blocks))
        self._filled: deque[memoryview] = deque()
        self._spare: deque[memoryview] = deque()  # free blocks in reserve, see `swap`
        self._ended = False
        self._stopped = False
        self._error: BaseException | None = None

    def run(self, source: io.RawIOBase) -> None:
        """Run the background thread: fill blocks until the source ends, fails, or the reader stops."""
        produce: Callable[[], memoryview] | None = getattr(source, "produce", None)  # allocates blocks
        try:
            while (block := self._take_free()) is not None:
                if not self._fill(block, source, produce):
                    break
        except BaseException as error:
            self._error = error
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _take_free(self) -> memoryview | None:
        with self._changed:
            self._changed.wait_for(lambda: self._free or self._stopped)
            return None if self._stopped else self._free.popleft()

    def _fill(
        self, block: memoryview, source: io.RawIOBase, produce: Callable[[], memoryview] | None
    ) -> bool:
        """Fill a block and hand it over, even if the source fails; False at the end."""
        filled = 0
        more = True
        if produce is not None:
            made = produce()
            if made and len(made) * _COPIED >= len(block):
                self._spare.append(block)
                self._hand_over(made)
                return True
            block[: len(made)], filled, more = made, len(made), bool(made)
        try:
            # A source with small reads fills a whole block, unless the reader is waiting.
            while more and filled < len(block) and not self._stopped and not (filled and not self._filled):
                count = source.readinto(block[filled:])
                if not count:
                    more = False
                    break
                filled += count
        finally:
            if filled:
                self._hand_over(block[:filled])
        return more

    def _hand_over(self, block: memoryview) -> None:
        with self._changed:
            self._filled.append(block)
            self._changed.notify_all()

    def swap(self, used: memoryview) -> memoryview:
        """Return a used block and get the next one, empty at the end; raises the source's exception."""
        with self._changed:
            if used.obj:
                self._free.append(self._spare.pop() if used.readonly else memoryview(used.obj))
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._filled or self._ended or self._stopped)
            if self._filled:
                return self._filled.popleft()
        if self._error is not None:
            raise self._error
        return memoryview(b"")

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def release(self) -> None:
        """Release all blocks, because a stored error may still refer to this queue."""
        with self._changed:
            self._free.clear()
            self._filled.clear()
            self._spare.clear()
            self._error = None
