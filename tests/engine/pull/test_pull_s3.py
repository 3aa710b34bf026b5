"""pull from real servers, run in this process: large objects, odd keys, full disks, and resumption."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.operation import Context
from nbdata.stores.resolve import open_place
from nbdata.transfer import part_records
from nbdata.transfer.part_records import NOTED
from tests.faults.gate import Gate
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("inline")

Put = Callable[[dict[str, bytes]], str]


def files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def recorded(folder: Path) -> int:
    """Count the lines in the part records below a folder: a header, and one per finished part."""
    lines = (line for p in folder.glob(".nbdata/*.parts") for line in p.read_bytes().splitlines())
    return sum(line[9:10] != b"[" for line in lines)  # lines of this kind record progress within a part


def written(folder: Path) -> int:
    """Return the bytes that a folder's files occupy on the disk.

    Files have holes, because parts arrive in any order.
    """
    return sum(p.stat().st_blocks * 512 for p in folder.glob(".nbdata/*") if p.is_file())


def test_keys_that_a_disk_cannot_hold_are_named_and_nothing_is_written_outside(
    moto: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in moto.environment().items():
        monkeypatch.setenv(name, value)
    moto.create_bucket("odd")
    store = open_place("s3://odd/", Context("/", env=dict(os.environ))).store
    keys = [
        "d/../x",
        "d//y",
        "d/.nbdata/parts",
        "d/a",
        "d/a/b",
        "d/good name",
        "d/ünï+%#?&",
        "d/" + "n" * 300,
    ]
    for key in keys:
        store.write(key, Bytes(key.encode()), len(key.encode()))
    out = tmp_path / "deep" / "out"
    with pytest.raises(nbdata.TransferFailed) as caught:
        nbdata.pull("s3://odd/d/", out, quiet=True)
    assert caught.value.report.counts == {"unrepresentable": 5, "fetched": 3}
    assert files(tmp_path / "deep") == {f"out/{n}": f"d/{n}".encode() for n in ("a", "good name", "ünï+%#?&")}


class Bytes:
    """A Source of given bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def readinto(self, buffer: memoryview, /) -> int:
        count = min(len(buffer), len(self._data))
        buffer[:count], self._data = self._data[:count], self._data[count:]
        return count


def test_an_object_and_objects_below_it_need_a_clear_word(put: Put, tmp_path: Path) -> None:
    url = put({"data-1": b"1", "folder/x": b"x"})
    assert nbdata.pull(url + "folder", tmp_path / "a", quiet=True).counts == {"fetched": 1}
    assert nbdata.pull(url + "data-1", tmp_path / "b", quiet=True).counts == {"fetched": 1}
    assert (tmp_path / "b").read_bytes() == b"1"
    with pytest.raises(nbdata.NotFound, match=r"Did you mean .*/folder/"):
        nbdata.pull(url + "Folder", tmp_path / "c", quiet=True)


@pytest.mark.parametrize("verb", [nbdata.pull, nbdata.ls])
def test_an_object_written_with_a_slash_is_named_as_written_and_as_an_object(
    put: Put, tmp_path: Path, verb: Any
) -> None:
    url = put({"deep/site-00": b"1"})
    places = [f"{url}deep/site-00/"] + [tmp_path / "x"] * (verb is nbdata.pull)
    with pytest.raises(nbdata.NotFound) as caught:
        verb(*places, quiet=True)
    assert str(caught.value) == (
        f"this is an object, not a folder: {url}deep/site-00/. Leave out the slash at its end"
    )


def test_what_was_typed_is_never_suggested(put: Put, tmp_path: Path) -> None:
    url = put({"ch/x": b"1", "ch/y": b"2"})
    nbdata.push(tmp_path, f"{url}ch/", delete=True, force=True, quiet=True)
    for place in (f"{url}ch/", f"{url}none"):
        with pytest.raises(nbdata.NotFound) as caught:
            nbdata.ls(place, recursive=True, quiet=True)
        assert str(caught.value).startswith(f"no such object or folder: {place}. Check")


