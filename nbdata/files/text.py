"""Files of text, and compressed files: what they are written through appears only if all went well."""

from __future__ import annotations

import contextlib
import io
from types import TracebackType
from typing import Any

__all__ = ["CompressedFile", "TextFile", "discard"]


def discard(file: Any) -> None:
    """Give up a file that is being written; do nothing for any other file."""
    give_up = getattr(file, "discard", None)
    if give_up is not None:
        give_up()


def ended_well(file: Any) -> None:
    """Tell a file that is being written that its block raised nothing; do nothing for any other file."""
    tell = getattr(file, "ended_well", None)
    if tell is not None:
        tell()


def forgotten(file: Any) -> None:
    """Give up a file that is being written and that nobody has any more; do nothing for any other file."""
    give_up = getattr(file, "forgotten", None)
    if give_up is not None:
        give_up()


def _end_block(file: TextFile | CompressedFile, kind: type[BaseException] | None) -> None:
    """Close a file at the end of its ``with`` block; if that raised, nothing is written."""
    if kind is not None:
        file.discard()
        with contextlib.suppress(Exception):
            file.close()
    else:
        file.ended_well()
        file.close()


class TextFile(io.TextIOWrapper):
    """Text over a file of a store; if its ``with`` block raises, nothing is written."""

    def discard(self) -> None:
        """Give the file up: nothing appears under its name."""
        discard(self.buffer)

    def close(self) -> None:
        """Write the rest, and close the file of the store; it is given up if that fails."""
        if self.closed:
            return
        try:
            self.flush()
        except BaseException:
            self.discard()
            raise
        finally:
            super().close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # it was not opened, or its file was detached
            forgotten(self.buffer)
            super().close()

    def ended_well(self) -> None:
        """See `WriteFile.ended_well`."""
        ended_well(self.buffer)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _end_block(self, kind)


class CompressedFile(io.BufferedIOBase):
    """A compressor over a file of a store, which is closed with it.

    Parameters
    ----------
    file : io.BufferedIOBase
        The file of the store.
    through : io.BufferedIOBase
        Compresses what is written to it, and writes it to `file`; or decompresses what is read.
    """

    def __init__(self, file: Any, through: Any) -> None:
        super().__init__()
        self._file, self._through = file, through
        self.name = file.name

    def read(self, size: int | None = -1, /) -> bytes:
        return bytes(self._through.read(-1 if size is None else size))

    def read1(self, size: int = -1, /) -> bytes:
        return self.read(size)

    def readinto(self, buffer: Any, /) -> int:
        return int(self._through.readinto(buffer))

    def readline(self, size: int | None = -1, /) -> bytes:
        return bytes(self._through.readline(-1 if size is None else size))

    def write(self, data: Any, /) -> int:
        return int(self._through.write(data))

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return int(self._through.seek(offset, whence))

    def tell(self) -> int:
        return int(self._through.tell())

    def readable(self) -> bool:
        return bool(self._file.readable())

    def writable(self) -> bool:
        return bool(self._file.writable())

    def seekable(self) -> bool:
        return bool(self._through.seekable())

    def discard(self) -> None:
        """Give the file up: nothing appears under its name."""
        discard(self._file)

    def close(self) -> None:
        if not self.closed:
            try:
                self._through.close()
            finally:
                self._file.close()
                super().close()

    def ended_well(self) -> None:
        """See `WriteFile.ended_well`."""
        ended_well(self._file)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _end_block(self, kind)

    def forgotten(self) -> None:
        """See `WriteFile.forgotten`."""
        forgotten(self._file)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.forgotten()
            self.close()
