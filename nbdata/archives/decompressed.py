"""The stream of decompressed bytes as its readers see it, and the stream of data that is not compressed."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

from nbdata.archives.place import EVERYTHING, Restart
from nbdata.archives.stream import volume_at

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["Decompressed", "Headed"]

_INPUT = 256 << 10
_OUTPUT = 1 << 20


class Decompressed(io.RawIOBase):
    """Base of the streams that `open_decompressed` returns."""

    def readable(self) -> bool:
        return True

    #: Bytes after the end that do not belong to the format; known at the end.
    trailing = 0
    #: Zeros after the end of the compressed data; known at the end.
    padding = 0

    @property
    def verified(self) -> int:
        """Offset up to which the bytes are verified, if the format has checksums; callable from any thread."""
        raise NotImplementedError

    def restart(self, offset: int) -> Restart:
        """Return the place where reading may begin to reach an offset; offsets must not decrease; one thread only."""
        raise NotImplementedError


class Headed(Decompressed):
    """A stream whose first bytes were already read."""

    def __init__(self, raw: io.RawIOBase, head: bytes) -> None:
        super().__init__()
        self._raw = raw
        self._block: Callable[[], memoryview] | None = getattr(raw, "block", None)
        self._head: bytes | memoryview = head
        self._own: memoryview | None = None  # buffer for a source that cannot show its own memory

    @property
    def verified(self) -> int:
        return EVERYTHING

    def restart(self, offset: int) -> Restart:
        return Restart(offset, offset)

    def volume_at(self, offset: int) -> tuple[str, int] | None:
        return volume_at(self._raw, offset)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        count = min(len(view), len(self._head))
        view[:count], self._head = self._head[:count], self._head[count:]
        if count < len(view):
            count += self._raw.readinto(view[count:]) or 0
        return count

    def block(self) -> memoryview:
        """Return the next bytes in place, valid until the next call; empty at the end."""
        block, self._head = memoryview(self._head), b""
        if not block and self._block is not None:
            block = self._block()
        elif not block:
            if self._own is None:
                self._own = memoryview(bytearray(_OUTPUT))
            block = self._own[: self._raw.readinto(self._own) or 0]
        return block

    def next_input(self) -> bytes:
        """Return at most `_INPUT` bytes, copied once; empty at the end."""
        if self._block is None:
            data = bytes(self._head) + (self._raw.read(_INPUT - len(self._head)) or b"")
            self._head = b""
        else:
            self._head = self._head or self._block()
            data, self._head = bytes(self._head[:_INPUT]), self._head[_INPUT:]
        return data

    def close(self) -> None:
        self._block, self._head, self._own = None, b"", None
        try:
            self._raw.close()
        finally:
            super().close()
