"""Send one object to a store: in one piece, or in parts by several workers, hashed as it leaves."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from nbdata.errors import Cancelled, ChecksumMismatch, NbdataError, NotFound
from nbdata.stores.base import ObjectInfo, Store, Upload
from nbdata.transfer.control import Control
from nbdata.transfer.retry import Tries, retrying

__all__ = [
    "BIG",
    "Hasher",
    "Outgoing",
    "PartedSend",
    "SentPart",
    "answer_of",
    "hashed_parts",
    "send_whole",
    "upload_part_size",
    "withdrawn",
]

_PART = 16 << 20
#: From this size on, a file is sent in parts, so that a kill interrupts no more than one part.
BIG = _PART + 1


class Hasher(Protocol):
    """A digest of outgoing bytes, which also checks the store's answer for them."""

    def update(self, data: memoryview, /) -> None:
        """Hash some bytes."""

    def verify(self, etag: str) -> bool:
        """Whether the store's answer proves the bytes. Raises ChecksumMismatch if it disproves them.

        The answer is empty if it is no digest of the bytes, as after encryption with a KMS key.
        """

    def hexdigest(self) -> str:
        """The digest, or '' if none is computed."""


class Outgoing(Protocol):
    """Outgoing bytes: the source of a write, which hashes and counts the bytes that it returns.

    `headers` are those to store with the object (see `stores.objects.ObjectInfo`). `md5` is the digest of all bytes in
    hex if it is known before they are sent, otherwise ''.
    """

    sent: int
    headers: Mapping[str, str]
    md5: str

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill some of `buffer` and return the count; 0 at the end."""

    def close(self) -> None:
        """Release the origin of the bytes."""


#: Opens a read of so many bytes from an offset on, through a hasher.
Reader = Callable[[int, int, Hasher], Outgoing]


class SentPart(NamedTuple):
    """One sent part: the store's answer, the MD5 of the sent bytes or '', and whether the answer proves them."""

    answer: str
    digest: str
    verified: bool


#: Sends one part of an upload. Takes the upload, the number (from 1), the offset and the byte count.
PartSender = Callable[[Upload, int, int, int], SentPart]
#: Checks the store's answer for a stored part against its bytes (offset and count). Returns the part if proven, else
#: None.
PartProver = Callable[[int, int, str], SentPart | None]


