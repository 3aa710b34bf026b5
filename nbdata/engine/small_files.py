"""Small files of the disk, checked many at a time.

To hash one takes some microseconds; to hand it to a thread, count it and report it on its own takes longer than that.
So each thread gets a batch. Only what is right is settled here: whatever is unusual about a file, it is left to those
who check it on its own, and say what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nbdata.errors import NbdataError
from nbdata.integrity.digests import new_digest
from nbdata.report import Row
from nbdata.stores.base import Store
from nbdata.stores.local import LocalStore
from nbdata.transfer.control import Control

__all__ = ["batches", "is_small", "right_digests"]

#: Bytes up to which a file is small.
SMALL = 256 << 10
# Files of a batch, and their bytes.
_FILES, _BYTES = 64, 4 << 20


def is_small(row: Row, store: Store) -> bool:
    """Whether a row is to be checked in a batch: a small file whose digest a checksum file tells."""
    return (
        row.action == "check"
        and 0 <= row.size <= SMALL
        and "expected" in row.detail
        and "object" not in row.detail
        and isinstance(store, LocalStore)
    )


def batches(rows: Iterable[Row], store: Store) -> Iterator[list[Row]]:
    """The rows in their order, those of small files together as far as they follow each other, others alone."""
    batch, size = list[Row](), 0
    for row in rows:
        small = is_small(row, store)
        if batch and (not small or len(batch) >= _FILES or size + row.size > _BYTES):
            yield batch
            batch, size = [], 0
        if small:
            batch.append(row)
            size += row.size
        else:
            yield [row]
    if batch:
        yield batch


def right_digests(control: Control, store: LocalStore, rows: list[Row]) -> Iterator[tuple[Row, bool]]:
    """Each small file, and whether it is as it was listed, and has the digest that is expected.

    Where it is not, nothing else is said: it may have been changed, be unreadable, or be damaged.
    """
    buffer = bytearray(SMALL + 1)
    for row in rows:
        control.checkpoint()
        detail = row.detail
        try:
            content = store.content(detail["key"], detail["etag"], buffer)
        except NbdataError:
            yield row, False
            continue
        digest = new_digest(detail["algorithm"])
        digest.update(content)
        yield row, digest.hexdigest() == detail["expected"].lower()
