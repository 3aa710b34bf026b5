"""A file for a store that takes no parts: kept in memory or in a temporary file until it is whole, and sent then."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from typing import IO

from nbdata.disk import disk_error
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.send import Hasher, send_whole
from nbdata.verification.sent_checker import SentHasher
from nbdata.writing.growing_shard import Target

__all__ = ["SpooledFile"]

# Bytes that are kept in memory; larger files lie in the folder for temporary files meanwhile, without a name.
_IN_MEMORY = 16 << 20


class SpooledFile:
    """One file; for one thread.

    Attributes
    ----------
    size : int
    made : ObjectInfo or None
        The finished object, once it is there.
    """

    def __init__(self, target: Target, name: str) -> None:
        self._target, self._key = target, target.folder.key + name
        self._kept: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115  closed at its end
        self.size = 0
        self.made: ObjectInfo | None = None

    def write(self, data: memoryview) -> None:
        """Append some bytes."""
        try:
            self._kept.write(data)
        except OSError as error:
            raise disk_error(error, tempfile.gettempdir()) from error
        self.size += len(data)

    def finish(self) -> None:
        """Send the file, which gives it its name."""
        verify = self._target.verify if self._target.verify in ("none", "md5") else "auto"
        control, store = self._target.control, self._target.store
        self.made, _ = send_whole(
            control,
            store,
            self._key,
            lambda start, size, hasher: _Outgoing(self._kept, start, size, hasher),
            self.size,
            lambda: SentHasher(self._key, verify),
        )
        self._kept.close()

    def give_up(self) -> None:
        """Drop what was kept."""
        self._kept.close()


class _Outgoing:
    """A range of the kept bytes, hashed as they are read; see `nbdata.transfer.send.Outgoing`."""

    def __init__(self, kept: IO[bytes], start: int, size: int, hasher: Hasher) -> None:
        kept.seek(start)
        self._kept, self._left, self._hasher = kept, size, hasher
        self.sent = 0
        self.headers: Mapping[str, str] = {}
        self.md5 = ""

    def readinto(self, buffer: memoryview, /) -> int:
        data = self._kept.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._hasher.update(buffer[: len(data)])
        self._left -= len(data)
        self.sent += len(data)
        return len(data)

    def close(self) -> None:
        """Keep the bytes: they may be sent again."""
