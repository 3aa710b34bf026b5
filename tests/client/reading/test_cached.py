"""Samples through a cache on the disk: correct, within the limit, fetched once for all, whichever process is killed."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

import nbdata
from nbdata.cache.contents import CacheContents
from nbdata.cache.kept_folder import KeptFolder, room_of_object
from nbdata.cache.kept_names import is_name
from nbdata.cache.known import known_cache
from nbdata.client.agent_cache import AgentCache
from nbdata.client.agents import stop_all
from nbdata.client.connection import Connection
from nbdata.client.reading import cached
from nbdata.demo.server import EmbeddedServer
from nbdata.engine.cache import sample_cache
from nbdata.engine.job.shared_cache import Consumer, SharedCache
from nbdata.errors import BadOption, Cancelled, NbdataError, SourceChanged
from nbdata.loaders.pytorch import SampleDataset, SampleLoader, SampleStream
from nbdata.operation import slots
from nbdata.protocols import Epoch
from nbdata.sizes import format_size
from nbdata.space.ledger import Ledger
from nbdata.stores.s3.store import S3Store
from nbdata.transfer.fetch import BIG
from tests.client.reading.test_samples import FILES, Open, images, in_order, often, opened
from tests.conftest import client_of
from tests.faults.gate import Gate
from tests.faults.proxy import BODY, Fault, FaultProxy
from tests.faults.test_lines import proxy
from tests.waiting import PATIENCE, wait_until
from tests.watcher import Watcher

__all__ = ["images", "opened", "proxy"]

_BYTES = sum(map(len, FILES.values()))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "disk"


@pytest.fixture
def ended() -> Iterator[None]:
    """End the agent that keeps the cache, because it also keeps the server's address."""
    yield
    stop_all(now=True)


def test_samples_are_those_of_the_store_and_come_once(
    proxy: FaultProxy, images: str, opened: Open, cache: Path
) -> None:
    samples = opened(images, cache="50MB", cache_dir=str(cache))
    tally = proxy.begin()
    assert list(samples.stream(shuffle=True, seed=1)) != in_order(images)
    assert list(samples) == in_order(images)
    assert samples.fetch([5, 3, 5]) == [in_order(images)[n] for n in (5, 3, 5)]
    assert sum(tally.down.values()) == _BYTES
    assert samples.report.samples == 123
    samples.close()
    tally = proxy.begin()
    assert list(opened(images, cache="50MB", cache_dir=str(cache))) == in_order(images)
    assert not tally.down


def test_the_cache_is_found_again_by_the_next_agent(
    s3: EmbeddedServer, images: str, opened: Open, cache: Path, ended: None
) -> None:
    assert list(opened(images, cache="50MB", cache_dir=str(cache))) == in_order(images)
    before = {path: path.stat().st_ino for path in cache.rglob("kept-*/*")}
    assert len(before) >= len(FILES)
    stop_all(now=True)
    assert list(opened(images, cache="50MB", cache_dir=str(cache))) == in_order(images)
    kept = {path: inode for path, inode in before.items() if path.name not in ("boot", "sealed", "about")}
    assert {path: path.stat().st_ino for path in kept} == kept


@pytest.mark.parametrize(("way", "epochs"), [("fork", 3), pytest.param("spawn", 1, marks=pytest.mark.long)])
def test_workers_share_the_cache_and_never_exceed_the_limit(
    s3: EmbeddedServer, images: str, cache: Path, tmp_path: Path, ended: None, way: str, epochs: int
) -> None:
    cache.mkdir()
    limit = 60 * 4096
    samples = nbdata.samples(images, cache=limit, cache_dir=str(cache))
    with Watcher(cache, tmp_path / "notes") as watcher:
        for epoch in range(epochs):
            loader = SampleLoader(
                samples, 8, shuffle=True, seed=epoch, num_workers=2, multiprocessing_context=way
            )
            got = [sample for batch in loader for sample in batch]
            assert sorted(s["__key__"] for s in got) == sorted(s["__key__"] for s in in_order(images))
            assert all(s["jpg"] == FILES[s["__key__"] + ".jpg"] for s in got)
        wait_until(lambda: _noted(tmp_path / "notes") > 3)
    samples.close()
    assert watcher.most <= limit + 2 * 4096  # the folder that existed before, and its .nbdata


