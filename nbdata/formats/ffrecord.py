"""The bytes of FFRecord files: the header, the places of samples, and the checks of both.

All integers are little-endian, there is no padding::

    0         u32      CRC-32 of the rest of the header (0: unknown, in files from before 2021-09)
    4         i64      N, the number of samples
    12        u32[N]   CRC-32 of each sample
    12 + 4N   i64[N]   start of each sample in the file; it ends where the next one starts, the last with the file
    12 + 12N           the samples, back to back

Source: the FFRecord library, ``fileio.h``, ``writer.cpp`` and ``reader.cpp`` (https://github.com/HFAiLab/ffrecord).
"""

from __future__ import annotations

import itertools
import operator
import struct
import sys
from array import array
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from isal.isal_zlib import crc32

from nbdata.errors import BadArchive, BadOption, ChecksumMismatch
from nbdata.sizes import counted

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["FIXED", "SUFFIX", "Head", "HeadWriter", "count_in", "head_size", "refuse_wrong"]

#: Suffix of FFRecord files.
SUFFIX = ".ffr"
#: Bytes of a header before its columns.
FIXED = 12
# Bytes of the columns for each sample.
_EACH = 12
_START = struct.Struct("<Iq")
# Samples whose order is checked at a time, and bytes whose CRC-32 is computed at a time.
_SOME, _BLOCK = 1 << 16, 1 << 20
_AGAIN = "The file is damaged, or not whole: compare it with its source, and copy or make it again"


def head_size(count: int) -> int:
    """Return the bytes of the header of a file with that many samples."""
    return FIXED + _EACH * count


def count_in(start: Buffer, size: int, path: str) -> int:
    """Return the number of samples in a file.

    Parameters
    ----------
    start : bytes-like
        The file's first bytes, `FIXED` if it has that many.
    size : int
        Bytes of the file.

    Raises
    ------
    BadArchive
        If the file is too short for its header, or was never finished.
    """
    if size < FIXED or memoryview(start).nbytes < FIXED:
        raise BadArchive(
            "this is no FFRecord file: it is too short for a header",
            path=path,
            expected=f"{FIXED} bytes or more",
            got=f"{size:,}",
            remedy=_AGAIN,
        )
    crc, count = _START.unpack_from(start)
    if not crc and not count:
        raise BadArchive(
            "the header of this FFRecord file is empty: its writer never finished it",
            path=path,
            remedy="Write it again: its samples cannot be found",
        )
    if count < 0 or head_size(count) > size:
        raise BadArchive(
            f"this is no FFRecord file, or a damaged one: its header names {counted(count, 'samples')}",
            path=path,
            expected=f"at most {(size - FIXED) // _EACH:,} in {size:,} bytes",
            remedy=_AGAIN,
        )
    return int(count)


