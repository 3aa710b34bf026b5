"""A partially fetched object on disk: its bytes at their offsets, and a record of the finished parts."""

from __future__ import annotations

import abc
import contextlib
import os
import stat
import sys
import threading
from collections.abc import Callable

from nbdata.disk import begin_writing, disk_error
from nbdata.errors import NbdataError
from nbdata.optional_calls import fdatasync
from nbdata.sealed_lines import format_line
from nbdata.seals import Seals
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.part_records import PartRecord, boot, header_of, names, part_size_for, validator
from nbdata.transfer.staging import Staging

__all__ = ["Partial", "Parts", "UnrecordedParts"]


class Parts(abc.ABC):
    """The parts of one object in a file, and which of them are written. Many threads may mark parts.

    Attributes
    ----------
    unproven : bool
        True if the parts that were there may be anybody's: they count only if a checksum of the object proves them.
    """

    fd: int
    unproven = False

    def __init__(self, size: int, part_size: int) -> None:
        self.size, self.part_size = size, part_size
        self.count = -(-size // self.part_size)
        self.done: set[int] = set()
        self.begun: dict[int, int] = {}  # bytes written of each unfinished part
        self._lock = threading.Lock()

    def span(self, number: int) -> tuple[int, int]:
        """Return where part `number` (from 0) begins and ends."""
        start = number * self.part_size
        return start, min(start + self.part_size, self.size)

    def missing(self) -> list[int]:
        """The numbers of the parts that are not written completely."""
        return [n for n in range(self.count) if n not in self.done]

    def present(self) -> int:
        """The number of bytes written."""
        whole = sum(end - start for start, end in map(self.span, self.done))
        return whole + sum(count for n, count in self.begun.items() if n not in self.done)

    def contiguous(self) -> int:
        """The number of bytes written without a gap from the start."""
        with self._lock:
            number = 0
            while number in self.done:
                number += 1
        return min(number * self.part_size, self.size)

    @abc.abstractmethod
    def mark(self, number: int) -> None:
        """Mark a part as completely written."""

    def note(self, number: int, count: int) -> None:
        """Note that the first `count` bytes of a part are written. Does nothing if no later run continues the file."""
        return

    def began(self, start: int, end: int) -> None:
        """Announce that these bytes are written, so that the system may begin to write them to the disk."""
        return

    @abc.abstractmethod
    def restart(self) -> None:
        """Forget all parts, because the bytes are wrong."""


class UnrecordedParts(Parts):
    """The parts of a file that no later run continues, as in a cache."""

    def __init__(self, fd: int, size: int, layout: int | None = None) -> None:
        super().__init__(size, part_size_for(size, layout))
        self.fd = fd

    def mark(self, number: int) -> None:
        with self._lock:
            self.done.add(number)

    def restart(self) -> None:
        with self._lock:
            self.done.clear()


class Partial(Parts):
    """The partial of one object, which a later run continues. Many threads may mark parts.

    The part size is that of an earlier run, or that of `part_size_for` with the `layout`.

    `restarted` is True if an earlier partial was of another version and was removed. `ours` is called before a part is
    recorded, and raises if another machine now works in the folder. `marked` is called with the number of bytes that
    recorded parts add to the disk. `seals` tell whether this user's nbdata made what is there. Nobody else can read or
    write the file (mode 0600).
    """

    def __init__(
        self,
        folder: Staging,
        path: str,
        source: str,
        info: ObjectInfo,
        seals: Seals,
        *,
        layout: int | None = None,
        ours: Callable[[], None] = lambda: None,
        marked: Callable[[int], None] = lambda _size: None,
    ) -> None:
        self._folder = folder
        self._data, self._record = names(path)
        self.data = folder.path_of(self._data)
        found = PartRecord(folder, self._record)
        known = found.part_size_of(path, source, info)
        self.fd = self._log = -1
        if known is not None:
            self.fd = _single_file(folder, self._data, info.size)
            self._log = _single_file(folder, self._record, sys.maxsize)
        usable = self.fd >= 0 and self._log >= 0 and self._has_one_owner()
        super().__init__(info.size, (usable and known) or part_size_for(info.size, layout))
        self._header = header_of(path, source, info, self.part_size, seals)
        self.unproven = usable and not found.is_proven(seals)
        self._ours, self._marked = ours, marked
        self._unrecorded: list[int] = []  # written parts that are not recorded yet
        self._recording = False
        self.restarted = known is None and found.is_of(source)
        if usable:
            self.done, self.begun = found.done, found.begun
        self._good = found.good if usable else 0  # length of the record's valid beginning, in bytes
        try:
            if not usable:
                self._make_anew()
            os.ftruncate(self.fd, info.size)
            os.ftruncate(self._log, self._good)
            if not usable:
                self._append(self._header, synced=True)
                folder.sync()  # a record is useless without its name on disk
        except OSError as error:
            self.close()
            raise disk_error(error, self.data) from error

    def _has_one_owner(self) -> bool:
        """True if one user made both files: the owner of the folder could put a file of theirs in the place of one."""
        return os.fstat(self.fd).st_uid == os.fstat(self._log).st_uid

    def _make_anew(self) -> None:
        """Make new files, because a job that was wrongly taken for dead may still write to the old ones."""
        self.close()
        self.remove(self._folder, self._data)
        self.fd = self._folder.open(self._data, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self._log = self._folder.open(self._record, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def _append(self, *values: object, synced: bool) -> None:
        data, at = b"".join(map(format_line, values)), self._good
        try:
            while data:
                count = os.pwrite(self._log, data, at)
                data, at = data[count:], at + count
        except OSError:
            with contextlib.suppress(OSError):  # half a line would hide all lines after it
                os.ftruncate(self._log, self._good)
            raise
        self._good = at
        if synced:
            fdatasync(self._log)

    def mark(self, number: int) -> None:
        """Record a completely written part: sync its bytes, then write the record.

        One thread syncs at a time, for all parts finished meanwhile. The other threads do not wait; they only note
        their part.
        """
        with self._lock:
            self.done.add(number)
            self._unrecorded.append(number)
            waits, self._recording = self._recording, True
        if waits:
            start, end = self.span(number)
            self.note(number, end - start)
            return
        batch: list[int] = []
        try:
            while batch := self._next_batch():
                fdatasync(self.fd)
                self._ours()
                with self._lock:
                    self._append(*batch, synced=True)
                spans = {n: self.span(n) for n in batch}
                self._marked(sum(end - start - self.begun.get(n, 0) for n, (start, end) in spans.items()))
        except BaseException as error:
            with self._lock:
                lost, self._unrecorded = [*batch, *self._unrecorded], []
                self._recording = False
            for each in lost:  # unsynced bytes may be lost, whatever was noted of them
                self.note(each, 0)
            if isinstance(error, OSError) and not isinstance(error, NbdataError):
                raise disk_error(error, self.data) from error
            raise

    def _next_batch(self) -> list[int]:
        with self._lock:
            batch, self._unrecorded = self._unrecorded, []
            self._recording = bool(batch)
            return batch

    def began(self, start: int, end: int) -> None:
        begin_writing(self.fd, start, end - start)

    def note(self, number: int, count: int) -> None:
        """Note the progress of a part, without a sync. If the disk refuses the note, only the note is lost.

        A count of 0 withdraws the note.
        """
        if boot():
            with self._lock, contextlib.suppress(OSError):
                self._append([number, count, boot()], synced=False)

    def restart(self) -> None:
        """Forget all parts, because the bytes are wrong."""
        with self._lock:
            self.done.clear()
            self.begun.clear()
            self._unrecorded.clear()
            self.unproven, self._good = False, 0
            try:
                os.ftruncate(self._log, 0)
                self._append(self._header, synced=True)
            except OSError as error:
                raise disk_error(error, self.data) from error

    def close(self) -> None:
        """Close both files, and keep them for the next run."""
        for fd in (self.fd, self._log):
            if fd >= 0:
                os.close(fd)
        self.fd = self._log = -1

    @staticmethod
    def keep(
        folder: Staging, path: str, source: str, info: ObjectInfo, temporary: str, count: int, seals: Seals
    ) -> bool:
        """Turn a temporary with an object's first `count` bytes into a partial; False if none can be made.

        `temporary` is its name in the folder.
        """
        if not (count and boot() and validator(info)):
            return False
        data, record = names(path)
        Partial.remove(
            folder, data
        )  # it may be of another version, and a record must never describe other bytes
        try:
            with open(folder.open(record, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as lines:
                header = header_of(path, source, info, part_size_for(info.size), seals)
                lines.write(format_line(header) + format_line([0, count, boot()]))
            folder.replace(temporary, data)
        except OSError:
            Partial.remove(folder, data)
            return False
        return True

    @staticmethod
    def forget_record(folder: Staging, data: str) -> None:
        """Remove the record of parts, given the former name of the data file, which has its final name now."""
        folder.remove(data + "s")

    def discard(self) -> None:
        """Remove both files."""
        self.close()
        self.remove(self._folder, self._data)

    @staticmethod
    def remove(folder: Staging, data: str) -> None:
        """Remove the two files of a closed partial, given the name of its data file.

        The record goes first, because it must never describe missing bytes.
        """
        Partial.forget_record(folder, data)
        folder.remove(data)

    @staticmethod
    def remove_of(folder: Staging, path: str) -> None:
        """Remove the two files of a closed partial, given its relative path."""
        Partial.remove(folder, names(path)[0])


def _single_file(folder: Staging, name: str, size: int) -> int:
    """Open a file of this user with no other name and not too many bytes, which others may not write; else -1."""
    try:
        fd = folder.open(name, os.O_RDWR)
    except OSError:
        return -1
    if _is_single(os.fstat(fd), os.fstat(folder.fd), size):
        return fd
    os.close(fd)
    return -1


def _is_single(found: os.stat_result, around: os.stat_result, size: int) -> bool:
    single = stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_size <= size
    # A disk may have one mode and one owner for everything.
    closed = not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) & ~around.st_mode
    return single and closed and found.st_uid in (os.geteuid(), around.st_uid)
