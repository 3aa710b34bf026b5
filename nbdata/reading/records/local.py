"""FFRecord files on the disk: headers are mapped into memory, and a batch is read into one buffer.

The samples of a batch are read in file order, neighbours with one call. Data in the page cache is read first. The rest
is announced to the system all at once, so that the disk has several requests to work on.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

from isal.isal_zlib import crc32

from nbdata.disk import disk_error
from nbdata.errors import BadArchive, BadOption, NbdataError
from nbdata.formats.ffrecord import FIXED, Head, count_in, head_size, refuse_wrong
from nbdata.reading.records.heads import Heads
from nbdata.reading.records.runs import cut, first_wrong, is_ascending, stretches

__all__ = ["LocalFile", "LocalRecords"]

# Most bytes of neighbours that one call reads: they are still in the processor's cache when they are compared.
_RUN = 512 << 10
# Up to this many bytes of mean size a second copy costs less than asking first what is in memory.
_SMALL = 32 << 10
# Flag to read only data in the page cache; 0 if the system has no such flag.
_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
# Errors that mean: no such reads for this file, or the bytes are not in memory.
_NOT_SO = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.EAGAIN)


class LocalFile:
    """One open file. Its descriptor is closed with the object.

    Attributes
    ----------
    head : Head
        Mapped from the file; not checked.
    """

    fd = -1

    def __init__(self, path: str) -> None:
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
            status = os.fstat(self.fd)
            if not stat.S_ISREG(status.st_mode):
                raise BadOption("this is no file", path=path)
            count = count_in(os.pread(self.fd, FIXED, 0), status.st_size, path)
            self._mapped = _mapped(self.fd, head_size(count), path)
        except OSError as error:
            if isinstance(error, NbdataError):
                raise
            raise disk_error(error, path) from error
        self.head = Head(self._mapped, status.st_size, path)
        self.map: mmap.mmap | None = None

    def all(self) -> mmap.mmap:
        """The whole file, mapped."""
        if self.map is None:
            self.map = _mapped(self.fd, self.head.size, self.head.path)
        return self.map

    def __del__(self, _close: Callable[[int], None] = os.close) -> None:
        if self.fd >= 0:
            _close(self.fd)


#: Neighbours in one file: the file, their start there and in the buffer, their bytes, and per sample its number in the
#: file and its start and end in the buffer. A tuple, because making an object takes longer than reading a sample.
_Run = tuple[int, int, int, int, list[tuple[int, int, int]]]


class LocalRecords:
    """Reads samples of open files; for many threads, and for children of a fork.

    Parameters
    ----------
    files : sequence of LocalFile
    compare : bool
        Whether samples are compared with the CRC-32 of the header.
    """

    def __init__(self, files: Sequence[LocalFile], *, compare: bool) -> None:
        self.files, self._compare = files, compare
        self.heads = Heads([file.head for file in files])
        self._are_small = self.heads.bytes <= self.heads.count * _SMALL

    def layout(self, numbers: Iterable[int]) -> tuple[list[_Run], list[tuple[int, int]], int]:
        """Plan the reading of a batch: the runs, the place of each sample in the buffer, and the buffer's size."""
        asked = list(numbers)
        find, heads = self.heads.find, self.heads
        places = [(0, 0)] * len(asked)
        runs: list[_Run] = []
        samples: list[tuple[int, int, int]] = []
        at = room = 0
        last = reached = first = begin = -1
        for position in sorted(range(len(asked)), key=asked.__getitem__):
            file, own = find(asked[position])
            start, end = heads[file].place(own)
            size = end - start
            if start != reached or size > room or file != last:
                if samples:
                    runs.append((last, first, begin, at - begin, samples))
                samples, first, begin, last, room = [], start, at, file, max(size, _RUN)
            samples.append((own, at, at + size))
            places[position] = (at, at + size)
            room -= size
            reached, at = end, at + size
        if samples:
            runs.append((last, first, begin, at - begin, samples))
        return runs, places, at

    def read_into(self, buffer: memoryview, runs: Sequence[_Run]) -> None:
        """Read a batch as planned by `layout`.

        Raises
        ------
        ChecksumMismatch
            If the bytes of a sample are wrong.
        BadArchive
            If the file has been truncated.
        """
        cold = self._what_is_there(buffer, runs)
        for file, start, _, size, _ in cold if len(cold) > 1 else ():
            _announce(self.files[file].fd, start, size)
        for run in cold:
            self._patiently(buffer[run[2] : run[2] + run[3]], run[0], run[1])
            self._compared(buffer, run)

    def _what_is_there(self, buffer: memoryview, runs: Sequence[_Run]) -> Sequence[_Run]:
        """Read the runs that are in memory; return those that are not, or only in part."""
        if not _NOWAIT:
            return runs
        cold: list[_Run] = []
        files, compare, read = self.files, self._compare, os.preadv
        for run in runs:
            file, start, begin, size, samples = run
            opened, view = files[file], buffer[begin : begin + size]
            try:
                if read(opened.fd, (view,), start, _NOWAIT) != size:
                    cold.append(run)
                    continue
            except OSError as error:
                if error.errno not in _NOT_SO:
                    raise disk_error(error, opened.head.path) from error
                cold.append(run)
                continue
            if not compare:
                continue
            if len(samples) > 1:
                self._compared(buffer, run)
            elif crc32(view) != opened.head.crcs[samples[0][0]]:
                own = samples[0][0]
                refuse_wrong(opened.head, own, view, record=self.heads.begins[file] + own)
        return cold

    def _patiently(self, view: memoryview, number: int, start: int) -> None:
        file, at = self.files[number], 0
        try:
            while at < len(view):
                count = os.preadv(file.fd, [view[at:]], start + at)
                if not count:
                    raise _shorter(file.head.path)
                at += count
        except OSError as error:
            raise disk_error(error, file.head.path) from error

    def _compared(self, buffer: memoryview, run: _Run) -> None:
        if self._compare:
            head, before = self.files[run[0]].head, self.heads.begins[run[0]]
            for number, begin, end in run[4]:
                refuse_wrong(head, number, buffer[begin:end], record=before + number)

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        """Return samples as separate objects; each is copied once, neighbours twice.

        Raises
        ------
        ChecksumMismatch
            If the bytes of a sample are wrong.
        BadArchive
            If the file has been truncated, or a header that was not checked makes no sense.
        """
        ordered = numbers if is_ascending(numbers) else sorted(set(numbers))
        ranges = stretches(ordered)
        if self._are_small and 2 * len(ranges) > len(ordered):
            runs, places, size = self.layout(numbers)
            buffer = memoryview(bytearray(size))
            self.read_into(buffer, runs)
            return [bytes(buffer[begin:end]) for begin, end in places]
        self._announce_cold(ranges)
        records: list[bytes] = []
        for first, end in ranges:
            if end - first == 1:
                records.append(self._one(first))
            else:
                self._add(records, first, end)
        if ordered is numbers:
            return records
        of_number = dict(zip(ordered, records, strict=True))
        return [of_number[number] for number in numbers]

    def _announce_cold(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Have the system start reading the ranges that are not in memory, found by the first byte of each."""
        if not _NOWAIT or len(ranges) < 2:
            return
        byte, cold = bytearray(1), []
        for first, end in ranges:
            file, start, behind = self.heads.place(first)
            try:
                os.preadv(self.files[file].fd, (byte,), start, _NOWAIT)
            except OSError:  # reading it later reports the error
                if end - first > 1:
                    last = self.heads.place(end - 1)
                    behind = last[2] if last[0] == file else self.files[file].head.size
                cold.append((file, start, behind - start))
        for file, start, size in cold if len(cold) > 1 else ():
            _announce(self.files[file].fd, start, size)

    def _add(self, records: list[bytes], first: int, end: int) -> None:
        """Read consecutive samples, which may lie in several files."""
        while first < end:
            file, own = self.heads.find(first)
            head = self.files[file].head
            count = min(end - first, head.count - own)
            bounds, at = head.bounds(own, count), 0
            while at < count:
                stop = max(at + 1, bisect_right(bounds, bounds[at] + _RUN) - 1)
                contents = cut(bounds[at : stop + 1], self._bytes(file, bounds[at], bounds[stop]))
                wrong = first_wrong(head, own + at, contents) if self._compare else None
                if wrong is not None:
                    refuse_wrong(head, own + at + wrong, contents[wrong], record=first + at + wrong)
                records += contents
                at = stop
            first += count

    def _bytes(self, file: int, start: int, end: int) -> bytes:
        opened = self.files[file]
        try:
            data = os.pread(opened.fd, end - start, start)
        except OSError as error:
            raise disk_error(error, opened.head.path) from error
        if len(data) != end - start:  # one call reads less than 2 GiB
            whole = bytearray(end - start)
            self._patiently(memoryview(whole), file, start)
            data = bytes(whole)
        return data

    def _one(self, number: int) -> bytes:
        file, own = self.heads.find(number)
        head = self.files[file].head
        data = self._bytes(file, *head.place(own))
        if self._compare:
            refuse_wrong(head, own, data, record=number)
        return data


def _announce(fd: int, start: int, size: int) -> None:
    """Have the system start reading a range, if it supports that."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, start, size, os.POSIX_FADV_WILLNEED)


def _mapped(fd: int, size: int, path: str) -> mmap.mmap:
    try:
        # Some file systems in user space refuse shared maps.
        return mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
    except ValueError as error:  # the file is shorter by now
        raise _shorter(path) from error


def _shorter(path: str) -> BadArchive:
    return BadArchive(
        "this FFRecord file became shorter while it was read",
        path=path,
        remedy="Replace a file by renaming another one to its name, and open it again",
    )
