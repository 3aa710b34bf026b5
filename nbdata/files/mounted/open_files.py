"""The open files of a mount: which version each is, and its bytes."""

from __future__ import annotations

import errno
import itertools
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from nbdata.errors import ChecksumMismatch, NbdataError, SourceChanged, without_calls
from nbdata.files.blocks.cache import BlockCache
from nbdata.files.blocks.window import open_kept
from nbdata.files.connections import Place
from nbdata.files.mounted.ahead import Ahead
from nbdata.files.mounted.folders import Folders
from nbdata.files.proof import Early, Proof
from nbdata.files.reading import ReadFile
from nbdata.reading.pieces import Content
from nbdata.stores.base import ObjectInfo

__all__ = ["MOST", "Failures", "OpenFile", "OpenFiles"]

#: The most files that are open at a time.
MOST = 10_000
# A read this far ahead of the last one waits so many seconds for those between: the kernel's come on many threads.
_NEAR, _PATIENCE = 2 << 20, 0.02


@dataclass(slots=True)
class _Shared:
    """What compares a file for all who read it through what the kernel holds: each asks for a part of it only.

    Attributes
    ----------
    path : str
    info : ObjectInfo
        The version.
    proof : Proof
    alone : bool
        Whether no other file of this path was open when it was made: what the kernel holds is compared by it, then.
    open : int
        How many open files share it.
    """

    path: str
    info: ObjectInfo
    proof: Proof
    alone: bool
    open: int = 0

    def takes(self, info: ObjectInfo) -> bool:
        """Return whether one more open file may share it: all that was given out of this version is compared."""
        same = bool(info.etag) and (info.etag, info.size) == (self.info.etag, self.info.size)
        proof = self.proof
        return same and proof.followed and not proof.repeated and proof.wrong is None


class Opened(NamedTuple):
    """A file that was opened.

    Attributes
    ----------
    number : int
    same : bool
        Whether it is the version that was listed.
    follows : bool
        Whether what the kernel holds of it came from files that are open still, and all of that is compared together.
    """

    number: int
    same: bool
    follows: bool


class OpenFile:
    """One open file; many threads may read it.

    Parameters
    ----------
    path : str
    source : bytes-like or ReadFile
        The content of a small file, or what reads it.
    same : bool
        Whether it is the version that the kernel was told of.
    shared : _Shared or None
        What compares it, for all who read it through what the kernel holds; None if nothing is left to compare.
    settled : bool
        Whether it is right then: see `nbdata.files.blocks.window.KeptFile`.
    """

    def __init__(
        self, path: str, source: Content | ReadFile, same: bool, shared: _Shared | None, settled: bool = True
    ) -> None:
        self.path, self._source, self._same, self._settled, self.shared = path, source, same, settled, shared
        self._turn = threading.Condition()
        self._next = 0
        self._wrong: NbdataError | None = None

    def read(self, size: int, offset: int) -> list[memoryview]:
        """Return the bytes from an offset on, fewer at the end of the file, in parts that are not copied."""
        source = self._source
        if not isinstance(source, ReadFile):
            return [memoryview(source)[offset : offset + size]]
        try:
            with self._turn:
                if (
                    0 < offset - self._next <= _NEAR
                ):  # in order, they are read ahead and compared with the checksum
                    self._turn.wait_for(lambda: offset <= self._next, _PATIENCE)
                if self._wrong is not None:  # the kernel asks again for what failed
                    raise self._wrong
                if source.goes_on(offset):
                    return self._read(source, size, offset)
            return self._read_apart(source, size, offset)
        except (ChecksumMismatch, SourceChanged) as error:
            self._wrong = without_calls(error)  # type: ignore[assignment]
            raise

    def _read_apart(self, source: ReadFile, size: int, offset: int) -> list[memoryview]:
        """Read at a place far from the others, while other threads do so, too."""
        parts, end = list[memoryview](), min(offset + size, source.size)
        while offset < end:
            parts.append(source.read_apart(offset, end - offset))
            offset += len(parts[-1])
        return parts

    def _read(self, source: ReadFile, size: int, offset: int) -> list[memoryview]:
        source.seek(offset)
        parts = source.read_parts(size)
        self._next = source.tell()
        self._turn.notify_all()
        return parts

    @property
    def fetches(self) -> bool:
        """Whether its bytes are fetched when they are read."""
        return isinstance(self._source, ReadFile)

    @property
    def is_proven(self) -> bool:
        """Whether nothing is left to compare of the version that the kernel was told of."""
        source = self._source
        if isinstance(source, ReadFile) and (source.proof.is_open or source.proof.repeated):
            return False
        return self._same and self._settled

    def close(self) -> None:
        """Let its memory go."""
        if isinstance(self._source, ReadFile):
            with self._turn:
                self._source.close()


