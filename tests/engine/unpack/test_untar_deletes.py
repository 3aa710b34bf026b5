"""untar_volumes deletes volumes while it extracts; killed at any moment, it loses no data."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import nbdata
from nbdata.engine.unpack.targets import unpacking
from nbdata.engine.unpack.volumes.stored_volume import StoredVolume
from tests.engine.unpack.checkpointing import (
    COMPRESS,
    COUNT,
    SIZE,
    STEP,
    VOLUME,
    Entry,
    cut,
    entries,
    interrupted,
    packed,
    size_of,
)
from tests.engine.unpack.unpacking import look, untar
from tests.waiting import PATIENCE

pytestmark = pytest.mark.usefixtures("inline", "small_steps")


@pytest.mark.parametrize("name", COMPRESS)
@pytest.mark.in_ci("tar", "tar.gz")
def test_volumes_are_deleted_during_the_extraction_and_the_same_command_completes(
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


def test_the_command_also_completes_without_deleting_volumes(
    tmp_path: Path, expected: dict[str, tuple[object, ...]]
) -> None:
    volumes, out = cut(packed(entries())[0], tmp_path / "v"), tmp_path / "out"
    interrupted(volumes, out, 50, delete_volumes=True)
    left = sorted(volumes.iterdir())
    untar(volumes, out)
    assert look(out) == expected
    assert sorted(volumes.iterdir()) == left


def test_no_volume_is_deleted_before_its_checkpoint_is_on_the_disk(
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
    """True if the index allows deleting the volumes up to `end`.

    For that it records the set, and either a checkpoint behind `end` or the end of the extraction.
    """
    records = [json.loads(line.partition(b" ")[2]) for line in text.splitlines()]
    if records[0][4] != str(out) or not any(r[0].startswith(".nbdata/volumes/") for r in records):
        return False
    behind = [json.loads(r[1])["restart"][0] for r in records if "/checkpoint/" in r[0] and len(r) > 1]
    return any(r[0].startswith(".nbdata/complete/") for r in records) or max(behind, default=0) >= end


def test_a_later_member_of_the_same_name_may_follow_the_checkpoint(tmp_path: Path) -> None:
    made = entries()
    made.insert(50, (made[5][0], "file", b"the later one"))
    volumes, out = cut(packed(made)[0], tmp_path / "v"), tmp_path / "out"
    interrupted(volumes, out, 51, delete_volumes=True)
    assert (out / made[5][0]).read_bytes() == b"the later one"
    report = untar(volumes, out, delete_volumes=True)
    assert report.ok
    assert (out / made[5][0]).read_bytes() == b"the later one"
    assert list(volumes.iterdir()) == []


def test_a_hard_link_after_the_checkpoint_does_not_change_its_target(tmp_path: Path) -> None:
    made = entries()[:-1]
    made.insert(48, ("hard", "hardlink", "d0/f03"))
    made.append(("hard again", "hardlink", "d0/f03"))
    volumes, out = cut(packed(made)[0], tmp_path / "v"), tmp_path / "out"
    interrupted(volumes, out, 49, delete_volumes=True)
    assert (out / "hard").samefile(out / "d0/f03")
    # Simulates a kill: the record does not yet contain the file's changed link count.
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
    # With all volumes back, the extraction is complete.
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
        assert any("some volumes were kept" in note for note in report.notes)
        assert report.counts["unchanged"] + report.counts["extracted"] == COUNT


def test_a_volume_that_somebody_else_removed_is_missing(tmp_path: Path) -> None:
    volumes, out = cut(packed(entries())[0], tmp_path / "v"), tmp_path / "out"
    interrupted(volumes, out, 30, delete_volumes=True)
    last = max(volumes.iterdir())
    last.unlink()
    with pytest.raises(nbdata.MissingVolume, match=last.name):
        untar(volumes, out, delete_volumes=True)


def test_if_records_do_not_survive_a_reboot_volumes_are_deleted_at_the_end(
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


@pytest.mark.in_ci("True")
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
    # The extraction takes less time than the ledger's figures stay valid by default.
    monkeypatch.setattr("nbdata.engine.planning.growing_space._SEEN_LATE", 0.1)
    monkeypatch.setattr("nbdata.space.ledger._REFUSED_AGE", 0.05)
    monkeypatch.setattr("nbdata.space.ledger._NOTE_EVERY", 0.0)
    if late:  # then a checkpoint is made only when room runs out
        monkeypatch.setattr(unpacking, "EVERY", 1 << 40)
    untar(volumes, out, delete_volumes=True)
    assert look(out) == expected
    elsewhere = cut(packed(entries())[0], tmp_path / "w")
    assert untar(elsewhere, room / "out2", dry_run=True, delete_volumes=True).needed > COUNT * SIZE


# -- kills ----------------------------------------------------------------------------------------

_KILLED = """
import os, signal, sys
import nbdata
from nbdata.engine.unpack.targets import unpacking
unpacking.EVERY, unpacking._SHARE = {step}, 1
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
@pytest.mark.in_ci("tar.zst-3")
def test_killed_at_any_moment_it_completes_and_nothing_is_lost(
    name: str, seed: int, tmp_path: Path, expected: dict[str, tuple[object, ...]]
) -> None:
    data, offsets = packed(entries())
    volumes, out = cut(COMPRESS[name](data), tmp_path / "v", f"a.{name}"), tmp_path / "out"
    count, chance, kills = len(list(volumes.iterdir())), random.Random(seed), 0
    script = _KILLED.format(step=STEP, delete=True)
    # A private runtime folder, because a kill leaves files there.
    (tmp_path / "run").mkdir(mode=0o700)
    environment = {**os.environ, "NBDATA_RUNTIME_DIR": str(tmp_path / "run")}
    while True:
        moment = chance.randrange(60, 260) if kills < 5 else 10**9
        done = subprocess.run(
            [sys.executable, "-c", script, str(volumes), str(out), str(moment)],
            capture_output=True, text=True, timeout=PATIENCE, env=environment,
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


@pytest.mark.parametrize("what", ["a member without a name", "bytes behind the end"])
def test_volumes_of_which_something_is_left_out_are_kept(what: str, tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / "a.tar.gz").write_bytes(_odd(what))
    for _ in range(2):  # the second time everything is extracted already
        report = untar(tmp_path / "v", tmp_path / "out", delete_volumes=True)
        assert "some volumes were kept" in " ".join(report.notes)
        assert (tmp_path / "v" / "a.tar.gz").exists()
    assert (tmp_path / "out" / "ok").read_bytes() == b"content"


def _odd(what: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name in (".", "ok") if "name" in what else ("ok",):
            info = tarfile.TarInfo(name)
            info.size = 7
            tar.addfile(info, io.BytesIO(b"content"))
    return gzip.compress(file.getvalue()) + (b"" if "name" in what else b"other bytes")
