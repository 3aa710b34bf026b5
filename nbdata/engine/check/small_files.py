"""Small files of the disk, checked many at a time.

To hash one takes some microseconds; to hand it to a thread, count it and report it on its own takes longer than that.
So each thread gets a batch. Only what is right is settled here: whatever is unusual about a file, it is left to those
who check it on its own, and say what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nbdata.engine.check.rows import CheckRow
from nbdata.errors import NbdataError
from nbdata.integrity.digests import new_digest
from nbdata.stores.base import Store
from nbdata.stores.local import LocalStore
from nbdata.transfer.control import Control
from nbdata.verification.checker import plain_md5

__all__ = ["batches", "right_files"]

#: Bytes up to which a file is small.
SMALL = 256 << 10
# Files of a batch, and their bytes.
_FILES, _BYTES = 64, 4 << 20


def expected_of(row: CheckRow, algorithm: str) -> tuple[str, str] | None:
    """The algorithm and the digest that a file is known to have before anybody is asked; None if that is not enough."""
    if row.promised is not None:
        md5 = plain_md5(row.promised) if algorithm in ("auto", "md5") else None
        return ("md5", md5) if md5 else None
    return (row.expected.algorithm, row.expected.digest) if row.expected is not None else None


def batches(rows: Iterable[CheckRow], store: Store) -> Iterator[tuple[list[CheckRow], bool]]:
    """The rows in their order: those of small files of the disk together, as far as they follow each other, or one.

    The second says whether it is the former.
    """
    local = isinstance(store, LocalStore)
    batch, size = list[CheckRow](), 0
    for row in rows:
        small = local and row.action == "check" and 0 <= row.size <= SMALL
        if batch and (not small or len(batch) >= _FILES or size + row.size > _BYTES):
            yield batch, True
            batch, size = [], 0
        if small:
            batch.append(row)
            size += row.size
        else:
            yield [row], False
    if batch:
        yield batch, True


def right_files(
    control: Control, store: LocalStore, rows: list[CheckRow], algorithm: str
) -> Iterator[tuple[CheckRow, tuple[str, str] | None]]:
    """Each of a batch, with algorithm and digest if it is as it was listed, and has the digest that is expected.

    Where it is not, nothing else is said: it may have been changed, be unreadable, or be damaged; or it takes more to
    know what to expect.
    """
    buffer = bytearray(SMALL + 1)
    for row in rows:
        control.checkpoint()
        expected, info = expected_of(row, algorithm), row.info
        if expected is None or info is None:
            yield row, None
            continue
        try:
            content = store.content(info.key, info.etag, buffer)
        except NbdataError:
            yield row, None
            continue
        digest = new_digest(expected[0])
        digest.update(content)
        yield row, expected if digest.hexdigest() == expected[1].lower() else None
