"""Files over a network that breaks, and killed processes: the right bytes or an error, and nothing left behind."""

from __future__ import annotations

import random
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import nbdata
from tests.faults.proxy import BODY, Fault, FaultProxy
from tests.faults.seeded import Seeded
from tests.files.conftest import Home

DATA = random.Random(5).randbytes(18 << 20)


@pytest.mark.in_ci("1", "2")
@pytest.mark.parametrize("seed", range(30))
def test_faults_cost_time_and_no_bytes(
    proxy: FaultProxy, bucket: str, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setenv("NBDATA_STALL_TIMEOUT", "1")
    chance = random.Random(seed)
    files = nbdata.filesystem("s3://")
    wanted = {f"{bucket}/{n}": DATA[: chance.choice([0, 10, 300_000, 9 << 20, 18 << 20])] for n in range(4)}
    doomed = chance.choice(["", "", "1"])
    tally = proxy.begin(Seeded(f"files {seed}", doomed=doomed))
    written = set[str]()
    for path, data in wanted.items():
        try:
            with files.open(path, "wb") as file:
                for start in range(0, len(data), 1 << 20):
                    file.write(data[start : start + (1 << 20)])
            written.add(path)
        except nbdata.NbdataError:
            assert path.endswith("/1") or tally.faults
    for path in written:
        step = chance.choice([1 << 16, 1 << 20, 32 << 20])
        try:
            with files.open(path) as opened:
                assert b"".join(iter(partial(opened.read, step), b"")) == wanted[path]
            assert files.cat_file(path) == wanted[path]
        except nbdata.NbdataError:
            assert tally.faults
    assert doomed or len(written) == 4
    proxy.begin()
    assert set(files.find(bucket)) <= set(wanted)
    for path in files.find(bucket):
        assert files.cat_file(path) == wanted[path]
    assert list(files._at(bucket).store.pending("")) == []


_WRITES = """
import sys, nbdata
with nbdata.open(sys.argv[1], "wb") as file:
    file.write(bytes(20 << 20))
    print("begun", flush=True)
    sys.stdin.read()
"""


def _kill_amid(url: str) -> None:
    """Kill a process that writes a file, once parts of it are sent."""
    command = [sys.executable, "-c", _WRITES, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"begun\n"
        writer.kill()


def test_a_killed_writer_leaves_an_upload_that_the_next_one_ends(s3_home: Home) -> None:
    url = f"s3://{s3_home.path}/folder/file"
    _kill_amid(url)
    store = s3_home.files._at(url).store
    assert s3_home.files.find(s3_home.path) == []
    assert len(list(store.pending(""))) == 1
    with nbdata.open(url, "wb") as file:
        file.write(b"1" * (20 << 20))
    assert list(store.pending("")) == []


def test_cleanup_ends_the_upload_of_a_killed_writer(s3_home: Home) -> None:
    url = f"s3://{s3_home.path}/folder/file"
    _kill_amid(url)
    nbdata.cleanup(f"s3://{s3_home.path}/", quiet=True)
    assert list(s3_home.files._at(url).store.pending("")) == []


def test_the_disk_gets_whole_files_only(s3_home: Home, tmp_path: Path, proxy: FaultProxy) -> None:
    path = f"{s3_home.path}/file"
    s3_home.files.pipe_file(path, DATA)
    proxy.begin(lambda request, before: Fault("flip", BODY, 0.5) if request.download else None)
    files = nbdata.filesystem("s3://", endpoint_url=proxy.url)
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(nbdata.ChecksumMismatch):
        files.get_file(path, f"{tmp_path}/file")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"old"}
