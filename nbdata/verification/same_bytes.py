"""Compare a local file with an object's stored checksum by reading the file: the *compare* of a plan."""

from __future__ import annotations

import os

from nbdata.errors import AccessDenied, ChecksumMismatch, NotFound
from nbdata.stores.base import ObjectInfo, Store
from nbdata.transfer.control import Control
from nbdata.transfer.file_source import blocks
from nbdata.transfer.retry import retrying
from nbdata.verification.checker import plain_md5, stream_check

__all__ = ["same_bytes"]


def same_bytes(
    control: Control, store: Store, info: ObjectInfo, fd: int, path: str, *, forged: bool = False
) -> bool:
    """Whether an open file has the bytes of an object; False also if that cannot be known.

    If the file may be `forged`, a CRC does not count: anybody can find other bytes with the same one.

    If the ETag is no MD5, the store is asked for everything it knows, since a listing has less: other checksums, and
    the part size of the upload. If the store does not report the part size, the likeliest is tried. A wrong guess only
    costs a transfer of the object.
    """
    if os.fstat(fd).st_size != info.size:
        return False
    if not plain_md5(info):
        try:
            described = retrying(control, lambda: store.head(info.key))
        except (AccessDenied, NotFound):  # as with write-only access; the transfer itself reports errors
            return False
        if (described.etag.strip('"'), described.size) != (info.etag.strip('"'), info.size):
            return False
        info = described
    check, offset = stream_check(control, store, info), 0
    if forged and not check.unforgeable:
        return False
    for block in blocks(control, fd, 0, info.size, path):
        check.offer(offset, block)
        offset += len(block)
    try:
        return offset == info.size and check.finish(fd, offset)
    except ChecksumMismatch:
        return False
