"""The interface of a store, which the engine uses for every kind of storage.

Every call blocks, is safe to use from many threads, and never retries: the engine owns retries. Calls raise the errors
of `nbdata.errors`. An error that is worth another try has ``details["retry"] = True``. One conformance suite
(``tests/conformance``) runs over every implementation.
"""

from __future__ import annotations

import abc
import io
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from nbdata.errors import BadOption
from nbdata.stores.objects import Body, FolderPage, ObjectInfo, Source, Stop
from nbdata.stores.sessions import Answer, Read, Session, Threads, Write, from_body

__all__ = [
    "Body",
    "FolderPage",
    "Location",
    "ObjectInfo",
    "Source",
    "Stop",
    "Store",
    "Upload",
]

# How many objects `Store.children` reads at most, in a store that cannot list folders.
_LOOKED_AT = 5000
# How many entries `Store.folder_page` returns at most.
_PAGE = 1000


class Upload(abc.ABC):
    """A multipart upload. Many threads may send parts, in any order."""

    id: str
    #: Whether the store reported encryption with a KMS key or a customer's key. No ETag is then an MD5.
    encrypted: bool = False
    #: After `finish`: whether the store's checksum of the object is that of the sent bytes; None if it does not tell.
    proved: bool | None = None
    #: Whether an unfinished upload can be resumed later (`Store.reopen`).
    reopens: bool = False
    #: For a resumed upload, the parts that the store has, by number: the size and the ETag of each.
    stored: Mapping[int, tuple[int, str]] = MappingProxyType({})

    @abc.abstractmethod
    def part(self, number: int, source: Source, size: int) -> str:
        """Send part `number` (from 1). Returns the store's answer (an ETag), or ''.

        Raises SourceChanged if `source` does not give exactly `size` bytes.
        """

    @abc.abstractmethod
    def through(self, store: Store) -> Upload:
        """The same upload, with parts sent through `store`: another object for the same store, with its own `Stop`."""

    def copy_part(self, number: int, source: Store, info: ObjectInfo, start: int, end: int) -> str:
        """Have the store copy the bytes ``start:end`` of `source` as part `number`, if it can (`Store.can_copy`)."""
        raise BadOption("this store copies nothing by itself")

    @abc.abstractmethod
    def finish(self, parts: list[str]) -> ObjectInfo:
        """Make the object from all parts, given their answers in order.

        May be called again after a StoreUnavailable, although the store may have made the object already.
        """

    @abc.abstractmethod
    def abort(self) -> None:
        """Abort the upload, which deletes its parts and ends their cost."""


