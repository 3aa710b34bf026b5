"""How an error in a stream reaches the consumer, and what happens to items that the consumer still uses."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.engine.cache.item_cache import ItemCache
from nbdata.snapshot import Snapshot
from tests.conftest import client_of
from tests.engine.cache.test_cache_stream import Put, content, empties
from tests.slow import take
from tests.waiting import wait_until

FILES = {f"f{n:02}/a": bytes([n]) * 100_000 for n in range(40)}


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


@pytest.fixture(params=["agent", "inline"])
def host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("NBDATA_HOST", request.param)
    return str(request.param)


def delete(s3: EmbeddedServer, bucket: str, *keys: str) -> None:
    client = client_of(s3)
    for key in keys:
        client.delete_object(Bucket=bucket, Key=key)
    client.close()


def _fetched(size: int) -> Snapshot | None:
    """The running stream, once it has fetched so many bytes: a pause keeps the items that are not there yet."""
    (job,) = [s for s in nbdata.transfers() if s.verb == "cache_stream" and not s.finished]
    return job if job.bytes >= size else None


@pytest.mark.in_ci("agent")
def test_an_error_comes_before_items_that_were_sent_ahead_and_spares_what_is_used(
    put: Put, s3: EmbeddedServer, bucket: str, host: str, workplace: Path
) -> None:
    stream = nbdata.cache_stream(put(FILES), max_size="1MB", quiet=True)
    delete(s3, bucket, "f25/a")  # more items come before it than fit into the cache
    seen = []

    def loop() -> None:
        for item in stream:
            if item.key > "f15":
                take(1)  # f25 is requested by now; nine seconds remain to notice it
            seen.append(item.key)
            assert content(item) == {"a": FILES[f"{item.key}/a"]}  # the files in use still exist

    with pytest.raises(nbdata.SourceChanged, match="f25"):
        loop()
    assert 10 < len(seen) < 25
    assert empties(workplace)


def test_a_job_that_is_remembered_holds_nothing_of_a_stream_that_failed(
    put: Put, s3: EmbeddedServer, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def held() -> set[int]:
        gc.collect()
        return {id(found) for found in gc.get_objects() if type(found) is ItemCache}

    monkeypatch.setenv("NBDATA_HOST", "inline")
    before = held()
    stream = nbdata.cache_stream(put(FILES), max_size="1MB", quiet=True)
    delete(s3, bucket, "f25/a")
    with pytest.raises(nbdata.SourceChanged):
        for _ in stream:
            pass
    del stream, _
    assert held() <= before


def test_an_unexpected_error_ends_the_loop_too(
    tmp_path: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBDATA_HOST", "inline")
    source = tmp_path / "source"
    for name, data in FILES.items():
        (source / name).parent.mkdir(parents=True)
        (source / name).write_bytes(data)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("not foreseen")

    monkeypatch.setattr("nbdata.engine.cache.file_fetching.Checker", broken)
    with pytest.raises(nbdata.NbdataError, match="not foreseen"):
        for _ in nbdata.cache_stream(str(source), max_size="2MB", quiet=True):
            pass
    assert empties(workplace)


@pytest.mark.parametrize("on_error", ["raise", "report"])
@pytest.mark.in_ci("raise")
def test_a_big_object_that_changed_is_told_and_does_not_hang(put: Put, on_error: str) -> None:
    url = put({"f0/a": bytes(30_000_000), "f1/a": bytes(40_000_000), "f2/a": b"x"})
    items = iter(nbdata.cache_stream(url, max_size="45MB", on_error=on_error, quiet=True))
    assert next(items).key == "f0"  # it leaves no room for the next item
    put({"f1/a": bytes(39_000_000)})
    if on_error == "raise":
        with pytest.raises(nbdata.SourceChanged, match="f1"):
            list(items)
    else:
        assert [item.key for item in items] == ["f2"]


def test_many_objects_that_fail_among_others_leave_the_others(
    put: Put, s3: EmbeddedServer, bucket: str
) -> None:
    stream = nbdata.cache_stream(put(FILES), max_size="300k", on_error="report", quiet=True)
    gone = [f"f{n:02}/a" for n in range(11, 40, 2)]
    delete(s3, bucket, *gone)
    keys = {item.key for item in stream}
    assert keys == {f"f{n:02}" for n in range(40)} - {name[:3] for name in gone}


def test_a_pause_blocks_neither_items_in_use_nor_their_return(put: Put, host: str) -> None:
    stream = nbdata.cache_stream(put(FILES), max_size="500k", quiet=True)
    items = iter(stream)
    next(items)
    job = wait_until(lambda: _fetched(200_000))
    nbdata.transfers(job.id, pause=True)
    held = next(items)
    assert content(held)
    nbdata.transfers(job.id, resume=True)
    assert sum(1 for _ in items) == 38


def test_a_pause_at_the_end_does_not_keep_the_last_items(put: Put, host: str) -> None:
    stream = nbdata.cache_stream(put({"a/1": b"1", "b/2": b"2", "c/3": b"3"}), max_size="1MB", quiet=True)
    items = iter(stream)
    next(items)
    job = wait_until(lambda: _fetched(3))
    nbdata.transfers(job.id, pause=True)
    assert [item.key for item in items] == ["b", "c"]


def test_an_item_that_no_folder_can_hold_is_named_with_what_to_do(put: Put) -> None:
    url = put({"a/1": b"1", ".nbdata/2": b"2"})
    with pytest.raises(nbdata.BadOption, match=r"it cannot be streamed: .*--exclude"):
        list(nbdata.cache_stream(url, max_size="1MB", quiet=True))
    for options in ({"exclude": ".nbdata/**"}, {"on_error": "report"}):
        keys = [item.key for item in nbdata.cache_stream(url, max_size="1MB", quiet=True, **options)]
        assert keys == ["a"]
