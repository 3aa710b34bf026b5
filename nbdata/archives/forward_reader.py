"""A forward-only stream that is read in blocks, tracks the position and builds errors with it."""

from __future__ import annotations

import io
from collections.abc import Callable

from nbdata.archives.stream import DAMAGED, FOLLOWED, TRUNCATED, bad_data
from nbdata.errors import BadArchive

__all__ = ["ForwardReader"]

_BUFFER = 1 << 20
# Content above this size is collected in one growing piece of memory.
_LARGE = 64 << 20


class ForwardReader:
    """Reads the headers and contents of a tar stream.

    Blocks are taken as the source has them in memory (`Readahead.block`), so small content is copied only once. The
    source stays open.

    Parameters
    ----------
    source : readable raw stream
    name : str or None
        Name of the archive in messages.
    position : int
        Position of `source` in the tar stream.
    """

    def __init__(self, source: io.RawIOBase, name: str | None, position: int) -> None:
        self._source = source
        self._next: Callable[[], memoryview] = getattr(source, "block", None) or _blocks_of(source)
        self._block = memoryview(b"")
        self._at = 0  # position in the block
        self._begins = position  # start of the block in the stream
        self.name = name
        self.header_budget: int | None = None

    def tell(self) -> int:
        """Return the position in the tar stream."""
        return self._begins + self._at

    def peek(self, size: int) -> memoryview | None:
        """Return the next bytes without consuming them, if they lie together in memory; valid until more are read."""
        if self._at == len(self._block):
            self._more()
        end = self._at + size
        return self._block[self._at : end] if end <= len(self._block) else None

    def rest(self) -> memoryview:
        """Return the rest of the current block without consuming it; valid until the next read."""
        if self._at == len(self._block):
            self._more()
        return self._block[self._at :]

    def wind(self, size: int) -> None:
        """Skip bytes that `peek` or `rest` returned."""
        self._at += size

    def read(self, size: int) -> bytes:
        """Read at most `size` bytes, fewer only at the end; for headers, whose size `header_budget` limits."""
        if self.header_budget is not None:
            self.header_budget -= size
            if self.header_budget < 0 or size < 0:
                raise self.bad("has a header of impossible length")
        return self._take(size)

    def content(self, size: int) -> bytes | memoryview:
        """Return exactly `size` bytes, which stay valid; raises if the archive ends too early."""
        end = self._at + size
        if end <= len(self._block) and self._block.readonly:  # no code writes to it again
            piece, self._at = self._block[self._at : end], end
            return piece
        data = self._take(size)
        if len(data) < size:
            raise self.ends_too_early()
        return data

    def fill(self, view: memoryview) -> None:
        """Fill the view; raises if the archive ends too early."""
        filled = 0
        while filled < len(view):
            piece = self._piece(len(view) - filled)
            if not piece:
                raise self.ends_too_early()
            view[filled : filled + len(piece)] = piece
            filled += len(piece)

    def skip_to(self, position: int) -> None:
        """Skip forward to a position."""
        at = position - self._begins
        if self._at <= at <= len(self._block):
            self._at = at
            return
        while (left := position - self.tell()) > 0:
            if not self._piece(left):
                raise self.ends_too_early()

    def drain(self) -> int:
        """Read the rest, which must be zeros, and return their number."""
        begins = self.tell()
        while piece := self._piece(_BUFFER):
            data = bytes(piece)
            if data.count(0) < len(data):
                self._at -= len(data.lstrip(b"\0"))
                raise self.goes_on()
        return self.tell() - begins

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end <= len(self._block):
            data, self._at = bytes(self._block[self._at : end]), end
            return data
        if size > _LARGE:  # joining pieces would hold all of it twice
            whole = io.BytesIO()
            while size > 0 and (piece := self._piece(size)):
                whole.write(piece)
                size -= len(piece)
            return whole.getvalue()
        pieces: list[bytes] = []
        while size > 0 and (piece := self._piece(size)):
            pieces.append(bytes(piece))
            size -= len(piece)
        return b"".join(pieces)

    def _piece(self, most: int) -> memoryview:
        """Return some of the next bytes; empty at the end."""
        if self._at == len(self._block):
            self._more()
        piece = self._block[self._at : self._at + most]
        self._at += len(piece)
        return piece

    def _more(self) -> None:
        self._begins, self._at, self._block = self.tell(), 0, memoryview(b"")
        self._block = self._next()

    def ends_too_early(self) -> BadArchive:
        """Return the error for a stream that ends too early."""
        remedy = "Check that the last volume is there, and whole"
        return self._bad(TRUNCATED, "ends too early", remedy)

    def goes_on(self) -> BadArchive:
        """Return the error for a stream that continues after its end."""
        return self._bad(
            FOLLOWED,
            "has more data after its end",
            "If several archives were joined, cut them apart, or unpack them with tar --ignore-zeros; "
            "else fetch it again: zeros where data should be look like an end",
        )

    def bad(self, what: str) -> BadArchive:
        """Return the error for damage found here, with the volume that contains it."""
        return self._bad(DAMAGED, what)

    def _bad(self, fault: str, what: str, remedy: str | None = None) -> BadArchive:
        what = f"the tar archive {what}"
        return bad_data(fault, what, self._source, self.tell(), name=self.name, remedy=remedy)

    def close(self) -> None:
        """Release the source's memory."""
        self._begins, self._at, self._block = self.tell(), 0, memoryview(b"")


def _blocks_of(source: io.RawIOBase) -> Callable[[], memoryview]:
    """Read a stream in blocks, for a source that cannot show its own memory."""
    buffer = memoryview(bytearray(_BUFFER))

    def read() -> memoryview:
        return buffer[: source.readinto(buffer) or 0]

    return read
