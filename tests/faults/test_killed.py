"""Kills the agent with SIGKILL in each verb at several moments: no wrong file remains, and a second run resumes."""

from __future__ import annotations

import hashlib
import io
import os
import random
import signal
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.client.agents import stop_all
from nbdata.client.launch import connect
from nbdata.demo.server import EmbeddedServer
from nbdata.lock_files import held
from nbdata.protocols import Job
from nbdata.runtime import endpoint
from tests.conftest import client_of
from tests.faults.gate import Gate
from tests.waiting import wait_until

MIB = 1 << 20
SMALL = 20
SIZE = 40_000


@pytest.fixture(scope="module")
def content() -> dict[str, bytes]:
    """Small files, followed by a big one."""
    source = random.Random(7)
    return {
        **{f"a/{number:02}.bin": source.randbytes(SIZE) for number in range(SMALL)},
        "b/big.bin": source.randbytes(MIB) * 50,
    }


@pytest.fixture(autouse=True)
def one_agent() -> Iterator[None]:
    """Use an agent for this test only; it is stopped afterwards."""
    stop_all(now=True)
    yield
    stop_all(now=True)


@pytest.fixture
def gate(s3: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Gate]]:
    """Return a function that puts a gate in front of SeaweedFS, in the place of an earlier gate: at the same port."""
    made: list[Gate] = []

    def make(**options: Any) -> Gate:
        made.append(Gate(s3.url, port=made[-1].take_no_more() if made else 0, **options))
        made[-1].__enter__()
        monkeypatch.setenv("AWS_ENDPOINT_URL", made[-1].url)
        return made[-1]

    yield make
    for each in made:
        each.__exit__(None, None, None)


def kill_at(at: Gate, job: Job, moved: int, ready: Callable[[], bool] = lambda: True) -> None:
    """Kill the agent once the gate holds, `moved` bytes have moved, and `ready` returns true."""
    at.wait_until_it_holds()
    wait_until(lambda: (job.snapshot().bytes >= moved and ready()) or job.snapshot().finished)
    assert job.snapshot().state == "RUNNING"
    with connect() as connection:
        agent = int(connection.ask({"do": "hello"})["pid"])
    os.kill(agent, signal.SIGKILL)
    wait_until(lambda: not held(endpoint().alive))


