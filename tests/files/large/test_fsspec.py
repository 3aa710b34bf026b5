"""fsspec's own layers over nbdata's file system, s3fs beside it, and Dask's workers."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
from pathlib import Path

import fsspec
import numpy as np
import pytest
from fsspec.implementations.cached import CachingFileSystem

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.files import FileSystem, use_for
from tests.files.large.conftest import Bucket, Place
from tests.waiting import PATIENCE

DATA = np.random.default_rng(3).bytes(5_000_000)


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # blockcache's own file
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["simplecache", "filecache", "blockcache"])
def test_caches_of_fsspec_read_and_keep_files(place: Place, tmp_path: Path, kind: str) -> None:
    place.store.files.pipe_file(place.store.path("file"), DATA)
    options = {kind: {"cache_storage": str(tmp_path / "kept")}}
    url = f"{kind}::{place('file')}"
    for _ in range(2):  # the second time from the cache
        with fsspec.open(url, **options) as file:
            assert file.read(10) == DATA[:10]
            assert file.seek(3_000_000) == 3_000_000
            assert file.read(100_000) == DATA[3_000_000:3_100_000]
            file.seek(0)
            assert file.read() == DATA
    assert any(path.stat().st_size >= len(DATA) for path in (tmp_path / "kept").iterdir())
    CachingFileSystem.clear_instance_cache()


@pytest.mark.parametrize("kind", ["simplecache"])
def test_what_is_written_through_a_cache_arrives(place: Place, tmp_path: Path, kind: str) -> None:
    with fsspec.open(
        f"{kind}::{place('out')}", "wb", **{kind: {"cache_storage": str(tmp_path / "kept")}}
    ) as file:
        file.write(DATA)
    assert Path(place.store.fetched("out")).read_bytes() == DATA


def test_listings_are_remembered_until_they_are_told_to_be_forgotten(store: Bucket) -> None:
    files = nbdata.filesystem("s3://", use_listings_cache=True)
    files.pipe({store.path(f"d/{n}"): b"x" for n in range(3)})
    assert len(files.ls(store.path("d"))) == 3
    store.files.pipe_file(store.path("d/new"), b"of another program")
    assert len(files.ls(store.path("d"))) == 3
    assert len(files.ls(store.path("d"), refresh=True)) == 4
    files.pipe_file(store.path("d/own"), b"")  # what it writes itself it knows
    assert len(files.ls(store.path("d"))) == 5
    store.files.rm_file(store.path("d/new"))
    files.invalidate_cache()
    assert len(files.ls(store.path("d"))) == 4


def test_open_files_are_pickled(place: Place) -> None:
    for number in range(3):
        place.store.files.pipe_file(place.store.path(f"parts/{number}.gz"), DATA[: number + 1])
    found = pickle.loads(pickle.dumps(fsspec.open_files(place("parts/*.gz"))))
    assert len(found) == 3
    for number, one in enumerate(found):
        with one as file:
            assert file.read() == DATA[: number + 1]
    with fsspec.open_files(place("out/*.txt"), "wt", num=2, encoding="utf-8") as many:
        for number, file in enumerate(many):
            file.write(f"été {number}")
    assert Path(place.store.fetched("out/1.txt")).read_text(encoding="utf-8") == "été 1"


def test_a_mapper_is_a_dict_of_files(place: Place) -> None:
    held = fsspec.get_mapper(place("held"))
    held.setitems({f"a/{n}": b"%d" % n for n in range(50)})
    held["b"] = b"alone"
    del held["a/0"]
    assert sorted(held) == sorted(["b", *(f"a/{n}" for n in range(1, 50))])
    assert held.getitems(["a/1", "a/49"]) == {"a/1": b"1", "a/49": b"49"}
    assert "a/0" not in held
    with pytest.raises(KeyError):
        held["a/0"]
    assert dict(pickle.loads(pickle.dumps(held))) == dict(held)


def _sum(url: str) -> int:
    with fsspec.open(url) as file:
        return sum(file.read())


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_processes_read_by_a_file_system_that_was_used_before(
    store: Bucket, method: str, seaweedfs: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    store.files.pipe_file(store.path("file"), DATA)
    with multiprocessing.get_context(method).Pool(2) as pool:
        found = pool.map(_sum, [store.named("file")] * 4)
        pool.close()
        pool.join()
    assert found == [sum(DATA)] * 4


def test_s3fs_and_nbdata_beside_each_other(store: Bucket, seaweedfs: EmbeddedServer) -> None:
    import s3fs

    assert fsspec.get_filesystem_class("s3") is s3fs.S3FileSystem
    with use_for("s3"):
        assert issubclass(fsspec.get_filesystem_class("s3"), FileSystem)
    assert fsspec.get_filesystem_class("s3") is s3fs.S3FileSystem
    other = s3fs.S3FileSystem(**seaweedfs.storage_options(), skip_instance_cache=True)
    other.pipe_file(store.path("theirs"), DATA)
    store.files.pipe_file(store.path("ours"), DATA)
    assert store.files.cat_file(store.path("theirs")) == DATA == other.cat_file(store.path("ours"))
    assert store.files.find(store.name) == other.find(store.name)
    theirs, ours = other.info(store.path("ours")), store.files.info(store.path("ours"))
    assert (theirs["size"], theirs["ETag"].strip('"')) == (ours["size"], ours["ETag"])


def test_workers_of_dask_read_and_write(bucket: str, tmp_path: Path) -> None:
    script = [sys.executable, str(Path(__file__).with_name("dask_cluster.py")), bucket, str(tmp_path)]
    done = subprocess.run(
        script,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "2 workers, the same sums"


def test_one_environment_has_versions_for_s3fs_and_nbdata() -> None:
    """Botocore is as new as nbdata needs it, and as old as s3fs needs it."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "check"], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    told = [
        line
        for line in done.stdout.splitlines()
        if "botocore" in line or "fsspec" in line or "nbdata" in line
    ]
    assert told == []
