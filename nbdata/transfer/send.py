"""Send one object to a store in one piece, or one part of it; the bytes are hashed as they leave."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

from nbdata.errors import Cancelled, ChecksumMismatch, NbdataError, NotFound
from nbdata.stores.base import ObjectInfo, Store, Upload
from nbdata.transfer.control import Control
from nbdata.transfer.retry import Tries, retrying

__all__ = [
    "BIG",
    "Hasher",
    "Outgoing",
    "PartSender",
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