def test_a_loader_of_ones_own_stages_ahead_in_its_samplers_order_to_a_disk_in_memory(
    proxy: FaultProxy, images: str, ended: None
) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        limit = KeptFolder.overhead_of(4096) + 40 * 4500  # a third of the objects
        samples = nbdata.samples(images, cache=limit, cache_dir=memory)
        sampler = samples.batch_sampler(6, shuffle=True, seed=3, ahead=2)
        order = [number for batch in sampler for number in batch]
        tally = proxy.begin()
        sampler.set_epoch(0)
        data = DataLoader(SampleDataset(samples), batch_sampler=sampler, collate_fn=list)
        assert [s["__key__"] for batch in data for s in batch] == [
            in_order(images)[n]["__key__"] for n in order
        ]
        assert sum(tally.down.values()) == _BYTES
        assert samples.report.fetched == _BYTES
        assert sum(path.stat().st_size for path in Path(memory).rglob("kept-*/*")) < limit
        samples.close()
        stop_all(now=True)


def _noted(notes: Path) -> int:
    try:
        return int(notes.read_text().split()[0])
    except (FileNotFoundError, IndexError):
        return 0


def test_what_fails_reaches_who_asked_for_it_and_nobody_else(
    proxy: FaultProxy, images: str, opened: Open, cache: Path
) -> None:
    samples = opened(images, cache="50MB", cache_dir=str(cache))
    proxy.begin(lambda request, _before: Fault("flip", BODY, 0.5) if request.key == "n0/003.jpg" else None)
    with pytest.raises(NbdataError, match=r"n0/003\.jpg"):
        samples.fetch([0, 1, 2])
    assert samples.fetch([0, 2]) == [in_order(images)[n] for n in (0, 2)]
    proxy.begin()
    assert samples.fetch([1]) == [in_order(images)[1]]
    assert not list(cache.rglob("*.part"))


def test_faults_on_the_way_are_put_right(proxy: FaultProxy, images: str, opened: Open, cache: Path) -> None:
    samples = opened(images, cache="50MB", cache_dir=str(cache))
    tally = proxy.begin(often(Fault("cut", BODY, 0.3)))
    assert list(samples.stream()) == in_order(images)
    assert tally.faults


def test_an_object_that_changed_is_no_sample_of_these(
    s3: EmbeddedServer, inline: None, bucket: str, opened: Open, cache: Path
) -> None:
    client = client_of(s3)
    for name in ("a.jpg", "b.jpg"):
        client.put_object(Bucket=bucket, Key=name, Body=name.encode())
    samples = opened(f"s3://{bucket}/", cache="50MB", cache_dir=str(cache))
    client.put_object(Bucket=bucket, Key="a.jpg", Body=b"other")
    with pytest.raises(SourceChanged):
        samples.fetch([0, 1])
    assert samples[1]["jpg"] == b"b.jpg"
    client.close()


def test_a_worker_that_is_killed_holds_nothing(
    s3: EmbeddedServer, images: str, opened: Open, cache: Path, ended: None
) -> None:
    # The worker holds everything that the cache can hold, so other processes get nothing before it dies.
    code = (
        "import sys, time, nbdata\n"
        "from nbdata.client.reading import cached\n"
        "def stop(folder, part):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(600)\n"
        "cached._Folder.read, cached._SHARE = stop, 1\n"
        "samples = nbdata.samples(sys.argv[1], cache=int(sys.argv[2]), cache_dir=sys.argv[3], quiet=True)\n"
        "samples.fetch(range(6))\n"
    )
    size = str((12 + 10) * 4600)
    command = [sys.executable, "-c", code, images, size, str(cache)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd="/")  # no source tree of nbdata there
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE)
    process.stdout.close()
    assert list(opened(images, cache=int(size), cache_dir=str(cache))) == in_order(images)


def test_an_agent_that_is_killed_is_followed_by_another(
    s3: EmbeddedServer, images: str, opened: Open, cache: Path, ended: None
) -> None:
    samples = opened(images, cache="50MB", cache_dir=str(cache))
    got = []
    for number, sample in enumerate(samples.stream(shuffle=True, seed=3)):
        got.append(sample["__key__"])
        if number in (10, 40):
            stop_all(now=True)
    assert Counter(got) == Counter(s["__key__"] for s in in_order(images))


def test_an_object_that_is_larger_than_the_cache_is_refused_with_its_size(
    s3: EmbeddedServer, inline: None, images: str, opened: Open, cache: Path
) -> None:
    with pytest.raises(BadOption, match=r"n0/000\.\w+ takes 4\.6 kB on the disk"):
        opened(images, cache=KeptFolder.overhead_of(4096) + 100, cache_dir=str(cache)).fetch([0])


def test_objects_cached_without_a_digest_are_not_given_to_readers_that_require_one(
    s3: EmbeddedServer, inline: None, images: str, opened: Open, cache: Path
) -> None:
    opened(images, cache="50MB", cache_dir=str(cache)).fetch([0])
    for kept in (None, "50MB"):
        with pytest.raises(NbdataError, match="sha256"):
            opened(images, verify="sha256", cache=kept, cache_dir=str(cache) if kept else None).fetch([0])


