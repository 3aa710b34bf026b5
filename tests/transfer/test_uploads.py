"""The record of unfinished uploads."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from nbdata.transfer import uploads
from nbdata.transfer.uploads import forget, remember, remembered


def test_an_upload_is_remembered_until_it_is_forgotten(tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    assert remembered(state) == {}
    remember(state, "s3://b/x", "x/1", "id1")
    remember(state, "s3://b/x/", "x/2", "id2")
    assert {begun.id: begun.key for begun in remembered(state).values()} == {"id1": "x/1", "id2": "x/2"}
    forget(state, "id1")
    assert list(remembered(state)) == ["id2"]


def test_two_uploads_of_one_object_are_two(tmp_path: Path) -> None:
    state = str(tmp_path)
    remember(state, "p", "x", "of a process that was killed")
    remember(state, "p", "x", "of the same line, said again")
    forget(state, "of the same line, said again")
    assert list(remembered(state)) == ["of a process that was killed"]


def test_neither_the_place_nor_what_others_may_read_is_kept(tmp_path: Path) -> None:
    remember(str(tmp_path), "https://user:secret@host/x", "x", "id")
    assert b"secret" not in (tmp_path / "uploads.log").read_bytes()
    assert os.stat(tmp_path / "uploads.log").st_mode & 0o077 == 0


@pytest.mark.parametrize("damage", [b"torn", b"00000000 [1]\n", b"\n", b"\xff\n", b'[1, "a", "b", "c"]\n'])
def test_damaged_lines_are_passed_over(tmp_path: Path, damage: bytes) -> None:
    state = str(tmp_path)
    remember(state, "p", "1", "id1")
    with open(tmp_path / "uploads.log", "ab") as file:
        file.write(damage)
    remember(state, "p", "2", "id2")
    assert list(remembered(state)) == ["id1", "id2"]


def test_a_file_that_has_grown_keeps_what_is_unfinished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "_LARGE", 2_000)
    state = str(tmp_path)
    remember(state, "p", "first", "id")
    for n in range(100):
        remember(state, "p", str(n), f"id{n}")
        forget(state, f"id{n}")
    assert list(remembered(state)) == ["id"]
    assert os.path.getsize(tmp_path / "uploads.log") < 3_000


def _begin(state: str, name: str) -> None:
    for n in range(20):
        remember(state, "p", f"{name}{n}", f"{name}{n}")


def test_processes_may_write_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "_LARGE", 1_000)
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_begin, args=(str(tmp_path), name)) for name in "abc"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert len(remembered(str(tmp_path))) == 60


def test_the_name_of_the_notes_is_on_the_disk_before_a_part_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file may exist already, made for an intention that was not synced."""
    state, synced = str(tmp_path / "state"), list[str]()
    uploads.intend(state, "s3://b/x", "x/1")
    monkeypatch.setattr(uploads, "sync_folder", synced.append)
    remember(state, "s3://b/x", "x/1", "id1")
    assert synced == [state]


def test_a_note_that_the_disk_takes_in_pieces_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the last block is full: the beginning is taken, and only the next write says that the disk is full."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:20]))
    remember(str(tmp_path), "s3://b/x", "x/1", "id1")
    assert list(remembered(str(tmp_path))) == ["id1"]
