"""A worker, the scheduler or the coordinator dies in the middle: nothing is wrong, lost, or reported twice."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import nbdata
from nbdata.client.agents import stop_all
from nbdata.client.launch import connect
from nbdata.disk import PARTIAL
from nbdata.lock_files import held
from nbdata.operation import Operation
from nbdata.runtime import endpoint
from tests.cluster.conftest import Put
from tests.cluster.separate import Separate
from tests.faults.gate import Gate
from tests.waiting import wait_until

Stored = Callable[[str], dict[str, bytes]]
FILES, SIZE = 240, 20_000
OBJECTS = {f"d{n % 7}/f{n:03}.bin": random.Random(n).randbytes(SIZE) for n in range(FILES)}
#: What is done meanwhile: six works at four moments are 24 kills of each kind of process.
WORKS = ("pull", "copy", "pack", "pack-to-disk", "records", "records-to-disk")
#: When the process dies: after this share of the bytes that the store answers to the work.
MOMENTS = (0.15, 0.5, 0.7, 0.85)


def digests(found: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.md5(data).hexdigest() for name, data in found.items()}


def files_in(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".nbdata" not in path.parts and not path.name.endswith(PARTIAL)
    }


class Case:
    """One of `WORKS`: its operation, and what it has made."""

    def __init__(self, work: str, source: str, bucket: str, folder: Path, stored: Stored) -> None:
        self.work, self.source, self.bucket, self.folder, self.stored = work, source, bucket, folder, stored
        self.on_disk = work == "pull" or work.endswith("-to-disk")
        self.wanted = OBJECTS
        if self.outcome == "packed":
            wanted = folder.with_name("wanted")
            self._pack(f"{wanted}/" if self.on_disk else f"s3://{bucket}/wanted/", None).run(quiet=True)
            self.wanted = files_in(wanted) if self.on_disk else stored("wanted/")

    def operation(self, cluster: str | None) -> Operation:
        target = f"{self.folder}/" if self.on_disk else f"s3://{self.bucket}/out/"
        if self.work == "pull":
            return nbdata.Pull(self.source, target, cluster=cluster, concurrency=4)
        if self.work == "copy":
            return nbdata.Copy(self.source, target, cluster=cluster, concurrency=4)
        return self._pack(target, cluster)

    def _pack(self, target: str, cluster: str | None) -> Operation:
        suffix = "ffr" if self.work.startswith("records") else "tar"
        return nbdata.Pack(
            self.source, f"{target}x-%d.{suffix}", by="file", shard_size=200_000, cluster=cluster
        )

    @property
    def answered(self) -> int:
        """About how many bytes the store answers: a copy within a store moves no content."""
        return FILES * (380 if self.work == "copy" else SIZE)

    @property
    def outcome(self) -> str:
        return {"pull": "fetched", "copy": "copied"}.get(self.work, "packed")

    @property
    def shares(self) -> dict[str, bytes]:
        """What is counted: objects, or shards without the index beside them."""
        return {name: data for name, data in self.wanted.items() if not name.endswith(".json")}

    @property
    def size(self) -> int:
        """The bytes of all that is counted."""
        return sum(map(len, self.shares.values()))

    def close(self, gate: Gate, moment: float) -> None:
        """Have the gate hold after this share of the bytes that the store answers once the plan is made."""
        before = gate.passed
        self.operation(None).plan()
        gate.close(after=gate.passed - before + int(moment * self.answered))

    def made(self) -> dict[str, bytes]:
        return files_in(self.folder) if self.on_disk else self.stored("out/")

    def is_part(self) -> None:
        """Fail if what is there under final names is wrong."""
        assert digests(self.made()).items() <= digests(self.wanted).items()

    def is_whole(self, report: nbdata.Report) -> None:
        """Fail unless all is there, once."""
        count = len(self.shares)
        assert sum(report.counts.values()) == count, report.counts
        assert report.counts.keys() <= {self.outcome, "unchanged"}, report.counts
        assert len({row.path for row in report.rows}) == count
        made, wanted = self.made(), dict(self.wanted)
        if self.work == "pack-to-disk":
            self._is_index(made.pop("x.json"), wanted.pop("x.json"))
        assert digests(made) == digests(wanted)
        assert not (self.folder / ".nbdata").exists()

    def _is_index(self, made: bytes, wanted: bytes) -> None:
        """Fail unless an index of shards is right; of shards that an earlier run made, the disk tells no digest."""
        found, expected = json.loads(made), json.loads(wanted)
        for one, other in zip(found.pop("shardlist"), expected.pop("shardlist"), strict=True):
            assert one in (other, {name: value for name, value in other.items() if name != "md5sum"})
        assert found == expected


@pytest.fixture(params=WORKS)
def case(request: pytest.FixtureRequest, put: Put, bucket: str, tmp_path: Path, stored: Stored) -> Case:
    return Case(request.param, put(OBJECTS), bucket, tmp_path / "out", stored)


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.in_ci("pull-0.5")
def test_the_parts_of_a_killed_worker_are_done_again(
    moment: float, case: Case, gate: Gate, separate: Separate
) -> None:
    case.close(gate, moment)
    job = case.operation(separate.address).start()
    wait_until(lambda: gate.holds or job.snapshot().finished)
    assert job.snapshot().state == "RUNNING", job.snapshot()
    separate.kill(separate.workers[0])
    separate.workers.append(separate.add_worker())
    gate.open()
    report = job.wait()
    case.is_whole(report)
    assert report.counts == {case.outcome: len(case.shares)}
    assert report.files == len(case.shares)
    assert report.bytes == case.size
    assert job.snapshot().bytes == case.size, "what the dead worker had moved counts once"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection is dead after a second, here and in processes that start from now on."""
    monkeypatch.setenv("NBDATA_STALL_TIMEOUT", "1")


