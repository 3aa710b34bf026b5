"""The bytes of one open file that is read through the cache of a mount."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from nbdata.errors import ChecksumMismatch
from nbdata.files.blocks.cache import BlockCache
from nbdata.files.blocks.kept_version import KeptVersion
from nbdata.files.blocks.version_file import BLOCK, size_of_block
from nbdata.files.connections import Place
from nbdata.files.fetching import First
from nbdata.files.proof import Proof
from nbdata.files.reading import ReadFile
from nbdata.files.window import Window
from nbdata.stores.base import ObjectInfo

__all__ = ["BlockWindow", "KeptFile", "open_kept"]

# Blocks that the system is told to read ahead from the disk, for a file that is read forward.
_AHEAD = 4


class BlockWindow:
    """The bytes of one version of one object, as `nbdata.files.window.Window` has them: for one thread at a time.

    Blocks that are not kept are fetched whole through a `Window`, which reads ahead. While nothing can be kept, that
    serves the reads alone.

    Parameters
    ----------
    cache : BlockCache
    version : KeptVersion
        Left when this is closed.
    place : Place
    first : First
        The start of the object, perhaps nothing of it, and its metadata.
    """

    def __init__(self, cache: BlockCache, version: KeptVersion, place: Place, first: First) -> None:
        self._cache, self._version = cache, version
        self._window = Window(place, first)
        self._size = first.info.size
        self._next = 0
        self._closed = False
        #: The file that is read, which knows what was compared.
        self.file: ReadFile | None = None
        version.settlings.add(self.settle)
        if len(first.data) == self._size <= BLOCK:
            with contextlib.suppress(ChecksumMismatch):  # it is fetched again when it is read
                cache.keep(version, 0, first.data)

    @property
    def is_proven(self) -> bool:
        """Whether all its bytes are those that were compared with the checksum in the store."""
        return self._version.proven

    def view(self, start: int, end: int) -> memoryview:
        """Return some bytes from `start` on, at least one and none from `end` on; both lie within the object."""
        number = start // BLOCK
        if not self._kept(number):
            self._version.tear()
            return self._cache.reach.run(lambda: self._window.view(start, end))
        if self._next == number and self._version.has(number) and self._version.file is not None:
            self._version.file.expect(number + 1, _AHEAD)
        data = self._cache.block(
            self._version, number, lambda: self._whole(number), lambda: self._alone(number)
        )
        self._next = number + 1
        return memoryview(data)[start - number * BLOCK : end - number * BLOCK]

    def goes_on(self, start: int) -> bool:
        """Whether a read goes on near the end of one before, or where the window holds or expects it."""
        number = start // BLOCK
        if self._next - 1 <= number <= self._next + 1:
            return True
        return not self._version.has(number) and self._window.goes_on(start)

    def apart(self, start: int, end: int) -> memoryview:
        """Return bytes from `start` on, as `view` does, for a read that jumps; many threads may do so at a time."""
        number = start // BLOCK
        if not self._kept(number):
            self._version.tear()
            return self._cache.reach.run(lambda: self._window.apart(start, end))
        data = self._cache.block(
            self._version, number, lambda: self._alone(number), lambda: self._alone(number)
        )
        return memoryview(data)[start - number * BLOCK : end - number * BLOCK]

    def _kept(self, number: int) -> bool:
        """Whether a block is read through the cache, which compares the blocks of what was proven."""
        return self._version.proven or self._version.has(number) or self._cache.keeps(self._version)

    def _whole(self, number: int) -> bytes:
        """Fetch a block through the window."""
        start = number * BLOCK
        size = size_of_block(self._size, number)
        view = self._window.view(start, start + size)
        if len(view) == size:
            return bytes(view)
        data = bytearray(view)
        while len(data) < size:
            data += self._window.view(start + len(data), start + size)
        return bytes(data)

    def _alone(self, number: int) -> bytes:
        """Fetch a block that is far from the others."""
        start = number * BLOCK
        size = size_of_block(self._size, number)
        return bytes(self._window.apart(start, start + size)[:size])

    def settle(self) -> None:
        """Tell the cache what the comparison of the file has shown."""
        if self.file is not None:
            self._cache.settle(self._version, self.file.proof)

    def close(self) -> None:
        """Drop what is held."""
        if not self._closed:
            self._closed = True
            self.settle()
            self.file = None
            self._version.settlings.discard(self.settle)
            self._window.close()
            self._cache.leave(self._version)


class KeptFile(NamedTuple):
    """A file of a mount with a cache.

    Attributes
    ----------
    file : ReadFile
    settled : bool
        Whether it may be taken for right once nothing is left to compare. Without the store, nothing can be compared.
    """

    file: ReadFile
    settled: bool


def open_kept(cache: BlockCache, place: Place, name: str, verify: str, listed: ObjectInfo) -> KeptFile:
    """Open a file of a mount, which is read through the cache if its versions can be told apart.

    Parameters
    ----------
    name : str
        As the user calls it.
    listed : ObjectInfo
        The version that was listed.

    Raises
    ------
    NbdataError
        If it cannot be opened.
    """
    first, answered = cache.first(place, listed)
    made: BlockWindow | None = None

    def window(place: Place, first: First) -> Window | BlockWindow:
        nonlocal made
        version = cache.enter(first.info)
        if version is None:
            return Window(place, first)
        made = BlockWindow(cache, version, place, first)
        return made

    file = ReadFile(place, name, verify, first=first, window=window)
    proven = made is not None and made.is_proven
    if proven:
        file.proof.proven = True
    elif not answered:
        file.proof = Proof(place, first.info, "none")
    if made is not None:
        made.file = file
    return KeptFile(file, proven or answered)
