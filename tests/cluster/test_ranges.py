"""A large object whose ranges several workers fetch: one file, whole and right, whoever dies meanwhile."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.cluster.opening import Cluster
from nbdata.demo.server import EmbeddedServer
from nbdata.engine.job.dealing import PartReport
from nbdata.engine.pull import ranges
from nbdata.engine.pull.ranges import DealtFetch, has_ranges, reports_of
from nbdata.errors import StoreUnavailable
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.fetch import PART
from nbdata.transfer.free_control import FreeControl
from nbdata.transfer.partials import UnrecordedParts
from tests.cluster.conftest import Put
from tests.faults.gate import Gate
from tests.waiting import wait_until

SIZE = 3 * PART + 1234


class NoCheck:
    unforgeable = False

    def offer(self, *_: object) -> None: ...

    def catch_up(self, *_: object) -> None: ...

    def finish(self, *_: object) -> bool:
        return False


@pytest.fixture
def fetched(tmp_path: Path) -> Iterator[tuple[DealtFetch, list[Any]]]:
    """An object whose ranges are dealt, and what became of it."""
    ended: list[Any] = []
    fd = os.open(tmp_path / "part", os.O_RDWR | os.O_CREAT)
    info = ObjectInfo("k", SIZE, '"e"')
    yield (
        DealtFetch(
            FreeControl(), None, info, UnrecordedParts(fd, SIZE), lambda _: NoCheck(),  # type: ignore[arg-type]
            done=ended.append, failed=ended.append,
        ),
        ended,
    )  # fmt: skip
    os.close(fd)


def test_an_object_is_named_once_all_its_ranges_are_there(fetched: tuple[DealtFetch, list[Any]]) -> None:
    fetch, ended = fetched
    rows = list(fetch.rows("a", 1))
    assert [(row.detail["start"], row.size) for row in rows] == [
        (0, PART), (PART, PART), (2 * PART, PART), (3 * PART, 1234),
    ]  # fmt: skip
    for part in (3, 0, 2):
        fetch.took(part)
    assert fetch.is_out
    assert ended == []
    fetch.took(1)
    assert ended == [False]
    assert not fetch.is_out


def test_an_object_ends_with_the_error_of_a_range_after_the_last_one(
    fetched: tuple[DealtFetch, list[Any]],
) -> None:
    fetch, ended = fetched
    dealt = fetch.rows("a", 1)
    rows = {row.path: row for row in (next(dealt), next(dealt))}
    part = PartReport(details={"ranges": {"1 0": StoreUnavailable("gone").to_dict()}})
    told = list(reports_of(rows, part.details, None))
    assert [str(error) for _, _, error in told] == ["gone", "a worker did not say what became of a range"]
    for _, number, error in told:
        assert error is not None
        fetch.lost(number, error)
    assert ended == []
    assert list(dealt) == [], "nothing more is fetched of it"
    assert [type(one) for one in ended] == [StoreUnavailable]


def test_only_large_objects_with_a_version_are_dealt_in_ranges_to_this_machine() -> None:
    large, tag = ranges.RANGED, '"e"'

    def has(size: int, etag: str, cluster: str) -> bool:
        run: Any = type("Run", (), {"operation": nbdata.Pull("s3://b/d/", "/w", cluster=cluster)})
        return has_ranges(run, ObjectInfo("k", size, etag))

    assert has(large, tag, "local:2")
    assert not has(large - 1, tag, "local:2")
    assert not has(large, "", "local:2")
    assert not has(large, tag, "tls://127.0.0.1:1"), "another machine may see old bytes of the file"


@pytest.fixture
def pids(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The workers that jobs of this process start."""
    found: list[int] = []
    enter = Cluster.__enter__

    def entered(cluster: Cluster) -> Cluster:
        opened = enter(cluster)
        found[:] = opened.client.run(os.getpid).values()
        return opened

    monkeypatch.setattr(Cluster, "__enter__", entered)
    return found


@pytest.mark.long
@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("dies", ["nobody", "worker", "cancel"])
@pytest.mark.parametrize("moment", [0.1, 0.4, 0.7, 0.95])
def test_the_ranges_of_an_object_are_fetched_by_several_workers(
    dies: str,
    moment: float,
    put: Put,
    s3: EmbeddedServer,
    gate: Gate,
    tmp_path: Path,
    monkeypatch: Any,
    pids: list[int],
) -> None:
    monkeypatch.setattr(ranges, "RANGED", PART + 1)
    large = os.urandom(1 << 20) * 67 + b"end"
    source, target = put({"large": large, "small": b"x" * 1000}), tmp_path / "out"
    options = {**s3.storage_options(), "endpoint_url": gate.url}
    pull = nbdata.Pull(source, str(target), cluster="local:2", storage_options=options)
    gate.close(after=int(len(large) * moment))
    job = pull.start()
    wait_until(lambda: gate.holds or job.snapshot().finished)
    assert job.snapshot().state == "RUNNING", job.snapshot()
    assert not (target / "large").exists()
    if dies == "worker":
        os.kill(pids[0], signal.SIGKILL)
    if dies == "cancel":
        job.cancel()
        with pytest.raises(nbdata.Cancelled):
            job.wait()
        assert not (target / "large").exists()
        gate.open()
        job = pull.start()
    gate.open()
    report = job.wait()
    assert sum(report.counts.values()) == 2, report.counts
    assert job.snapshot().bytes == len(large) + 1000
    if dies != "cancel":
        assert report.details["cluster"]["parts"] > 2, "ranges are parts of their own"
        assert (report.files, report.bytes) == (2, len(large) + 1000)
    assert hashlib.md5((target / "large").read_bytes()).digest() == hashlib.md5(large).digest()
    assert sorted(os.listdir(target)) == ["large", "small"]
    assert pull.run(quiet=True).counts == {"unchanged": 2}


SCRIPT = """
import sys
import nbdata
from nbdata.engine.pull import ranges
if __name__ == "__main__":
    ranges.RANGED = 17 << 20
    nbdata.pull(sys.argv[1], sys.argv[2], cluster="local:2", storage_options={"endpoint_url": sys.argv[3]})
"""


@pytest.mark.long
@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("moment", [0.3, 0.6, 0.9])
def test_ranges_of_a_killed_coordinator_are_kept(
    moment: float, put: Put, s3: EmbeddedServer, gate: Gate, tmp_path: Path
) -> None:
    large = os.urandom(1 << 20) * 100
    source, target, script = put({"large": large}), tmp_path / "out", tmp_path / "script.py"
    script.write_text(SCRIPT)
    gate.close(after=int(len(large) * moment))
    with subprocess.Popen(
        [sys.executable, str(script), source, str(target), gate.url],
        env={**os.environ, **s3.environment(), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as process:
        wait_until(lambda: gate.holds or process.poll() is not None)
        assert process.poll() is None
        process.kill()
    assert not (target / "large").exists()
    gate.open()
    report = nbdata.pull(source, target, storage_options=s3.storage_options(), quiet=True)
    assert report.counts == {"fetched": 1}
    assert hashlib.md5((target / "large").read_bytes()).digest() == hashlib.md5(large).digest()
    assert os.listdir(target) == ["large"]
