"""Failing jobs, one after the other, leave nothing in the agent's memory."""

from __future__ import annotations

import gzip
import io
import os
import random
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import NbdataError
from tests.agent.rig import rigged
from tests.conftest import client_of
from tests.faults.proxy import BEFORE, Exchange, Fault, FaultProxy

# Jobs per verb; `make failing-jobs` runs 200.
_TIMES = int(os.environ.get("NBDATA_FAILING_JOBS", "12"))
_MOST = 150 << 20
_OBJECT = 2 << 20


def _refused(request: Exchange, _before: int) -> Fault | None:
    return Fault("refuse", BEFORE, status=403) if request.key.endswith("bad") else None


def _truncated() -> bytes:
    """Return a compressed archive of 6 MB that is truncated."""
    file, source = io.BytesIO(), random.Random(1)
    with tarfile.open(fileobj=file, mode="w") as tar:
        for number in range(60):
            info = tarfile.TarInfo(f"f{number}")
            info.size = 100_000
            tar.addfile(info, io.BytesIO(source.randbytes(info.size)))
    return gzip.compress(file.getvalue(), 1)[:-1_000_000]


@pytest.fixture(scope="module")
def bucket_of_failures(seaweedfs: EmbeddedServer) -> str:
    """A bucket with objects, one of which the proxy refuses, and with a damaged archive."""
    client, name = client_of(seaweedfs), "failing-jobs"
    client.create_bucket(Bucket=name)
    for key in ("d/1", "d/2", "d/3", "d/bad"):
        client.put_object(Bucket=name, Key=key, Body=os.urandom(_OBJECT))
    client.put_object(Bucket=name, Key="a/a.tar.gz", Body=_truncated())
    client.close()
    return name


def _consume(url: str, folder: Path) -> None:
    for _ in nbdata.cache_stream(url, by="file", cache_dir=folder, max_size="20MB", quiet=True):
        pass


@pytest.mark.timeout(900)
@pytest.mark.long
def test_failing_jobs_of_each_verb_leave_an_agent_small(
    s3: EmbeddedServer, bucket_of_failures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"s3://{bucket_of_failures}"
    local = tmp_path / "local"
    local.mkdir()
    for name in ("1", "2", "bad"):
        (local / name).write_bytes(os.urandom(_OBJECT))
    (local / "bad.md5").write_text(f"{'0' * 32}  bad\n")
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(_truncated())
    again: dict[str, object] = {"quiet": True, "overwrite": "always"}
    jobs: dict[str, Callable[[], object]] = {
        "pull": lambda: nbdata.pull(f"{url}/d/", tmp_path / "pulled", **again),
        "push": lambda: nbdata.push(local, f"{url}/pushed/", **again),
        "copy": lambda: nbdata.copy(f"{url}/d/", f"{url}/copied/", **again),
        "pack": lambda: nbdata.pack(f"{url}/d/", f"{url}/packed/", by="file", **again),
        "md5check": lambda: nbdata.md5check(local, quiet=True),
        "md5check against": lambda: nbdata.md5check(local, against=f"{url}/d/", quiet=True),
        "untar_volumes": lambda: nbdata.untar_volumes(archive, tmp_path / "here", quiet=True),
        "untar_volumes from S3": lambda: nbdata.untar_volumes(f"{url}/a/", tmp_path / "there", quiet=True),
        "cache_stream": lambda: _consume(f"{url}/d/", tmp_path / "cache"),
        "cleanup": lambda: nbdata.cleanup(f"{url}-none/", quiet=True),
    }
    with FaultProxy(s3.url) as proxy, rigged(monkeypatch) as rig:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        proxy.begin(_refused)
        for name, job in jobs.items():
            for _ in range(_TIMES):
                with pytest.raises(NbdataError):
                    job()
            memory = rig.memory()
            print(f"{name}: {memory >> 20} MiB after {_TIMES} failed jobs")
            assert memory < _MOST, f"{memory >> 20} MiB after {_TIMES} failed jobs of {name}"
