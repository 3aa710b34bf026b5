"""Read a range of an open file: in blocks, or as the source of a write to a store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

from isal.isal_zlib import crc32

from nbdata.disk import disk_error
from nbdata.errors import SourceChanged
from nbdata.transfer.control import Control
from nbdata.transfer.send import Hasher

__all__ = ["FileSource", "blocks"]


def blocks(control: Control, fd: int, start: int, size: int, path: str) -> Iterator[memoryview]:
    """Yield up to `size` bytes of a file from an offset on. Each block is valid until the next one."""
    view, end = memoryview(bytearray(min(1 << 20, size))), start + size
    while start < end:
        try:
            count = os.preadv(fd, [view[: end - start]], start)
        except OSError as error:
            raise disk_error(error, path) from error
        if not count:
            return
        yield view[:count]
        start += count
        control.checkpoint()


class FileSource:
    """A range of an open file as the source of a write. It hashes and counts bytes, and can be stopped.

    `unchanged` is called at the end, before the receiver gets the last piece (see stores.filling.fill). With `ahead`,
    the range is read and hashed before it is sent, so that the store gets its digest first. The second read must give
    the same bytes: a write through a memory mapping changes a file without changing its times.
    """

    def __init__(
        self,
        control: Control,
        fd: int,
        start: int,
        size: int,
        hasher: Hasher,
        unchanged: Callable[[], None] = lambda: None,
        *,
        ahead: bool = False,
    ) -> None:
        self._control, self._fd, self._unchanged = control, fd, unchanged
        self._at, self._end = start, start + size
        self._hash: Callable[[memoryview], object] = hasher.update
        self._crc, self._expected = 0, 0
        self.sent = 0
        self.headers: Mapping[str, str] = {}
        self.md5 = ""
        if ahead:
            for piece in blocks(control, fd, start, size, "the source file"):
                hasher.update(piece)
                self._expected = crc32(piece, self._expected)
            self.md5, self._hash = hasher.hexdigest(), self._again

    def readinto(self, buffer: memoryview, /) -> int:
        self._control.checkpoint()
        want = min(len(buffer), self._end - self._at, self._control.block)
        if want <= 0:
            if len(buffer):
                self._unchanged()
                if self._crc != self._expected:
                    raise SourceChanged("the file changed while it was sent")
            return 0
        try:
            count = os.preadv(self._fd, [buffer[:want]], self._at)
        except OSError as error:
            raise disk_error(error, "the source file") from error
        if not count:
            raise SourceChanged("the file became shorter while it was sent")
        self._hash(buffer[:count])
        self._at += count
        self.sent += count
        self._control.advance(bytes=count)
        return count

    def _again(self, data: memoryview) -> None:
        self._crc = crc32(data, self._crc)

    def close(self) -> None:
        """Do nothing: the caller closes the file."""
