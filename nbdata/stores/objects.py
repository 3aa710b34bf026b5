"""What is said of an object, and the shapes in which its bytes come and go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

__all__ = ["Body", "ObjectInfo", "Source", "Stop"]

# What is kept of objects of which a listing tells no more; one for all, since there may be a million.
_NOTHING: Mapping[str, str] = MappingProxyType({})


class ObjectInfo(NamedTuple):
    """What a store says of one object.

    Attributes
    ----------
    key : str
    size : int
        Bytes; -1 if the store does not say.
    etag : str
        As the store gives it, quotes and ``W/`` included; empty if it gives none.
    modified : float or None
        Seconds since the epoch.
    version : str
        Version or generation id, or empty.
    checksums : dict
        Digests of the whole object that the store keeps, by algorithm, as hex.
    composite : dict
        Digests of the digests of its parts, likewise: ``hex-PARTS``.
    encrypted : bool
        Encrypted by a key of the user's or KMS: then the ETag is no MD5, whatever it looks like.
    headers : dict
        What goes along with a copy (content type, user metadata), as HTTP headers with names in lower
        case. Only `head` and `read` tell it, and only some stores.
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


class Stop(Protocol):
    """How a store hears that its work is no longer wanted."""

    def is_set(self) -> bool:
        """Whether to stop."""

    def add(self, abort: Callable[[], None]) -> None:
        """Call `abort` (from another thread) when it is time to stop; at once if it is already."""

    def remove(self, abort: Callable[[], None]) -> None:
        """Forget `abort`."""


class Source(Protocol):
    """Bytes to be written: read into a buffer until 0 comes back."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill a part of `buffer`; 0 at the end."""


class Body(Protocol):
    """The bytes of an object, or of a range of it, while they arrive.

    `info` is what came with these very bytes, so that a validator holds for them; `start` is where
    they begin: 0 although a range was asked for, if the store ignores ranges. `length` is how many
    come, or -1.
    """

    info: ObjectInfo
    start: int
    length: int

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill a part of `buffer`; 0 at the end. A body that ends early raises StoreUnavailable."""

    def close(self) -> None:
        """Give the connection back; needed on every path."""
