"""The existing objects at a target in a store: listed once, spooled to disk, and found by key.

Memory holds only the position of each object's line, so a target of a million objects takes a tenth of a gigabyte.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from nbdata.disk import disk_error
from nbdata.errors import NbdataError
from nbdata.sealed_lines import format_line, parse_line
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.keyed_lines import KeyedLines, key_of

__all__ = ["ExistingObjects"]


class ExistingObjects:
    """Objects by key.

    Parameters
    ----------
    folder : str
        The folder of their spool file, which is removed with this object.
    objects : iterable of ObjectInfo
    """

    def __init__(self, folder: str, objects: Iterable[ObjectInfo]) -> None:
        self._lines = KeyedLines()
        self._end = 0
        path = os.path.join(folder, "existing.lines")
        try:
            with open(path, "wb") as file:
                self._lines.read_from(path)
                for info in objects:
                    line = format_line([info.key, info.size, info.etag, info.modified, info.version])
                    file.write(line)
                    self._lines.take(self._end, line)
                    self._end += len(line)
        except OSError as error:
            if isinstance(error, NbdataError):  # from the store
                raise
            raise disk_error(error, path) from error
        finally:
            if os.path.exists(path):
                os.unlink(path)

    def get(self, key: str) -> ObjectInfo | None:
        """Return the object of a key."""
        line = self._lines.find(key_of(key))
        return None if line is None else _info(line)

    def keep(self, key: str) -> None:
        """Take the object of a key out of the others."""
        self._lines.drop(key_of(key))

    def others(self) -> Iterator[ObjectInfo]:
        """Yield all objects except those passed to `keep`, in the order of the listing."""
        return map(_info, self._lines.live(self._end))


def _info(line: bytes) -> ObjectInfo:
    values = parse_line(line)
    assert values is not None  # no other process has its file
    return ObjectInfo(*values)
