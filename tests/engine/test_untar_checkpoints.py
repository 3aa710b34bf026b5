"""untar_volumes that was interrupted goes on where it was, and deletes volumes while it goes."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import random
import signal
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.engine import checkpoints
from nbdata.engine.extract import Extraction
from nbdata.engine.volumes import StoredVolume
from nbdata.errors import Cancelled
from nbdata.report import Plan, Report
from tests.conftest import client_of
from tests.slow import SlowProxy

pytestmark = pytest.mark.usefixtures("inline")

STEP = 100_000
VOLUME = 150_000
COUNT = 60
SIZE = 30_000


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints every 100 KB, however long they take."""
    monkeypatch.setattr(checkpoints, "EVERY", STEP)
    monkeypatch.setattr(checkpoints, "_SHARE", 1)


# -- archives -------------------------------------------------------------------------------------

Entry = tuple[str, str, Any]


def entries() -> list[Entry]:
    """What cannot be compressed, in folders with times of their own, a link and a hard link."""
    source = random.Random(3)
    made: list[Entry] = [("d0", "folder", None), ("d1", "folder", None), ("d2", "folder", None)]
    made += [(f"d{n % 3}/f{n:02}", "file", source.randbytes(SIZE)) for n in range(COUNT)]
    made.insert(10, ("link", "symlink", "d0/f00"))
    made.append(("hard", "hardlink", "d0/f03"))
    return made


def packed(made: list[Entry], **options: Any) -> tuple[bytes, list[int]]:
    """A tar archive, and the offsets of its headers."""
    kinds = {"file": tarfile.REGTYPE, "folder": tarfile.DIRTYPE}
    kinds |= {"symlink": tarfile.SYMTYPE, "hardlink": tarfile.LNKTYPE}
    out, offsets = io.BytesIO(), []
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, **options) as tar:
        for number, (name, kind, value) in enumerate(made):
            info = tarfile.TarInfo(name)
            info.type, info.mtime, info.mode = kinds[kind], 1_400_000_000 + number, 0o644
            info.size = len(value) if kind == "file" else 0
            info.linkname = value if "link" in kind else ""
            offsets.append(tar.offset)
            tar.addfile(info, io.BytesIO(value) if kind == "file" else None)
    return out.getvalue(), offsets


def in_pieces(data: bytes, compress: Callable[[bytes], bytes], size: int = 70_000) -> bytes:
    """Compressed as members, streams or frames of so many bytes each."""
    return b"".join(compress(data[at : at + size]) for at in range(0, len(data), size))


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "tar": lambda data: data,
    "tar.gz": lambda data: in_pieces(data, lambda piece: gzip.compress(piece, 1)),
    "tar.bz2": lambda data: in_pieces(data, bz2.compress),
    "whole.tar.bz2": lambda data: bz2.compress(data, 1),
    "tar.xz": lambda data: in_pieces(data, lambda piece: lzma.compress(piece, preset=0)),
    "tar.zst": lambda data: in_pieces(data, zstandard.ZstdCompressor(1, write_checksum=True).compress),
}


