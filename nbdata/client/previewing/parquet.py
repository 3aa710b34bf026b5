"""Has a process of its own read the first rows of a Parquet object, a few ranges at a time.

pyarrow parses what anybody may have written, so it does that without this process's memory, environment and files.
"""

from __future__ import annotations

import importlib.util
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Protocol

__all__ = ["first_rows"]

# Most bytes that are read for the rows, and most characters of an answer of the process.
_MOST, _LONGEST = 8 << 20, 16 << 20
_PROGRAM = os.path.join(os.path.dirname(__file__), "parquet_process.py")


class _Control(Protocol):
    def add(self, abort: Callable[[], None]) -> None: ...
    def remove(self, abort: Callable[[], None]) -> None: ...
    def checkpoint(self) -> None: ...


def first_rows(
    read: Callable[[int, int], bytes], size: int, rows: int, columns: int, control: _Control
) -> tuple[list[list[str]], bool] | str:
    """Return the names of the columns and the first rows, and whether that is all; or why that cannot be shown.

    Parameters
    ----------
    read : callable
        Returns the bytes ``start:end`` of the object.
    size : int
        Bytes of the object.
    rows, columns : int
        Most rows and columns.
    control : Control
        Ends the process.
    """
    if importlib.util.find_spec("pyarrow") is None:
        return "this is Parquet, and pyarrow is not installed beside the Jupyter server"
    code = "import json, runpy, sys; sys.path[:] = json.loads(sys.argv.pop()); runpy.run_path(sys.argv[1])['main']()"
    command = [sys.executable, "-c", code, _PROGRAM, str(size), str(rows), str(columns)]
    process = subprocess.Popen(
        [*command, json.dumps([path for path in sys.path if path])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1"},
        cwd="/",
    )
    control.add(process.kill)
    try:
        return _answered(process, read)
    finally:
        control.remove(process.kill)
        process.kill()
        process.communicate()
        control.checkpoint()


def _answered(
    process: subprocess.Popen[bytes], read: Callable[[int, int], bytes]
) -> tuple[list[list[str]], bool] | str:
    assert process.stdin is not None
    assert process.stdout is not None
    left = _MOST
    try:
        while line := process.stdout.readline(_LONGEST):
            said = json.loads(line)
            if "rows" in said:
                return [[str(cell) for cell in row] for row in said["rows"]], bool(said["is_all"])
            if "error" in said:
                return f"this Parquet cannot be read: {str(said['error'])[:200]}"
            start, end = int(said["start"]), int(said["end"])
            left -= end - start
            if left < 0 or not 0 <= start <= end:
                return f"the first rows of this Parquet need more than {_MOST >> 20} MiB"
            data = read(start, end)
            process.stdin.write(struct.pack(">Q", len(data)) + data)
            process.stdin.flush()
    except (ValueError, KeyError, TypeError, BrokenPipeError):
        pass
    return "this Parquet cannot be read: it needs too much memory or time, or is damaged"
