"""Sort samples by key, or by a field, in bounded memory: what does not fit is sorted in pieces on the disk."""

from __future__ import annotations

import heapq
import os
import re
import struct
import tempfile
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from decimal import Decimal
from typing import Any, BinaryIO

from nbdata.engine.job.run import Run
from nbdata.engine.pack.source import Field, PackSource
from nbdata.engine.pack.windows import Fetching, read_window
from nbdata.errors import BadOption, NbdataError, NotEnoughSpace
from nbdata.reading.fetcher import WIDTH
from nbdata.space.ledger import Ledger, Reservation
from nbdata.space.limits import limited_folders
from nbdata.verbs.pack import Pack

__all__ = ["sorted_numbers"]

# Bytes of entries in memory at a time, and what each takes beside its value: the objects of Python.
_MEMORY, _EACH = 64 << 20, 160
# Longest value of a field.
_LONGEST = 4096
# Fields that are fetched together.
_TOGETHER = 256
# An entry on the disk: the number of the sample, the bytes of its value.
_ENTRY = struct.Struct("<QI")
# Bytes to read of each piece at a time, while the pieces are merged.
_BUFFER = 64 << 10
# A decimal number; longer ones are text.
_NUMBER = re.compile(rb"[+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,3})?")

_Entry = tuple[bytes, int]


def sorted_numbers(run: Run, op: Pack, source: PackSource) -> array[int]:
    """Return the numbers of the samples in order: by key, or by the number or text in a field.

    Equal ones stay in the order of the source. Memory holds 8 bytes for each, and 64 MiB of what is compared.

    Raises
    ------
    BadOption
        If a sample does not have the field, or has too much in it.
    NotEnoughSpace
        If the disk has no room for what does not fit into memory.
    """
    values = _keys(source) if op.sort is True else _values(run, op, source, str(op.sort))
    with ExitStack() as stack:
        spill = _Spill(run, stack)
        numeric, held, entries = op.sort is not True, 0, list[_Entry]()
        for number, value in enumerate(values):
            run.control.checkpoint()
            numeric = numeric and _NUMBER.fullmatch(value) is not None
            entries.append((value, number))
            held += len(value) + _EACH
            if held >= _MEMORY:
                spill.add(entries)
                held, entries = 0, []
        order: Callable[[_Entry], Any] = _by_number if numeric else _by_text
        if not spill.pieces:
            entries.sort(key=order)
            return array("Q", (number for _, number in entries))
        spill.add(entries)
        del entries
        for piece in range(len(spill.pieces)):
            spill.sort(piece, order)
        pieces = [spill.read(piece) for piece in range(len(spill.pieces))]
        return array("Q", (number for _, number in heapq.merge(*pieces, key=order)))


def _by_number(entry: _Entry) -> tuple[Decimal, int]:
    return Decimal(entry[0].decode("ascii")), entry[1]


def _by_text(entry: _Entry) -> _Entry:
    return entry


def _keys(source: PackSource) -> Iterator[bytes]:
    for number in range(len(source)):
        yield source.key(number).encode("utf-8", "surrogatepass")


def _values(run: Run, op: Pack, source: PackSource, name: str) -> Iterator[bytes]:
    """Yield the content of a field of each sample, without blanks around it; it is verified as when it is packed."""
    fetching = Fetching(run.control, source.stores, verify=op.verify, width=op.concurrency or WIDTH)
    try:
        together = list[Field]()
        for number in range(len(source)):
            together.append(_field(source, number, name))
            if len(together) == _TOGETHER:
                yield from _fetched(together, fetching, op.verify)
                together = []
        yield from _fetched(together, fetching, op.verify)
    finally:
        fetching.close()


def _field(source: PackSource, number: int, name: str) -> Field:
    fields = source.fields(number)
    found = next((field for field in fields if field.name == name), None)
    if found is None:
        raise BadOption(
            f"--sort: the sample {source.key(number)!r} has no field {name!r}",
            expected=", ".join(field.name for field in fields[:10]),
            remedy=f"To leave such samples out: --select {name}. To sort by key, write --sort after the places",
        )
    if not 0 <= found.piece.size <= _LONGEST:
        raise BadOption(
            f"--sort: the field {name!r} of {source.key(number)!r} has {found.piece.size:,} bytes",
            expected=f"a number or a text of at most {_LONGEST:,} bytes",
        )
    return found


def _fetched(fields: list[Field], fetching: Fetching, verify: str) -> list[bytes]:
    pieces, at = list[tuple[int, bytes | Field]](), 0
    for field in fields:
        pieces.append((at, field))
        at += field.piece.size
    data, _ = read_window(pieces, 0, at, fetching, verify)
    coming = iter(data)
    return [bytes(next(coming)).strip() if field.piece.size else b"" for field in fields]


class _Spill:
    """Pieces of entries in a file without a name, which ends with its process; its space is reserved.

    Attributes
    ----------
    pieces : list of (int, int)
        The first byte of each piece, and the number of its entries.
    """

    def __init__(self, run: Run, stack: ExitStack) -> None:
        self._run, self._stack = run, stack
        self.pieces: list[tuple[int, int]] = []
        self._size = 0
        self._file: BinaryIO | None = None
        self._reservation: Reservation | None = None

    def add(self, entries: list[_Entry]) -> None:
        """Write a piece."""
        data = _packed(entries)
        try:
            self._claim(len(data))
            self.pieces.append((self._size, len(entries)))
            self._write(data, self._size)
        except NotEnoughSpace:
            raise
        except OSError as error:
            raise NbdataError(
                f"--sort: what does not fit into memory cannot be written ({os.strerror(error.errno or 0)})",
                path=self._run.context.state_dir,
                remedy="Make room there",
            ) from error
        self._size += len(data)

    def _claim(self, size: int) -> None:
        if self._reservation is not None:
            self._reservation.grow(size)
            return
        context = self._run.context
        limited = limited_folders(context.state_dir, context.env)
        reserved = Ledger().reserve(context.state_dir, size, 1, limited, less="--select")
        self._reservation = self._stack.enter_context(reserved)
        self._file = self._stack.enter_context(
            tempfile.TemporaryFile(dir=context.state_dir)  # noqa: SIM115  the stack closes it
        )

    def _write(self, data: bytes | bytearray, at: int) -> None:
        assert self._file is not None
        self._file.seek(at)
        self._file.write(data)
        self._file.flush()
        assert self._reservation is not None
        if at == self._size:
            self._reservation.note_written(len(data))

    def sort(self, piece: int, order: Callable[[_Entry], Any]) -> None:
        """Write the entries of a piece again, in order."""
        self._run.control.checkpoint()
        self._write(_packed(sorted(self.read(piece), key=order)), self.pieces[piece][0])

    def read(self, piece: int) -> Iterator[_Entry]:
        """Yield the entries of a piece, as they lie there."""
        assert self._file is not None
        fd, (at, count), held = self._file.fileno(), self.pieces[piece], b""
        while count:
            held += os.pread(fd, _BUFFER, at)
            at, place = at + _BUFFER, 0
            while count and place + _ENTRY.size <= len(held):
                number, size = _ENTRY.unpack_from(held, place)
                end = place + _ENTRY.size + size
                if end > len(held):
                    break
                yield held[end - size : end], number
                place, count = end, count - 1
            held = held[place:]


def _packed(entries: list[_Entry]) -> bytearray:
    data = bytearray()
    for value, number in entries:
        data += _ENTRY.pack(number, len(value)) + value
    return data