def cut(data: bytes, folder: Path, name: str = "a.tar", size: int = VOLUME) -> Path:
    """In volumes ``NAME.000 …`` in a folder."""
    folder.mkdir(exist_ok=True)
    for number in range(-(-len(data) // size)):
        (folder / f"{name}.{number:03}").write_bytes(data[number * size : (number + 1) * size])
    return folder


def look(root: Path) -> dict[str, tuple[object, ...]]:
    """Everything that can be seen of a tree."""
    seen: dict[str, tuple[object, ...]] = {}
    names: dict[int, str] = {}
    for path in sorted(root.rglob("*")):
        found, name = path.lstat(), str(path.relative_to(root))
        what: object = "folder"
        if path.is_symlink():
            what = os.readlink(path)
        elif path.is_file():
            what = (path.read_bytes(), names.setdefault(found.st_ino, name))
        seen[name] = (what, stat.S_IMODE(found.st_mode), found.st_mtime_ns)
    return seen


@pytest.fixture
def expected(tmp_path: Path) -> dict[str, tuple[object, ...]]:
    """What an undisturbed run gives."""
    untar(cut(packed(entries())[0], tmp_path / "whole"), tmp_path / "expected")
    return look(tmp_path / "expected")


# -- running and interrupting ---------------------------------------------------------------------


def untar(source: Any, target: Path, **options: Any) -> Report:
    return nbdata.untar_volumes(source, target, quiet=True, **options)


def interrupted(source: Any, target: Path, after: int, **options: Any) -> None:
    """Run until so many members have landed, and end there as a cancel does."""
    take, taken = Extraction.take, iter(range(after))

    def stop(extraction: Extraction, member: Any) -> bool:
        if next(taken, None) is None:
            extraction._flush()
            raise Cancelled("cancelled")
        return take(extraction, member)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Extraction, "take", stop)
        with pytest.raises(nbdata.Cancelled):
            untar(source, target, **options)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


# -- going on -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMPRESS)
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
    assert "went on at byte" in report.notes[0]
    assert look(tmp_path / "out") == expected
    assert untar(volumes, tmp_path / "out").counts == {"unchanged": COUNT + 2}


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
    assert "in one piece" in report.notes[0]
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
    interrupted(f"s3://{bucket}/v/", tmp_path / "out", 50, delete_volumes=True)
    left = [found["Key"] for found in client.list_objects_v2(Bucket=bucket)["Contents"]]
    assert 1 < len(left) < 6
    with SlowProxy(s3.url, rate=10**10) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        report = untar(f"s3://{bucket}/v/", tmp_path / "out", delete_volumes=True)
        assert proxy.answered < len(data) - report.details["resumed_at"] + 30_000
    assert report.details["resumed_at"] > len(data) / 2
    assert client.list_objects_v2(Bucket=bucket)["KeyCount"] == 0
    assert look(tmp_path / "out") == expected
    client.close()


@pytest.mark.parametrize("how", ["removed", "changed", "changed in secret", "replaced by a link"])
def test_what_was_changed_since_makes_it_read_everything_again(
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


def test_another_line_does_not_take_a_checkpoint_for_its_own(
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


def test_what_was_damaged_on_its_way_is_no_place_to_go_on(tmp_path: Path) -> None:
    """Bytes that nothing has verified yet are written, but never taken for good."""
    data = packed(entries())[0]
    wrong = bytearray(data)
    wrong[data.index(entries()[30][2]) + 5] ^= 1
    # Stored, not compressed: only the CRC at the end of the member can tell.
    good, bad = (
        in_pieces(bytes(one), lambda piece: gzip.compress(piece, 0), 800_000) for one in (data, wrong)
    )
    crcs = [at for at in range(1, len(good)) if good[at : at + 3] == b"\x1f\x8b\x08"]
    broken = bytearray(bad)
    for at in [*crcs, len(good)]:  # the checksums of what was packed
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


# -- deleting while it goes -----------------------------------------------------------------------


@pytest.mark.parametrize("name", COMPRESS)
def test_volumes_go_while_it_goes_and_the_same_line_completes(
    name: str, tmp_path: Path, expected: dict[str, tuple[object, ...]]
) -> None:
    volumes, out = cut(COMPRESS[name](packed(entries())[0]), tmp_path / "v", f"a.{name}"), tmp_path / "out"
    count = len(list(volumes.iterdir()))
    first = str(min(volumes.iterdir()))
    plan = untar(volumes, out, dry_run=True, delete_volumes=True)
    assert plan.details["deletion"] == ("amid" if name == "tar" else "by piece")
    interrupted(first, out, 50, delete_volumes=True)
    left = len(list(volumes.iterdir()))
    assert 0 < left < count / 2
    with pytest.raises(nbdata.NbdataError):
        untar(volumes, tmp_path / "elsewhere")
    report = untar(first, out, delete_volumes=True)
    assert report.counts["deleted"] == left
    assert report.details["volumes"] == count
    assert list(volumes.iterdir()) == []
    assert look(out) == expected
    assert untar(first, out, delete_volumes=True).counts == {"unchanged": COUNT + 2}


def test_the_line_completes_too_when_it_is_to_delete_no_more(
    tmp_path: Path, expected: dict[str, tuple[object, ...]]
) -> None:
    volumes, out = cut(packed(entries())[0], tmp_path / "v"), tmp_path / "out"
    interrupted(volumes, out, 50, delete_volumes=True)
    left = sorted(volumes.iterdir())
    untar(volumes, out)
    assert look(out) == expected
    assert sorted(volumes.iterdir()) == left


def test_no_volume_goes_before_the_record_that_lets_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volumes, out = cut(packed(entries())[0], tmp_path / "v"), tmp_path / "out"
    delete, sync = StoredVolume.delete, os.fdatasync
    on_disk: dict[str, int] = {}
    deleted = []

    def synced(fd: int) -> None:
        sync(fd)
        on_disk[os.readlink(f"/proc/self/fd/{fd}")] = os.fstat(fd).st_size

    def watched(volume: StoredVolume) -> bool:
        indexes = {path: size for path, size in on_disk.items() if path.endswith(".log") and "index" in path}
        assert indexes
        known = [
            Path(path).read_bytes()[:size]
            for path, size in indexes.items()
            if Path(path).stat().st_size == size
        ]
        number = int(volume.name[-3:])
        assert any(_vouches(text, (number + 1) * VOLUME, out) for text in known), volume.name
        deleted.append(number)
        return delete(volume)

    monkeypatch.setattr(os, "fdatasync", synced)
    monkeypatch.setattr(StoredVolume, "delete", watched)
    untar(volumes, out, delete_volumes=True)
    assert deleted == list(range(len(deleted)))
    assert list(volumes.iterdir()) == []


def _vouches(text: bytes, end: int, out: Path) -> bool:
    """Whether a checkpoint in an index lies behind an offset, or all is complete, and the set is recorded."""
    records = [json.loads(line.partition(b" ")[2]) for line in text.splitlines()]
    if records[0][4] != str(out) or not any(r[0].startswith(".nbdata/volumes/") for r in records):
        return False
    behind = [json.loads(r[1])["restart"][0] for r in records if "/checkpoint/" in r[0] and len(r) > 1]
    return any(r[0].startswith(".nbdata/complete/") for r in records) or max(behind, default=0) >= end


def test_a_later_member_of_the_same_name_may_come_behind_the_place(tmp_path: Path) -> None:
    made = entries()
    made.insert(50, (made[5][0], "file", b"the later one"))
    volumes, out = cut(packed(made)[0], tmp_path / "v"), tmp_path / "out"
    interrupted(volumes, out, 51, delete_volumes=True)
    assert (out / made[5][0]).read_bytes() == b"the later one"
    report = untar(volumes, out, delete_volumes=True)
    assert report.ok
    assert (out / made[5][0]).read_bytes() == b"the later one"
    assert list(volumes.iterdir()) == []


def test_a_hard_link_behind_the_place_leaves_what_it_is_linked_to_sound(tmp_path: Path) -> None:
    made = entries()[:-1]
    made.insert(48, ("hard", "hardlink", "d0/f03"))
    made.append(("hard again", "hardlink", "d0/f03"))
    volumes, out = cut(packed(made)[0], tmp_path / "v"), tmp_path / "out"
    interrupted(volumes, out, 49, delete_volumes=True)
    assert (out / "hard").samefile(out / "d0/f03")
    # As a kill leaves it: what the link has changed is not recorded.
    os.link(out / "d0/f03", tmp_path / "one more")
    report = untar(volumes, out, delete_volumes=True)
    assert report.ok
    assert (out / "hard again").samefile(out / "d0/f03")
    assert untar(volumes, out, delete_volumes=True).counts == {"unchanged": COUNT + 3}


def test_what_is_lost_with_deleted_volumes_is_told_and_the_rest_is_done(
    tmp_path: Path, expected: dict[str, tuple[object, ...]]
) -> None:
    volumes, out = cut(packed(entries())[0], tmp_path / "v"), tmp_path / "out"
    interrupted(volumes, out, 50, delete_volumes=True)
    (out / "d1/f01").unlink()
    left = len(list(volumes.iterdir()))
    for _ in range(2):
        with pytest.raises(nbdata.TransferFailed, match="d1/f01") as caught:
            untar(volumes, out, delete_volumes=True)
        assert caught.value.report.counts["failed"] == 1
        assert len(list(volumes.iterdir())) == left
    missing = look(out)
    assert set(expected) - set(missing) == {"d1/f01"}
    # With all volumes back it is whole.
    cut(packed(entries())[0], volumes)
    assert untar(volumes, out, delete_volumes=True).ok
    assert look(out) == expected
    assert list(volumes.iterdir()) == []


def test_a_store_that_refuses_to_delete_is_told_when_all_is_unpacked(
    tmp_path: Path, expected: dict[str, tuple[object, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(volume: StoredVolume) -> bool:
        raise nbdata.AccessDenied("the store refuses", path=volume.name)

    monkeypatch.setattr(StoredVolume, "delete", refuse)
    volumes, out = cut(packed(entries())[0], tmp_path / "v"), tmp_path / "out"
    with pytest.raises(nbdata.AccessDenied, match="refuses"):
        untar(volumes, out, delete_volumes=True)
    assert look(out) == expected
    assert untar(volumes, out).counts == {"unchanged": COUNT + 2}


def test_a_volume_with_a_file_that_was_left_out_stays(tmp_path: Path) -> None:
    top: Entry = ("top", "file", b"nothing is left of its name")
    made = [one for one in entries() if one[1] == "file"]
    for name, content in (("first", [top, *made]), ("last", [*made, top])):
        volumes, out = cut(packed(content)[0], tmp_path / name), tmp_path / f"out of {name}"
        count = len(list(volumes.iterdir()))
        interrupted(volumes, out, 40, delete_volumes=True, strip_components=1)
        report = untar(volumes, out, delete_volumes=True, strip_components=1)
        left = len(list(volumes.iterdir()))
        assert left == count if name == "first" else 0 < left < count / 2
        assert any("left out: top" in note for note in report.notes)
        assert any("not all volumes were deleted" in note for note in report.notes)
        assert report.counts["unchanged"] + report.counts["extracted"] == COUNT


def test_a_volume_that_somebody_else_removed_is_missing(tmp_path: Path) -> None:
    volumes, out = cut(packed(entries())[0], tmp_path / "v"), tmp_path / "out"
    interrupted(volumes, out, 30, delete_volumes=True)
    last = max(volumes.iterdir())
    last.unlink()
    with pytest.raises(nbdata.MissingVolume, match=last.name):
        untar(volumes, out, delete_volumes=True)


def test_without_records_that_last_volumes_are_deleted_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBDATA_STATE_DIR", os.environ["NBDATA_RUNTIME_DIR"] + "/state")
    volumes, out = cut(packed(entries())[0], tmp_path / "v"), tmp_path / "out"
    count = len(list(volumes.iterdir()))
    plan = untar(volumes, out, dry_run=True, delete_volumes=True)
    assert plan.details["deletion"] == "at the end"
    interrupted(volumes, out, 50, delete_volumes=True)
    assert len(list(volumes.iterdir())) == count
    assert untar(volumes, out, delete_volumes=True).counts["deleted"] == count


def test_nothing_is_deleted_behind_a_member_that_failed(tmp_path: Path) -> None:
    volumes, out = cut(packed(entries())[0], tmp_path / "v"), tmp_path / "out"
    count = len(list(volumes.iterdir()))
    (out / "d1/f01").mkdir(parents=True)
    with pytest.raises(nbdata.TransferFailed):
        untar(volumes, out, delete_volumes=True)
    assert len(list(volumes.iterdir())) == count


@pytest.mark.parametrize("late", [False, True])
def test_an_archive_that_does_not_fit_beside_its_volumes_is_unpacked_in_their_place(
    late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[str, tuple[object, ...]]
) -> None:
    room = tmp_path / "room"
    room.mkdir()
    volumes, out = cut(packed(entries())[0], room / "v"), room / "out"
    monkeypatch.setenv("NBDATA_QUOTA", f"{size_of(volumes) + 1_200_000}:{room}")
    with pytest.raises(nbdata.NotEnoughSpace):
        untar(volumes, out)
    plan = untar(volumes, out, dry_run=True, delete_volumes=True)
    assert plan.fits
    assert any("step by step" in note for note in plan.notes)
    # All of it lasts less long than the ledger lets figures stand.
    monkeypatch.setattr("nbdata.engine.growing_space._SEEN_LATE", 0.1)
    monkeypatch.setattr("nbdata.space.ledger._REFUSED_AGE", 0.05)
    monkeypatch.setattr("nbdata.space.ledger._NOTE_EVERY", 0.0)
    if late:  # a checkpoint is made when there is no room, and only then
        monkeypatch.setattr(checkpoints, "EVERY", 1 << 40)
    untar(volumes, out, delete_volumes=True)
    assert look(out) == expected
    elsewhere = cut(packed(entries())[0], tmp_path / "w")
    assert untar(elsewhere, room / "out2", dry_run=True, delete_volumes=True).needed > COUNT * SIZE


# -- killed ---------------------------------------------------------------------------------------

_KILLED = """
import os, signal, sys
import nbdata
from nbdata.engine import checkpoints
checkpoints.EVERY, checkpoints._SHARE = {step}, 1
left = [int(sys.argv[3])]
def count(event, args):
    if event in ("os.rename", "os.remove", "os.utime", "os.symlink", "os.link", "os.mkdir", "open"):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
plan = nbdata.untar_volumes(sys.argv[1], sys.argv[2], dry_run=True)
sys.addaudithook(count)
nbdata.untar_volumes(sys.argv[1], sys.argv[2], delete_volumes={delete}, quiet=True)
"""


@pytest.mark.parametrize(("name", "seed"), [("tar", 1), ("tar", 2), ("tar.zst", 3), ("whole.tar.bz2", 4)])
def test_killed_at_any_moment_it_completes_and_nothing_is_lost(
    name: str, seed: int, tmp_path: Path, expected: dict[str, tuple[object, ...]]
) -> None:
    data, offsets = packed(entries())
    volumes, out = cut(COMPRESS[name](data), tmp_path / "v", f"a.{name}"), tmp_path / "out"
    count, chance, kills = len(list(volumes.iterdir())), random.Random(seed), 0
    script = _KILLED.format(step=STEP, delete=True)
    # What a kill leaves there is nobody else's business.
    (tmp_path / "run").mkdir(mode=0o700)
    environment = {**os.environ, "NBDATA_RUNTIME_DIR": str(tmp_path / "run")}
    while True:
        moment = chance.randrange(60, 260) if kills < 5 else 10**9
        done = subprocess.run(
            [sys.executable, "-c", script, str(volumes), str(out), str(moment)],
            capture_output=True, text=True, timeout=100, env=environment,
        )  # fmt: skip
        gone = count - len(list(volumes.iterdir()))
        for member, offset in zip(entries(), offsets, strict=True):
            path = out / member[0]
            if member[1] == "file" and path.exists():
                assert path.read_bytes() == member[2], "what stands under a final name is whole"
            if name == "tar" and offset + SIZE + 512 <= gone * VOLUME:
                assert os.path.lexists(path), f"{member[0]} is gone with its volume"
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr[-1000:]
        kills += 1
    assert kills
    assert look(out) == expected
    assert list(volumes.iterdir()) == []
    assert not (out / ".nbdata").exists()
