"""One volume of an archive in a store: read with retries, compared with its checksums, and deleted."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait

from nbdata.archives.stream import Readable
from nbdata.ending import Daemon
from nbdata.errors import ChecksumMismatch, NotFound
from nbdata.integrity.expectations import Expected
from nbdata.stores.base import ObjectInfo, Store
from nbdata.stores.local import LocalStore
from nbdata.transfer.control import Control
from nbdata.transfer.reader import Check, Reader
from nbdata.transfer.retry import retrying
from nbdata.verification.checker import digest_check, stored_checksum, stream_check

__all__ = ["StoredVolume"]

_LOOK = 0.1  # seconds between two checks of a waiting reader whether to end


class StoredVolume:
    """One volume in a store; implements VolumeSource of `nbdata.archives.stream`.

    A read that fails with a retryable error is retried, and resumes at the offset that was reached.
    The bytes are those of the listed version, else reading raises SourceChanged. If the volume is read from first byte
    to last, it is compared with its stored checksum and its published digest; on a mismatch, ChecksumMismatch is
    raised in place of the last bytes. A volume that is `gone` was deleted after all of its content had been unpacked;
    it only keeps its place in the set.

    Attributes
    ----------
    skipped : int
        Bytes at its beginning that are skipped: see `nbdata.archives.multi_volume`.
    published : Expected or None
        Its digest in a checksum file beside it.
    verify : bool
        Whether it is compared with anything.
    size : int or None
        Bytes that are read.
    proven : bool
        Whether all of its bytes were read and match every checksum that is known, of which there is one.
    """

    def __init__(
        self,
        control: Control,
        store: Store,
        name: str,
        info: ObjectInfo,
        *,
        gone: bool = False,
        skipped: int = 0,
        published: Expected | None = None,
        verify: bool = True,
    ) -> None:
        self._control, self._store = control, store
        self.name, self.info, self.gone, self.skipped = name, info, gone, skipped
        self.published, self.verify = published, verify
        self.size = info.size - skipped if info.size >= 0 else None
        self.proven = False

    def without(self, count: int) -> StoredVolume:
        """The same volume, with `count` bytes at its beginning skipped."""
        return StoredVolume(
            self._control,
            self._store,
            self.name,
            self.info,
            gone=self.gone,
            skipped=count,
            published=self.published,
            verify=self.verify,
        )

    @property
    def local(self) -> str | None:
        """Its path, if it is on a disk of this machine."""
        return f"/{self.info.key}" if isinstance(self._store, LocalStore) else None

    @property
    def verified(self) -> bool:
        """True if it is compared with a checksum when it is read from its start to its end, if the store has one."""
        return self.verify and (self.local is None or self.published is not None)

    @property
    def place(self) -> tuple[Store, str]:
        """Its store and its key."""
        return self._store, self.info.key

    def lies_in(self, store: Store) -> bool:
        """True if its key names the same object in this store, too."""
        return store.same_objects(self._store)

    def open(self, offset: int, end: int | None = None, /) -> Readable:
        if self.gone:
            raise NotFound("this volume was deleted when it had been unpacked", path=self.name)
        end = None if end is None else end + self.skipped
        return _Reading(self._control, self._store, self, offset + self.skipped, end)

    def head(self, count: int) -> bytes:
        """The first bytes, at most `count`."""
        if self.size == 0:
            return b""
        return self.range(0, count if self.size is None else min(count, self.size))

    def range(self, start: int, end: int) -> bytes:
        """Read a few bytes; a cancel does not wait for a store that hangs in a read."""
        content: Future[bytes] = Future()

        def read() -> None:
            try:
                low, high = start + self.skipped, end + self.skipped
                with Reader(self._control, self._store, self.info, low, high) as reader:
                    content.set_result(b"".join(map(bytes, reader.blocks())))
            except BaseException as error:
                content.set_exception(error)

        try:
            Daemon(read, name="first-bytes").start()
        except RuntimeError:  # no more threads can be started
            read()
        while not wait([content], _LOOK).done:
            self._control.checkpoint()
        return content.result()

    def tail(self, count: int) -> bytes:
        """The last bytes, at most `count`; empty if the store does not report the size."""
        if not self.size:
            return b""
        return self.range(max(self.size - count, 0), self.size)

    def described(self) -> ObjectInfo:
        """The store's full description of it, as a listing has less."""
        return retrying(self._control, lambda: self._store.head(self.info.key))

    def delete(self) -> bool:
        """Delete it, if it is still the version that was read."""

        def attempt() -> bool:
            try:
                now = self._store.head(self.info.key)
            except NotFound:
                return True
            if now.size != self.info.size or (self.info.etag and now.etag != self.info.etag):
                return False
            self._store.delete([self.info.key])
            return True

        return retrying(self._control, attempt)


class _Reading(Reader):
    """Reads a volume from an offset on; verified if that is the whole volume."""

    def __init__(
        self, control: Control, store: Store, volume: StoredVolume, start: int, end: int | None
    ) -> None:
        info, self._volume = volume.info, volume
        whole = volume.verify and start == 0 and end is None and info.size > 0

        def check(described: ObjectInfo) -> Check:
            return _VolumeCheck(volume, described, stream_check(control, store, described))

        super().__init__(control, store, info, start, end, check=check if whole else None)

    def readinto(self, buffer: memoryview, /) -> int:
        count = super().readinto(buffer)
        if self.proven is not None:
            self._volume.proven = self.proven
        return count


class _VolumeCheck:
    """Checks the bytes of a volume against the store's checksum and against the published digest."""

    unforgeable = False

    def __init__(self, volume: StoredVolume, info: ObjectInfo, stored: Check) -> None:
        self._place, self._stored, published = volume.local or info.key, stored, volume.published
        self._published: Check | None = None  # None if the stored checksum is this digest
        if published is not None and (published.algorithm, published.digest) != stored_checksum(info, "auto"):
            self._published = digest_check(info, published.algorithm, published.digest)
            self._source = published.source

    def offer(self, offset: int, buffer: memoryview) -> bool:
        if self._published is not None:
            self._published.offer(offset, buffer)
        return self._stored.offer(offset, buffer)

    def catch_up(self, fd: int, end: Callable[[], int]) -> None:
        """Do nothing: a volume that is read as a stream cannot be read again."""

    def finish(self, fd: int, size: int) -> bool:
        try:
            proven = self._stored.finish(fd, size)
        except ChecksumMismatch as error:
            raise self._mismatch(
                error,
                "its checksum in the store",
                "Run the command again: it replaces the files of this volume. If it fails again, the volume is "
                "damaged in the store",
            ) from error
        if self._published is None:
            return proven
        try:
            return self._published.finish(fd, size)
        except ChecksumMismatch as error:
            raise self._mismatch(
                error,
                f"its digest in {self._source}",
                "Get the volume again; if the checksum file is out of date, use --verify none",
            ) from error

    def _mismatch(self, error: ChecksumMismatch, what: str, remedy: str) -> ChecksumMismatch:
        return ChecksumMismatch(
            f"the bytes of a volume do not match {what}",
            path=self._place,
            expected=error.expected,
            got=error.got,
            remedy=remedy,
        )
