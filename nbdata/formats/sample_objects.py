"""What an index of samples lists: objects of a store, and members of shards."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["SampleObject", "ShardMember"]


class SampleObject(NamedTuple):
    """One object of a sample.

    Attributes
    ----------
    field : str
        The field's name within the sample.
    path : str
        Relative to the source.
    size : int
        Bytes; -1 if the store does not say.
    etag : str
    modified : float or None
        Seconds since 1970.
    version : str
    """

    field: str
    path: str
    size: int
    etag: str
    modified: float | None = None
    version: str = ""


class ShardMember(NamedTuple):
    """One field of a sample in a shard.

    Attributes
    ----------
    field : str
    shard : int
        The number of the shard.
    offset : int
        Start of the content in the shard; -1 if it is not contiguous there. Of an FFRecord file: the number of the
        record.
    size : int
        Bytes.
    crc : int
        CRC-32 of the content (RFC 1952, section 8).
    """

    field: str
    shard: int
    offset: int
    size: int
    crc: int
