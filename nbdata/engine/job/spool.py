"""Rows of plans and reports on disk: written as they arise, read in pages, never all in memory."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterable, Iterator

from nbdata.disk import disk_error
from nbdata.report import Row, Rows

__all__ = ["RowFile"]

# Rows of a page, so that a page of long keys stays below the wire's frame size.
_PAGE_BYTES = 256 << 10
# Rows of a line: JSON has a price for each text that is made or read, however short.
_LINE = 32
_encode = json.JSONEncoder(separators=(",", ":")).encode
_decode = json.JSONDecoder().decode
_row = Row._make


class RowFile:
    """A file of rows, a JSON array of some of them a line; safe to append to from many threads."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.count = 0
        self._lock = threading.Lock()
        self._line: list[Row] = []
        with self._disk():
            self._file = open(path, "w", encoding="utf-8", errors="surrogatepass", buffering=1 << 16)  # noqa: SIM115

    def add(self, row: Row) -> None:
        """Append one row; nobody may change it afterwards."""
        self.extend((row,))

    def extend(self, rows: Iterable[Row]) -> None:
        """Append several."""
        with self._lock:
            before = len(self._line)
            self._line.extend(rows)
            self.count += len(self._line) - before
            if len(self._line) >= _LINE:
                self._write()

    def _write(self) -> None:
        rows, self._line = self._line, []
        with self._disk():
            for start in range(0, len(rows), _LINE):
                self._file.write(_encode(rows[start : start + _LINE]) + "\n")

    def close(self) -> None:
        """Write out what is buffered; reading works after that."""
        with self._lock:
            if self._line and not self._file.closed:
                self._write()
            with self._disk():
                self._file.close()

    @contextlib.contextmanager
    def _disk(self) -> Iterator[None]:
        """Its own disk may be full, whatever became of the target's."""
        try:
            yield
        except OSError as error:
            raise disk_error(error, self.path) from error

    def __iter__(self) -> Iterator[Row]:
        with open(self.path, encoding="utf-8", errors="surrogatepass") as lines:
            for line in lines:
                yield from map(_row, _decode(line))

    def rows(self) -> Rows:
        """The rows as Plans and Reports carry them."""
        path = self.path
        return Rows(self.count, lambda offset: read_page(path, offset))


def read_page(path: str, offset: int) -> tuple[list[Row], int | None]:
    """Rows from byte `offset` on, and the offset of the next page, or None at the end."""
    rows: list[Row] = []
    try:
        with open(path, "rb") as lines:
            lines.seek(offset)
            after = offset
            while after - offset < _PAGE_BYTES and (line := lines.readline()):
                rows.extend(map(_row, _decode(line.decode("utf-8", "surrogatepass"))))
                after += len(line)
            end = os.fstat(lines.fileno()).st_size
    except FileNotFoundError:  # the job was dropped from the agent's list
        return rows, None
    return rows, after if after < end else None
