"""The process that reads the first rows of a Parquet object. It has no file: it asks for ranges over its pipes.

It writes ``{"start": N, "end": N}`` as a line and reads eight bytes with a length and so many bytes; at the end it
writes ``{"rows": [[NAME, …], [TEXT, …], …], "is_all": BOOL}`` or ``{"error": TEXT}``. It imports nothing of nbdata,
and has limits on its memory and time.
"""

from __future__ import annotations

import io
import json
import resource
import struct
import sys
from typing import Any

# Bytes of memory, seconds of a processor, bytes that are read at once, and characters of a cell.
_MEMORY, _SECONDS, _BUFFER, _CELL = 2 << 30, 20, 64 << 10, 200


class _Asked(io.RawIOBase):
    """The object, as a file whose bytes come from the other process."""

    def __init__(self, size: int) -> None:
        self._size, self._at = size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        end = self._size if size < 0 else min(self._size, self._at + size)
        if end <= self._at:
            return b""
        _say({"start": self._at, "end": end})
        (length,) = struct.unpack(">Q", sys.stdin.buffer.read(8))
        data = sys.stdin.buffer.read(length)
        self._at += len(data)
        return data


def main() -> None:
    """Answer on stdout."""
    size, most_rows, most_columns = map(int, sys.argv[2:5])
    for limit, value in (
        (resource.RLIMIT_AS, _MEMORY),
        (resource.RLIMIT_CPU, _SECONDS),
        (resource.RLIMIT_FSIZE, 0),
    ):
        resource.setrlimit(limit, (value, value))
    try:
        _say(_found(size, most_rows, most_columns))
    except Exception as error:
        _say({"error": f"{type(error).__name__}: {error}"[:1000]})


def _found(size: int, most_rows: int, most_columns: int) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pa.set_cpu_count(1)
    source = pa.PythonFile(_Asked(size), mode="r")
    file = pq.ParquetFile(source, pre_buffer=False, buffer_size=_BUFFER)
    names = file.schema_arrow.names
    batches = file.iter_batches(batch_size=most_rows, columns=names[:most_columns], use_threads=False)
    rows = next(iter(batches)).to_pylist() if file.metadata.num_rows else []
    return {
        "rows": [
            names[:most_columns],
            *([_text(row[name]) for name in names[:most_columns]] for row in rows),
        ],
        "is_all": len(rows) == file.metadata.num_rows and len(names) <= most_columns,
    }


def _text(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= _CELL else f"{text[: _CELL - 1]}…"


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
