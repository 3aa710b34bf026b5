"""Copy objects within a store: links of an archive become copies of the object that they lead to."""

from __future__ import annotations

from functools import partial

from isal.isal_zlib import crc32

from nbdata.engine.planning.begun_uploads import BegunUploads
from nbdata.engine.unpack.written import Tag
from nbdata.errors import ChecksumMismatch, SourceChanged
from nbdata.stores.base import ObjectInfo, Store
from nbdata.transfer.control import Control
from nbdata.transfer.index import Record
from nbdata.transfer.part_records import validator
from nbdata.transfer.parted_send import PartedSend
from nbdata.transfer.relay import Relay
from nbdata.transfer.retry import retrying
from nbdata.transfer.send import Hasher, hashed_parts, send_whole, upload_part_size
from nbdata.verification.sent_checker import MultipartChecker, SentHasher

__all__ = ["LinkCopies"]


class LinkCopies:
    """Reads back an object that was just unpacked, verifies it, and sends it under another key.

    Parameters
    ----------
    part : int
        Bytes of a part, and of the largest object that is sent in one piece.
    """

    def __init__(self, control: Control, store: Store, uploads: BegunUploads, part: int) -> None:
        self._control, self._store, self._uploads, self._part = control, store, uploads, part

    def send(self, key: str, first: Record, first_key: str) -> tuple[ObjectInfo, bool]:
        """Make the copy; return the store's description of it, and whether it was verified.

        Raises
        ------
        SourceChanged
            If the first object is no longer the recorded one.
        """
        info = retrying(self._control, lambda: self._store.head(first_key))
        if validator(info) != Tag.of(first).version:
            raise SourceChanged("was changed since it was unpacked", path=first_key)
        self._control.expect_more(files=0, bytes=info.size)
        crc = _RunningCrc(info.key, Tag.of(first).crc)
        if info.size <= self._part or not self._store.multipart:
            return self._whole(key, info, crc)
        return self._in_parts(key, info, crc)

    def _whole(self, key: str, info: ObjectInfo, crc: _RunningCrc) -> tuple[ObjectInfo, bool]:
        def reader(start: int, size: int, hasher: Hasher) -> Relay:
            relay = Relay(self._control, self._store, info, start, size)
            crc.begin(start)
            relay.updates, relay.at_end = [crc.update, hasher.update], crc.check
            return relay

        return send_whole(
            self._control, self._store, key, reader, info.size, partial(SentHasher, key, "auto")
        )

    def _in_parts(self, key: str, info: ObjectInfo, crc: _RunningCrc) -> tuple[ObjectInfo, bool]:
        """Send parts one after the other, so the running CRC covers the whole object."""

        def reader(start: int, size: int, hasher: Hasher) -> Relay:
            relay = Relay(self._control, self._store, info, start, size)
            crc.begin(start)
            relay.updates = [crc.update, hasher.update]
            return relay

        sending = PartedSend(
            self._control,
            self._uploads.open(key, info.size, MultipartChecker(key, "auto")),
            info.size,
            upload_part_size(info.size, self._part, self._store),
            hashed_parts(self._control, reader, partial(SentHasher, key, "auto")),
        )
        sending.send_parts()
        return sending.finish(lambda _digests: crc.check())


class _RunningCrc:
    """The CRC-32 of bytes that come in order; the last range may be restarted."""

    def __init__(self, key: str, expected: str) -> None:
        self._key, self._expected = key, expected
        self._start = self._before = self._crc = 0

    def begin(self, start: int) -> None:
        """Begin the next range, or restart the last one."""
        if start != self._start:
            self._start, self._before = start, self._crc
        self._crc = self._before

    def update(self, data: memoryview) -> None:
        """Add the next bytes."""
        self._crc = crc32(data, self._crc)

    def check(self) -> None:
        """Raise ChecksumMismatch if the bytes differ from the unpacked ones."""
        if f"{self._crc:08x}" != self._expected:
            raise ChecksumMismatch(
                "other bytes arrived than were unpacked",
                path=self._key,
                expected=self._expected,
                got=f"{self._crc:08x}",
                remedy="Run the command again",
            )
