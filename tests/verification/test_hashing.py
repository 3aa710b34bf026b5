"""Hashing an object in a store: broken reads resume, and every byte is hashed once and in order."""

from __future__ import annotations

import hashlib
import os
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.engine.runner import Planning
from nbdata.errors import SourceChanged, StoreUnavailable
from nbdata.integrity.digests import new_digest
from nbdata.report import Plan, Row, Rows
from nbdata.stores.base import ObjectInfo
from nbdata.stores.local import LocalStore
from nbdata.verification.hashing import Hashed, biggest_first, hash_object, hashing_workers, note_size
from tests.transfer.flaky import Flaky, broken
from tests.waiting import PATIENCE

MIB = 1 << 20


@pytest.fixture
def big(tmp_path: Path) -> Path:
    path = tmp_path / "big"
    path.write_bytes(os.urandom(3 * MIB + 5))
    return path


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry at once."""
    monkeypatch.setattr("nbdata.transfer.retry._FIRST", 0.0)


def hashed(store: LocalStore, path: Path, *, size: int | None = None) -> tuple[Hashed, Planning]:
    control = Planning()
    info = store.head(str(path).lstrip("/"))
    if size is not None:
        info = ObjectInfo(info.key, size)
    return hash_object(control, store, info, lambda: [new_digest("md5"), new_digest("sha1")]), control


def right(path: Path) -> Hashed:
    data = path.read_bytes()
    return Hashed([hashlib.md5(data).hexdigest(), hashlib.sha1(data).hexdigest()], len(data))


def test_it_goes_on_where_it_broke_off(big: Path) -> None:
    store = Flaky(partial(broken, 1, 2 * MIB))
    result, control = hashed(store, big)
    assert result == right(big)
    assert store.starts == [0, 2 * MIB]
    assert control.snapshot().bytes == result.size


@pytest.mark.parametrize("how", [{"honours": False}, {"ranges": False}])
def test_it_begins_anew_where_ranges_do_not_work(big: Path, how: dict[str, bool]) -> None:
    store = Flaky(partial(broken, 2, 2 * MIB), **how)
    result, control = hashed(store, big)
    assert result == right(big)
    assert store.starts == ([0, 2 * MIB, 2 * MIB] if store.ranges else [0, 0, 0])
    assert control.snapshot().bytes == result.size


def test_what_breaks_at_the_very_end_is_not_asked_for_again(big: Path) -> None:
    store = Flaky(partial(broken, 1, 3 * MIB + 5))
    assert hashed(store, big)[0] == right(big)
    assert store.starts == [0]


def test_a_body_that_ends_early_is_no_whole_one(big: Path) -> None:
    store = Flaky(lambda read, at, count: 0 if read == 1 and at >= MIB else count)
    assert hashed(store, big)[0] == right(big)
    assert store.starts == [0, MIB]


def test_more_bytes_than_were_listed_are_another_object(big: Path) -> None:
    with pytest.raises(SourceChanged, match="longer"):
        hashed(LocalStore(), big, size=MIB)


def test_an_object_of_unknown_size_is_read_to_its_end(big: Path) -> None:
    assert hashed(LocalStore(), big, size=-1)[0] == right(big)


def test_a_store_that_gives_up_leaves_no_bytes_counted(big: Path) -> None:
    store, control = Flaky(partial(broken, 99, 2 * MIB)), Planning()
    with pytest.raises(StoreUnavailable):
        hash_object(control, store, store.head(str(big).lstrip("/")), lambda: [new_digest("md5")])
    assert len(store.starts) == 8
    assert control.snapshot().bytes == 0


def test_big_files_are_begun_first_the_biggest_of_them_at_once() -> None:
    sizes = [1, 64 << 20, 5, 100 << 20, 70 << 20, 2]
    plan = Plan("md5check", details={"biggest": 0})
    plan.rows = Rows(6, lambda _: ([Row(str(n), "check", size, {}) for n, size in enumerate(sizes)], None))
    for size in sizes:
        note_size(plan, size)
    assert [row.path for row in biggest_first(plan)] == ["3", "4", "1", "0", "2", "5"]
    assert (plan.files, plan.bytes) == (6, sum(sizes))


@pytest.mark.parametrize(("processors", "threads"), [(1, 2), (2, 4), (64, 16)])
def test_how_many_files_of_a_disk_are_hashed_at_a_time_follows_the_processors_and_is_bounded(
    monkeypatch: pytest.MonkeyPatch, processors: int, threads: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)))
    assert hashing_workers(None, LocalStore()) == threads
    assert hashing_workers(3, LocalStore()) == 3


@pytest.mark.usefixtures("inline")
def test_several_files_are_hashed_at_once(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "MD5SUMS").write_text("".join(f"{'0' * 32}  {name}\n" for name in ("a.txt", "b/e.txt")))
    meeting = threading.Barrier(2)

    def meet(*args: Any) -> Hashed:
        meeting.wait(timeout=PATIENCE)  # breaks if the other one never comes
        return hash_object(*args)

    monkeypatch.setattr("nbdata.engine.check.md5check.hash_object", meet)
    assert nbdata.md5check(tree, on_error="report", quiet=True).counts["mismatch"] == 2
