"""An interrupted untar_volumes resumes at its last checkpoint."""

from __future__ import annotations

import gzip
import lzma
import os
import random
import zlib
from pathlib import Path

import pytest
import zstandard

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.engine.unpack.targets.folder.extraction import Extraction
from nbdata.engine.unpack.written import crc32_of
from nbdata.report import Plan
from tests.conftest import client_of
from tests.engine.unpack.checkpointing import (
    COMPRESS,
    COUNT,
    SIZE,
    VOLUME,
    cut,
    entries,
    in_pieces,
    interrupted,
    packed,
    size_of,
)
from tests.engine.unpack.unpacking import look, untar
from tests.slow import SlowProxy

pytestmark = pytest.mark.usefixtures("inline", "small_steps")


@pytest.mark.parametrize("name", COMPRESS)
@pytest.mark.in_ci("tar.gz", "tar.zst", 1)
def test_an_interrupted_line_goes_on_behind_what_was_verified(
    name: str, tmp_path: Path, expected: dict[str, tuple[object, ...]]
) -> None:
    volumes = cut(COMPRESS[name](packed(entries())[0]), tmp_path / "v", f"a.{name}")
    whole = size_of(volumes)
    interrupted(volumes, tmp_path / "out", 50)
    plan: Plan = untar(volumes, tmp_path / "out", dry_run=True)
    assert plan.present > whole / 2
    assert plan.bytes == whole - plan.present
    report = untar(volumes, tmp_path / "out")
    assert report.details["resumed_at"] == plan.present
    assert report.details["compressed"] == whole - plan.present
    assert 0 < report.details["read_again"] < whole / 4
    assert report.counts["unchanged"] + report.counts["extracted"] + report.counts["links"] == COUNT + 2
    assert report.bytes == SIZE * report.counts["extracted"] < SIZE * COUNT / 2
    assert "resumed at byte" in report.notes[0]
    assert look(tmp_path / "out") == expected
    assert untar(volumes, tmp_path / "out").counts == {"unchanged": COUNT + 2}


def test_an_empty_folder_before_a_checkpoint_stays(tmp_path: Path) -> None:
    volumes = cut(packed([("empty", "folder", None), *entries()])[0], tmp_path / "v")
    interrupted(volumes, tmp_path / "out", 50)
    assert (tmp_path / "out" / "empty").is_dir()
    assert untar(volumes, tmp_path / "out").details["resumed_at"] > size_of(volumes) / 2
    assert (tmp_path / "out" / "empty").is_dir()


