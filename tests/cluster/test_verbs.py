"""Verbs on the workers of a cluster: the same files, objects and report as in one process."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import distributed
import pytest

import nbdata
from nbdata.cluster.opening import Cluster
from nbdata.engine.job import run
from nbdata.engine.job.dealt_plan import DealtPlan
from nbdata.stores.http import client
from tests.cluster.conftest import Put
from tests.waiting import AT_ONCE, PATIENCE, wait_until

pytestmark = pytest.mark.usefixtures("inline")

Stored = Callable[[str], dict[str, bytes]]
# Small objects in folders, an empty one, and one that has parts.
OBJECTS = {
    **{f"d{n % 5}/f{n:03}": os.urandom(1000 + n) for n in range(120)},
    "empty": b"",
    "large": os.urandom((16 << 20) + 5),
}


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have parts of at most twenty objects, so that there are several."""
    monkeypatch.setattr(DealtPlan, "most", 20)


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def alike(one: nbdata.Report, other: nbdata.Report) -> None:
    """Compare two reports, except for places and times."""
    for name in (
        "state",
        "counts",
        "files",
        "bytes",
        "present",
        "verified",
        "unverified",
    ):
        assert getattr(one, name) == getattr(other, name), name
    assert sorted(one.notes) == sorted(other.notes)
    told = one.details.pop("cluster")
    assert sum(time[3] for time in told["times"]) > 0
    assert told["parts"] == len(told["times"])
    assert one.details == other.details
    assert sorted(one.rows) == sorted(other.rows)


def test_copy_by_workers_is_the_copy_of_one_process(
    put: Put, stored: Stored, bucket: str, workers: distributed.Client
) -> None:
    source = put(OBJECTS)
    alone = nbdata.copy(source, f"s3://{bucket}/alone/", quiet=True)
    report = nbdata.copy(source, f"s3://{bucket}/dealt/", cluster=workers, quiet=True)
    assert report.counts == {"copied": len(OBJECTS)}
    alike(report, alone)
    assert stored("dealt/") == OBJECTS
    again = nbdata.copy(source, f"s3://{bucket}/dealt/", quiet=True)
    assert again.counts == {"unchanged": len(OBJECTS)}, "the records of all parts are there"


@pytest.mark.long
def test_the_progress_is_that_of_all_parts(put: Put, bucket: str, workers: distributed.Client) -> None:
    small = {name: data for name, data in OBJECTS.items() if name != "large"}
    job = nbdata.Copy(put(small), f"s3://{bucket}/dealt/", cluster=workers).start()
    report = job.wait()
    assert report.details["cluster"]["parts"] > 4
    assert (job.snapshot().files, job.snapshot().bytes) == (len(small), sum(map(len, small.values())))


def _count_openings() -> None:
    """Count, in a worker, how often jobs open the store of a place."""
    real = run.open_place

    def open_place(*args: Any, **options: Any) -> Any:
        counted[0] += 1
        return real(*args, **options)

    counted = [0]
    open_place.counted, open_place.real = counted, real  # type: ignore[attr-defined]
    run.open_place = open_place


def _openings() -> int:
    """Return the count, and end it."""
    counting: Any = run.open_place
    run.open_place = counting.real
    return int(counting.counted[0])


def _idle_connections() -> int:
    return sum(len(pool._idle) for pool in client._all_pools)


@pytest.mark.long
def test_a_worker_opens_a_store_once_for_all_its_parts_and_keeps_no_connection_after_them(
    put: Put, bucket: str, workers: distributed.Client
) -> None:
    small = {name: data for name, data in OBJECTS.items() if name != "large"}
    source = put(small)
    workers.run(_count_openings)
    try:
        report = nbdata.copy(source, f"s3://{bucket}/dealt/", cluster=workers, quiet=True)
    finally:
        opened = workers.run(_openings)
    assert report.details["cluster"]["parts"] > 4
    assert max(opened.values()) == 2, "the source and the target"
    wait_until(lambda: not any(workers.run(_idle_connections).values()))