def test_a_changed_file_in_the_cache_is_reported(
    s3: EmbeddedServer, inline: None, images: str, opened: Open, cache: Path
) -> None:
    samples = opened(images, cache="50MB", cache_dir=str(cache))
    samples.fetch([0])
    for path in cache.rglob("kept-*/*"):
        os.truncate(path, 1)
    with pytest.raises(NbdataError, match="another process has changed the file"):
        samples.fetch([0])


def test_ctrl_c_while_objects_are_waited_for_leaves_no_answer_to_be_taken_for_another(
    s3: EmbeddedServer, images: str, opened: Open, cache: Path, monkeypatch: pytest.MonkeyPatch, ended: None
) -> None:
    samples = opened(images, cache="50MB", cache_dir=str(cache))
    samples.fetch([0])
    receive = Connection.receive

    def pressed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "receive", pressed)
        with pytest.raises(KeyboardInterrupt):
            samples.fetch([1])
    assert Connection.receive is receive
    for number in range(2, 60):
        assert samples.fetch([number]) == in_order(images)[number : number + 1]


@pytest.mark.in_ci("agent")
@pytest.mark.parametrize("host", ["agent", "inline"])
def test_close_wakes_who_waits_in_another_thread(
    gate: Gate,
    images: str,
    opened: Open,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    ended: None,
    host: str,
) -> None:
    monkeypatch.setenv("NBDATA_HOST", host)
    samples = opened(images, cache="50MB", cache_dir=str(cache))
    samples.fetch([0])
    gate.close()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(samples.fetch, [1, 2])
        gate.wait_until_it_holds()
        samples.close()
        with pytest.raises(Cancelled):
            waiting.result(PATIENCE)
    gate.open()
    wait_until(lambda: _used_by(cache) == 0)
    assert opened(images, cache="50MB", cache_dir=str(cache)).fetch([1]) == in_order(images)[1:2]


def _jobs(cache: Path) -> list[Any]:
    return [job for job in slots.host().jobs() if job.target == str(cache)]


def _used_by(cache: Path) -> int:
    (job,) = _jobs(cache)
    return int(job.phase.rpartition(" ")[2]) if "used by" in job.phase else -1


@pytest.mark.in_ci("agent")
@pytest.mark.parametrize("host", ["agent", "inline"])
def test_after_its_job_was_cancelled_the_next_call_begins_another(
    s3: EmbeddedServer,
    images: str,
    opened: Open,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    ended: None,
    host: str,
) -> None:
    monkeypatch.setenv("NBDATA_HOST", host)
    samples = opened(images, cache="50MB", cache_dir=str(cache))
    samples.fetch([0])
    (job,) = _jobs(cache)
    slots.host().job(job.id).cancel()
    wait_until(lambda: all(job.finished for job in _jobs(cache)))
    with pytest.raises(Cancelled):
        samples.fetch([1])
    assert samples.fetch([0, 1]) == in_order(images)[:2]


