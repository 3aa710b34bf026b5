"""Check small files on the disk in batches.

Hashing a small file takes a few microseconds; handing it to a thread, counting and reporting it takes longer. So each
thread gets a batch. Only matching files are settled here. Any unusual file is left to the check of single files,
which reports what is wrong.
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

#: Largest size of a small file in bytes.
SMALL = 256 << 10
# Most files of a batch, and most bytes.
_FILES, _BYTES = 64, 4 << 20


def expected_of(row: CheckRow, algorithm: str) -> tuple[str, str] | None:
    """The expected algorithm and digest of a file, if known without a request; else None."""
    if row.promised is not None:
        md5 = plain_md5(row.promised) if algorithm in ("auto", "md5") else None
        return ("md5", md5) if md5 else None
    return (row.expected.algorithm, row.expected.digest) if row.expected is not None else None


def batches(rows: Iterable[CheckRow], store: Store) -> Iterator[tuple[list[CheckRow], bool]]:
    """Yield the rows in order: consecutive small files on the disk as a batch, any other file by itself.

    The second value is True for a batch of small files.
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
    """Yield each file of a batch, with algorithm and digest if it is unchanged since the listing and matches.

    Otherwise the second value is None: the file may be changed, unreadable or damaged, or its expected digest may need
    a request.
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
