"""A kept cache's folder is found again unchanged; after a machine failure, as far as it had reached the disk."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from nbdata.cache.folder import LOCK
from nbdata.cache.kept_folder import KeptFolder, room_of_object
from nbdata.cache.kept_names import name_of
from nbdata.errors import BadOption
from nbdata.lock_files import file_lock
from nbdata.seals import Seals
from nbdata.stores.objects import ObjectInfo

NAMES = [f"{n:032x}" for n in range(4)]


def folder(parent: Path, boot: str = "this run") -> KeptFolder:
    return KeptFolder(str(parent), "s3://bucket/x/", 4096, boot, Seals(os.environ["NBDATA_STATE_DIR"]))


def put(kept: KeptFolder, name: str, data: bytes = b"data") -> None:
    Path(kept.part_of(name)).write_bytes(data)
    kept.land(name)


def test_who_asks_whether_a_cache_is_in_use_keeps_nobody_out(tmp_path, monkeypatch):
    monkeypatch.setattr("nbdata.cache.kept_folder._TRIES", 10_000)  # a busy machine releases it late
    with folder(tmp_path) as kept:
        asks = file_lock(kept.path + LOCK)
    asks.acquire()
    over = threading.Timer(0.03, asks.release)
    over.start()
    with folder(tmp_path) as kept:
        assert list(kept.found()) == []
    over.join()


def test_complete_files_are_found_again_and_incomplete_ones_deleted(tmp_path):
    with folder(tmp_path) as kept:
        assert list(kept.found()) == []
        put(kept, NAMES[0])
        put(kept, NAMES[1], b"other")
        Path(kept.part_of(NAMES[2])).write_bytes(b"half")
    with folder(tmp_path) as kept:
        assert sorted(kept.found()) == [(NAMES[0], 4, True), (NAMES[1], 5, True)]
        assert not Path(kept.part_of(NAMES[2])).exists()


def test_after_the_machine_was_lost_only_what_had_reached_the_disk_is_trusted(tmp_path):
    with folder(tmp_path) as kept:
        list(kept.found())
        for name in NAMES[:3]:
            put(kept, name)
        kept.sync()
        put(kept, NAMES[3])
        kept.remove(NAMES[0])
        put(kept, NAMES[0], b"new!")  # reuses a name that was synced with other bytes
        os.utime(kept.file_of(NAMES[0]), ns=(1, 1))
        kept._synced = kept._end  # simulates an end at this point
    for _ in range(2):
        with folder(tmp_path, boot="next run") as kept:
            found = {name: proven for name, _, proven in kept.found()}
            assert found == {NAMES[0]: False, NAMES[1]: True, NAMES[2]: True, NAMES[3]: False}


def test_without_a_known_boot_id_the_machine_is_assumed_to_have_failed(tmp_path):
    with folder(tmp_path, boot="") as kept:
        list(kept.found())
        put(kept, NAMES[0])
        kept._synced = kept._end
    with folder(tmp_path, boot="") as kept:
        assert list(kept.found()) == [(NAMES[0], 4, False)]


def test_the_record_of_what_reached_the_disk_is_written_anew_before_it_is_long(tmp_path, monkeypatch):
    monkeypatch.setattr("nbdata.cache.kept_folder._STALE", 10)
    with folder(tmp_path) as kept:
        list(kept.found())
        for number in range(60):
            kept.remove(NAMES[number % 2]) if number > 1 else None
            put(kept, NAMES[number % 2], str(number).encode())
            kept.sync()
        assert len(Path(kept.path, "sealed").read_text().splitlines()) < 25
    with folder(tmp_path, boot="next run") as kept:
        assert sorted(name for name, _, proven in kept.found() if proven) == NAMES[:2]


def test_the_sync_record_takes_no_more_room_than_its_files_allow_for(tmp_path, monkeypatch):
    monkeypatch.setattr("nbdata.cache.kept_folder._STALE", 10)
    many = [f"{n:032x}" for n in range(300)]
    record = "kept-*/sealed"
    with folder(tmp_path) as kept:
        list(kept.found())
        for name in many:
            put(kept, name)
        kept.sync()
        for count, name in enumerate(many[:-1], 1):
            kept.remove(name)
            (sealed,) = kept_files(tmp_path, record)
            assert len(sealed.read_text().splitlines()) <= 2 * (len(many) - count) + 10
            assert sealed.stat().st_size <= (len(many) - count) * 2 * 112 + 1120
    with folder(tmp_path, boot="next run") as kept:
        assert list(kept.found()) == [(many[-1], 4, True)]


def kept_files(parent: Path, pattern: str) -> list[Path]:
    return list((parent / ".nbdata").glob(pattern))


def test_the_room_of_an_object_is_enough_for_its_entry_and_its_records():
    line = len(f"{'0' * 32} {1 << 50} {1 << 61}\n")
    assert room_of_object(5000, 4096) >= 8192 + 128 + 3 * line


def test_two_processes_do_not_fill_one_folder(tmp_path):
    with (
        folder(tmp_path),
        pytest.raises(BadOption, match="another process fills this cache"),
        folder(tmp_path),
    ):
        pass


def test_other_versions_of_an_object_have_other_names():
    infos = [
        ObjectInfo("a", 1, '"x"'), ObjectInfo("a", 2, '"x"'), ObjectInfo("b", 1, '"x"'), ObjectInfo("a", 1, '"y"'),
        ObjectInfo("a", 1, '"x"', version="2"), ObjectInfo("a", 1, "", 5.0), ObjectInfo("a", 1, "", 6.0),
    ]  # fmt: skip
    assert len({name_of(info) for info in infos}) == len(infos)
    assert name_of(ObjectInfo("a", 1, '"x"', 5.0)) == name_of(ObjectInfo("a", 1, '"x"', 6.0))
