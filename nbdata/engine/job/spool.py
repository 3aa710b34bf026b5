"""Rows of plans and reports on disk: written as they arise, read in pages, never all in memory.

A file of rows consists of blocks: four bytes with the size, followed by lines of JSON, compressed with Zstandard. The
disk may be small, and the rows of a million files are alike.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import zstandard

from nbdata.disk import disk_error
from nbdata.errors import NotEnoughSpace
from nbdata.report import Row, Rows
from nbdata.space.limits import disk_of, kept_free

__all__ = ["RowFile"]

# Bytes of a page of rows; few enough that a page of long keys fits into a frame of the wire.
_PAGE_BYTES = 256 << 10
# Rows per line: JSON has a fixed cost per text, however short.
_LINE = 32
# Approximate bytes of a block's lines, which is what is read at a time.
_BLOCK_BYTES = 64 << 10
_SIZE_BYTES = 4
# A file may grow to so many bytes whatever is free; a longer one leaves free what all jobs leave. A listing without end
# would fill the disk.
_LITTLE = 4 << 20
_encode = json.JSONEncoder(separators=(",", ":")).encode
_decode = json.JSONDecoder().decode
_row = Row._make


class RowFile:
    """A file of rows; many threads may append to it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.count = self._size = 0
        self._lock = threading.Lock()
        self._rows: list[Row] = []  # fewer than a full line
        self._block = bytearray()  # the lines of the next block
        self._compressor = zstandard.ZstdCompressor(level=1)
        with self._disk():
            self._file = open(path, "wb")  # noqa: SIM115

    def add(self, row: Row) -> None:
        """Append one row, which must not change afterwards."""
        self.extend((row,))

    def extend(self, rows: Iterable[Row]) -> None:
        """Append several rows."""
        with self._lock:
            before = len(self._rows)
            self._rows.extend(rows)
            self.count += len(self._rows) - before
            if len(self._rows) >= _LINE:
                self._write_lines()

    def _write_lines(self) -> None:
        rows, self._rows = self._rows, []
        for start in range(0, len(rows), _LINE):
            self._block += _encode(rows[start : start + _LINE]).encode("ascii") + b"\n"
            if len(self._block) >= _BLOCK_BYTES:
                self._write_block()

    def _write_block(self) -> None:
        data = self._compressor.compress(bytes(self._block))
        self._size += len(data)
        self._block.clear()
        if self._size > _LITTLE:
            self._leave_free()
        with self._disk():
            self._file.write(len(data).to_bytes(_SIZE_BYTES, "big") + data)

    def _leave_free(self) -> None:
        disk = disk_of(self.path)[0]
        if disk.size and disk.free < kept_free(disk):
            raise NotEnoughSpace(
                f"the plan or report of {self.count:,} rows fills the disk of the runtime folder",
                path=self.path,
                remedy="Take fewer objects at a time (--include, a longer prefix), or name a folder on another disk in "
                "NBDATA_RUNTIME_DIR",
            )

    def close(self) -> None:
        """Write out buffered rows; they can still be read after that."""
        with self._lock:
            try:
                if not self._file.closed:
                    self._write_lines()
                    if self._block:
                        self._write_block()
            finally:
                with self._disk():
                    self._file.close()

    @contextlib.contextmanager
    def _disk(self) -> Iterator[None]:
        """Raise errors of the disk that holds the rows, which may be full while the target's is not."""
        try:
            yield
        except OSError as error:
            raise disk_error(error, self.path) from error

    def __iter__(self) -> Iterator[Row]:
        with open(self.path, "rb") as file:
            while (block := _read_block(file)) is not None:
                yield from _rows_of(block)

    def rows(self) -> Rows:
        """Return the rows in the form that Plans and Reports carry."""
        path = self.path
        return Rows(self.count, lambda offset: read_page(path, offset))


def read_page(path: str, offset: int) -> tuple[list[Row], int | None]:
    """Return rows from the blocks at byte `offset` on, and the offset of the next page, or None at the end."""
    rows: list[Row] = []
    size = 0
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            while size < _PAGE_BYTES:
                block = _read_block(file)
                if block is None:
                    return rows, None
                size += len(block)
                rows.extend(_rows_of(block))
            after = file.tell()
            return rows, after if after < os.fstat(file.fileno()).st_size else None
    except FileNotFoundError:  # the job was dropped from the agent's list
        return rows, None


def _read_block(file: BinaryIO) -> bytes | None:
    """Return the lines of the next block; None if no whole block follows."""
    size = int.from_bytes(file.read(_SIZE_BYTES), "big")
    data = file.read(size)
    return zstandard.ZstdDecompressor().decompress(data) if size and len(data) == size else None


def _rows_of(block: bytes) -> Iterator[Row]:
    for line in block.decode("ascii").splitlines():
        yield from map(_row, _decode(line))