def test_a_paused_cache_job_ends_when_no_process_uses_it_any_more(
    s3: EmbeddedServer, inline: None, images: str, opened: Open, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[float]()
    end_if_left = SharedCache.end_if_left_paused

    def at_once(cache: SharedCache, seconds: float) -> bool:
        asked.append(seconds)
        return end_if_left(cache, 0)

    monkeypatch.setattr(SharedCache, "end_if_left_paused", at_once)
    samples = opened(images, cache="50MB", cache_dir=str(cache))
    samples.fetch([0])
    (job,) = _jobs(cache)
    slots.host().job(job.id).pause()
    looks = len(asked)
    wait_until(lambda: len(asked) > looks + 1)
    assert [job.state for job in _jobs(cache)] == ["PAUSED"]
    samples.close()
    wait_until(lambda: [job.state for job in _jobs(cache)] == ["CANCELLED"])
    assert asked[0] == sample_cache.IDLE
    assert opened(images, cache="50MB", cache_dir=str(cache)).fetch([0, 1]) == in_order(images)[:2]


def test_a_store_that_is_slow_to_tell_of_a_large_object_holds_up_nothing_else(
    s3: EmbeddedServer, inline: None, bucket: str, cache: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_of(s3)
    large = os.urandom(BIG)
    for key, data in {"large.bin": large, "small.bin": b"small"}.items():
        client.put_object(Bucket=bucket, Key=key, Body=data)
    asked, told, head = threading.Event(), threading.Event(), S3Store.head

    def slow(store: S3Store, key: str) -> Any:
        if key == "large.bin":
            asked.set()
            assert told.wait(PATIENCE)
        return head(store, key)

    one, other = (opened(f"s3://{bucket}/", cache="50MB", cache_dir=str(cache)) for _ in range(2))
    monkeypatch.setattr(S3Store, "head", slow)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(one.fetch, [0])
        assert asked.wait(PATIENCE)
        assert other.fetch([1])[0]["bin"] == b"small"
        assert not waiting.done()
        told.set()
        assert waiting.result(PATIENCE)[0]["bin"] == large


def test_a_cancelled_job_that_still_has_the_folder_is_waited_for(
    s3: EmbeddedServer, inline: None, images: str, opened: Open, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = opened(images, cache="50MB", cache_dir=str(cache))
    samples.fetch([0])
    syncing, synced = threading.Event(), threading.Event()
    sync = KeptFolder.sync

    def slowly(folder: KeptFolder) -> None:
        syncing.set()
        assert synced.wait(PATIENCE)
        sync(folder)

    monkeypatch.setattr(KeptFolder, "sync", slowly)
    (job,) = _jobs(cache)
    slots.host().job(job.id).cancel()
    assert syncing.wait(PATIENCE)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: opened(images, cache="50MB", cache_dir=str(cache)).fetch([0, 1]))
        wait_until(lambda: any("leave the cache" in job.phase for job in _jobs(cache)))
        synced.set()
        assert waiting.result(PATIENCE) == in_order(images)[:2]


def test_another_limit_takes_over_a_cache_that_no_process_uses_and_is_refused_while_one_does(
    proxy: FaultProxy,
    inline: None,
    images: str,
    opened: Open,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sample_cache, "_LEAVING", 0.1)
    monkeypatch.setattr(sample_cache, "_NOTE_EVERY", 0.0)
    over, seen, end_if_idle = threading.Event(), list[SharedCache](), SharedCache.end_if_idle

    def ends(of: SharedCache, seconds: float) -> bool:
        if of._cache is not None and of._cache.folder.startswith(str(cache)):  # jobs of other tests still run
            seen[1:] = [of]
        return over.is_set() and of is seen[0] and end_if_idle(of, 0)

    monkeypatch.setattr(SharedCache, "end_if_idle", ends)
    first = opened(images, cache="20MB", cache_dir=str(cache))
    first.fetch([0])
    (folder,) = (path for path in (cache / ".nbdata").glob("kept-*") if path.is_dir())
    wait_until(lambda: known_cache(str(folder)).consumers == 1)
    with pytest.raises(BadOption, match=r"in use with other options: .*got 1 process with cache=20\.0 MB"):
        opened(images, cache="50MB", cache_dir=str(cache)).fetch([0])
    first.close()
    wait_until(lambda: known_cache(str(folder)).consumers == 0)
    tally = proxy.begin()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: opened(images, cache="50MB", cache_dir=str(cache)).fetch([0]))
        wait_until(lambda: any("leave the cache" in job.phase for job in _jobs(cache)))
        over.set()
        assert waiting.result(PATIENCE) == in_order(images)[:1]
    assert not tally.down, "its objects are found"


def test_an_error_of_the_job_reaches_who_waits(
    s3: EmbeddedServer, inline: None, images: str, opened: Open, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = {
        job.id for job in slots.host().jobs()
    }  # of other tests, which end when nobody comes back to them
    samples = opened(images, cache="50MB", cache_dir=str(cache), concurrency=1)
    samples.fetch([0])

    def ended() -> bool:
        return all(job.finished for job in slots.host().jobs() if job.id not in earlier)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of ours")

    with monkeypatch.context() as patched:
        patched.setattr("nbdata.engine.cache.file_fetching.fetch_whole", broken)
        patched.setattr("nbdata.engine.cache.small_files.SmallFiles.has", lambda *_: False)
        with pytest.raises(NbdataError, match="a fault of ours"):
            samples.fetch([1])
        wait_until(ended)  # else it is joined once more
    assert samples.fetch([1]) == in_order(images)[1:2]


def test_keys_beyond_the_announcement_limit_are_announced_later(
    s3: EmbeddedServer, inline: None, images: str, opened: Open, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, most in (
        ("client.reading.cached.MOST_ANNOUNCED", 20), ("client.reading.cached._HELD", 4),
        ("engine.job.shared_cache.MOST_ANNOUNCED", 20), ("cache.contents.MOST_ANNOUNCED", 20),
    ):  # fmt: skip
        monkeypatch.setattr(f"nbdata.{name}", most)
    samples = opened(images, cache="50MB", cache_dir=str(cache))
    assert list(samples.stream()) == in_order(images)
    assert samples.fetch(range(60)) == in_order(images)


def test_an_object_that_the_next_agent_removed_during_a_read_is_acquired_again(
    s3: EmbeddedServer, images: str, opened: Open, cache: Path, monkeypatch: pytest.MonkeyPatch, ended: None
) -> None:
    samples = opened(images, cache="50MB", cache_dir=str(cache))
    samples.fetch([0])
    read, pending = cached._Folder.read, [1]

    def removed(folder: cached._Folder, part: Any) -> bytes:
        if pending:
            pending.clear()
            stop_all(now=True)
            os.unlink(f"{folder.of.folder}/{part.name}")
        return read(folder, part)

    monkeypatch.setattr(cached._Folder, "read", removed)
    assert samples.fetch([0, 1]) == in_order(images)[:2]


def test_a_pass_that_the_garbage_collector_ends_during_a_read_holds_up_nothing(
    s3: EmbeddedServer, images: str, opened: Open, cache: Path, monkeypatch: pytest.MonkeyPatch, ended: None
) -> None:
    samples = opened(images, cache="50MB", cache_dir=str(cache))
    left = samples.stream()
    next(left)
    forgotten: list[object] = [left]
    forgotten.append(forgotten)  # as the traceback of an error keeps the loop that it came from
    know = cached.CachedFetcher._know

    def collects(*args: Any) -> None:
        gc.collect()
        know(*args)

    monkeypatch.setattr(cached.CachedFetcher, "_know", collects)
    got: list[Any] = []
    gc.disable()
    try:
        del left, forgotten
        reading = threading.Thread(target=lambda: got.extend(samples.fetch([5])), daemon=True)
        reading.start()
        reading.join(PATIENCE)
    finally:
        gc.enable()
    assert got == in_order(images)[5:6]


@pytest.mark.in_ci("245760")
@pytest.mark.parametrize("limit", [50 << 20, 60 * 4096])
def test_files_whose_seals_are_gone_keep_within_the_room_that_is_reserved(
    s3: EmbeddedServer, images: str, opened: Open, cache: Path, ended: None, limit: int
) -> None:
    assert list(opened(images, cache="50MB", cache_dir=str(cache))) == in_order(images)
    stop_all(now=True)
    (kept,) = (path for path in cache.glob(".nbdata/kept-*") if path.is_dir())
    for record in ("boot", "sealed"):  # as after the key is lost
        (kept / record).unlink(missing_ok=True)
    assert opened(images, cache=limit, cache_dir=str(cache))[0] == in_order(images)[0]
    assert sum(path.stat().st_blocks * 512 for path in kept.iterdir()) <= limit
    used = sum(room_of_object(path.stat().st_size, 4096) for path in kept.iterdir() if is_name(path.name))
    assert Ledger().room(str(cache), {})[0].reserved >= limit - KeptFolder.overhead_of(4096) - used


def test_a_shard_whose_size_nobody_knows_is_refused_and_not_taken_for_empty(
    s3: EmbeddedServer, inline: None, bucket: str, opened: Open, cache: Path
) -> None:
    with nbdata.write_shards(f"s3://{bucket}/x-%06d.tar") as shards:
        shards.write({"__key__": "a", "txt": b"text"})
    samples = opened(f"s3://{bucket}/x-*.tar", cache="50MB", cache_dir=str(cache))
    samples._shards = [shard._replace(size=-1) for shard in samples.shards]
    with pytest.raises(BadOption, match="does not say the size"):
        list(samples.stream())


def test_what_makes_no_sense_is_refused(s3: EmbeddedServer, tmp_path: Path, images: str) -> None:
    for source, options in {
        str(tmp_path): {"cache": "1GB"},
        images: {"cache": "1GB", "cache_dir": "s3://images/cache"},
        "s3://there-is-no-such-bucket/a/": {"cache": "zz"},
        "s3://there-is-no-such-bucket/b/": {"cache": 0},
        "s3://there-is-no-such-bucket/c/": {"cache": "40kB"},
        "s3://there-is-no-such-bucket/d.tar": {"cache": "40kB"},
        "s3://there-is-no-such-bucket/e.ffr": {"cache": "40kB"},
    }.items():
        with pytest.raises(BadOption):
            nbdata.samples(source, **options)


def test_cleanup_keeps_a_cache_unless_asked_to_remove_it_and_no_process_uses_it(
    s3: EmbeddedServer, images: str, opened: Open, cache: Path, ended: None
) -> None:
    samples = opened(images, cache="50MB", cache_dir=str(cache))
    samples.fetch([0, 1])
    used = nbdata.cleanup(cache, all=True, quiet=True)
    used.counts.pop("dead locks", 0)  # of agents of other tests
    assert used.counts == {"in use": 1}
    assert samples.fetch([0, 1]) == in_order(images)[:2]
    stop_all(now=True)
    kept = nbdata.cleanup(cache, quiet=True)
    kept.counts.pop("dead locks", 0)  # of the agent that just ended, or of earlier ones
    assert kept.counts == {"kept": 1}
    assert [row.detail["reason"] for row in kept.rows] == ["a cache that is found again; --all removes it"]
    gone = nbdata.cleanup(cache, all=True, quiet=True)
    assert gone.counts.keys() == {"removed"}
    assert os.listdir(cache) == []


def _folders(cache: Path) -> list[str]:
    return sorted(str(path) for path in cache.rglob("kept-*") if path.is_dir())


def _caches(cache: Path) -> list[dict[str, Any]]:
    known = nbdata.quota(quiet=True).details["caches"]
    return [one for one in known if one["path"].startswith(f"{cache}/")]


@pytest.mark.parametrize("host", ["agent", "inline"])
@pytest.mark.in_ci("agent")
def test_quota_shows_a_cache_during_and_after_its_use(
    s3: EmbeddedServer,
    images: str,
    opened: Open,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    ended: None,
    host: str,
) -> None:
    monkeypatch.setenv("NBDATA_HOST", host)
    samples = opened(images, cache="50MB", cache_dir=str(cache))
    assert len(list(samples.stream())) == 60
    wait_until(lambda: _caches(cache)[0]["read"] == _BYTES)
    (used,) = _caches(cache)
    assert (used["path"], used["source"], used["limit"]) == (*_folders(cache), images, 50_000_000)
    assert (used["in_use"], used["consumers"], used["hit_rate"]) == (True, 1, 0.0)
    assert len(list(samples.stream(shuffle=True))) == 60
    wait_until(lambda: _caches(cache)[0]["hit_rate"] == 0.5)
    wait_until(lambda: any("50% hits, used by 1" in job.phase for job in _jobs(cache)))
    shown = nbdata.quota(quiet=True)
    assert f"  {used['path']}" in shown.text()
    assert "50%" in shown.text()
    assert f"{used['path']}</td>" in shown._repr_html_()
    samples.close()
    (job,) = [job for job in _jobs(cache) if not job.finished]
    slots.host().job(job.id).cancel()
    wait_until(lambda: not _caches(cache)[0]["in_use"])
    (left,) = _caches(cache)
    assert (left["used"], left["objects"]) == (used["used"], len(FILES))
    assert (left["source"], left["hit_rate"], left["consumers"]) == (images, None, 0)
    nbdata.cleanup(cache, quiet=True)
    assert len(_caches(cache)) == 1
    nbdata.cleanup(cache, caches=True, quiet=True)
    assert _caches(cache) == []


@pytest.mark.long
def test_a_report_says_that_the_batches_ahead_fill_the_cache(
    s3: EmbeddedServer, inline: None, images: str, cache: Path
) -> None:
    ahead = 50_000_000 * 60 // _BYTES // 8
    with nbdata.samples(images, cache="50MB", cache_dir=str(cache)) as samples:
        loader = SampleLoader(samples, 8, ahead=ahead)
        list(loader)
        assert "(the batches ahead take about 50.0 MB of the cache; a larger cache=" in str(loader.report)
        assert "batches ahead" not in str(SampleLoader(samples, 8, ahead=4).report)
        list(loader)
        assert not loader.report.crowding, "half of the reads were hits"


@pytest.mark.in_ci("2")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_report_says_what_was_there_and_what_was_fetched(
    s3: EmbeddedServer, images: str, cache: Path, ended: None, workers: int
) -> None:
    with nbdata.samples(images, cache="50MB", cache_dir=str(cache)) as samples:
        loader = SampleLoader(samples, 8, shuffle=True, num_workers=workers)
        for hits in (0, _BYTES):
            list(loader)
            assert (loader.report.hits, loader.report.fetched) == (hits, _BYTES)
        told = f"; {format_size(_BYTES)} were in the cache (50%), {format_size(_BYTES)} were fetched to it"
        assert told in str(loader.report)
        assert told in loader.report._repr_html_()
        if not workers:
            assert (samples.report.hits, samples.report.fetched) == (_BYTES, _BYTES)
            assert samples.report.waited > 0


def test_a_report_of_direct_reads_does_not_mention_a_cache(
    s3: EmbeddedServer, images: str, opened: Open
) -> None:
    samples = opened(images)
    samples.fetch([0, 1])
    assert (samples.report.hits, samples.report.fetched) == (0, 0)
    assert "cache" not in str(samples.report)


def test_cleanup_of_one_cache_leaves_what_lies_beside_it(
    s3: EmbeddedServer, images: str, opened: Open, cache: Path, ended: None
) -> None:
    for verify in ("auto", "none"):
        opened(images, cache="50MB", cache_dir=str(cache), verify=verify).fetch([0])
    one, other = _folders(cache)
    used = nbdata.cleanup(one, all=True, quiet=True)
    assert used.counts == {"in use": 1}
    stop_all(now=True)
    kept = nbdata.cleanup(one, quiet=True)
    assert kept.counts == {"kept": 1}
    gone = nbdata.cleanup(one, all=True, quiet=True)
    assert gone.counts.keys() == {"removed"}
    assert _folders(cache) == [other]
    assert sorted(os.listdir(cache / ".nbdata")) == sorted(
        os.path.basename(other) + end for end in ("", ".lock")
    )


def test_shards_are_cached_whole_and_read_in_place(
    proxy: FaultProxy, inline: None, bucket: str, opened: Open, cache: Path
) -> None:
    with nbdata.write_shards(f"s3://{bucket}/x-%06d.tar", shard_size="20kB") as shards:
        for sample in in_order("s3://images/"):
            shards.write({name: sample[name] for name in ("__key__", "jpg", "cls")})
    source = f"s3://{bucket}/x-*.tar"
    straight = list(opened(source).stream(shuffle=True, seed=2))
    samples = opened(source, cache="50MB", cache_dir=str(cache))
    tally = proxy.begin()
    assert list(samples.stream(shuffle=True, seed=2)) == straight
    whole = sum(tally.down.values())
    assert (samples.report.hits, samples.report.fetched) == (0, whole)
    assert whole == sum(path.stat().st_size for path in cache.rglob("kept-*/*") if len(path.name) == 32)
    assert list(samples.stream()) == list(opened(source).stream())
    tally = proxy.begin()
    again = opened(source, cache="50MB", cache_dir=str(cache))
    assert again.fetch([3, 50, 7]) == [list(samples.stream())[n] for n in (3, 50, 7)]
    assert list(again.stream(shuffle=True, seed=2)) == straight
    assert not tally.down


@pytest.mark.parametrize("way", ["SampleLoader", "batch_sampler", "sampler", "SampleStream", "stream"])
@pytest.mark.parametrize("packing", ["loose", "shards", "records"])
@pytest.mark.in_ci("loose-SampleLoader")
def test_loops_tell_the_cache_when_an_epoch_begins_and_when_it_is_over(
    s3: EmbeddedServer, inline: None, bucket: str, images: str, opened: Open, cache: Path, packing: str, way: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    told: list[Epoch] = []
    note = CacheContents.note_epoch

    def noted(self: CacheContents, consumer: Hashable, epoch: Epoch) -> None:
        told.append(epoch)
        note(self, consumer, epoch)

    monkeypatch.setattr(CacheContents, "note_epoch", noted)
    if packing == "shards":
        with nbdata.write_shards(f"s3://{bucket}/x-%06d.tar", shard_size="20kB") as shards:
            for sample in in_order(images):
                shards.write({name: sample[name] for name in ("__key__", "jpg", "cls")})
        images = f"s3://{bucket}/x-*.tar"
    if packing == "records":
        nbdata.pack(images, f"s3://{bucket}/x.ffr", format="ffrecord", quiet=True)
        images = f"s3://{bucket}/x.ffr"
    samples = opened(images, cache="50MB", cache_dir=str(cache))
    data = SampleDataset(samples)
    loop: Any = {
        "SampleLoader": lambda: SampleLoader(samples, 8, shuffle=True),
        "batch_sampler": lambda: DataLoader(data, batch_sampler=samples.batch_sampler(8), collate_fn=list),
        "sampler": lambda: DataLoader(data, 8, sampler=samples.sampler(), collate_fn=list),
        "SampleStream": lambda: DataLoader(SampleStream(samples, shuffle=True), collate_fn=list),
        "stream": lambda: None,
    }[way]()
    if way != "stream":
        told.clear()  # the index of shards is made by a stream
    for _ in range(2):
        list(samples.stream() if loop is None else loop)
    next(iter(samples.stream() if loop is None else loop))  # left early
    begun = [epoch for epoch in told if not epoch.over]
    assert [epoch.over for epoch in told] == [False, True, False, True, False]
    assert [epoch.whole for epoch in begun] == [True] * 3
    assert len({epoch.name for epoch in begun}) == 3
    assert len({epoch.loop for epoch in told}) == 1


@pytest.mark.long
def test_a_pass_that_resumes_tells_an_epoch_that_is_not_whole(
    s3: EmbeddedServer, inline: None, images: str, opened: Open, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Epoch] = []
    monkeypatch.setattr(CacheContents, "note_epoch", lambda self, consumer, epoch: told.append(epoch))
    samples = opened(images, cache="50MB", cache_dir=str(cache))
    begun = samples.stream(shuffle=True)
    next(begun)
    list(samples.stream(shuffle=True, resume=begun.state_dict()))
    assert [epoch.whole for epoch in told if not epoch.over] == [True, False]


@pytest.mark.long
def test_of_an_epoch_in_which_the_agent_was_killed_the_next_one_knows_the_rest(
    s3: EmbeddedServer, images: str, opened: Open, cache: Path, monkeypatch: pytest.MonkeyPatch, ended: None
) -> None:
    told: list[Epoch] = []
    send = AgentCache.note_epoch

    def noted(self: AgentCache, epoch: Epoch) -> None:
        told.append(epoch)
        send(self, epoch)

    monkeypatch.setattr(AgentCache, "note_epoch", noted)
    samples = opened(images, cache="50MB", cache_dir=str(cache))
    begun = samples.stream()
    next(begun)
    stop_all(now=True)
    assert len(list(begun)) == len(in_order(images)) - 1
    assert [epoch.whole for epoch in told if not epoch.over] == [True, False]
    assert [epoch.over for epoch in told] == [False, False, True]
    assert len({epoch.name for epoch in told}) == 1


def test_an_object_that_the_next_batch_reads_from_too_may_not_go_in_between(
    s3: EmbeddedServer, inline: None, images: str, opened: Open, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[bool] = []
    release = Consumer.release

    def released(self: Consumer, read: int = 0) -> None:
        if read:
            kept.append(all(found.announced for found in self._contents._objects.values() if found.leases))
        release(self, read)

    monkeypatch.setattr(Consumer, "release", released)
    samples = opened(images, cache="50MB", cache_dir=str(cache))
    for batch, ahead in (([3, 4], [[4, 3]]), ([3, 4], [[5], [4, 3]]), ([3, 4], [[4, 5]])):
        samples.fetch(batch, ahead)
    assert kept == [True, True, False]


def _half() -> int:
    """A limit for half of the objects."""
    return len(FILES) * room_of_object(4096, 4096) // 2 + KeptFolder.overhead_of(4096)


@pytest.mark.in_ci("True")
@pytest.mark.parametrize("persistent", [False, True])
def test_shuffled_epochs_that_are_larger_than_the_cache_find_there_what_fits(
    s3: EmbeddedServer, images: str, cache: Path, ended: None, persistent: bool
) -> None:
    with nbdata.samples(images, cache=_half(), cache_dir=str(cache)) as samples:
        loader = SampleLoader(samples, 2, shuffle=True, ahead=2, num_workers=2, persistent_workers=persistent)
        list(loader)
        list(loader)
        before = loader.report
        for _ in range(4):
            list(loader)
        hits, fetched = loader.report.hits - before.hits, loader.report.fetched - before.fetched
    assert 0.36 < hits / (hits + fetched) < 0.6  # the least recently used first: 0.2


def test_hits_are_all_bytes_that_did_not_come_from_the_store(
    proxy: FaultProxy, inline: None, images: str, opened: Open, cache: Path
) -> None:
    samples = opened(images, cache=_half(), cache_dir=str(cache))
    loader = SampleLoader(samples, 2, shuffle=True, ahead=2)
    tally = proxy.begin()
    for _ in range(4):
        list(loader)
    report = loader.report
    assert report.fetched == sum(tally.down.values()) < 4 * _BYTES
    wait_until(lambda: _caches(cache)[0]["read"] == 4 * _BYTES)
    assert _caches(cache)[0]["fetched"] == report.fetched
    assert _caches(cache)[0]["hit_rate"] == pytest.approx(report.hits / (4 * _BYTES))


@pytest.mark.long
def test_another_selection_has_the_cache_from_its_third_epoch_on(
    s3: EmbeddedServer, inline: None, images: str, opened: Open, cache: Path
) -> None:
    samples = opened(images, cache=_half(), cache_dir=str(cache))
    for first in ("n0", "n1"):
        loader = SampleLoader(
            samples.select(lambda key, first=first: key.startswith(first)), 2, shuffle=True, ahead=2
        )  # type: ignore[misc]
        for _ in range(3):
            before = loader.report
            list(loader)
    assert loader.report.fetched == before.fetched
