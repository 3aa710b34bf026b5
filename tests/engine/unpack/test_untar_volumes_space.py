"""untar_volumes with too little room."""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata.archives.member import Member
from nbdata.engine.unpack.targets.folder.extraction import Extraction
from tests.engine.unpack.unpacking import archive, no_leftovers, pack, untar, whole

pytestmark = pytest.mark.usefixtures("inline")


@pytest.fixture
def bulky(tmp_path: Path) -> Path:
    """Volumes of an archive that becomes ten times as large when extracted: 60 files, 24 MB."""
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
    with pytest.raises(nbdata.NotEnoughSpace, match="command again"):
        untar(bulky, out, ignore_space=ignore_space)
    count = whole(out, tmp_path / "bulky")
    assert 5 < count < 60
    assert no_leftovers(out)
    subprocess.run(["mount", "-o", "remount,size=60m", small_disk], check=True)
    report = untar(bulky, out)
    assert report.counts == {"unchanged": count, "extracted": 60 - count}
    assert whole(out, tmp_path / "bulky") == 60


@pytest.mark.parametrize("kind", ["with members of their own", "that paths only imply"])
def test_folders_that_a_full_disk_leaves_empty_are_gone(kind: str, tmp_path: Path, small_disk: Path) -> None:
    content = tmp_path / "content"
    for folder in ("a/full", "b/never/reached", "kept/here"):
        (content / folder).mkdir(parents=True)
    (content / "a" / "full" / "small").write_bytes(b"small")
    (content / "b" / "never" / "reached" / "big").write_bytes(os.urandom(40) * 500_000)
    (content / "kept" / "here" / "last").write_bytes(b"last")
    folder = tmp_path / "v"
    folder.mkdir()
    only_files = kind == "that paths only imply"
    names = "find . -type f -print0 | sort -z" if only_files else "printf '.\\0'"
    tar = f"{names} | tar --null -T - --sort=name -czf '{folder}/a.tar.gz'"
    subprocess.run(tar, shell=True, cwd=content, check=True)
    out = small_disk / "out"
    (out / "b").mkdir(parents=True)  # the user's own folder
    for _ in range(2):
        with pytest.raises(nbdata.NotEnoughSpace):
            untar(folder, out, ignore_space=True)
        assert sorted(str(p.relative_to(out)) for p in out.rglob("*")) == ["a", "a/full", "a/full/small", "b"]
    nbdata.cleanup(out, all=True, quiet=True)
    assert [p.name for p in out.rglob("*")] == ["b"]
    subprocess.run(["mount", "-o", "remount,size=60m", small_disk], check=True)
    assert untar(folder, out).counts["extracted"] == 3
    assert whole(out, content) == 3


def test_no_empty_folder_is_removed_through_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = archive(tmp_path / "v", ("d/e", "folder", None), ("x", "file", b"x")), tmp_path / "out"
    elsewhere = tmp_path / "elsewhere"
    take = Extraction.take

    def stop(extraction: Extraction, member: Member) -> bool:
        if member.name != "x":
            return take(extraction, member)
        (out / "d").rename(elsewhere)
        (out / "d").symlink_to(elsewhere)
        raise nbdata.Cancelled("cancelled")

    monkeypatch.setattr(Extraction, "take", stop)
    with pytest.raises(nbdata.Cancelled):
        untar(source, out)
    assert (elsewhere / "e").is_dir()


def test_what_is_needed_of_a_compressed_archive_is_told_as_a_lower_bound(
    bulky: Path, tmp_path: Path, small_disk: Path
) -> None:
    subprocess.run(["mount", "-o", "remount,size=1m", small_disk], check=True)
    held = small_disk / "held"
    size = sum(path.stat().st_size for path in bulky.iterdir())
    held.write_bytes(bytes((1 << 20) - size // 2))
    assert "needs at least " in untar(bulky, small_disk / "out", dry_run=True).line
    with pytest.raises(nbdata.NotEnoughSpace, match="not enough space: it needs at least "):
        untar(bulky, small_disk / "out")
    with pytest.raises(nbdata.NotEnoughSpace, match="became full: it still needs at least "):
        untar(bulky, small_disk / "out", ignore_space=True)


def test_what_plain_tar_needs_is_told_as_it_is(content: Path, tmp_path: Path) -> None:
    volumes = pack(content, tmp_path / "v", "a.tar")
    for options in ({}, {"max_expansion": "1m"}):
        plan = untar(volumes, tmp_path / "out", dry_run=True, **options)
        assert plan.needed
        assert not plan.at_least


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


def test_bytes_written_by_the_extraction_are_not_counted_twice(
    bulky: Path, tmp_path: Path, small_disk: Path
) -> None:
    subprocess.run(["mount", "-o", "remount,size=25m", small_disk], check=True)
    assert untar(bulky, small_disk / "out").counts == {"extracted": 60}
    assert whole(small_disk / "out", tmp_path / "bulky") == 60


def test_existing_files_are_not_reserved_again(
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


@pytest.mark.in_ci(1)
@pytest.mark.parametrize("kind", ["tar", "members"])
def test_folders_count_as_what_they_take_on_the_disk(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some bytes of an archive may name hundreds of folders."""
    volumes, out = tmp_path / "v", tmp_path / "out"
    volumes.mkdir()
    out.mkdir()
    with tarfile.open(volumes / "deep.tar.gz", "w:gz") as made:
        for number in range(8):
            member = tarfile.TarInfo(f"{number:03}/" + "a/" * 150 + "f")
            if kind == "members":
                member.type = tarfile.DIRTYPE
            made.addfile(member)
    monkeypatch.setenv("NBDATA_QUOTA", f"1m:{out}")
    with pytest.raises(nbdata.NotEnoughSpace):
        untar(volumes, out)
    monkeypatch.delenv("NBDATA_QUOTA")
    with pytest.raises(nbdata.BadArchive, match="expands"):
        untar(volumes, out, max_expansion="1m")
