"""untar_volumes where there is not room for all."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbdata
from tests.engine.unpack.unpacking import no_leftovers, pack, untar, whole

pytestmark = pytest.mark.usefixtures("inline")


@pytest.fixture
def bulky(tmp_path: Path) -> Path:
    """Volumes of an archive that is ten times as large when it is unpacked: 60 files, 24 MB."""
    content = tmp_path / "bulky"
    content.mkdir()
    for number in range(60):
        (content / f"f{number:02d}").write_bytes((os.urandom(40) + bytes(360)) * 1000)
    return pack(content, tmp_path / "bulky-volumes", volume=1_000_000)


@pytest.fixture
def small_disk(tmp_path: Path, mounts: None) -> Iterator[Path]:
    """A disk of 12 MB."""
    path = tmp_path / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", path], check=True)
    yield path
    subprocess.run(["umount", "-l", path], check=True)


@pytest.mark.parametrize("ignore_space", [False, True])
def test_a_disk_that_fills_ends_it_clearly_with_nothing_half_written(
    bulky: Path, tmp_path: Path, small_disk: Path, ignore_space: bool
) -> None:
    out = small_disk / "out"
    with pytest.raises(nbdata.NotEnoughSpace, match="same line again"):
        untar(bulky, out, ignore_space=ignore_space)
    count = whole(out, tmp_path / "bulky")
    assert 5 < count < 60
    assert no_leftovers(out)
    subprocess.run(["mount", "-o", "remount,size=60m", small_disk], check=True)
    report = untar(bulky, out)
    assert report.counts == {"unchanged": count, "extracted": 60 - count}
    assert whole(out, tmp_path / "bulky") == 60


def test_a_limit_is_kept_while_it_grows_and_the_same_line_continues(
    bulky: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    monkeypatch.setenv("NBDATA_QUOTA", f"10m:{out}")
    with pytest.raises(nbdata.NotEnoughSpace) as caught:
        untar(bulky, out)
    assert caught.value.details["source"] == "NBDATA_QUOTA"
    used = int(subprocess.run(["du", "-sB1", out], check=True, capture_output=True).stdout.split()[0])
    assert 4 << 20 < used <= 10 << 20
    count = whole(out, tmp_path / "bulky")
    monkeypatch.setenv("NBDATA_QUOTA", f"30m:{out}")
    assert untar(bulky, out).counts == {"unchanged": count, "extracted": 60 - count}


def test_what_it_has_written_itself_is_not_counted_twice(
    bulky: Path, tmp_path: Path, small_disk: Path
) -> None:
    subprocess.run(["mount", "-o", "remount,size=25m", small_disk], check=True)
    assert untar(bulky, small_disk / "out").counts == {"extracted": 60}
    assert whole(small_disk / "out", tmp_path / "bulky") == 60


def test_what_is_there_already_is_not_reserved_again(
    content: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volumes, out = pack(content, tmp_path / "v", "a.tar"), tmp_path / "out"
    untar(volumes, out)
    (out / "d1" / "f001.bin").unlink()
    used = int(subprocess.run(["du", "-sB1", out], check=True, capture_output=True).stdout.split()[0])
    monkeypatch.setenv("NBDATA_QUOTA", f"{used + 300_000}:{out}")
    assert untar(volumes, out).counts["extracted"] == 1


def test_an_archive_that_expands_beyond_the_given_size_is_refused(bulky: Path, tmp_path: Path) -> None:
    with pytest.raises(nbdata.BadArchive, match="expands"):
        untar(bulky, tmp_path / "out", max_expansion="5m")
    assert whole(tmp_path / "out", tmp_path / "bulky") < 15
