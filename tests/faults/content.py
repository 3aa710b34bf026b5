"""File contents: immutable objects that share most of their bytes with earlier versions."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["Content"]

_PAGE = 1 << 16


class Content:
    """The bytes of a file, as an immutable object."""

    __slots__ = ("_pages", "size")

    def __init__(self, size: int = 0, pages: dict[int, bytes] | None = None) -> None:
        self.size, self._pages = size, pages or {}

    @classmethod
    def of(cls, data: bytes) -> Content:
        """Create a content from bytes."""
        return cls().written(0, memoryview(data))

    def written(self, at: int, data: memoryview) -> Content:
        """Return the content after a write of `data` at offset `at`."""
        pages, done = dict(self._pages), 0
        while done < len(data):
            number, start = divmod(at + done, _PAGE)
            piece = bytes(data[done : done + _PAGE - start])
            if len(piece) < _PAGE:
                old = pages.get(number, b"")
                piece = old[:start].ljust(start, b"\0") + piece + old[start + len(piece) :]
            pages[number] = piece
            done += _PAGE - start
        return Content(max(self.size, at + len(data)), pages)

    def truncated(self, size: int) -> Content:
        """Return the content after it is truncated or extended to a size."""
        last, rest = divmod(size, _PAGE)
        pages = {n: page for n, page in self._pages.items() if n < last}
        if rest and last in self._pages:
            pages[last] = self._pages[last][:rest]
        return Content(size, pages)

    def blocks(self) -> Iterator[bytes]:
        """Iterate over all bytes in order."""
        for number in range(-(-self.size // _PAGE)):
            length = min(_PAGE, self.size - number * _PAGE)
            yield self._pages.get(number, b"")[:length].ljust(length, b"\0")

    def __bytes__(self) -> bytes:
        return b"".join(self.blocks())

    def same(self, other: Content, start: int, end: int) -> bool:
        """True if both have the same bytes from `start`, a page boundary, to `end`."""
        assert start % _PAGE == 0
        if min(self.size, other.size) < end:
            return False
        for number in range(start // _PAGE, -(-end // _PAGE)):
            ours, theirs = self._pages.get(number, b""), other._pages.get(number, b"")
            length = min(_PAGE, end - number * _PAGE)
            if ours is not theirs and ours[:length].ljust(length, b"\0") != theirs[:length].ljust(
                length, b"\0"
            ):
                return False
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Content) and self.size == other.size and self.same(other, 0, self.size)

    def __hash__(self) -> int:
        return self.size
