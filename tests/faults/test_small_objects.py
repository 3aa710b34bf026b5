"""One fault among many small objects in transfer: all arrive right, and only the damaged one is transferred again."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.disk import disk_error
from nbdata.engine.cache import small_files as cached_small
from nbdata.errors import NotEnoughSpace, TransferFailed
from tests.conftest import client_of
from tests.faults.proxy import AFTER, BEFORE, BODY, HEAD, Exchange, Fault, FaultProxy, Plan
from tests.faults.scene import objects_of
from tests.faults.test_lines import always, proxy
from tests.waiting import PATIENCE, wait_until

__all__ = ["proxy"]

FILES = {f"{number:03}": bytes([number]) * (1000 + number) for number in range(150)}
FAULTS = [
    Fault("flip", BODY, 0.5),
    Fault("cut", BODY, 0.5),
    Fault("reset", HEAD),
    Fault("drop", BEFORE),
    Fault("refuse", BEFORE, status=503),
]


def one(fault: Fault, key: str) -> Plan:
    """Return a plan that injects the fault once for an object."""

    def plan(request: Exchange, before: int) -> Fault | None:
        return fault if request.key == key and request.action in ("get", "put") and not before else None

    return plan


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.kind)
@pytest.mark.in_ci("drop")
def test_a_pull_with_a_fault_brings_every_byte(
    fault: Fault, proxy: FaultProxy, put: Callable[[dict[str, bytes]], str], tmp_path: Path
) -> None:
    url = put(FILES)
    tally = proxy.begin(one(fault, "070"))
    report = nbdata.pull(url, tmp_path / "out", quiet=True)
    assert report.counts == {"fetched": len(FILES)}
    assert report.bytes == sum(map(len, FILES.values()))
    if fault.kind != "drop":  # a dropped connection that was used before does not count as a failure
        assert report.retries == 1
        assert report.notes[-1].startswith("retried once, because: ")
    assert len(tally.faults) == 1
    assert all(row.detail["verified"] for row in report.rows)
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()} == FILES
    assert all(tally.down[key] == len(data) for key, data in FILES.items() if key != "070")


@pytest.mark.in_ci("swallow")
@pytest.mark.parametrize("fault", [FAULTS[0], Fault("swallow", AFTER)], ids=lambda fault: fault.kind)
def test_a_push_with_a_fault_brings_every_byte(
    fault: Fault, proxy: FaultProxy, s3: EmbeddedServer, bucket: str, tmp_path: Path
) -> None:
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    tally = proxy.begin(one(fault, "070"))
    report = nbdata.push(tmp_path, f"s3://{bucket}/", quiet=True)
    assert report.counts == {"sent": len(FILES)}
    assert len(tally.faults) == 1
    assert all(row.detail["verified"] for row in report.rows)
    client = client_of(s3)
    assert objects_of(client, bucket) == FILES
    client.close()
    assert all(tally.up[key] == len(data) for key, data in FILES.items() if key != "070")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.kind)
@pytest.mark.parametrize("options", [{}, {"concurrency": 1, "max_size": 60_000}], ids=["wide", "narrow"])
@pytest.mark.in_ci("wide-cut")
def test_a_stream_with_a_fault_hands_out_every_byte(
    options: dict[str, int],
    fault: Fault,
    proxy: FaultProxy,
    put: Callable[[dict[str, bytes]], str],
    tmp_path: Path,
) -> None:
    url = put(FILES)
    tally = proxy.begin(one(fault, "070"))
    stream = nbdata.cache_stream(url, by="file", cache_dir=tmp_path, quiet=True, **options)
    assert [(item.key, Path(item.path).read_bytes()) for item in stream] == sorted(FILES.items())
    assert len(tally.faults) == 1
    assert all(tally.down[key] == len(data) for key, data in FILES.items() if key != "070")


@pytest.mark.long
@pytest.mark.parametrize("full", [False, True], ids=["and goes on", "and the disk is full"])
@pytest.mark.in_ci("and goes on")
def test_a_stream_outlives_a_burst_of_refusals(
    full: bool,
    proxy: FaultProxy,
    put: Callable[[dict[str, bytes]], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There are more refusals than may wait for a retry, while the next item waits for room."""
    files = {f"{folder}/{number:03}": bytes([number]) * 1000 for folder in "abc" for number in range(250)}
    url, made, make = put(files), itertools.count(), cached_small.new_file

    def file(wanted: cached_small.WantedFile) -> int:
        if full and next(made) == 100:
            raise disk_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), str(tmp_path))
        return make(wanted)

    monkeypatch.setattr(cached_small, "new_file", file)
    refused = always(Fault("refuse", BEFORE, status=500), action="get")
    proxy.begin(lambda request, before: None if before or request.key > "a/130" else refused(request, before))
    stream = nbdata.cache_stream(
        url, by="folder", cache_dir=tmp_path, max_size=1_300_000, concurrency=16, quiet=True
    )
    if full:
        with pytest.raises(NotEnoughSpace):
            list(stream)
    else:
        assert [len(item.files) for item in stream] == [250] * 3
    assert not (tmp_path / ".nbdata").exists()