class Lost:
    """Loses the first report of a part, as if its worker hung while it has that."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked, fetched = 0, Cluster.fetched

        def fetch(cluster: Cluster, key: str) -> Future[Any]:
            self.asked += 1
            return fetched(cluster, key) if self.asked > 1 else Future()

        monkeypatch.setattr(Cluster, "fetched", fetch)


def test_a_job_whose_worker_hangs_with_a_report_is_cancelled_at_once(
    put: Put, bucket: str, workers: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {name: data for name, data in OBJECTS.items() if name != "large"}
    source, lost = put(small), Lost(monkeypatch)
    job = nbdata.Copy(source, f"s3://{bucket}/dealt/", cluster=workers).start()
    wait_until(lambda: lost.asked)
    assert job.snapshot().state == "RUNNING"
    job.cancel()
    with pytest.raises(nbdata.Cancelled):
        job.wait(AT_ONCE)


@pytest.mark.long
def test_a_part_whose_report_hangs_is_performed_again(
    put: Put, bucket: str, stored: Stored, workers: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBDATA_STALL_TIMEOUT", "2")
    small = {name: data for name, data in OBJECTS.items() if name != "large"}
    source, lost = put(small), Lost(monkeypatch)
    report = nbdata.Copy(source, f"s3://{bucket}/dealt/", cluster=workers).start().wait(PATIENCE)
    assert lost.asked > report.details["cluster"]["parts"]
    assert report.counts == {"copied": len(small)}
    assert stored("dealt/") == small


def test_pull_by_workers_is_the_pull_of_one_process(
    put: Put, tmp_path: Path, workers: distributed.Client
) -> None:
    source = put(OBJECTS)
    alone = nbdata.pull(source, tmp_path / "alone", quiet=True)
    report = nbdata.pull(source, tmp_path / "dealt", cluster=workers, quiet=True)
    assert report.counts == {"fetched": len(OBJECTS)}
    alike(report, alone)
    assert files_in(tmp_path / "dealt") == OBJECTS, "and nothing of nbdata's is left"
    modes = {name: os.stat(tmp_path / where / name).st_mode for where in ("alone",) for name in OBJECTS}
    assert modes == {name: os.stat(tmp_path / "dealt" / name).st_mode for name in OBJECTS}
    again = nbdata.pull(source, tmp_path / "dealt", cluster=workers, quiet=True)
    assert again.counts == {"unchanged": len(OBJECTS)}


@pytest.mark.long
def test_pull_compares_replaces_and_keeps_as_one_process_does(
    put: Put, tmp_path: Path, workers: distributed.Client
) -> None:
    source = put({name: data for name, data in OBJECTS.items() if name != "large"})
    kept = {"d0/f000": OBJECTS["d0/f000"], "d1/f001": b"another", "mine": b"my own"}
    for where in ("alone", "dealt"):
        for name, data in kept.items():
            (tmp_path / where / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / where / name).write_bytes(data)
    alone = nbdata.pull(source, tmp_path / "alone", on_error="report", quiet=True)
    report = nbdata.pull(source, tmp_path / "dealt", on_error="report", cluster=workers, quiet=True)
    alike(report, alone)
    assert files_in(tmp_path / "dealt") == files_in(tmp_path / "alone")


def test_push_by_workers_is_the_push_of_one_process(
    s3: object, bucket: str, stored: Stored, tmp_path: Path, workers: distributed.Client
) -> None:
    for name, data in OBJECTS.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(data)
    alone = nbdata.push(tmp_path / "in", f"s3://{bucket}/alone/", quiet=True)
    report = nbdata.push(tmp_path / "in", f"s3://{bucket}/dealt/", cluster=workers, quiet=True)
    assert report.counts == {"sent": len(OBJECTS)}
    alike(report, alone)
    assert stored("dealt/") == OBJECTS
    again = nbdata.push(tmp_path / "in", f"s3://{bucket}/dealt/", quiet=True)
    assert again.counts == {"unchanged": len(OBJECTS)}


@pytest.mark.in_ci("disk")
@pytest.mark.parametrize("place", ["store", "disk"])
def test_md5check_by_workers_finds_what_one_process_finds(
    place: str, put: Put, tmp_path: Path, workers: distributed.Client
) -> None:
    right = {name: data for name, data in OBJECTS.items() if name != "large"}
    wrong = {**right, "d2/f002": b"damaged"}
    lines = "".join(f"{hashlib.md5(data).hexdigest()}  {name}\n" for name, data in right.items())
    if place == "store":
        source: object = put(wrong)
    else:
        source = tmp_path / "in"
        for name, data in wrong.items():
            (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "in" / name).write_bytes(data)
    (tmp_path / "MD5SUMS").write_text(lines + "d41d8cd98f00b204e9800998ecf8427e  gone\n")
    options = {"against": tmp_path / "MD5SUMS", "on_error": "report", "quiet": True}
    alone = nbdata.md5check(source, **options)
    report = nbdata.md5check(source, cluster=workers, **options)
    assert report.counts == {"ok": len(right) - 1, "mismatch": 1, "missing": 1}
    alike(report, alone)


@pytest.mark.long
def test_a_failure_of_one_object_is_in_the_report_and_the_rest_is_done(
    put: Put, bucket: str, stored: Stored, workers: distributed.Client
) -> None:
    source = put({**OBJECTS})
    options = {"verify": "md5", "on_error": "report", "quiet": True}
    report = nbdata.copy(source, f"s3://{bucket}/dealt/", cluster=workers, **options)
    alone = nbdata.copy(source, f"s3://{bucket}/alone/", **options)
    alike(report, alone)


@pytest.mark.long
def test_a_mirror_deletes_once_and_by_the_coordinator(
    put: Put, bucket: str, stored: Stored, tmp_path: Path, workers: distributed.Client
) -> None:
    small = {name: data for name, data in OBJECTS.items() if name != "large"}
    source = put(small)
    nbdata.pull(source, tmp_path / "t", cluster=workers, quiet=True)
    (tmp_path / "t" / "more").write_bytes(b"not in the source")
    report = nbdata.pull(source, tmp_path / "t", cluster=workers, delete=True, force=True, quiet=True)
    assert report.counts == {"unchanged": len(small), "deleted": 1}
    assert files_in(tmp_path / "t") == small