class OpenFiles:
    """The open files of one mount, by number.

    Parameters
    ----------
    place : Place
        The folder that is mounted.
    folders : Folders
    verify : str
        See `nbdata.verbs.options.Verifying`.
    cache : BlockCache, optional
        The cache on the disk that they are read through.
    """

    def __init__(self, place: Place, folders: Folders, verify: str, cache: BlockCache | None = None) -> None:
        self._place, self._folders, self._verify, self._cache = place, folders, verify, cache
        self.ahead = Ahead(place, verify) if cache is None else Ahead(place, verify, cache.fetch)
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._open: dict[int, OpenFile] = {}
        self._early = Early()
        # By path: what compares the file for those who open it now.
        self._shared: dict[str, _Shared] = {}
        # By path: how many files are open that fetch by themselves.
        self._readers = Counter[str]()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, path: str, info: ObjectInfo) -> Opened:
        """Open a file that was listed so.

        Without an ETag in the listing, one of the same size is taken for the same.

        Raises
        ------
        OSError
            EMFILE if too many are open.
        NbdataError
            If it cannot be opened.
        """
        if len(self._open) >= MOST:
            raise OSError(errno.EMFILE, f"more than {MOST:,} files are open in this mount")
        source: Content | ReadFile | None = self.ahead.take(path, info, self._folders.known(path))
        same = settled = True
        if source is None:
            place = self._place._replace(key=self._folders.key_of(path))
            if self._cache is None:
                source = ReadFile(place, path, self._verify)
            else:
                source, settled = open_kept(self._cache, place, path, self._verify, info)
            now = source.version
            same = now.size == info.size and now.etag == (info.etag or now.etag)
            if now.etag != info.etag or not same:
                self._folders.note(path, now)
        with self._lock:
            number = next(self._numbers)
            shared = None
            follows = False
            if isinstance(source, ReadFile) and same and source.proof.is_open:
                shared, follows = self._share(path, source)
            if isinstance(source, ReadFile):
                self._readers[path] += 1
            self._open[number] = OpenFile(path, source, same, shared, settled)
        return Opened(number, same, follows)

    def _share(self, path: str, source: ReadFile) -> tuple[_Shared, bool]:
        """Have a file compared together with those of its version that are open, if nothing of them was left out."""
        info = source.version
        found = self._shared.get(path)
        if found is None or not found.takes(info):
            place = self._place._replace(key=self._folders.key_of(path))
            proof, alone = Proof(place, info, self._verify, self._early), not self._readers[path]
            found = self._shared[path] = _Shared(path, info, proof, alone)
        source.proof = found.proof
        found.open += 1
        # Nothing was asked for yet: the kernel may hold what is older, and has not heard yet that it is to drop it.
        return found, found.proof.begun and found.alone

    def read(self, number: int, size: int, offset: int) -> list[memoryview]:
        """Read an open file; see `OpenFile.read`."""
        return self._open[number].read(size, offset)

    def lines(self) -> list[str]:
        """Return what people are told of the cache."""
        return [] if self._cache is None else self._cache.lines(time.time(), self._folders.oldest_kept)

    def is_proven(self, number: int) -> bool:
        """Return whether nothing is left to compare of an open file; see `OpenFile.is_proven`."""
        found = self._open.get(number)
        return found is not None and found.is_proven

    def close(self, number: int) -> None:
        """Close a file."""
        with self._lock:
            found = self._open.pop(number, None)
            if found is not None and found.fetches:
                self._readers[found.path] -= 1
                if not self._readers[found.path]:
                    del self._readers[found.path]
            if found is not None and (shared := found.shared) is not None:
                shared.open -= 1
                if not shared.open:
                    shared.proof.close()
                    if self._shared.get(shared.path) is shared:
                        del self._shared[shared.path]
        if found is not None:
            found.close()


class Failures:
    """Counts the errors of a mount, and keeps the latest, for people who wonder."""

    def __init__(self) -> None:
        self.count = 0
        self.latest = ""

    def add(self, path: str, error: NbdataError | OSError) -> None:
        """Note one."""
        self.count += 1
        self.latest = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {path}: {type(error).__name__}: {error}"
