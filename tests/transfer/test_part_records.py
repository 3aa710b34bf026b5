"""Records of an object's finished parts are true after a kill, and after a machine failure."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbdata.seals import Seals
from nbdata.stores.base import ObjectInfo
from nbdata.transfer import part_records, partials
from nbdata.transfer.part_records import PART, Begun, PartRecord
from nbdata.transfer.partials import Partial
from nbdata.transfer.staging import Staging

INFO = ObjectInfo("k", 3 * PART + 100, etag='"v1"')


def seals() -> Seals:
    return Seals(os.environ["NBDATA_STATE_DIR"])


def opened(folder: Path, info: ObjectInfo = INFO, source: str = "s3://b/") -> Partial:
    return Partial(Staging(str(folder)), "k", source, info, seals())


def record(folder: Path) -> Path:
    return next(folder.glob("*.parts"))


def test_whole_parts_and_what_is_there_of_others_is_found_again(tmp_path: Path) -> None:
    parts = opened(tmp_path)
    parts.mark(1)
    parts.note(0, 5 << 20)
    parts.note(0, 9 << 20)
    parts.note(3, 100)
    parts.close()
    again = opened(tmp_path)
    assert (again.done, again.begun, again.missing()) == ({1}, {0: 9 << 20, 3: 100}, [0, 2, 3])
    assert again.present() == PART + (9 << 20) + 100
    assert Begun(Staging(str(tmp_path))).present("k", "s3://b/", INFO) == again.present()
    assert again.contiguous() == 0
    again.close()


def test_the_names_of_a_partial_are_durable_before_its_first_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = list[set[str]]()
    sync = Staging.sync

    def noted(folder: Staging) -> None:
        sync(folder)
        synced.append({path.name for path in tmp_path.iterdir()})

    monkeypatch.setattr(Staging, "sync", noted)
    opened(tmp_path).close()
    assert synced == [{path.name for path in tmp_path.iterdir()}]
    opened(tmp_path).close()  # they are there
    assert len(synced) == 1


def test_what_was_not_synced_is_forgotten_with_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = opened(tmp_path)
    parts.mark(1)
    parts.note(0, 5 << 20)
    parts.close()
    for module in (part_records, partials):
        monkeypatch.setattr(module, "boot", lambda: "another boot")
    assert Begun(Staging(str(tmp_path))).present("k", "s3://b/", INFO) == PART
    again = opened(tmp_path)
    assert (again.done, again.begun) == ({1}, {})
    again.close()


@pytest.mark.parametrize(
    ("info", "source"),
    [
        (ObjectInfo("k", INFO.size, etag='"v2"'), "s3://b/"),
        (ObjectInfo("k", INFO.size + 1, etag='"v1"'), "s3://b/"),
        (ObjectInfo("k", INFO.size, etag='W/"v1"'), "s3://b/"),
        (INFO, "s3://other/"),
    ],
    ids=["another version", "another size", "nothing that tells versions apart", "another source"],
)
def test_a_record_of_another_version_or_source_is_not_continued(
    tmp_path: Path, info: ObjectInfo, source: str
) -> None:
    parts = opened(tmp_path)
    parts.mark(1)
    parts.close()
    assert Begun(Staging(str(tmp_path))).present("k", source, info) == 0
    again = opened(tmp_path, info, source)
    assert again.restarted == (source == "s3://b/"), "of another source it is not said that this one changed"
    assert again.present() == 0
    again.close()


def test_a_torn_line_and_all_behind_it_say_nothing(tmp_path: Path) -> None:
    parts = opened(tmp_path)
    parts.mark(0)
    parts.mark(1)
    parts.mark(2)
    parts.close()
    lines = record(tmp_path).read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b" 1", b" 2")  # flipped bits
    record(tmp_path).write_bytes(b"".join(lines))
    again = opened(tmp_path)
    assert again.done == {0}
    again.mark(3)
    again.close()
    assert PartRecord(Staging(str(tmp_path)), record(tmp_path).name).done == {0, 3}


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.integers(0, 3),
            st.tuples(st.integers(0, 3), st.integers(1, PART)),
            st.just("restart"),
        ),
        max_size=8,
    ),
    cut=st.integers(0, 400),
)
def test_however_a_record_is_cut_it_claims_nothing_that_was_not_there(
    steps: list[object], cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every prefix of the file was true when it was the whole file."""
    folder = tmp_path_factory.mktemp("cut")
    parts = opened(folder)
    after: list[tuple[int, set[int], dict[int, int]]] = [(os.path.getsize(record(folder)), set(), {})]
    done, begun = set[int](), dict[int, int]()
    for step in steps:
        if isinstance(step, int):
            parts.mark(step)
            done.add(step)
        elif isinstance(step, tuple):
            parts.note(*step)
            begun[step[0]] = step[1]
        else:
            parts.restart()
            done, begun, after = set(), {}, after[:1]
        after.append((os.path.getsize(record(folder)), set(done), dict(begun)))
    parts.close()
    data = record(folder).read_bytes()
    kept = max(0, len(data) - cut)
    record(folder).write_bytes(data[:kept])
    expected = next(((d, b) for size, d, b in reversed(after) if size <= kept), (set(), {}))
    found = PartRecord(Staging(str(folder)), record(folder).name)
    assert (found.done, found.begun) == expected


