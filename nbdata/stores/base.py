"""What a store promises to the engine, whatever it is made of.

All calls block, are safe to use from many threads, never retry (the engine owns retries) and raise the
errors of `nbdata.errors`. An error that is worth another try has ``details["retry"] = True``.
One conformance suite (``tests/conformance``) runs over every implementation.
"""

from __future__ import annotations

import abc
import io
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from nbdata.errors import BadOption
from nbdata.stores.objects import Body, ObjectInfo, Source, Stop
from nbdata.stores.sessions import Answer, Read, Session, Threads, Write, from_body

__all__ = [
    "Body",
    "Location",
    "ObjectInfo",
    "Source",
    "Stop",
    "Store",
    "Upload",
]

# Objects that `Store.children` looks at, if it has to look at all.
_LOOKED_AT = 5000


class Upload(abc.ABC):
    """A multipart upload; parts may be sent from many threads and in any order."""

    id: str
    #: Whether an answer said that a key of KMS or of the user's encrypts it: then no ETag is an MD5.
    encrypted: bool = False
    #: Whether the store can take it up again when it was left unfinished (`Store.reopen`).
    reopens: bool = False
    #: By number, the bytes of each part that the store had when the upload was taken up again, and its answer.
    stored: Mapping[int, tuple[int, str]] = MappingProxyType({})

    @abc.abstractmethod
    def part(self, number: int, source: Source, size: int) -> str:
        """Send part `number` (from 1); returns what the store answers for it (an ETag), or ''.

        SourceChanged if `source` does not give just `size` bytes.
        """

    @abc.abstractmethod
    def through(self, store: Store) -> Upload:
        """The same upload, its parts sent by another object for the same store, which another `Stop` stops."""

    def copy_part(self, number: int, source: Store, info: ObjectInfo, start: int, end: int) -> str:
        """The same with the bytes ``start:end`` of an object that this store can copy (`Store.can_copy`)."""
        raise BadOption("this store copies nothing by itself")

    @abc.abstractmethod
    def finish(self, parts: list[str]) -> ObjectInfo:
        """Make the object from all parts, given their answers in order.

        May be asked again after a StoreUnavailable, although the store may have made it.
        """

    @abc.abstractmethod
    def abort(self) -> None:
        """Give it up, so that its parts cost nothing more."""