class Store(abc.ABC):
    """Objects by key. Keys are as the store has them, without a leading slash."""

    #: Whether `upload` works. `min_part` is the smallest size of a part; the last part may be smaller.
    multipart: bool = False
    min_part: int = 5 << 20
    max_parts: int = 10_000
    #: Whether an unfinished upload can be resumed (`reopen`).
    reopens: bool = False
    #: Whether `pending` lists unfinished uploads.
    lists_uploads: bool = True
    #: Whether `read` with `match` refuses another version before the first byte. If False, it does so at the end.
    refuses_first: bool = True
    #: Whether reads at an offset are cheap. If False, an object is read in one stream.
    ranges: bool = True
    #: Whether keys are opaque strings. Then ``a//b`` and ``..`` have no special meaning, and any key can exist.
    flat: bool = False
    #: Whether an object may exist below the key of another (``a`` and ``a/b``).
    below_objects: bool = True
    #: Whether the store refuses all writes.
    read_only: bool = False
    #: Whether `list` reads index pages made for people. A server may have none, so objects with known names are better
    #: requested one by one.
    lists_by_page: bool = False
    #: Objects up to this many bytes are read fastest in batches (`reading`); -1 if each is best read alone.
    reads_together: int = -1
    #: Objects up to this many bytes are written fastest in batches (`writing`); -1 if each is best written alone.
    writes_together: int = -1
    #: Whether `write` makes the store reject data whose MD5 differs from the given one.
    refuses = False
    #: The store's URL or protocol, for messages.
    name: str = ""

    @property
    def stored_as(self) -> str:
        """A digest of how new objects are stored (encryption, class and so on), as far as the options say it, or ''."""
        return ""

    def unfit(self, key: str) -> str:
        """Return why no object can have this key, such as ``has a part ..``; empty if one can."""
        return ""

    def notes(self) -> Sequence[str]:
        """Return what the store turned out to be unable to do, and what that means for proofs: for reports."""
        return ()

    @abc.abstractmethod
    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """List all objects whose key begins with `prefix`, streamed, in the store's order.

        The order is that of the keys' UTF-8 bytes. Stores with real folders differ: SeaweedFS lists ``a/1`` before
        ``a-b``. `after` is a key that was listed before; only later objects are given, which resumes a broken listing.
        An empty result is no error. A missing bucket is an error.
        """

    def children(self, prefix: str, limit: int) -> tuple[ObjectInfo, ...]:
        """List some objects and folders below `prefix`, no deeper than the next slash. Folder keys end in a slash.

        Meant for a quick look: returns at most `limit` entries. A store that cannot list one level reads only the first
        few thousand objects. The size of a folder is -1.
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
        """List all objects and folders that begin with `prefix`, no deeper than the next slash, streamed.

        A folder's key ends in a slash and its size is -1. An object whose key is `prefix` itself is included. A missing
        bucket is an error. This default lists everything below `prefix`, for stores that cannot list one level.
        """
        last = ""
        for info in self.list(prefix):
            end = info.key.find("/", len(prefix))
            entry = info if end < 0 else ObjectInfo(info.key[: end + 1], -1)
            if end < 0 or entry.key != last:
                yield entry
                last = entry.key

    def folder_page(self, prefix: str, token: str = "") -> FolderPage:
        """List one page of `list_folder`: about 1,000 entries, and the token that gets the next page.

        A token is opaque; an empty one gets the first page. This default lists the folder anew for each page and takes
        the entries behind the key in the token, for stores that list a folder at once and in the order of keys.
        """
        entries = (info for info in self.list_folder(prefix) if info.key > token)
        found = list(itertools.islice(entries, _PAGE + 1))
        return FolderPage(found[:_PAGE], found[_PAGE - 1].key if len(found) > _PAGE else "")

    @abc.abstractmethod
    def head(self, key: str) -> ObjectInfo:
        """Return the store's metadata of one object. Raises NotFound if there is none.

        Some stores cannot tell a missing object from a missing bucket here. `list` and `read` can.
        """

    @abc.abstractmethod
    def read(
        self, key: str, start: int = 0, end: int | None = None, *, match: ObjectInfo | None = None
    ) -> Body:
        """Read the bytes ``start:end`` of an object; no bytes if `start` is at or beyond its end.

        With `match`, the bytes are of exactly that version; otherwise SourceChanged is raised.
        """

    def reading(self, width: Callable[[], int], max_bytes: int) -> Session[Read[Any]]:
        """Begin a session of concurrent reads: whole objects or ranges of any size. One thread takes the answers.

        Parameters
        ----------
        width : callable
            Returns how many reads may run now.
        max_bytes : int
            Memory that the reads may use together. A single read may exceed it.
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
        """Create one object of `size` bytes. It becomes visible only when it is complete.

        Stores that can keep `headers` (see `ObjectInfo`) do so. `md5` is the MD5 of all bytes in hex, or ''.

        Raises SourceChanged, and changes nothing, if `source` does not give exactly `size` bytes. Raises
        ChecksumMismatch, and changes nothing, if the store checks the MD5 (`refuses`) and received other bytes.
        """

    def creating(self) -> Store | None:
        """Return the same store as one that replaces no object; None if it cannot refuse that by itself.

        Its `write`, and the `finish` of its uploads, raise an error with status 409 or 412 among its details if there
        is an object already.
        """
        return None

    def writing(self, width: Callable[[], int], max_bytes: int) -> Session[Write[Any]]:
        """Begin a session that creates many small objects concurrently; the counterpart of `reading`."""
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
        """Delete objects. A missing object is no error."""

    def upload(self, key: str, size: int, *, headers: Mapping[str, str] | None = None) -> Upload:
        """Begin a multipart upload of `size` bytes; -1 if the size is not known yet."""
        raise BadOption(f"{self.name} has no multipart uploads")

    def reopen(self, key: str, size: int, upload_id: str) -> Upload:
        """Resume an upload, with the parts that the store has. Raises NotFound if the upload is gone."""
        raise BadOption(f"{self.name} takes up no upload again")

    @property
    def server(self) -> str:
        """The name of the server (and account), which tells this store from those of the same name on other servers.

        Records and caches keep it with the place; it is the same for all spellings and regions of one service.
        """
        return ""

    def same_objects(self, other: Store) -> bool:
        """Whether a key means the same object in both stores."""
        return self is other

    def can_copy(self, source: Store) -> bool:
        """Whether this store may be able to copy objects of `source` on the server (`copy`, `Upload.copy_part`)."""
        return False

    def copy(self, source: Store, info: ObjectInfo, key: str) -> ObjectInfo:
        """Copy an object of `source` on the server, with its content type and metadata, without reading it here.

        Raises SourceChanged if the object is not the version in `info`. Not every store checks that.
        """
        raise BadOption(f"{self.name} copies nothing by itself")

    def pending(self, prefix: str) -> Iterator[tuple[str, str]]:
        """List the unfinished multipart uploads below `prefix`, as (key, id)."""
        return iter(())

    def abort(self, key: str, upload_id: str) -> None:  # noqa: B027  there is nothing to abort
        """Abort an unfinished upload."""

    def is_folder(self, key: str) -> bool:
        """Whether `key` (ending in a slash) is a folder even if it is empty."""
        return False

    def make_folder(self, key: str) -> None:  # noqa: B027  without folders there is none to make
        """Make a folder, given with a slash at its end, and those above it, in a store that has folders."""

    def remove_folder(self, key: str) -> None:
        """Remove a folder if it is empty. In a store without folders, delete the object that stands for it."""
        self.delete([key])

    def part_size(self, info: ObjectInfo) -> int | None:
        """The size in bytes of the parts that an object was uploaded in, except the last part.

        None if the store does not report it, or if the sizes differ. Raises an error only if it is worth another try.
        """
        return None

    def read_bytes(self, key: str, *, limit: int = 64 << 20) -> bytes:
        """Read a small object whole. Raises BadOption if it is over `limit` bytes."""
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
        Key or prefix. Ends in a slash, or is empty, if a folder is meant.
    place : str
        The URL or path as users may see it, without secrets.
    """

    store: Store
    key: str
    place: str

    @property
    def is_folder(self) -> bool:
        """Whether the key is written as a folder: empty, or with a slash at its end."""
        return self.key == "" or self.key.endswith("/")