def test_what_is_kept_of_an_object_in_one_piece_never_speaks_of_other_bytes(tmp_path: Path) -> None:
    small = ObjectInfo("k", 1000, etag='"v1"')
    old = opened(tmp_path, ObjectInfo("k", 1000, etag='"v0"'))
    os.pwrite(old.fd, b"old" * 300, 0)
    old.note(0, 900)
    old.close()
    (tmp_path / "temporary").write_bytes(b"new" * 200)
    assert Partial.keep(Staging(str(tmp_path)), "k", "s3://b/", small, "temporary", 600, seals())
    again = opened(tmp_path, small)
    assert again.begun == {0: 600}
    assert os.pread(again.fd, 600, 0) == b"new" * 200
    again.discard()
    assert list(tmp_path.iterdir()) == []


def test_an_object_that_nothing_tells_apart_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "temporary").write_bytes(b"x" * 500)
    unknown = ObjectInfo("k", 1000)
    assert not Partial.keep(Staging(str(tmp_path)), "k", "s3://b/", unknown, "temporary", 500, seals())
    assert [p.name for p in tmp_path.iterdir()] == ["temporary"]


def test_a_part_file_that_another_job_may_still_write_is_never_reused(tmp_path: Path) -> None:
    """A job that was taken for dead may be alive and have the file open."""
    old = opened(tmp_path, ObjectInfo("k", INFO.size, etag='"v0"'))
    new = opened(tmp_path)
    os.pwrite(old.fd, b"old", 0)
    assert os.pread(new.fd, 3, 0) == bytes(3)
    old.close()
    new.discard()


def test_a_record_without_its_bytes_says_nothing(tmp_path: Path) -> None:
    """The file was renamed or removed, and a kill left the record."""
    parts = opened(tmp_path)
    for number in range(4):
        parts.mark(number)
    parts.close()
    os.unlink(parts.data)
    again = opened(tmp_path)
    assert again.present() == 0
    again.close()
    assert PartRecord(Staging(str(tmp_path)), record(tmp_path).name).done == set()


def test_a_note_that_was_written_in_half_hides_nothing_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, write = opened(tmp_path), os.pwrite

    def full(fd: int, data: bytes, at: int) -> int:
        if len(data) > 10:
            return write(fd, data[:10], at)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    parts.note(0, 5 << 20)
    monkeypatch.setattr(os, "pwrite", write)
    parts.mark(2)
    parts.close()
    assert opened(tmp_path).done == {2}


def test_what_was_noted_can_be_taken_back(tmp_path: Path) -> None:
    parts = opened(tmp_path)
    parts.note(1, 8 << 20)
    parts.note(1, 0)
    parts.close()
    assert opened(tmp_path).present() == 0


@pytest.mark.parametrize("mode", [0o666, 0o620, 0o644, 0o600])
def test_a_file_that_others_may_write_is_not_continued(tmp_path: Path, mode: int) -> None:
    parts = opened(tmp_path)
    parts.mark(1)
    parts.close()
    os.chmod(parts.data, mode)
    with open(parts.data, "rb") as theirs:  # so that no other file gets its inode
        again = opened(tmp_path)
        same = os.path.samestat(os.fstat(theirs.fileno()), os.stat(again.data))
        assert same == bool(again.present()) == (not mode & 0o022)
        again.close()


def test_a_hole_in_the_place_of_a_record_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive brings any number of such files, and each pull reads the records of its folder."""
    with open(tmp_path / "0.parts", "wb") as file:
        file.truncate(part_records._MOST)
    lines: list[int] = []
    monkeypatch.setattr(part_records, "value_of", lambda line: lines.append(len(line)))
    assert PartRecord(Staging(str(tmp_path)), "0.parts").header is None
    assert lines == [part_records._LONGEST]
