"""Measures the peak disk use of folders while other code runs; also joins files into one readable stream."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

__all__ = ["ChainedFiles", "DiskWatch"]

# Seconds between two measurements.
_LOOK = 0.05


class DiskWatch(threading.Thread):
    """Measures folders repeatedly in a thread; a context manager.

    Attributes
    ----------
    most : int
        Peak disk use of the folders in bytes, less their use at the beginning, in allocated blocks.
    """

    def __init__(self, *folders: str | os.PathLike[str]) -> None:
        super().__init__(name="disk-watch", daemon=True)
        self._folders = sorted({os.path.realpath(folder) for folder in folders})
        self._over = threading.Event()
        self.most = 0

    def __enter__(self) -> DiskWatch:
        self._before = sum(map(_bytes_of, self._folders))
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while True:
            self.most = max(self.most, sum(map(_bytes_of, self._folders)) - self._before)
            if self._over.wait(_LOOK):
                return


def _bytes_of(folder: str) -> int:
    found = 0
    for path in _files(folder):
        try:
            found += os.lstat(path).st_blocks * 512
        except OSError:  # deleted meanwhile
            continue
    return found


def _files(folder: str) -> Iterator[str]:
    for where, _, names in os.walk(folder):
        for name in names:
            yield os.path.join(where, name)


class ChainedFiles(io.RawIOBase):
    """Files joined into one stream that is read forwards."""

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__()
        self._paths = list(reversed(paths))
        self._file: IO[bytes] | None = None

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return some of the next bytes; empty at the end."""
        while self._file is not None or self._paths:
            if self._file is None:
                self._file = self._paths.pop().open("rb")
            if data := self._file.read(size):
                return data
            self._file.close()
            self._file = None
        return b""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()
