"""Fetching a part into a file: the record contains only bytes that are in the file."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from nbdata.engine.runner import Planning
from nbdata.errors import NotEnoughSpace
from nbdata.integrity.digests import new_digest
from nbdata.seals import Seals
from nbdata.stores.base import ObjectInfo
from nbdata.stores.local import LocalStore
from nbdata.transfer.fetch import PartedFetch
from nbdata.transfer.part_records import PART
from nbdata.transfer.partials import Partial, UnrecordedParts
from nbdata.transfer.staging import Staging
from nbdata.verification.checker import check_for, digest_check

MIB = 1 << 20


class Refusing(LocalStore):
    """A store that refuses another version before its first byte, as object stores do."""

    refuses_first = True


class Noted(UnrecordedParts):
    """Keeps the notes of progress."""

    def note(self, number: int, count: int) -> None:
        self.notes = [*getattr(self, "notes", []), (number, count)]


def test_what_a_full_disk_did_not_take_is_not_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "big").write_bytes(os.urandom(4 * MIB))
    store, real, written = Refusing(), os.pwrite, 0

    def full(fd: int, data: Any, offset: int) -> int:
        nonlocal written
        if written == 2 * MIB:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = real(fd, data, offset)
        written += count
        return count

    monkeypatch.setattr("nbdata.transfer.reader.os.pwrite", full)
    info: ObjectInfo = store.head(str(tmp_path / "big").lstrip("/"))
    fd = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT)
    parts, errors = Noted(fd, info.size, None), list[Exception]()
    fetch = PartedFetch(
        Planning(), store, info, parts, lambda told: check_for(told, "none"),
        done=lambda _verified: None, failed=errors.append,
    )  # fmt: skip
    for unit in fetch.units():
        unit()
    os.close(fd)
    assert [type(error) for error in errors] == [NotEnoughSpace]
    assert parts.notes[-1] == (0, 2 * MIB)
    assert (tmp_path / "out").read_bytes() == (tmp_path / "big").read_bytes()[: 2 * MIB]


@pytest.mark.parametrize(("algorithm", "kept"), [("crc32c", False), ("md5", True)])
def test_what_was_there_unproven_counts_only_with_a_digest_that_nobody_forges(
    tmp_path: Path, algorithm: str, kept: bool
) -> None:
    """Other bytes with the same CRC are easily found."""
    data = os.urandom(PART + MIB)
    (tmp_path / "big").write_bytes(data)
    store = LocalStore()
    info: ObjectInfo = store.head(str(tmp_path / "big").lstrip("/"))
    digest = new_digest(algorithm)
    digest.update(data)
    expected = digest.hexdigest()
    parts = Partial(
        Staging(str(tmp_path)), "big", "source", info, Seals(str(tmp_path / "a stranger's state"))
    )
    os.pwrite(parts.fd, data[:PART], 0)
    parts.mark(0)
    parts.close()
    parts = Partial(Staging(str(tmp_path)), "big", "source", info, Seals(str(tmp_path / "state")))
    ended: list[object] = []
    fetch = PartedFetch(
        Planning(), store, info, parts, lambda told: digest_check(told, algorithm, expected),
        done=ended.append, failed=ended.append,
    )  # fmt: skip
    for unit in fetch.units():
        unit()
    assert (fetch.dropped, fetch.present, ended) == (not kept, PART if kept else 0, [True])
    assert Path(parts.data).read_bytes() == data
    parts.close()