class Store(abc.ABC):
    """Objects by key. Keys are the store's own, without a leading slash."""

    #: Whether `upload` works, and the smallest part but the last.
    multipart: bool = False
    min_part: int = 5 << 20
    max_parts: int = 10_000
    #: Whether an upload that was left unfinished can be taken up again (`reopen`).
    reopens: bool = False
    #: Whether `read` with `match` refuses another version before its first byte; else it does so at its end.
    refuses_first: bool = True
    #: Whether reads at an offset are cheap; without, an object is read in one stream.
    ranges: bool = True
    #: Whether a key is only a name: then ``a//b`` and ``..`` mean nothing, and every key can be.
    flat: bool = False
    #: Whether there may be objects below the key of an object (``a`` and ``a/b``).
    below_objects: bool = True
    #: Whether nothing can be written.
    read_only: bool = False
    #: Whether `list` reads pages made for people, which may not be there, so that names that are known are better
    #: asked for one by one.
    lists_by_page: bool = False
    #: Bytes of the largest objects that are best read together (`reading`); -1 where each is best read by itself.
    reads_together: int = -1
    #: The same of `writing`.
    writes_together: int = -1
    #: Whether `write` has the store refuse what arrives with another MD5 than the one it is told.
    refuses = False
    #: Whether this object only exists in this process (memory://, a file system handed in).
    name: str = ""

    @abc.abstractmethod
    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """All objects whose key begins with `prefix`, streamed, in the store's order.

        That is the order of keys (of their UTF-8 bytes), but for stores that keep folders, as SeaweedFS does,
        and list ``a/1`` before ``a-b``. With `after`, a key that was listed, only those behind it, so that a
        listing that broke off goes on. Nothing below `prefix` is no error; a missing bucket is.
        """

    def children(self, prefix: str, limit: int) -> tuple[ObjectInfo, ...]:
        """Some of what begins with `prefix`, no deeper than the next slash: objects and folders, whose keys end in one.

        For who looks around: at most `limit`, and those of the first few thousand objects where the store cannot list
        without what lies below. The size of a folder is -1.
        """
        found: dict[str, ObjectInfo] = {}
        for info in itertools.islice(self.list(prefix), _LOOKED_AT):
            end = info.key.find("/", len(prefix))
            key = info.key if end < 0 else info.key[: end + 1]
            found[key] = info if end < 0 else ObjectInfo(key, -1)
            if len(found) >= limit:
                break
        return tuple(found.values())

    def list_folder(self, prefix: str) -> Iterator[ObjectInfo]:
        """All objects and folders that begin with `prefix`, no deeper than the next slash, streamed.

        The key of a folder ends in a slash, and its size is -1; an object whose key is `prefix` itself is among them.
        A missing bucket is an error. This one lists all that lies below, for stores that cannot do with less.
        """
        last = ""
        for info in self.list(prefix):
            end = info.key.find("/", len(prefix))
            found = info if end < 0 else ObjectInfo(info.key[: end + 1], -1)
            if end < 0 or found.key != last:
                yield found
                last = found.key

    @abc.abstractmethod
    def head(self, key: str) -> ObjectInfo:
        """What the store says of one object; NotFound if there is none.

        Some stores cannot tell a missing object from a missing bucket here; `list` and `read` can.
        """

    @abc.abstractmethod
    def read(
        self, key: str, start: int = 0, end: int | None = None, *, match: ObjectInfo | None = None
    ) -> Body:
        """The bytes ``start:end`` of an object; none if `start` is at or beyond its end.

        With `match` the bytes are of that very version, else SourceChanged.
        """

    def reading(self, width: Callable[[], int], max_bytes: int) -> Session[Read[Any]]:
        """Many reads at a time, whole objects or ranges of any size, by the thread that takes the answers.

        Parameters
        ----------
        width : callable
            How many may be under way now.
        max_bytes : int
            Bytes that may be in memory for them; one is always asked for.
        """
        return Threads(
            lambda read: from_body(self.read(read.info.key, read.start, read.end, match=read.info), read),
            width=width,
            size=lambda read: read.size,
            max_bytes=max_bytes,
        )

    @abc.abstractmethod
    def write(
        self,
        key: str,
        source: Source,
        size: int,
        *,
        headers: Mapping[str, str] | None = None,
        md5: str = "",
    ) -> ObjectInfo:
        """Make one object of `size` bytes; visible only when it is whole.

        Stores that can keep `headers` (see `ObjectInfo`) with it. `md5` is that of all bytes in hex, or ''.

        Raises SourceChanged, and leaves all as it was, if `source` does not give just `size` bytes; ChecksumMismatch,
        likewise, if the store looks at the MD5 (`refuses`) and what arrived has another.
        """

    def writing(self, width: Callable[[], int], max_bytes: int) -> Session[Write[Any]]:
        """Many small objects made at a time; the counterpart of `reading`."""
        return Threads(
            lambda write: Answer(
                write, self.write(write.key, io.BytesIO(write.data), len(write.data), md5=write.md5)
            ),
            width=width,
            size=lambda write: len(write.data),
            max_bytes=max_bytes,
        )

    @abc.abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; one that is not there is no error."""

    def upload(self, key: str, size: int, *, headers: Mapping[str, str] | None = None) -> Upload:
        """Begin a multipart upload of so many bytes; -1 if that is not known yet."""
        raise BadOption(f"{self.name} has no multipart uploads")

    def reopen(self, key: str, size: int, upload_id: str) -> Upload:
        """An upload that was begun before, with the parts that the store has of it; NotFound if it is gone."""
        raise BadOption(f"{self.name} takes up no upload again")

    @property
    def server(self) -> str:
        """What tells the server of this store from others that have places of the same name."""
        return ""

    def same_objects(self, other: Store) -> bool:
        """Whether a key means the same object in both."""
        return self is other

    def can_copy(self, source: Store) -> bool:
        """Whether this store may be able to copy objects of `source` by itself (`copy`, `Upload.copy_part`)."""
        return False

    def copy(self, source: Store, info: ObjectInfo, key: str) -> ObjectInfo:
        """Make an object of one of `source`, with its content type and metadata, without reading it here.

        SourceChanged if it is not the one that `info` describes, where the store looks at that: not all do.
        """
        raise BadOption(f"{self.name} copies nothing by itself")

    def pending(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Unfinished multipart uploads below `prefix`, as (key, id)."""
        return iter(())

    def abort(self, key: str, upload_id: str) -> None:  # noqa: B027  there is none to give up
        """Give up an unfinished upload."""

    def is_folder(self, key: str) -> bool:
        """Whether `key` (ending in a slash) is a folder although nothing lies below it."""
        return False

    def part_size(self, info: ObjectInfo) -> int | None:
        """Bytes of the parts that an object was uploaded in, the last one aside.

        None if the store does not tell, or if they differ; what is worth another try is raised.
        """
        return None

    def read_bytes(self, key: str, *, limit: int = 64 << 20) -> bytes:
        """A small object as a whole; BadOption if it is over `limit` bytes."""
        body = self.read(key)
        data = bytearray()
        view = memoryview(bytearray(1 << 18))
        try:
            while count := body.readinto(view):
                data += view[:count]
                if len(data) > limit:
                    raise BadOption(
                        "too large to be read as a whole", path=key, expected=f"at most {limit} bytes"
                    )
        finally:
            body.close()
        return bytes(data)


@dataclass(frozen=True)
class Location:
    """A place in a store.

    Attributes
    ----------
    store : Store
    key : str
        Key or prefix; ends in a slash (or is empty) when a folder was meant.
    place : str
        The URL or path as users may see it (redacted).
    """

    store: Store
    key: str
    place: str

    @property
    def is_folder(self) -> bool:
        """Whether the spelling says "a folder"."""
        return self.key == "" or self.key.endswith("/")
