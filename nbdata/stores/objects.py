"""The metadata of an object, and the interfaces of byte sources and bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

__all__ = ["Body", "FolderPage", "ObjectInfo", "Source", "Stop"]

# The empty mapping of objects whose listing has no checksums; shared, since there may be a million objects.
_NOTHING: Mapping[str, str] = MappingProxyType({})


class ObjectInfo(NamedTuple):
    """The metadata that a store reports for one object.

    Attributes
    ----------
    key : str
    size : int
        Bytes; -1 if the store does not report it.
    etag : str
        As the store sends it, with quotes and ``W/``; empty if it sends none.
    modified : float or None
        Seconds since the epoch.
    version : str
        Version or generation id, or empty.
    checksums : dict
        Digests of the whole object that the store keeps, by algorithm, in hex.
    composite : dict
        Composite digests (of the digests of its parts), by algorithm, as ``hex-PARTS``.
    encrypted : bool
        Whether a KMS key or a customer's key encrypts it. The ETag is then no MD5, even if it looks like one.
    headers : dict
        Headers to keep with a copy (content type, user metadata), as HTTP headers with names in lower case. Only `head`
        and `read` report them, and only in some stores.
    storage_class : str
        The storage class, if it is not the usual one of the store. Only listings report it; those of S3 only if
        they are of one folder.
    """

    key: str
    size: int
    etag: str = ""
    modified: float | None = None
    version: str = ""
    checksums: Mapping[str, str] = _NOTHING
    composite: Mapping[str, str] = _NOTHING
    encrypted: bool = False
    headers: Mapping[str, str] = _NOTHING
    storage_class: str = ""


class FolderPage(NamedTuple):
    """One page of a folder: its objects and folders, and the token of the next page; empty after the last one."""

    entries: Sequence[ObjectInfo]
    token: str


class Stop(Protocol):
    """Tells a store that its work is no longer wanted."""

    def is_set(self) -> bool:
        """Whether to stop."""

    def add(self, abort: Callable[[], None]) -> None:
        """Register `abort`, to be called from another thread when the work must stop (at once if it must already)."""

    def remove(self, abort: Callable[[], None]) -> None:
        """Unregister `abort`."""


class Source(Protocol):
    """Bytes to write. Read it into a buffer until it returns 0."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill some of `buffer` and return the count; 0 at the end."""


class Body(Protocol):
    """The bytes of an object, or of a range of it, as they arrive.

    `info` is the metadata that came with these very bytes, so its validator (such as the ETag) holds for them. `start`
    is the offset of the first byte: 0 despite a requested range if the store ignores ranges. `length` is the number of
    bytes to come, or -1.
    """

    info: ObjectInfo
    start: int
    length: int

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill some of `buffer` and return the count; 0 at the end. Raises StoreUnavailable if the body ends early."""

    def close(self) -> None:
        """Release the connection. Call it on every path."""
