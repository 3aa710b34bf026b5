"""After a resume, progress covers the whole command: the work of earlier runs counts as done."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.protocols import Job
from tests.engine.unpack.checkpointing import COUNT, cut, entries, interrupted, packed, size_of
from tests.faults.gate import Gate
from tests.waiting import PATIENCE

pytestmark = pytest.mark.usefixtures("inline")
SIZE = 40_000
MIB = 1 << 20


def ended(job: Job) -> tuple[int, int | None, int, int | None, int]:
    """Return the counts of a finished job."""
    job.wait(PATIENCE)
    now = job.snapshot()
    return now.files, now.files_total, now.bytes, now.bytes_total, now.present


def test_a_transfer_that_goes_on_shows_the_whole(
    put: Callable[[dict[str, bytes]], str],
    s3: EmbeddedServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = put({f"in/{number:02}": os.urandom(SIZE) for number in range(30)}) + "in/"
    out, whole = tmp_path / "out", (30, 30, 30 * SIZE, 30 * SIZE, 20 * SIZE)
    with Gate(s3.url) as gate:
        monkeypatch.setenv("AWS_ENDPOINT_URL", gate.url)
        nbdata.pull(url, out, max_files=20, quiet=True)
        gate.close(after=5 * SIZE)
        job = nbdata.Pull(url, str(out)).start()
        gate.wait_until_it_holds()
        now = job.snapshot()
        assert (now.files >= 20, now.files_total, now.bytes_total) == (True, 30, 30 * SIZE)
        assert (now.share or 0) >= 2 / 3
        gate.open()
        assert ended(job) == whole
        for verb, source, target in ((nbdata.Push, f"{out}/", "pushed/"), (nbdata.Copy, url, "copied/")):
            target = url.replace("in/", target)
            verb(source, target, max_files=20).run(quiet=True)
            assert ended(verb(source, target).start()) == whole
        nothing = nbdata.Pull(url, str(out)).start()
        assert ended(nothing)[2] == 0, "where all is done, nothing is counted as done now"


@pytest.mark.usefixtures("small_steps")
def test_an_archive_that_goes_on_shows_the_whole(tmp_path: Path) -> None:
    volumes, out = cut(packed(entries())[0], tmp_path / "v"), tmp_path / "out"
    interrupted(volumes, out, COUNT // 2)
    size = size_of(volumes)
    plan = nbdata.untar_volumes(volumes, out, dry_run=True)
    assert (plan.bytes + plan.present, plan.present > size // 4) == (size, True)
    job = nbdata.UntarVolumes(str(volumes), str(out)).start()
    assert job.wait(PATIENCE).details["resumed_at"] == plan.present
    now = job.snapshot()
    assert (now.bytes, now.bytes_total, now.present) == (size, size, plan.present)


def test_a_push_that_was_interrupted_counts_the_parts_that_the_store_keeps(
    s3: EmbeddedServer, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_state: None
) -> None:
    """One part is in the store and the other one on its way, so all of the file was begun.

    More of that one is missing than sockets and the gate hold, so opening the gate does not complete it.
    """
    file, part = tmp_path / "big", 24 * MIB
    file.write_bytes(os.urandom(2 * part))
    with Gate(s3.url, limit=26 * MIB, answers=False) as gate:
        monkeypatch.setenv("AWS_ENDPOINT_URL", gate.url)
        job = nbdata.Push(str(file), f"s3://{bucket}/big", part_size=part, concurrency=1).start()
        gate.wait_until_it_holds()
        assert job.snapshot().bytes >= part
        job.cancel()
        with pytest.raises(nbdata.Cancelled):
            job.wait(PATIENCE)
        assert job.snapshot().bytes == job.report().bytes == part
        gate.open()
        report = nbdata.push(file, f"s3://{bucket}/big", part_size=part, quiet=True)
    assert report.present == part
    assert f"; {report.bytes / 1e6:.1f} MB in" in report.line
    assert f"{part / 1e6:.1f} MB of them were there already" in report.line
