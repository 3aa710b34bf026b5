"""untar_volumes: the space check counts only requested members, and a refusal names the options that fit."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

import nbdata
from nbdata.cli import main
from nbdata.demo.server import EmbeddedServer
from tests.agent.rig import tmpfs
from tests.engine.unpack.unpacking import pack, untar, upload, whole
from tests.waiting import wait_until

MB = 10**6


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Sixteen files of half a megabyte that cannot be compressed."""
    root = tmp_path / "content"
    root.mkdir()
    for number in range(16):
        (root / f"f{number:02}").write_bytes(os.urandom(500_000))
    return root


def _without_other_disks(told: str) -> str:
    """Replace the free space of other disks in a message, because other programs change it."""
    return re.sub(r"[\d.]+ [GT]B", "…", told)


@pytest.mark.in_ci(1)
@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz"])
def test_members_that_fit_are_not_refused_for_those_that_are_left_out(
    name: str, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volumes, out = pack(files, tmp_path / "v", name), tmp_path / "out"
    out.mkdir()
    monkeypatch.setenv("NBDATA_QUOTA", f"3MB:{out}")
    with pytest.raises(nbdata.NotEnoughSpace, match=r"it needs (at least )?8"):
        untar(volumes, out)
    plan = untar(volumes, out, members="f0[0-3]", dry_run=True)
    assert plan.fits
    assert "what these members take is not known beforehand" in " ".join(plan.notes)
    assert untar(volumes, out, members="f0[0-3]").counts["extracted"] == 4
    assert whole(out, files) == 4
    with pytest.raises(nbdata.NotEnoughSpace, match="Make room"):
        untar(volumes, out, members="f*")
    assert whole(out, files) == 5


@pytest.mark.usefixtures("inline")
def test_the_space_check_asks_only_for_bytes_that_may_be_written(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volumes, out = pack(files, tmp_path / "v", "a.tar"), tmp_path / "out"
    out.mkdir()
    monkeypatch.setenv("NBDATA_QUOTA", f"3MB:{out}")
    plan = untar(volumes, out, max_expansion="2MB", dry_run=True)
    assert plan.fits
    assert 2 * MB <= plan.needed < 2 * MB + 4096
    with pytest.raises(nbdata.BadArchive, match="expands"):
        untar(volumes, out, max_expansion="2MB")


@pytest.mark.usefixtures("inline")
@pytest.mark.needs("mounts")
def test_what_does_not_fit_beside_its_volumes_is_told_with_the_line_that_does(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tmpfs(tmp_path / "small", size="12m") as disk:
        volumes, out = pack(files, disk / "the volumes", "a.tar", 500_000), disk / "out"
        plan = untar(volumes, out, dry_run=True)
        assert not plan.fits
        with pytest.raises(nbdata.NotEnoughSpace) as caught:
            untar(volumes, out)
        told = str(caught.value)
        assert _without_other_disks(told) in _without_other_disks(" ".join(plan.notes))
        assert "straight from their store" in told
        (line,) = re.findall(r"`(.* --delete-volumes)`", told)
        assert main(shlex.split(line)) == 0
        assert whole(out, files) == 16
        assert not list(volumes.iterdir())
        with pytest.raises(nbdata.NotEnoughSpace) as caught:  # the disk is full even without volumes
            untar(pack(files, tmp_path / "v", "a.tar", 500_000), disk / "again")
        assert "straight" not in str(caught.value)
        assert "delete-volumes" not in str(caught.value)


@pytest.mark.long
@pytest.mark.needs("mounts")
def test_the_store_that_volumes_were_pulled_from_is_named(
    files: Path, tmp_path: Path, s3: EmbeddedServer, bucket: str, state: str
) -> None:
    upload(s3, bucket, pack(files, tmp_path / "v", "a.tar.gz", 500_000))
    with tmpfs(tmp_path / "small", size="12m") as disk:
        volumes, out = disk / "it's here", disk / "out"
        nbdata.pull(f"s3://{bucket}/v/", volumes, storage_options={"endpoint_url": s3.url}, quiet=True)
        first = min(volumes.iterdir())

        def told() -> str:
            with pytest.raises(nbdata.NotEnoughSpace) as caught:
                untar(first, out)
            assert "--delete-volumes" not in str(caught.value), "which would free nothing before the end"
            return str(caught.value)

        wait_until(lambda: "`" in told())  # a separate thread writes the history
        (line,) = re.findall(r"`(.*)`", told())
        assert line == shlex.join(
            ["untar_volumes", f"s3://{bucket}/v/{first.name}", str(out), "--option", f"endpoint_url={s3.url}"]
        )
        for volume in volumes.iterdir():
            volume.unlink()
        assert main(shlex.split(line)) == 0
        assert whole(out, files) == 16