@pytest.mark.long
def test_objects_without_a_checksum_in_the_listing_are_streamed_one_by_one(
    proxy: FaultProxy, put: Callable[[dict[str, bytes]], str], tmp_path: Path
) -> None:
    """The listing has no checksum for some objects, such as those encrypted with a KMS key."""
    url = put({("k/" if int(name) % 3 else "p/") + name: data for name, data in FILES.items()})
    with FaultProxy(proxy.url, opaque="k/") as opaque, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", opaque.url)
        stream = nbdata.cache_stream(
            url, by="file", cache_dir=tmp_path, max_size=200_000, shuffle=True, quiet=True
        )
        seen = {item.key.partition("/")[2]: Path(item.path).read_bytes() for item in stream}
    assert seen == FILES


def test_bytes_that_are_wrong_each_time_are_an_error_and_come_to_no_name(
    proxy: FaultProxy, put: Callable[[dict[str, bytes]], str], tmp_path: Path
) -> None:
    url = put(FILES)
    proxy.begin(always(Fault("flip", BODY, 0.5), key="070"))
    with pytest.raises(TransferFailed, match="md5 of the bytes is wrong"):
        nbdata.pull(url, tmp_path / "out", quiet=True)
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()} == {
        name: data for name, data in FILES.items() if name != "070"
    }


def test_files_that_change_or_go_while_they_are_sent_are_told_and_not_sent(
    proxy: FaultProxy, s3: EmbeddedServer, bucket: str, tmp_path: Path, monkeypatch: Any
) -> None:
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    planned = nbdata.Push(str(tmp_path), f"s3://{bucket}/", on_error="report")

    changed, lock = list[str](), threading.Lock()

    def change(request: Exchange, before: int) -> Fault | None:
        with lock:  # no object passes before the change
            if request.action == "put" and not changed:
                changed.append(request.key)
                (tmp_path / "148").write_bytes(b"longer than it was" * 100)
                (tmp_path / "149").unlink()
        return None

    proxy.begin(change)
    report = planned.run()
    assert report.counts == {"sent": 148, "failed": 2}
    assert sorted(path for path, _ in report.failures) == ["148", "149"]
    client = client_of(s3)
    assert objects_of(client, bucket) == {n: d for n, d in FILES.items() if n not in ("148", "149")}
    client.close()


def test_a_pull_that_is_cancelled_before_its_last_objects_came_is_cancelled(
    proxy: FaultProxy, put: Callable[[dict[str, bytes]], str], tmp_path: Path
) -> None:
    url = put({name: FILES[name] for name in ("000", "001", "002")})
    tally = proxy.begin(always(Fault("stall", BEFORE), action="get"))
    job = nbdata.Pull(url, str(tmp_path / "out")).start()
    wait_until(lambda: len(tally.faults) >= 3)
    job.cancel()
    with pytest.raises(nbdata.Cancelled):
        job.wait(timeout=PATIENCE)
    assert job.snapshot().state == "CANCELLED"


def test_the_first_failure_stops_what_is_to_stop_there(
    proxy: FaultProxy, put: Callable[[dict[str, bytes]], str], tmp_path: Path
) -> None:
    url = put(FILES)
    tally = proxy.begin(always(Fault("refuse", BEFORE, status=403), key="000"))
    with pytest.raises(nbdata.NbdataError):
        nbdata.pull(url, tmp_path / "out", concurrency=2, on_error="stop", quiet=True)
    assert len(tally.down) < len(FILES) // 2


def test_a_file_that_changed_while_it_was_sent_is_not_deleted(
    proxy: FaultProxy, s3: EmbeddedServer, bucket: str, tmp_path: Path
) -> None:
    """This holds even if size and time are unchanged, as after a copy in place."""
    file = tmp_path / "000"
    file.write_bytes(b"before")

    def change(request: Exchange, before: int) -> Fault | None:
        if request.action == "put":
            found = file.stat()
            with file.open("r+b") as data:
                data.write(b"behind")
            os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))
        return None

    proxy.begin(change)
    report = nbdata.push(tmp_path, f"s3://{bucket}/", delete_source=True, quiet=True)
    assert report.counts == {"sent": 1}
    assert file.read_bytes() == b"behind"
    assert any("changed after it was sent" in note for note in report.notes)