def files_of(folder: Path) -> dict[str, bytes]:
    """Read the files with final names."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".nbdata" not in path.parts
    }


def hashes(found: dict[str, bytes]) -> dict[str, str]:
    """Return digests of contents, because they give short messages for differences."""
    return {name: hashlib.md5(data).hexdigest() for name, data in found.items()}


def assert_part_of(found: dict[str, bytes], whole: dict[str, bytes]) -> None:
    assert hashes(found).items() <= hashes(whole).items()


def objects(client: Any, bucket: str, prefix: str = "") -> dict[str, bytes]:
    listed = client.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    return {
        entry["Key"]: client.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read() for entry in listed
    }


def pending(client: Any, bucket: str) -> int:
    return len(client.list_multipart_uploads(Bucket=bucket).get("Uploads", []))


# -- pull (parameters: bytes that pass the gate, bytes moved until then, bytes that are kept) ------------


@pytest.mark.parametrize(
    ("limit", "moved", "kept"),
    [
        (SIZE * SMALL // 2, SIZE, 0),
        (20 * MIB, 18 * MIB, 16 * MIB),
        (50 * MIB, 49 * MIB, 48 * MIB),
    ],
    ids=["among small ones", "after one part", "in the last part"],
)
@pytest.mark.in_ci("after one part")
def test_a_killed_pull(
    limit: int, moved: int, kept: int, content: dict[str, bytes], put: Any, gate: Any, tmp_path: Path
) -> None:
    url, target = put(content), tmp_path / "out"
    at = gate(limit=limit)
    kill_at(at, nbdata.Pull(url, str(target), concurrency=1).start(), moved)
    assert_part_of(files_of(target), content)
    assert "b/big.bin" not in files_of(target)
    left = nbdata.cleanup(target, dry_run=True)
    assert left.actions["remove"][0] >= 1

    rest = gate()
    assert nbdata.pull(url, target, concurrency=1, quiet=True).ok
    assert hashes(files_of(target)) == hashes(content)
    whole = sum(map(len, content.values()))
    assert rest.passed <= whole - kept + MIB, "parts that were there are not fetched again"
    assert not (target / ".nbdata").exists()


@pytest.mark.long
def test_what_a_killed_pull_left_can_be_cleaned_up(
    content: dict[str, bytes], put: Any, gate: Any, tmp_path: Path
) -> None:
    url, target = put(content), tmp_path / "out"
    at = gate(limit=20 * MIB)
    kill_at(at, nbdata.Pull(url, str(target), concurrency=1).start(), 18 * MIB)
    nbdata.cleanup(target, quiet=True)
    assert not (target / ".nbdata").exists()
    nbdata.cleanup(target, all=True, quiet=True)
    assert files_of(target) == {}


# -- push ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "moved", "sent"),
    [(SIZE * SMALL // 2, SIZE * 5, 3), (8 * MIB, 6 * MIB, SMALL), (40 * MIB, 38 * MIB, SMALL)],
    ids=["among small ones", "in the second part", "late"],
)
@pytest.mark.in_ci("in the second part")
def test_a_killed_push(
    limit: int,
    moved: int,
    sent: int,
    content: dict[str, bytes],
    bucket: str,
    gate: Any,
    s3: EmbeddedServer,
    tmp_path: Path,
) -> None:
    for name, data in content.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(data)
    source, url, client = str(tmp_path / "in"), f"s3://{bucket}/", client_of(s3)
    at = gate(limit=limit, answers=False)
    kill_at(at, nbdata.Push(source, url, concurrency=1, part_size="5MiB").start(), moved)
    at.open()
    assert_part_of(objects(client, bucket), content)
    begun = pending(client, bucket)
    assert begun == (sent == SMALL)

    gate()
    report = nbdata.push(source, url, concurrency=1, part_size="5MiB", quiet=True)
    assert report.counts["unchanged"] >= sent, "what was sent is not sent again"
    assert hashes(objects(client, bucket)) == hashes(content)
    nbdata.cleanup(url, quiet=True)
    assert pending(client, bucket) == 0, "also the upload that the line no longer needs is found"
    client.close()


# -- copy ------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_killed_copy(
    content: dict[str, bytes], put: Any, bucket: str, gate: Any, s3: EmbeddedServer
) -> None:
    put({f"from/{name}": data for name, data in content.items()})
    client, url = client_of(s3), f"s3://{bucket}/"
    expected = {f"to/{name}": data for name, data in content.items()}
    # An endpoint other than the source's, so that the bytes pass through this machine.
    at = gate(limit=8 * MIB, answers=False)
    other = {"target_options": s3.storage_options(), "concurrency": 1, "part_size": "5MiB"}
    other["target_options"]["endpoint_url"] = at.url
    mine = {"storage_options": s3.storage_options()}
    kill_at(at, nbdata.Copy(f"{url}from/", f"{url}to/", **mine, **other).start(), 6 * MIB)
    at.open()
    assert_part_of(objects(client, bucket, "to/"), expected)
    assert pending(client, bucket) == 1

    report = nbdata.copy(f"{url}from/", f"{url}to/", **mine, **other, quiet=True)
    assert report.counts == {"unchanged": SMALL, "copied": 1}
    assert hashes(objects(client, bucket, "to/")) == hashes(expected)
    assert pending(client, bucket) == 0, "what the killed one had begun is given up"
    client.close()


# -- pack ------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("limit", [MIB, 11 * MIB, 23 * MIB], ids=["early", "amid", "late"])
@pytest.mark.in_ci("late")
def test_a_killed_pack(limit: int, put: Any, bucket: str, gate: Any, s3: EmbeddedServer) -> None:
    source = random.Random(9)
    url = put({f"in/{number:03}.bin": source.randbytes(100_000) for number in range(250)})
    options = {"shard_size": "10MiB", "part_size": "5MiB", "concurrency": 1, "quiet": True}
    nbdata.pack(f"{url}in/", f"{url}whole/x-%03d.tar", **options)
    client = client_of(s3)
    expected = {f"to/{name[6:]}": data for name, data in objects(client, bucket, "whole/").items()}
    assert len(expected) == 4

    at = gate(limit=limit, answers=False)
    other = {
        "target_options": {**s3.storage_options(), "endpoint_url": at.url},
        "storage_options": s3.storage_options(),
    }
    said = {name: value for name, value in options.items() if name != "quiet"}
    kill_at(at, nbdata.Pack(f"{url}in/", f"{url}to/x-%03d.tar", **said, **other).start(), 0)
    at.open()
    found = objects(client, bucket, "to/")
    assert_part_of(found, expected)
    assert len(found) < len(expected)

    report = nbdata.pack(f"{url}in/", f"{url}to/x-%03d.tar", **options, **other)
    # The record of the last complete shard may be lost.
    assert report.counts.get("unchanged", 0) >= len(found) - 1
    assert hashes(objects(client, bucket, "to/")) == hashes(expected)
    assert pending(client, bucket) == 0, "what the killed one had begun is given up"
    client.close()


@pytest.mark.long
@pytest.mark.parametrize("limit", [MIB, 12 * MIB, 22 * MIB], ids=["early", "amid", "late"])
@pytest.mark.in_ci("amid")
def test_a_killed_pack_into_volumes_on_the_disk(limit: int, put: Any, gate: Any, tmp_path: Path) -> None:
    source = random.Random(9)
    content = {f"in/{number:03}.bin": source.randbytes(100_000) for number in range(150)}
    content["in/099-large.bin"] = source.randbytes(9 * MIB)
    url = put(content)
    options = {"volume_size": "3MB", "md5": True, "concurrency": 2}
    nbdata.pack(f"{url}in/", tmp_path / "whole" / "x.tar.zst", **options, quiet=True)
    expected = files_of(tmp_path / "whole")
    assert len(expected) > 12

    at = gate(limit=limit)
    target = tmp_path / "out"
    kill_at(at, nbdata.Pack(f"{url}in/", str(target / "x.tar.zst"), **options).start(), 0)
    found = {name: data for name, data in files_of(target).items() if not name.endswith(".nbdata-partial")}
    assert_part_of(found, expected)
    assert len(found) < len(expected)

    gate()
    report = nbdata.pack(f"{url}in/", target / "x.tar.zst", **options, quiet=True)
    volumes = [name for name in found if not name.endswith(".md5")]
    # The record of the last complete shard may be lost.
    assert report.counts.get("unchanged", 0) >= len(volumes) - 1
    assert hashes(files_of(target)) == hashes(expected)


@pytest.mark.long
@pytest.mark.parametrize("form", ["tar.gz", "zip"])
@pytest.mark.in_ci("zip")
def test_a_cancelled_pack_leaves_no_upload(
    form: str, put: Any, bucket: str, gate: Any, s3: EmbeddedServer
) -> None:
    url = put({"in/large.bin": random.Random(9).randbytes(60 * MIB)})
    at = gate(limit=40 * MIB)
    other = {
        "storage_options": {**s3.storage_options(), "endpoint_url": at.url},
        "target_options": s3.storage_options(),
    }
    job = nbdata.Pack(f"{url}in/", f"{url}to/x.{form}", volume_size="12MB", **other).start()
    at.wait_until_it_holds()
    client = client_of(s3)
    wait_until(lambda: pending(client, bucket) > 0)
    job.cancel()
    wait_until(lambda: job.snapshot().finished)
    assert job.snapshot().state == "CANCELLED"
    wait_until(lambda: pending(client, bucket) == 0)
    assert objects(client, bucket, "to/") == {}
    client.close()


# -- untar_volumes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "written"), [(2 * MIB, 0), (12 * MIB, 20), (19 * MIB, 60)], ids=["early", "amid", "late"]
)
@pytest.mark.in_ci("early")
def test_a_killed_untar(limit: int, written: int, put: Any, gate: Any, tmp_path: Path) -> None:
    source = random.Random(8)
    members = {f"d{n % 3}/{n:03}.bin": source.randbytes(200_000) for n in range(100)}
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    cut = [archive.getvalue()[at : at + 5 * MIB] for at in range(0, archive.tell(), 5 * MIB)]
    url = put({f"v/x.tar.{number:03}": data for number, data in enumerate(cut)})
    target = tmp_path / "out"

    at = gate(limit=limit)
    job = nbdata.UntarVolumes(f"{url}v/", str(target)).start()
    kill_at(at, job, MIB, lambda: job.snapshot().files >= written)
    found = files_of(target)
    assert_part_of(found, members)
    assert len(found) < len(members)
    assert nbdata.cleanup(target, dry_run=True).actions["remove"][0] >= 1

    gate()
    report = nbdata.untar_volumes(f"{url}v/", target, quiet=True)
    assert report.ok
    assert hashes(files_of(target)) == hashes(members)
    assert not (target / ".nbdata").exists()
    # A file that the progress counts is recorded, and is not written again.
    assert report.counts.get("unchanged", 0) >= written


@pytest.mark.parametrize("limit", [2 * MIB, 12 * MIB, 19 * MIB], ids=["early", "amid", "late"])
@pytest.mark.in_ci("amid")
def test_a_killed_untar_into_a_store(
    limit: int, put: Any, bucket: str, gate: Any, s3: EmbeddedServer
) -> None:
    source = random.Random(8)
    members = {f"d{n % 3}/{n:03}.bin": source.randbytes(100_000) for n in range(110)}
    members["large.bin"] = source.randbytes(11 * MIB)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    cut = [archive.getvalue()[at : at + 5 * MIB] for at in range(0, archive.tell(), 5 * MIB)]
    url = put({f"v/x.tar.{number:03}": data for number, data in enumerate(cut)})
    client = client_of(s3)

    at = gate(limit=limit, answers=False)
    other = {
        "target_options": {**s3.storage_options(), "endpoint_url": at.url},
        "storage_options": s3.storage_options(),
    }
    kill_at(at, nbdata.UntarVolumes(f"{url}v/", f"{url}out/", **other).start(), 0)
    at.open()
    found = objects(client, bucket, "out/")
    expected = {f"out/{name}": data for name, data in members.items()}
    assert_part_of(found, expected)
    assert len(found) < len(expected)

    report = nbdata.untar_volumes(f"{url}v/", f"{url}out/", **other, quiet=True)
    # The records of some complete objects may be lost. Then the MD5 in the listing shows that they are right.
    assert report.counts.get("unchanged", 0) >= sum(key != "out/large.bin" for key in found)
    assert hashes(objects(client, bucket, "out/")) == hashes(expected)
    assert pending(client, bucket) == 0, "what the killed one had begun is given up"
    client.close()


@pytest.mark.long
def test_a_killed_untar_that_deletes_its_volumes_while_it_goes(
    put: Any, gate: Any, bucket: str, s3: EmbeddedServer, tmp_path: Path
) -> None:
    source = random.Random(9).randbytes(2 * MIB)
    members = {f"d{n % 3}/{n:03}.bin": source[n * 1000 : n * 1000 + MIB] for n in range(120)}
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    cut = [archive.getvalue()[at : at + 10 * MIB] for at in range(0, archive.tell(), 10 * MIB)]
    url = put({f"v/x.tar.{number:03}": data for number, data in enumerate(cut)})
    target, client = tmp_path / "out", client_of(s3)

    def volumes() -> int:
        return int(client.list_objects_v2(Bucket=bucket, Prefix="v/")["KeyCount"])

    at = gate(limit=90 * MIB)
    line = nbdata.UntarVolumes(f"{url}v/", str(target), delete_volumes=True)
    at_work = line.start()
    wait_until(lambda: volumes() < len(cut))
    kill_at(at, at_work, 70 * MIB)
    assert 4 <= volumes() <= len(cut) - 6, "six volumes lie before the checkpoint at 64 MiB"
    assert_part_of(files_of(target), members)
    assert len(files_of(target)) >= 60

    rest = gate()
    report = line.run(quiet=True)
    assert report.details["resumed_at"] >= 64 * MIB
    assert rest.passed < archive.tell() - report.details["resumed_at"] + MIB
    assert hashes(files_of(target)) == hashes(members)
    assert volumes() == 0
    assert not (target / ".nbdata").exists()
    client.close()
