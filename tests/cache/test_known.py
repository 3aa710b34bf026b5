"""Existing caches are found from the notes of their jobs, whatever happened to their folders."""

from __future__ import annotations

import os
from pathlib import Path

from nbdata.cache.kept_folder import KeptFolder
from nbdata.cache.known import KnownCache, known_caches, note_cache, note_in
from nbdata.seals import Seals
from nbdata.space.limits import disk_of


def kept(tmp_path: Path, source: str) -> KeptFolder:
    return KeptFolder(
        str(tmp_path), source, disk_of(str(tmp_path))[2], "boot", Seals(os.environ["NBDATA_STATE_DIR"])
    )


def test_a_cache_is_known_by_what_it_last_said_and_by_what_is_in_it(tmp_path: Path) -> None:
    state, source = str(tmp_path / "state"), "s3://bucket/images/"
    with kept(tmp_path, source) as folder:
        assert list(folder.found()) == []
        note_cache(state, folder.path)
        about = KnownCache(folder.path, source, "auto", 10**9, 5 * 10**8, 7, 400, 100, 2)
        note_in(folder, about, durable=True)
        (found,) = known_caches(state)
        assert found == KnownCache(folder.path, source, "auto", 10**9, 5 * 10**8, 7, 400, 100, 2, in_use=True)
        assert found.hit_rate == 0.75
        name = f"{5:032x}"
        with open(folder.part_of(name), "wb") as file:
            file.write(b"12345")
        folder.land(name)
    (found,) = known_caches(state)
    assert (found.source, found.limit, found.objects, found.in_use) == (source, 10**9, 1, False)
    assert (found.read, found.consumers, found.hit_rate) == (0, 0, None)
    assert found.used == folder.overhead + disk_of(str(tmp_path))[2] + 128 + 3 * 112
    os.unlink(folder.file_of(name))
    assert known_caches(state)[0].objects == 0


def test_a_cache_that_was_deleted_is_forgotten(tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    with kept(tmp_path, "a") as folder:
        note_cache(state, folder.path)
        note_cache(state, folder.path)
    assert len(known_caches(state)) == 1
    os.rename(folder.path, tmp_path / "elsewhere")
    assert known_caches(state) == []
    assert os.listdir(tmp_path / "state" / "caches") == []


def test_a_link_in_the_place_of_a_cache_is_none(tmp_path: Path) -> None:
    state, data = str(tmp_path / "state"), tmp_path / "data"
    with kept(tmp_path, "a") as folder:
        note_cache(state, folder.path)
    os.rename(folder.path, data)
    os.symlink(data, folder.path)
    assert known_caches(state) == []
    assert data.is_dir()


def test_what_is_noted_is_taken_for_a_cache_only_if_it_looks_like_one(tmp_path: Path) -> None:
    state, other = str(tmp_path / "state"), tmp_path / "data"
    other.mkdir()
    note_cache(state, str(other))
    assert known_caches(state) == []
    assert other.is_dir()


def test_a_cache_without_a_description_is_known_too(tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    with kept(tmp_path, "a") as folder:
        note_cache(state, folder.path)
    for said in ("", "[]", '{"limit": "much", "source": 5, "path": "/"}', "{" * 5000):
        Path(folder.path, "about").write_text(said)
        (found,) = known_caches(state)
        assert (found.path, found.source, found.limit) == (folder.path, "", 0)


def test_the_longest_source_fits_into_a_cache_description(tmp_path: Path) -> None:
    with kept(tmp_path, "a") as folder:
        note_in(
            folder, KnownCache(folder.path, "\U0001f408" * 1000, "auto", 2**62, 2**62, 2**62), durable=True
        )
        assert os.path.getsize(f"{folder.path}/about") < 4096


def test_without_a_state_folder_none_is_known(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    note_cache(str(tmp_path / "state"), str(tmp_path))
    assert known_caches(str(tmp_path / "state")) == []