@pytest.mark.in_ci(1)
@pytest.mark.parametrize("name", ["tar.gz", "tar.xz", "tar.zst"])
def test_what_is_compressed_in_one_piece_is_read_from_its_start_and_says_so(
    name: str, tmp_path: Path, expected: dict[str, tuple[object, ...]]
) -> None:
    compress = {"tar.gz": gzip.compress, "tar.xz": lzma.compress, "tar.zst": zstandard.compress}[name]
    volumes = cut(compress(packed(entries())[0]), tmp_path / "v", f"a.{name}")  # type: ignore[operator]
    interrupted(volumes, tmp_path / "out", 50, delete_volumes=True)
    count = len(list(volumes.iterdir()))
    assert count == -(-size_of(volumes) // VOLUME), "nothing was deleted before the end"
    report = untar(volumes, tmp_path / "out", delete_volumes=True)
    assert report.details["resumed_at"] == 0
    assert report.details["read_again"] > SIZE * 40
    assert "as one piece" in report.notes[0]
    assert report.counts["deleted"] == count
    assert look(tmp_path / "out") == expected


def test_volumes_in_a_store_are_not_fetched_again(
    tmp_path: Path, s3: EmbeddedServer, bucket: str, monkeypatch: pytest.MonkeyPatch,
    expected: dict[str, tuple[object, ...]],
) -> None:  # fmt: skip
    data = packed(entries())[0]
    client = client_of(s3)
    for number in range(-(-len(data) // VOLUME)):
        body = data[number * VOLUME : (number + 1) * VOLUME]
        client.put_object(Bucket=bucket, Key=f"v/a.tar.{number:03}", Body=body)
    with SlowProxy(s3.url, rate=10**10) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        interrupted(f"s3://{bucket}/v/", tmp_path / "out", 50, delete_volumes=True)
        left = [found["Key"] for found in client.list_objects_v2(Bucket=bucket)["Contents"]]
        assert 1 < len(left) < 6
        before = proxy.answered
        report = untar(f"s3://{bucket}/v/", tmp_path / "out", delete_volumes=True)
        assert proxy.answered - before < len(data) - report.details["resumed_at"] + 30_000
    assert report.details["resumed_at"] > len(data) / 2
    assert client.list_objects_v2(Bucket=bucket)["KeyCount"] == 0
    assert look(tmp_path / "out") == expected
    client.close()


@pytest.mark.in_ci(1)
@pytest.mark.parametrize("how", ["removed", "changed", "changed in secret", "replaced by a link"])
def test_a_changed_or_missing_file_makes_it_read_everything_again(
    how: str, tmp_path: Path, expected: dict[str, tuple[object, ...]]
) -> None:
    volumes, out = cut(packed(entries())[0], tmp_path / "v"), tmp_path / "out"
    interrupted(volumes, out, 50)
    victim = out / "d1/f01"
    found = victim.stat()
    if how != "changed in secret":
        victim.unlink()
    if how == "changed":
        victim.write_bytes(b"mine")
    elif how == "changed in secret":
        victim.write_bytes(bytes(SIZE))
        os.utime(victim, ns=(found.st_mtime_ns, found.st_mtime_ns))
    elif how == "replaced by a link":
        victim.symlink_to("f04")
    report = untar(volumes, out)
    assert report.details["resumed_at"] == 0
    assert look(out) == expected


def test_a_file_that_only_got_another_name_is_as_it_was(
    tmp_path: Path, expected: dict[str, tuple[object, ...]]
) -> None:
    volumes, out = cut(packed(entries())[0], tmp_path / "v"), tmp_path / "out"
    interrupted(volumes, out, 50)
    os.link(out / "d1/f01", tmp_path / "another")
    assert untar(volumes, out).details["resumed_at"] > 0
    assert look(out) == expected
    assert untar(volumes, out).counts == {"unchanged": COUNT + 2}


def test_a_file_that_loses_a_left_name_in_a_resumed_run_is_as_recorded_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill may leave a hard link among the temporaries, which the next run removes."""
    volumes, out = cut(packed(entries())[0], tmp_path / "v"), tmp_path / "out"
    interrupted(volumes, out, 50)
    os.link(out / "d1/f01", tmp_path / "left")
    go_on = Extraction._go_on

    def removing(self: Extraction) -> None:
        go_on(self)
        (tmp_path / "left").unlink()

    monkeypatch.setattr(Extraction, "_go_on", removing)
    assert untar(volumes, out).details["resumed_at"] > 0
    assert untar(volumes, out).counts == {"unchanged": COUNT + 2}


@pytest.mark.in_ci(1)
@pytest.mark.parametrize("part", ["", "d1"])
def test_what_cleanup_has_removed_is_unpacked_again(
    part: str, tmp_path: Path, expected: dict[str, tuple[object, ...]]
) -> None:
    volumes, out = cut(packed(entries())[0], tmp_path / "v"), tmp_path / "out"
    interrupted(volumes, out, 50)
    nbdata.cleanup(out / part, all=True, quiet=True)
    assert not [path for path in (out / part).rglob("*") if path.is_file()]
    assert untar(volumes, out).details["resumed_at"] == 0
    assert look(out) == expected


def test_a_command_does_not_use_a_checkpoint_of_another_command(
    tmp_path: Path, expected: dict[str, tuple[object, ...]]
) -> None:
    volumes, out = cut(packed(entries())[0], tmp_path / "v"), tmp_path / "out"
    interrupted(volumes, out, 50)
    assert untar(volumes, out, members="d1", strip_components=1).counts["extracted"] == COUNT // 3
    moved = list(out.glob("f*"))
    assert len(moved) == COUNT // 3
    for path in moved:
        path.unlink()
    untar(volumes, out)
    found = look(out)
    assert found == expected
    interrupted(volumes, tmp_path / "out2", 50)
    assert untar(volumes, tmp_path / "out2", overwrite="always").counts["extracted"] == COUNT


def test_other_volumes_under_the_same_names_are_read_from_the_start(
    tmp_path: Path, expected: dict[str, tuple[object, ...]]
) -> None:
    volumes, out = cut(packed(entries())[0], tmp_path / "v"), tmp_path / "out"
    interrupted(volumes, out, 50)
    made = entries()
    made[5] = (made[5][0], "file", random.Random(9).randbytes(SIZE))
    cut(packed(made)[0], volumes)
    assert untar(volumes, out).details["resumed_at"] == 0
    assert (out / made[5][0]).read_bytes() == made[5][2]
    assert look(out).keys() == expected.keys()


def test_unverified_bytes_are_no_place_to_resume(tmp_path: Path) -> None:
    """Unverified bytes are written, but never count as final."""
    data = packed(entries())[0]
    wrong = bytearray(data)
    wrong[data.index(entries()[30][2]) + 5] ^= 1
    # Stored without compression, so only the CRC at the end of the member reveals the damage.
    good, bad = (
        in_pieces(bytes(one), lambda piece: gzip.compress(piece, 0), 800_000) for one in (data, wrong)
    )
    crcs = [at for at in range(1, len(good)) if good[at : at + 3] == b"\x1f\x8b\x08"]
    broken = bytearray(bad)
    for at in [*crcs, len(good)]:  # the checksums of the original data
        broken[at - 8 : at] = good[at - 8 : at]
    volumes, out = cut(bytes(broken), tmp_path / "v", "a.tar.gz"), tmp_path / "out"
    with pytest.raises(nbdata.BadArchive):
        untar(volumes, out, delete_volumes=True)
    left = sorted(path.name for path in volumes.iterdir())
    assert "a.tar.gz.005" in left, "volumes that are not verified stay"
    for name in left:
        number = int(name[-3:])
        (volumes / name).write_bytes(good[number * VOLUME : (number + 1) * VOLUME])
    untar(volumes, out)
    for name, kind, value in entries():
        assert kind != "file" or (out / name).read_bytes() == value


def test_global_headers_hold_for_what_comes_behind_the_place(tmp_path: Path) -> None:
    data = packed(entries(), pax_headers={"mtime": "1234567890.123456789"})[0]
    volumes, out = cut(data, tmp_path / "v"), tmp_path / "out"
    interrupted(volumes, out, 50)
    assert untar(volumes, out).details["resumed_at"] > 0
    assert {path.lstat().st_mtime_ns for path in out.rglob("*")} == {1234567890123456789}


def test_patterns_that_matched_before_the_place_have_matched(tmp_path: Path) -> None:
    volumes, out = cut(packed(entries())[0], tmp_path / "v"), tmp_path / "out"
    options = {"members": ["d0/f00", "d?/f*"]}
    interrupted(volumes, out, 45, **options)
    report = untar(volumes, out, **options)
    assert report.details["resumed_at"] > 0
    assert report.counts["unchanged"] + report.counts["extracted"] == COUNT


def test_links_of_the_archive_are_known_behind_the_place(tmp_path: Path) -> None:
    made = [*entries()[:60], ("link/evil", "file", b"x")]
    volumes, out = cut(packed(made)[0], tmp_path / "v"), tmp_path / "out"
    interrupted(volumes, out, 50)
    with pytest.raises(nbdata.UnsafeMember, match="through the symbolic link link"):
        untar(volumes, out)


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_what_takes_the_place_of_a_file_before_it_is_compared_is_another(tmp_path: Path, kind: str) -> None:
    """The open of a pipe waits for a writer, and nothing stops the job meanwhile."""
    (tmp_path / "file").write_bytes(b"x")
    if kind == "pipe":
        os.mkfifo(tmp_path / "other")
    else:
        (tmp_path / "other").symlink_to("file")
    assert crc32_of(str(tmp_path / "other")) == -1
    assert crc32_of(str(tmp_path / "file")) == zlib.crc32(b"x")
