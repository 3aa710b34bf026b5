"""FFRecord files on the disk: their headers mapped into memory, and batches read into one buffer.

Samples of a batch are read in the order in which they lie, neighbours by one call. What the system has in memory is
read first; the rest is announced to the system all at once, so that the disk has several requests to work on.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nbdata.disk import disk_error
from nbdata.errors import BadArchive, BadOption
from nbdata.formats.ffrecord import FIXED, Head, count_in, head_size, refuse_wrong
from nbdata.reading.records.heads import Heads

__all__ = ["LocalFile", "LocalRecords"]

# Bytes of neighbours that are read by one call: then they are still in the processor's cache when they are compared.
_RUN = 512 << 10
# Reads only what is in memory already; 0 where the system does not have that.
_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
# How the system says that a file has no such reads, or that the bytes are not in memory.
_NOT_SO = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.EAGAIN)


class LocalFile:
    """One file, open. Its descriptor is closed with it.

    Attributes
    ----------
    head : Head
        Mapped from the file; not checked.
    """

    fd = -1

    def __init__(self, path: str) -> None:
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
            found = os.fstat(self.fd)
            if not stat.S_ISREG(found.st_mode):
                raise BadOption("this is no file", path=path)
            count = count_in(os.pread(self.fd, FIXED, 0), found.st_size, path)
            self._mapped = mmap.mmap(self.fd, head_size(count), prot=mmap.PROT_READ)
        except OSError as error:
            raise disk_error(error, path) from error
        self.head = Head(self._mapped, found.st_size, path)
        self.map: mmap.mmap | None = None

    def all(self) -> mmap.mmap:
        """The whole file, mapped."""
        if self.map is None:
            self.map = mmap.mmap(self.fd, self.head.size, prot=mmap.PROT_READ)
        return self.map

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class _Run(NamedTuple):
    """Neighbours in one file."""

    file: int
    start: int  # in the file
    begin: int  # in the buffer
    size: int
    samples: list[tuple[int, int, int]]  # number in the file, begin and end in the buffer


class LocalRecords:
    """Reads samples of files that are open; for many threads, and for children of a fork.

    Parameters
    ----------
    files : sequence of LocalFile
    compare : bool
        Whether samples are compared with the CRC-32 of the header.
    """

    def __init__(self, files: Sequence[LocalFile], *, compare: bool) -> None:
        self.files, self._compare = files, compare
        self.heads = Heads([file.head for file in files])

    def layout(self, numbers: Iterable[int]) -> tuple[list[_Run], list[tuple[int, int]], int]:
        """How a batch is read: the runs, where each sample then lies in the buffer, and the size of that."""
        asked = list(numbers)
        place, find = self.heads.place, self.heads.find
        places = [(0, 0)] * len(asked)
        runs: list[_Run] = []
        at, last, reached, room = 0, -1, -1, 0
        for position in sorted(range(len(asked)), key=asked.__getitem__):
            number = asked[position]
            file, start, end = place(number)
            size = end - start
            places[position] = (at, at + size)
            sample = (find(number)[1], at, at + size)
            if file == last and start == reached and size <= room:
                run = runs[-1]
                run.samples.append(sample)
                runs[-1] = run._replace(size=run.size + size)
                room -= size
            else:
                runs.append(_Run(file, start, at, size, [sample]))
                room = _RUN - size
            last, reached, at = file, end, at + size
        return runs, places, at

    def read_into(self, buffer: memoryview, runs: Sequence[_Run]) -> None:
        """Read a batch as `layout` says.

        Raises
        ------
        ChecksumMismatch
            If the bytes of a sample are wrong.
        BadArchive
            If the file has become shorter.
        """
        cold = [run for run in runs if not self._at_once(buffer, run)]
        for run in cold if len(cold) > 1 else ():
            os.posix_fadvise(self.files[run.file].fd, run.start, run.size, os.POSIX_FADV_WILLNEED)
        for run in cold:
            self._patiently(buffer[run.begin : run.begin + run.size], run)
            self._compared(buffer, run)

    def _at_once(self, buffer: memoryview, run: _Run) -> bool:
        """Read what is in memory; False if it is not, or not all."""
        if not _NOWAIT:
            return False
        view = buffer[run.begin : run.begin + run.size]
        try:
            if os.preadv(self.files[run.file].fd, [view], run.start, _NOWAIT) != run.size:
                return False
        except OSError as error:
            if error.errno not in _NOT_SO:
                raise disk_error(error, self.files[run.file].head.path) from error
            return False
        self._compared(buffer, run)
        return True

    def _patiently(self, view: memoryview, run: _Run) -> None:
        file, at = self.files[run.file], 0
        try:
            while at < len(view):
                count = os.preadv(file.fd, [view[at:]], run.start + at)
                if not count:
                    raise BadArchive(
                        "this FFRecord file became shorter while it was read", path=file.head.path,
                        remedy="Replace a file by renaming another one to its name, and open it again",
                    )  # fmt: skip
                at += count
        except OSError as error:
            raise disk_error(error, file.head.path) from error

    def _compared(self, buffer: memoryview, run: _Run) -> None:
        if self._compare:
            head = self.files[run.file].head
            for number, begin, end in run.samples:
                refuse_wrong(head, number, buffer[begin:end])

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        """Samples as objects of their own, each copied once; of neighbours twice."""
        runs, places, size = self.layout(numbers)
        if len(runs) == len(numbers):
            return self._one_by_one(numbers)
        buffer = memoryview(bytearray(size))
        self.read_into(buffer, runs)
        return [bytes(buffer[begin:end]) for begin, end in places]

    def _one_by_one(self, numbers: Sequence[int]) -> list[bytes]:
        found = []
        for number in numbers:
            file, own = self.heads.find(number)
            opened = self.files[file]
            start, end = opened.head.place(own)
            try:
                data = os.pread(opened.fd, end - start, start)
            except OSError as error:
                raise disk_error(error, opened.head.path) from error
            if len(data) != end - start:  # one call reads less than 2 GiB
                whole = bytearray(end - start)
                self._patiently(memoryview(whole), _Run(file, start, 0, end - start, []))
                data = bytes(whole)
            if self._compare:
                refuse_wrong(opened.head, own, data)
            found.append(data)
        return found