@pytest.mark.long
@pytest.mark.usefixtures("inline", "impatient")
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.in_ci("pull-0.5")
def test_the_parts_of_a_hanging_worker_are_done_by_another(
    moment: float, case: Case, gate: Gate, separate: Separate
) -> None:
    case.close(gate, moment)
    job = case.operation(separate.address).start()
    wait_until(lambda: gate.holds or job.snapshot().finished)
    assert job.snapshot().state == "RUNNING", job.snapshot()
    separate.workers[0].send_signal(signal.SIGSTOP)
    gate.open()
    wait_until(lambda: job.snapshot().finished)
    report = job.wait()
    case.is_whole(report)
    assert report.counts == {case.outcome: len(case.shares)}
    assert job.snapshot().bytes == report.bytes == case.size
    separate.workers[0].send_signal(signal.SIGCONT)
    case.is_whole(report)


@pytest.mark.long
@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.in_ci("pull-0.5")
def test_a_lost_scheduler_ends_the_job_which_resumes(
    moment: float, case: Case, gate: Gate, separate: Separate
) -> None:
    case.close(gate, moment)
    job = case.operation(separate.address).start()
    wait_until(lambda: gate.holds or job.snapshot().finished)
    assert job.snapshot().state == "RUNNING", job.snapshot()
    assert separate.scheduler is not None
    separate.kill(separate.scheduler)
    with pytest.raises(nbdata.NbdataError, match=r"scheduler .* was lost.*run the command again to resume"):
        job.wait()
    gate.open()
    separate.kill_all()
    case.is_part()
    there = len(case.made())
    separate.start()
    again = case.operation(separate.address).run(quiet=True)
    case.is_whole(again)
    if case.work == "pull":
        assert again.counts.get("unchanged", 0) == there, "what has its name is recorded"


@pytest.mark.long
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.in_ci("pull-0.5")
def test_a_killed_coordinator_leaves_nothing_wrong_and_the_same_line_resumes(
    moment: float, case: Case, gate: Gate
) -> None:
    stop_all(now=True)
    case.close(gate, moment)
    job = case.operation("local:2").start()
    wait_until(lambda: gate.holds or job.snapshot().finished)
    assert job.snapshot().state == "RUNNING", job.snapshot()
    with connect() as connection:
        agent = int(connection.ask({"do": "hello"})["pid"])
    os.kill(agent, signal.SIGKILL)
    wait_until(lambda: not held(endpoint().alive))
    gate.open()
    case.is_part()
    case.is_whole(case.operation(None).run(quiet=True))
    stop_all(now=True)