class Head:
    """The header of one file; a view, not a copy.

    Parameters
    ----------
    data : bytes-like
        The header, maybe followed by more bytes; memory or a mapped file.
    size : int
        Bytes of the whole file.
    path : str
        The file's name in errors.

    Attributes
    ----------
    count : int
        The number of samples.
    size, path
        As given.
    crcs : memoryview
        The CRC-32 of each sample.

    Raises
    ------
    BadArchive
        See `count_in`. `check` checks the rest.
    """

    def __init__(self, data: Buffer, size: int, path: str) -> None:
        if sys.byteorder != "little":
            raise BadOption("FFRecord files are read on little-endian machines only", path=path)
        view = memoryview(data).cast("B")
        self.count = count_in(view, size, path)
        self.size, self.path = size, path
        end = head_size(self.count)
        if len(view) < end:
            raise BadArchive(
                "the header of this FFRecord file is cut off",
                path=path,
                expected=f"{end:,} bytes",
                got=f"{len(view):,}",
                remedy=_AGAIN,
            )
        self._view = view[:end]
        middle = FIXED + 4 * self.count
        self.crcs: memoryview[Any] = view[FIXED:middle].cast("I")
        self._starts: memoryview[Any] = view[middle:end].cast("q")

    @property
    def bytes(self) -> memoryview:
        """The header's bytes, as in the file."""
        return self._view

    @property
    def crc(self) -> int:
        """CRC-32 of the rest of the header; 0 if unknown."""
        return int.from_bytes(self._view[:4], "little")

    @property
    def starts(self) -> memoryview[Any]:
        """The start of each sample."""
        return self._starts

    def place(self, number: int) -> tuple[int, int]:
        """Return the start and exclusive end of a sample.

        Raises
        ------
        BadArchive
            If it would start before the samples, or end before its start or after the end of the file.
        """
        starts = self._starts
        start = starts[number]
        end = starts[number + 1] if number + 1 < self.count else self.size
        if not 0 <= start <= end <= self.size:
            raise self._out_of_order(number)
        return start, end

    def bounds(self, first: int, count: int) -> list[int]:
        """Return the start of each of some neighbouring samples, and the end of the last one.

        Raises
        ------
        BadArchive
            As `place`.
        """
        starts: list[int] = self._starts[first : first + count + 1].tolist()
        if first + count == self.count:
            starts.append(self.size)
        if starts[0] < 0 or starts[-1] > self.size or not all(map(operator.le, starts, starts[1:])):
            for number in range(first, first + count):
                self.place(number)
        return starts

    def check(self) -> None:
        """Check the whole header.

        Raises
        ------
        ChecksumMismatch
            If it does not match its CRC-32. Files from before 2021-09 have none.
        BadArchive
            If the samples are not contiguous from the header to the end of the file.
        """
        self._check_order()
        if self.crc and (got := self._found_crc()) != self.crc:
            raise ChecksumMismatch(
                "the header of this FFRecord file has another CRC-32 than it says",
                path=self.path,
                expected=f"{self.crc:08x}",
                got=f"{got:08x}",
                remedy=_AGAIN,
            )

    def _found_crc(self) -> int:
        """Return the CRC-32 of the rest of the header; in blocks, since nothing can interrupt a single call."""
        crc = 0
        for at in range(4, len(self._view), _BLOCK):
            crc = crc32(self._view[at : at + _BLOCK], crc)
        return crc

    def _check_order(self) -> None:
        """Check that the samples are contiguous.

        It comes before the CRC-32: a hole in a file can be a header of terabytes, and here its first zeros are wrong.
        """
        starts = self._starts
        if not self.count:
            if self.size > FIXED:
                raise BadArchive(
                    "this FFRecord file has no samples, and bytes behind its header",
                    path=self.path,
                    expected=f"{FIXED} bytes",
                    got=f"{self.size:,}",
                    remedy=_AGAIN,
                )
            return
        if starts[0] != head_size(self.count):
            raise BadArchive(
                "the first sample of this FFRecord file does not begin behind the header",
                path=self.path,
                expected=f"byte {head_size(self.count):,}",
                got=f"{starts[0]:,}",
                remedy=_AGAIN,
            )
        for at in range(0, self.count, _SOME):
            here = starts[at : at + _SOME + 1].tolist()
            if not all(map(operator.le, here, here[1:])):
                wrong = next(n for n, (one, other) in enumerate(itertools.pairwise(here)) if one > other)
                raise self._out_of_order(at + wrong)
        if starts[-1] > self.size:
            raise BadArchive(
                "this FFRecord file is too short: its last sample would begin after its end",
                path=self.path,
                expected=f"{starts[-1]:,} bytes or more",
                got=f"{self.size:,}",
                remedy=_AGAIN,
            )

    def _out_of_order(self, number: int) -> BadArchive:
        return BadArchive(
            f"sample {number:,} of this FFRecord file does not end between its beginning and the end of the file",
            path=self.path,
            remedy=_AGAIN,
        )


def refuse_wrong(head: Head, number: int, data: Buffer, *, record: int | None = None) -> None:
    """ChecksumMismatch if these are not the bytes of a sample, by the CRC-32 in the header.

    `record` is its number among all files, for the error's `details`.
    """
    expected, got = head.crcs[number], crc32(data)
    if got != expected:
        raise ChecksumMismatch(
            f"sample {number:,} of this FFRecord file has another CRC-32 than the header says",
            path=head.path,
            expected=f"{expected:08x}",
            got=f"{got:08x}",
            remedy="The last sample ends with the file: bytes were cut off or appended, or it is damaged. Copy or make "
            "the file again"
            if number == head.count - 1
            else _AGAIN,
            details={} if record is None else {"record": record},
        )


class HeadWriter:
    """Builds a header while samples are written, in 12 bytes of memory each.

    Parameters
    ----------
    sizes : iterable of int, optional
        Sizes of samples that are known beforehand and may be written in any order. Each then has its place, and its
        CRC-32 is given with `found`. Further samples follow with `add`.
    """

    def __init__(self, sizes: Iterable[int] = ()) -> None:
        self._sizes = array("q", sizes)
        self._crcs = array("I", bytes(4 * len(self._sizes)))

    def __len__(self) -> int:
        return len(self._crcs)

    def add(self, size: int, crc: int) -> None:
        """Add the next sample."""
        self._crcs.append(crc)
        self._sizes.append(size)

    def found(self, number: int, crc: int) -> None:
        """Set the CRC-32 of a sample of known size; the caller must set each."""
        self._crcs[number] = crc

    def crc(self, number: int) -> int:
        """Return the CRC-32 of a sample."""
        return self._crcs[number]

    def starts(self) -> array[int]:
        """Return the start of each sample in the file, followed by the end of the file."""
        starts = array("q", [head_size(len(self._sizes))])
        for size in self._sizes:
            starts.append(starts[-1] + size)
        return starts

    def pieces(self) -> Iterator[bytes]:
        """Yield the header in pieces, to be written in order."""
        crcs, starts = self._crcs, self.starts()[:-1]
        if sys.byteorder != "little":
            crcs = crcs[:]
            crcs.byteswap()
            starts.byteswap()
        columns = [struct.pack("<q", len(crcs)), crcs.tobytes(), starts.tobytes()]
        crc = 0
        for column in columns:
            crc = crc32(column, crc)
        yield struct.pack("<I", crc)
        yield from columns
