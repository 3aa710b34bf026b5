"""Several archives on the workers of a cluster: the same files and report as in one process, also after a kill."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import distributed
import pytest

import nbdata
from tests.cluster.conftest import Put
from tests.cluster.separate import Separate
from tests.cluster.test_verbs import alike
from tests.engine.unpack.unpacking import archive, look, no_leftovers, pack
from tests.faults.gate import Gate
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("inline")

Stored = Callable[[str], dict[str, bytes]]
NAMES = ("test", "train", "val")
FILES = 40


def content(folder: Path, name: str) -> Path:
    made, source = folder / name, random.Random(name)
    (made / "d").mkdir(parents=True)
    for number in range(FILES):
        (made / "d" / f"{number:02}").write_bytes(source.randbytes(number * 400 + 1))
    (made / "link").symlink_to("d/07")
    (made / "hard").hardlink_to(made / "d/08")
    return made


@pytest.fixture
def volumes(tmp_path: Path) -> Path:
    """Three archives in volumes, with links."""
    for name in NAMES:
        pack(content(tmp_path, name), tmp_path / "v", f"{name}.tar.gz", volume=60_000)
    return tmp_path / "v"


def unpacked(target: Path) -> dict[str, Any]:
    assert no_leftovers(target)
    return {path: what[0] for path, what in look(target).items()}


@pytest.mark.long
def test_archives_by_workers_become_what_one_process_makes_of_them(
    volumes: Path, tmp_path: Path, beside: distributed.Client
) -> None:
    alone = nbdata.untar_volumes(volumes, tmp_path / "alone", quiet=True)
    report = nbdata.untar_volumes(volumes, tmp_path / "dealt", cluster=beside, quiet=True)
    alike(report, alone)
    assert unpacked(tmp_path / "dealt") == unpacked(tmp_path / "alone")
    assert report.counts["extracted"] >= len(NAMES) * FILES
    again = nbdata.untar_volumes(volumes, tmp_path / "dealt", quiet=True)
    assert again.counts.keys() == {"unchanged"}, "the records of all archives are there"


def test_archives_go_to_a_store_and_a_damaged_one_is_reported(
    volumes: Path, put: Put, bucket: str, stored: Stored, tmp_path: Path, beside: distributed.Client
) -> None:
    objects = {path.name: path.read_bytes() for path in volumes.iterdir()}
    last = max(name for name in objects if name.startswith("val"))
    source = put({**objects, last: objects[last][:-20]})
    options = {"on_error": "report", "quiet": True}
    report = nbdata.untar_volumes(source, f"s3://{bucket}/dealt/", cluster=beside, **options)
    assert [path for path, _ in report.failures] == ["val.tar.gz"]
    assert {row.path.partition("/")[0] for row in report.rows} == {"test", "train", "val.tar.gz"}
    found = stored("dealt/")
    for name in ("test", "train"):
        for path in (tmp_path / name / "d").iterdir():
            assert found[f"{name}/d/{path.name}"] == path.read_bytes()
    source = put(objects)
    report = nbdata.untar_volumes(source, f"s3://{bucket}/dealt/", quiet=True)
    assert report.ok
    assert report.counts["unchanged"] >= 2 * FILES


def test_a_worker_that_is_elsewhere_is_named_in_the_error(
    volumes: Path, tmp_path: Path, workers: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runtime").mkdir(mode=0o700)
    monkeypatch.setenv("NBDATA_RUNTIME_DIR", str(tmp_path / "runtime"))
    with pytest.raises(nbdata.NbdataError, match=r"does not see the files of this job.*--cluster local"):
        nbdata.untar_volumes(volumes, tmp_path / "out", cluster=workers, quiet=True)


def test_a_single_archive_needs_no_cluster(tmp_path: Path) -> None:
    one = archive(tmp_path / "v", ("a", "file", b"1"))
    report = nbdata.untar_volumes(one, tmp_path / "out", cluster="local:2", quiet=True)
    assert (tmp_path / "out/a").read_bytes() == b"1"
    assert any("--cluster was not used" in note for note in report.notes)


@pytest.mark.in_ci("options0")
@pytest.mark.parametrize("options", [{"list": True}, {"delete_volumes": True}])
def test_what_a_cluster_does_not_do_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(nbdata.BadOption, match="exclude each other"):
        nbdata.UntarVolumes("/w/v", "/w/d", cluster="local", **options)


@pytest.mark.long
def test_the_archive_of_a_killed_worker_is_unpacked_by_another(
    volumes: Path, put: Put, tmp_path: Path, gate: Gate, separate: Separate
) -> None:
    objects = {path.name: path.read_bytes() for path in volumes.iterdir()}
    source = put(objects)
    operation = nbdata.UntarVolumes(source, str(tmp_path / "out"), cluster=separate.address)
    gate.close(after=sum(map(len, objects.values())) // 2)
    job = operation.start()
    wait_until(lambda: gate.holds or job.snapshot().finished)
    assert job.snapshot().state == "RUNNING", job.snapshot()
    separate.kill(separate.workers[0])
    gate.open()
    report = job.wait()
    assert report.ok
    assert sum(report.counts.get(name, 0) for name in ("extracted", "unchanged")) >= len(NAMES) * FILES
    nbdata.untar_volumes(volumes, tmp_path / "alone", quiet=True)
    assert unpacked(tmp_path / "out") == unpacked(tmp_path / "alone")