def upload_part_size(size: int, wanted: int | None, store: Store) -> int:
    """Bytes of a part: as wanted, or 16 MiB, or more if there would be too many parts."""
    part = max(wanted or _PART, store.min_part)
    return max(part, -(-size // store.max_parts // (1 << 20)) * (1 << 20))


@contextlib.contextmanager
def _reading(control: Control, source: Outgoing) -> Iterator[Outgoing]:
    """Close a source at the end. If the write failed, its bytes do not count as progress."""
    try:
        yield source
    except BaseException:
        control.advance(bytes=-source.sent)
        raise
    finally:
        source.close()


def answer_of(info: ObjectInfo) -> str:
    """The store's digest of the bytes that it has: a stored MD5, or the ETag."""
    return f'"{info.checksums["md5"]}"' if "md5" in info.checksums else info.etag


def send_whole(
    control: Control,
    store: Store,
    key: str,
    reader: Reader,
    size: int,
    hashers: Callable[[], Hasher],
    *,
    tries: Tries | None = None,
    wrong: ObjectInfo | None = None,
) -> tuple[ObjectInfo, bool]:
    """Create one object in one piece. Returns the store's metadata, and whether the object is verified.

    There is no object if the source raises at its end. Nor is there one if the store reports other bytes than were
    sent, and retries do not help. `tries` has the tries so far, if there were any. `wrong` is the store's metadata of a
    wrong object from an earlier try.
    """

    def attempt() -> tuple[ObjectInfo, bool]:
        nonlocal wrong
        hasher = hashers()
        with _reading(control, reader(0, size, hasher)) as source:
            info = store.write(key, source, size, headers=source.headers, md5=source.md5)
            if not info.etag:
                info = store.head(key)
            try:
                if info.size not in (size, -1):
                    raise ChecksumMismatch(
                        "the store has another size",
                        path=key,
                        expected=str(size),
                        got=str(info.size),
                        details={"disproved": True},
                    )
                return info, hasher.verify("" if info.encrypted else answer_of(info))
            except ChecksumMismatch as error:
                wrong = info if error.details.get("disproved") else wrong
                raise

    tries = tries or Tries(control)
    try:
        return tries.until_matching(lambda: tries.run(attempt))
    except NbdataError as error:
        if wrong is not None and not isinstance(error, Cancelled):
            told = withdrawn(control, store, key, wrong)
            error.remedy = ". ".join(filter(None, [error.remedy, told]))
        raise


def withdrawn(control: Control, store: Store, key: str, made: ObjectInfo) -> str:
    """Delete a wrong object, unless another one replaced it meanwhile. Returns a sentence about the result."""

    def withdraw() -> str:
        try:
            there = store.head(key)
        except NotFound:  # perhaps deleted by a request whose response was lost
            return "What the store had is gone"
        if answer_of(there).strip('"') != answer_of(made).strip('"'):
            return ""
        store.delete([key])
        return "What the store had was deleted"

    try:
        return retrying(control, withdraw)
    except NbdataError:
        return "What the store has is wrong: delete it"


def hashed_parts(control: Control, reader: Reader, hashers: Callable[[], Hasher]) -> PartSender:
    """Return a function that sends parts of the bytes from `reader`."""

    def send(upload: Upload, number: int, start: int, size: int) -> SentPart:
        def attempt() -> SentPart:
            hasher = hashers()
            with _reading(control, reader(start, size, hasher)) as source:
                answer = upload.part(number, source, size)
                verified = hasher.verify("" if upload.encrypted else answer)
                return SentPart(answer, hasher.hexdigest(), verified)

        tries = Tries(control)
        return tries.until_matching(lambda: tries.run(attempt))

    return send


class PartedSend:
    """Sends a large object in parts, by any free workers.

    The worker that finishes the last part completes the upload. It calls `done` with the store's metadata and whether
    the object is verified. After an error it aborts the upload and calls `failed` with the first error.

    Parameters
    ----------
    send : callable
        Sends one part.
    begin : callable
        Begins the upload, when the first part is sent.
    abandon : callable
        Ends an upload, given the error, or None for a stop. Aborts it and returns False, or leaves it for the next run
        and returns True. Must work while the job is being stopped.
    there : callable, optional
        Checks whether a stored part of a resumed upload is right, so that it need not be sent.
    withdraw : callable
        Deletes an object that was assembled wrongly, and returns a sentence about the result.
    before : callable
        Raises if the object must not be created, given the parts' digests.
    whole : callable
        Verifies the finished object from its metadata and the parts' digests.
    in_order : bool
        Sends one part after the other.
    held : int
        How many first parts are sent last, one after the other.
    counted : bool
        Whether sent bytes count as progress, and are subtracted again after a failure.
    """

    def __init__(
        self,
        control: Control,
        size: int,
        part_size: int,
        send: PartSender,
        *,
        begin: Callable[[], Upload],
        abandon: Callable[[Upload, Exception | None], bool],
        before: Callable[[list[str]], None],
        whole: Callable[[ObjectInfo, list[str]], bool],
        done: Callable[[ObjectInfo, bool], None],
        failed: Callable[[Exception], None],
        in_order: bool = False,
        held: int = 0,
        counted: bool = True,
        there: PartProver | None = None,
        withdraw: Callable[[ObjectInfo], str] = lambda _info: "What the store has is wrong: delete it",
    ) -> None:
        self._control, self._size, self._part_size = control, size, part_size
        self._send_part, self._begin, self._abandon = send, begin, abandon
        self._before, self._whole = before, whole
        self._done, self._failed = done, failed
        self._in_order, self._there, self._withdraw = in_order, there, withdraw
        self._counted = counted
        self._count = -(-size // part_size)
        self._held = min(held, self._count)
        self._open = self._count - self._held
        self._parts: list[SentPart] = [SentPart("", "", False)] * self._count
        self._lock = threading.Lock()
        self._upload: Upload | None = None
        self._error: Exception | None = None
        self._sent = 0
        self.present = 0

    def units(self) -> Iterator[Callable[[], None]]:
        """Yield one callable per part, or a single one if the parts go in order or all of them go last."""
        if self._in_order or not self._open:
            yield self.run
            return
        for number in range(self._held, self._count):
            yield lambda number=number: self._unit(number)  # type: ignore[misc]

    def run(self) -> None:
        """Send everything in the caller's thread."""
        for number in range(self._held, self._count):
            self._unit(number)
        if self._held == self._count:
            self._finish()

    def _unit(self, number: int) -> None:
        if self._error is None:
            try:
                self._send(number)
            except Exception as error:
                with self._lock:
                    self._error = self._error or error
        with self._lock:
            self._open -= 1
            last = self._open == 0
        if last:
            self._finish()

    def _begun(self) -> Upload | None:
        """Return the upload, and begin it once for all threads; None if it could not begin."""
        with self._lock:
            if self._upload is None and self._error is None:
                try:
                    self._upload = retrying(self._control, self._begin)
                except Exception as error:
                    self._error = error
            return self._upload

    def _send(self, number: int) -> None:
        upload = self._begun()
        if upload is None:
            return
        start = number * self._part_size
        size = min(self._part_size, self._size - start)
        stored, answer = upload.stored.get(number + 1, (-1, ""))
        part = self._there(start, size, answer) if self._there is not None and stored == size else None
        if part is not None:
            self._parts[number] = part
            self._control.advance(present=size)
            with self._lock:
                self.present += size
            return
        self._parts[number] = self._send_part(upload, number + 1, start, size)
        with self._lock:
            self._sent += size if self._counted else 0

    def _finish(self) -> None:
        try:
            if self._error is not None:
                raise self._error
            for number in range(self._held):
                self._send(number)
            if self._error is not None:  # the upload could not begin
                raise self._error
            assert self._upload is not None
            digests = [part.digest for part in self._parts]
            self._before(digests)
            finish = partial(self._upload.finish, [part.answer for part in self._parts])
            info = retrying(self._control, finish)
            try:
                verified = self._whole(info, digests) and all(part.verified for part in self._parts)
            except ChecksumMismatch as error:
                error.remedy = self._withdraw(info)
                raise
        except Exception as error:
            if not self.give_up(error):  # otherwise the next run resumes with the sent parts, so they count
                self._control.advance(bytes=-self._sent, present=-self.present)
            self._failed(error)
        else:
            self._done(info, verified)

    def give_up(self, error: Exception | None = None) -> bool:
        """End the upload before it is complete; for callers that stop before all units have run.

        Returns whether the next run can resume it.
        """
        if self._upload is not None:
            with contextlib.suppress(NbdataError):  # the upload is remembered, so cleanup finds it
                return self._abandon(self._upload, error)
        return False
