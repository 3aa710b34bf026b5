"""Links, folders and pipes in the place of nbdata's own files hold up no command, and no lock is left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import nbdata
from nbdata.cache.kept_folder import KeptFolder
from nbdata.client.converting.split_files import RECORD
from nbdata.errors import UnsafeMember
from nbdata.lock_files import file_lock, held
from nbdata.seals import Seals
from nbdata.transfer.marks import worker_elsewhere
from tests.client.converting.data import PLAIN, module

pytestmark = pytest.mark.usefixtures("inline")

OBJECT = "0" * 32
CACHES = ["kept-0123456789abcdef", "blocks-0123456789abcdef", "cache-0123456789abcdef"]
# More than a minute, after which a mark that nobody touches is that of a dead job.
LONG = 3600


def put(at: Path, kind: str, project: Path) -> None:
    """Put something else in the place of a file."""
    at.parent.mkdir(parents=True, exist_ok=True)
    if kind == "link":
        at.symlink_to(project / "thesis.tex")
    elif kind == "dangling link":
        at.symlink_to(project / "none")
    elif kind == "folder":
        at.mkdir()
    elif kind == "pipe":
        os.mkfifo(at)
    else:
        at.write_text(kind)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Somebody's folder, which must stay as it is."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "thesis.tex").write_text("thesis")
    return root


@pytest.mark.parametrize("kind", ["link", "dangling link", "folder", "pipe", "a file"])
@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("cache", CACHES)
def test_cleanup_removes_what_has_the_place_of_the_lock_of_a_cache(
    tmp_path: Path, project: Path, cache: str, beside: bool, kind: str
) -> None:
    own = tmp_path / "data/.nbdata"
    put(own / f"{cache}.lock", kind, project)
    if beside:
        (own / cache).mkdir()
        (own / cache / OBJECT).write_text("object")
    nbdata.cleanup(tmp_path / "data", all=True, quiet=True)
    assert not own.exists()
    assert [(p.name, p.read_text()) for p in project.iterdir()] == [("thesis.tex", "thesis")]


def test_cleanup_of_a_cache_without_a_lock_leaves_none(tmp_path: Path) -> None:
    """A cache that was copied from elsewhere may have none; cleanup makes one for itself."""
    own = tmp_path / "data/.nbdata"
    (own / CACHES[0]).mkdir(parents=True)
    (own / CACHES[0] / OBJECT).write_text("object")
    nbdata.cleanup(tmp_path / "data", all=True, quiet=True)
    assert not own.exists()


def test_a_lock_is_held_where_a_file_or_a_pipe_is_locked_and_nowhere_else(
    tmp_path: Path, project: Path
) -> None:
    for kind in ("a file", "pipe"):
        put(tmp_path / kind, kind, project)
        assert not held(str(tmp_path / kind))
        with file_lock(str(tmp_path / kind)):
            assert held(str(tmp_path / kind))
    for kind in ("link", "dangling link", "folder"):
        put(tmp_path / kind, kind, project)
        assert not held(str(tmp_path / kind))


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_a_stream_begins_beside_a_cache_that_cannot_be_locked(
    tmp_path: Path, project: Path, kind: str
) -> None:
    own = tmp_path / "data/.nbdata"
    (own / CACHES[1]).mkdir(parents=True)
    put(own / f"{CACHES[1]}.lock", kind, project)
    stream = nbdata.cache_stream(
        str(project), by="file", max_size="1MB", cache_dir=str(own.parent), quiet=True
    )
    with stream:
        assert [Path(path).read_text() for path, _ in stream] == ["thesis"]


@pytest.mark.parametrize("kind", ["pipe", "5", "[]", '{"a": 1}'])
def test_what_is_no_mark_of_a_job_holds_up_neither_pull_nor_cleanup(
    tmp_path: Path, project: Path, kind: str
) -> None:
    own = tmp_path / "data/.nbdata"
    for command in ("cleanup", "pull"):
        mark = own / "abcdefabcdef0"
        put(mark, kind, project)
        os.utime(mark, (LONG, LONG))
        assert worker_elsewhere(str(own)) is None
        if command == "cleanup":
            nbdata.cleanup(own.parent, quiet=True)
        else:
            nbdata.pull(f"{project}/", own.parent, quiet=True)
            assert (own.parent / "thesis.tex").read_text() == "thesis"
        assert not own.exists()


@pytest.mark.parametrize("record", ["boot", "sealed", "about"])
def test_a_pipe_in_the_place_of_a_record_of_a_kept_cache_is_an_empty_record(
    tmp_path: Path, project: Path, record: str
) -> None:
    kept = KeptFolder(str(tmp_path), "s3://bucket/x/", 4096, "boot", Seals(os.environ["NBDATA_STATE_DIR"]))
    put(Path(kept.path) / record, "pipe", project)
    with kept:
        assert list(kept.found()) == []
        Path(kept.part_of(OBJECT)).write_text("object")
        kept.land(OBJECT)
        kept.write_about("{}", durable=True)
    with kept:
        assert list(kept.found()) == [(OBJECT, len("object"), True)]


@pytest.mark.parametrize("record", ["boot", "sealed", "about"])
def test_a_folder_in_the_place_of_a_record_of_a_kept_cache_is_replaced(
    tmp_path: Path, project: Path, record: str
) -> None:
    kept = KeptFolder(str(tmp_path), "s3://bucket/x/", 4096, "boot", Seals(os.environ["NBDATA_STATE_DIR"]))
    put(Path(kept.path) / record / "inner", "folder", project)
    with kept:
        assert list(kept.found()) == []
        kept.write_about("{}", durable=True)
        assert (Path(kept.path) / record).is_file()


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_what_has_the_place_of_the_lock_of_a_kept_cache_is_named(
    tmp_path: Path, project: Path, kind: str
) -> None:
    kept = KeptFolder(str(tmp_path), "s3://bucket/x/", 4096, "boot", Seals(os.environ["NBDATA_STATE_DIR"]))
    put(Path(f"{kept.path}.lock"), kind, project)
    with pytest.raises(UnsafeMember, match="something else has the place of a file of nbdata"):
        kept.__enter__()


def test_a_pipe_in_the_place_of_the_record_of_an_unfinished_split_is_replaced(
    tmp_path: Path, project: Path
) -> None:
    out = tmp_path / "out"
    put(out / ".nbdata/converting/train" / RECORD, "pipe", project)
    operation = nbdata.Convert(str(module(tmp_path, PLAIN)), str(tmp_path / "in"), str(out))
    assert operation.run(quiet=True).counts == {"converted": 2}
    assert (out / "train" / RECORD).is_file()
    assert not (out / ".nbdata").exists()