def test_a_cancelled_big_object_goes_on_at_the_parts_it_has(
    bucket: str, s3: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_records, "PART", part := 5 << 20)  # the least of an upload
    data = os.urandom(20 << 20)
    (tmp_path / "big").write_bytes(data)
    nbdata.push(tmp_path / "big", f"s3://{bucket}/big", part_size=part, quiet=True)
    with Gate(s3.url, limit=2 * part + part // 2) as line:  # within the third part
        monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
        job = nbdata.Pull(f"s3://{bucket}/big", tmp_path / "back", concurrency=1).start()
        wait_until(lambda: recorded(tmp_path) >= 3)  # the header and two parts
        job.cancel()
        with pytest.raises(nbdata.Cancelled):
            job.wait()
        assert not (tmp_path / "back").exists()
        line.open()
        plan = nbdata.pull(f"s3://{bucket}/big", tmp_path / "back", dry_run=True)
        assert plan.present >= 2 * part
        before = line.answered
        nbdata.pull(f"s3://{bucket}/big", tmp_path / "back", quiet=True)
        assert line.answered - before < len(data) - plan.present + (1 << 20)
    assert (tmp_path / "back").read_bytes() == data
    assert not (tmp_path / ".nbdata").exists()


def test_bytes_of_objects_in_one_piece_are_kept_when_their_transfer_breaks_off(
    put: Put, s3: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = {f"{n}": os.urandom(2 << 20) for n in range(8)}
    url = put({f"d/{name}": data for name, data in content.items()}) + "d/"
    with Gate(s3.url, limit=2_000_000) as line:  # less than the size of each
        monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
        job = nbdata.Pull(url, tmp_path / "out", concurrency=2).start()
        wait_until(lambda: job.snapshot().bytes > 1_800_000)
        job.cancel()
        with pytest.raises(nbdata.Cancelled):
            job.wait()
        assert files(tmp_path / "out").keys() & content.keys() == set()
        line.open()
        plan = nbdata.pull(url, tmp_path / "out", dry_run=True)
        before = line.answered
        assert plan.present > 1_200_000  # of each of the two, less than 256 KiB is not kept
        report = nbdata.pull(url, tmp_path / "out", quiet=True)
        assert line.answered - before < (16 << 20) - plan.present + (1 << 20)
    assert files(tmp_path / "out") == content
    assert report.present == plan.present
    assert "were there already" in report.line
    assert report.notes == []


@pytest.mark.long
def test_a_kill_costs_only_a_fraction_of_the_parts_in_progress(
    bucket: str, s3: EmbeddedServer, tmp_path: Path
) -> None:
    data = os.urandom(48 << 20)
    (tmp_path / "big").write_bytes(data)
    nbdata.push(tmp_path / "big", f"s3://{bucket}/big", quiet=True)
    code = "import sys, nbdata; nbdata.pull(sys.argv[1], sys.argv[2], quiet=True)"
    with Gate(s3.url, limit=30 << 20) as line:
        environment = {**os.environ, "AWS_ENDPOINT_URL": line.url}
        command = [sys.executable, "-c", code, f"s3://{bucket}/big", str(tmp_path / "back")]
        process = subprocess.Popen(command, env=environment)
        line.wait_until_it_holds()
        # The process has read everything that arrived, and recorded its progress.
        wait_until(lambda: written(tmp_path) > (30 << 20) - (1 << 20))
        process.kill()
        process.wait()
        answered = line.answered
        line.open()
        assert not (tmp_path / "back").exists()
        subprocess.run(command, env=environment, check=True)
        # All three parts were in progress; each is fetched again from its last record on.
        assert line.answered - answered < len(data) - answered + 4 * NOTED
    assert (tmp_path / "back").read_bytes() == data
    assert not (tmp_path / ".nbdata").exists()


@pytest.mark.long
def test_partials_of_objects_that_the_source_has_no_more_do_not_stay(
    put: Put, s3: EmbeddedServer, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = put({"d/a": os.urandom(30 << 20), "d/b": b"1"}) + "d/"
    with Gate(s3.url, limit=20 << 20) as line:
        monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
        job = nbdata.Pull(url, tmp_path / "out").start()
        wait_until(lambda: job.snapshot().bytes > 18 << 20)
        job.cancel()
        with pytest.raises(nbdata.Cancelled):
            job.wait()
        line.open()
        assert recorded(tmp_path / "out")
        open_place(f"{url}a", Context("/", env=dict(os.environ))).store.delete(["d/a"])
        nbdata.pull(url, tmp_path / "out", include="b", quiet=True)
        assert recorded(tmp_path / "out"), "who asks for a part only may come back for the rest"
        nbdata.pull(url, tmp_path / "out", quiet=True)
        assert files(tmp_path / "out") == {"b": b"1"}
        assert not (tmp_path / "out" / ".nbdata").exists()


def test_a_source_that_changed_meanwhile_starts_again_and_says_so(
    bucket: str, s3: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_records, "PART", part := 5 << 20)  # the least of an upload
    (tmp_path / "big").write_bytes(os.urandom(4 * part))
    nbdata.push(tmp_path / "big", f"s3://{bucket}/big", part_size=part, quiet=True)
    with Gate(s3.url, limit=2 * part + part // 2) as line:
        monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
        job = nbdata.Pull(f"s3://{bucket}/big", tmp_path / "back", concurrency=1).start()
        wait_until(lambda: recorded(tmp_path) >= 2)
        job.cancel()
        with pytest.raises(nbdata.Cancelled):
            job.wait()
        line.open()
        (tmp_path / "big").write_bytes(data := os.urandom(4 * part))
        nbdata.push(tmp_path / "big", f"s3://{bucket}/big", overwrite="always", quiet=True)
        report = nbdata.pull(f"s3://{bucket}/big", tmp_path / "back", quiet=True)
        assert "fetched anew" in report.notes[0]
        assert (tmp_path / "back").read_bytes() == data


def test_a_process_killed_in_the_middle_leaves_nothing_wrong_and_the_same_line_continues(
    put: Put, gate: Gate, tmp_path: Path
) -> None:
    content = {f"{n:03d}": os.urandom(60_000) for n in range(300)}
    url = put({f"d/{name}": data for name, data in content.items()}) + "d/"
    out = tmp_path / "out"
    code = "import sys, nbdata; nbdata.pull(sys.argv[1], sys.argv[2], concurrency=4, quiet=True)"
    for times in range(1, 4):
        gate.close(after=4_000_000)
        process = subprocess.Popen([sys.executable, "-c", code, url, str(out)])
        wait_until(lambda times=times: len(list(out.glob("[0-9]*"))) > 30 * times)  # type: ignore[misc]
        process.kill()
        process.wait()
        for path in out.glob("*"):
            if path.is_file():
                assert path.read_bytes() == content[path.name], "half a file under its final name"
    assert 90 < len(list(out.glob("[0-9]*"))) < 300
    gate.open()
    report = nbdata.pull(url, out, quiet=True)
    assert report.counts["unchanged"] > 0
    assert report.counts["unchanged"] + report.counts["fetched"] == 300
    nbdata.cleanup(out, quiet=True)
    assert files(out) == content


@pytest.fixture
def small_disk(tmp_path: Path, mounts: None) -> Iterator[Path]:
    """A tmpfs of 4 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_disk_that_fills_in_the_middle_ends_it_clearly_with_nothing_half_written(
    put: Put, small_disk: Path
) -> None:
    content = {f"{n:03d}": os.urandom(300_000) for n in range(20)}
    url = put({f"d/{name}": data for name, data in content.items()}) + "d/"
    with pytest.raises(nbdata.NotEnoughSpace, match="needs 6"):
        nbdata.pull(url, small_disk / "out", quiet=True)
    assert not (small_disk / "out").exists(), "refused before a byte moved"
    with pytest.raises(nbdata.NotEnoughSpace, match="became full"):
        nbdata.pull(url, small_disk / "out", ignore_space=True, quiet=True)
    landed = {
        name: data for name, data in files(small_disk / "out").items() if not name.startswith(".nbdata/")
    }
    assert landed
    assert all(content[name] == data for name, data in landed.items())


def test_two_pulls_share_one_limit(
    put: Put, gate: Gate, s3: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = put({f"{d}/{n}": bytes(400_000) for d in "ab" for n in range(10)})
    nbdata.quota(tmp_path / "lim", limit="6MB", quiet=True)
    gate.close(after=1_000_000)
    first = nbdata.Pull(url + "a/", tmp_path / "lim" / "a").start()
    wait_until(lambda: first.snapshot().state == "RUNNING")
    gate.wait_until_it_holds()
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url)
    with pytest.raises(nbdata.NotEnoughSpace, match="reserved by other jobs"):
        nbdata.pull(url + "b/", tmp_path / "lim" / "b", quiet=True)
    gate.open()
    first.wait()
    nbdata.quota(tmp_path / "lim", limit="none", quiet=True)


def test_a_key_that_is_not_there_is_told_with_the_nearest_of_a_thousand(put: Put, tmp_path: Path) -> None:
    url = put({f"deep/{name}": b"x" for name in ("images/a.jpg", "train.txt", "train/b")})
    for verb in (
        lambda place: nbdata.pull(place, tmp_path / "out", quiet=True),
        lambda place: nbdata.ls(place, quiet=True),
        nbdata.samples,
    ):
        for wrong, right in (("imges/", "images/"), ("trian.txt", "train.txt")):
            with pytest.raises(nbdata.NotFound, match=rf"Did you mean {url}deep/{right}\?"):
                verb(f"{url}deep/{wrong}")


@pytest.mark.long
def test_a_job_says_how_many_of_its_files_were_compared_with_a_checksum(put: Put, tmp_path: Path) -> None:
    url = put({f"{n}.bin": b"12345" for n in range(3)})
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "0.bin").write_bytes(b"12345")
    for verify, proof in (("auto", (2, 0)), ("none", (0, 2))):
        job = nbdata.Pull(url, str(tmp_path / "x"), verify=verify).start()
        report = job.wait()
        assert (report.verified + report.unverified, report.files) == (report.files, report.files)
        now = job.snapshot()
        assert (now.verified, now.unverified) == (report.verified, report.unverified)
        assert (report.verified > 0, report.unverified > 0) == (proof[0] > 0, proof[1] > 0)
        for n in (1, 2):
            (tmp_path / "x" / f"{n}.bin").unlink()
