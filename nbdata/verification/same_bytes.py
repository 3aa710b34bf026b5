"""Whether a local file holds what a store vouches for, found out by reading it: what *compare* in a plan means."""

from __future__ import annotations

import os

from nbdata.errors import AccessDenied, ChecksumMismatch, NotFound
from nbdata.stores.base import ObjectInfo, Store
from nbdata.transfer.control import Control
from nbdata.transfer.file_source import blocks
from nbdata.transfer.retry import retrying
from nbdata.verification.checker import plain_md5, stream_check

__all__ = ["same_bytes"]


def same_bytes(control: Control, store: Store, info: ObjectInfo, fd: int, path: str) -> bool:
    """Whether an open file holds the bytes of an object; False also where nobody can tell.

    Where the ETag is no MD5 the store is asked for all that it knows, since a listing says less: other checksums, and
    in which parts the object was uploaded. Where it does not tell the size of the parts, the likeliest is tried: a
    wrong guess only costs that the object is moved.
    """
    if os.fstat(fd).st_size != info.size:
        return False
    if not plain_md5(info):
        try:
            told = retrying(control, lambda: store.head(info.key))
        except (AccessDenied, NotFound):  # as who may write and not read; what is moved then says the rest
            return False
        if (told.etag.strip('"'), told.size) != (info.etag.strip('"'), info.size):
            return False
        info = told
    check, offset = stream_check(control, store, info), 0
    for block in blocks(control, fd, 0, info.size, path):
        check.offer(offset, block)
        offset += len(block)
    try:
        return offset == info.size and check.finish(fd, offset)
    except ChecksumMismatch:
        return False
