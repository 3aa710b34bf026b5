"""A part of each disk stays free, whatever a job unpacks or fetches: other programs need some room, too."""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata.errors import NotEnoughSpace, NotFound
from nbdata.history import failed_into
from nbdata.runtime import state_folder
from nbdata.space.limits import Disk, disk_of, kept_free
from tests.agent.rig import tmpfs
from tests.waiting import wait_until

MIB = 1 << 20


@pytest.fixture
def disk(tmp_path: Path, mounts: None) -> Iterator[Path]:
    with tmpfs(tmp_path / "disk", size="40m") as folder:
        yield folder


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


@pytest.mark.in_ci("3145728")
@pytest.mark.usefixtures("inline")
@pytest.mark.needs("zstd")
@pytest.mark.parametrize("size", [10_000, 3 * MIB])
def test_an_extraction_of_unknown_size_stops_before_the_disk_is_full(
    disk: Path, tmp_path: Path, size: int
) -> None:
    content = b"x" * size
    (tmp_path / "x").write_bytes(content)
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for number in range(60 * MIB // size):
            tar.add(tmp_path / "x", f"{number:05}")
    with (tmp_path / "x.tar").open("rb") as data, (tmp_path / "x.tar.zst").open("wb") as packed:
        subprocess.run(["zstd", "-q", "-1"], stdin=data, stdout=packed, check=True)  # without the size
    with pytest.raises(NotEnoughSpace):
        nbdata.untar_volumes(tmp_path / "x.tar.zst", disk / "t", quiet=True)
    kept = kept_free(disk_of(str(disk))[0])
    assert kept == 40 * MIB // 100
    # Less was unpacked than a step of the reservation and a member beyond what may be used.
    assert kept // 2 <= _free(disk)
    assert len(list((disk / "t").iterdir())) > 2


@pytest.mark.usefixtures("inline")
def test_a_pull_that_would_leave_less_is_refused(disk: Path, tmp_path: Path) -> None:
    room = _free(disk)
    kept = kept_free(disk_of(str(disk))[0])
    with (tmp_path / "x").open("wb") as file:
        file.truncate(room - kept // 2)
    with pytest.raises(NotEnoughSpace) as caught:
        nbdata.pull(tmp_path / "x", disk / "x", quiet=True)
    assert "stay free" in str(caught.value)
    first, needed, free, *ways = caught.value.lines
    assert first == f"not enough space: {disk}/x"
    assert needed.startswith("  needed  ")
    assert free.startswith("  free    ")
    assert ways[0].startswith("  to do   ")


def test_it_is_a_hundredth_and_at_most_64_mib() -> None:
    for size, kept in ((0, 0), (8 * MIB, 8 * MIB // 100), (10**12, 64 * MIB)):
        assert kept_free(Disk("/", size, 0, size, None, 1)) == kept


def test_the_next_line_says_why_the_folder_is_not_there(disk: Path, tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as file:
        file.truncate(_free(disk))
    with pytest.raises(NotEnoughSpace):
        nbdata.pull(tmp_path / "x", f"{disk}/data/", quiet=True)
    wait_until(lambda: failed_into(state_folder(), f"{disk}/data"))  # the agent writes its record
    for verb in (nbdata.ls, nbdata.md5check, nbdata.du):
        with pytest.raises(NotFound, match="The last pull into it failed: not enough space"):
            verb(f"{disk}/data/", quiet=True)
    with pytest.raises(NotFound, match="Check the spelling"):
        nbdata.ls(f"{disk}/other/", quiet=True)
    (tmp_path / "x.txt").write_text("x")
    nbdata.pull(tmp_path / "x.txt", f"{disk}/data/", quiet=True)
    wait_until(lambda: not failed_into(state_folder(), f"{disk}/data"))
    (disk / "data/x.txt").unlink()
    (disk / "data").rmdir()
    with pytest.raises(NotFound, match="Check the spelling"):
        nbdata.ls(f"{disk}/data/", quiet=True)
