"""Links that somebody left in the place of nbdata's own folders lead nowhere: what they point to stays as it is."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata.cache.kept_folder import KeptFolder
from nbdata.errors import NbdataError, UnsafeMember
from nbdata.guarded_trees import _DEEPEST, Below
from nbdata.own_files import own_folder, read_small, remove
from nbdata.seals import Seals
from nbdata.transfer.locks import TargetLock
from tests.client.converting.data import PLAIN, module

pytestmark = pytest.mark.usefixtures("inline")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Somebody's folder, which must stay as it is."""
    root = tmp_path / "project"
    (root / "train/ffrdata").mkdir(parents=True)
    for name in (
        "thesis.tex",
        "train/notes",
        "train/ffrdata/PART_00009.ffr",
        "train/ffrdata/x.nbdata-partial",
    ):
        (root / name).write_text(name)
    return root


def content(root: Path) -> dict[str, str]:
    return {str(p.relative_to(root)): p.read_text() for p in root.rglob("*") if p.is_file()}


def linked(at: Path, to: Path) -> Path:
    """Put a link there, and make the folders above it."""
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to(to)
    return at


# -- cleanup ----------------------------------------------------------------------------------------

PLACES = [
    ".nbdata",
    ".nbdata/converting",
    ".nbdata/converting/train",
    ".nbdata/converting/train/ffrdata",
    ".nbdata/kept-0123456789abcdef",
    ".nbdata/cache-0123456789abcdef",
    ".nbdata/cache-0123456789abcdef/0",
    ".nbdata/sets",
    ".nbdata/sets/x",
]


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_cleanup_removes_a_link_and_nothing_that_it_points_to(
    tmp_path: Path, project: Path, place: str, everything: bool
) -> None:
    before, data = content(project), tmp_path / "data"
    link = linked(data / place, project)
    nbdata.cleanup(data, all=everything, quiet=True)
    assert content(project) == before
    assert link.is_symlink() == (".nbdata/sets" in place or place == ".nbdata"), "only own entries go"


def test_cleanup_of_a_cache_refuses_one_that_is_reached_by_a_link(tmp_path: Path) -> None:
    cache = tmp_path / "theirs/.nbdata/kept-0123456789abcdef"
    cache.mkdir(parents=True)
    (cache / "about").write_text("theirs")
    linked(tmp_path / "data/.nbdata", cache.parent)
    with pytest.raises(nbdata.BadOption, match="a link to another folder"):
        nbdata.cleanup(tmp_path / "data/.nbdata/kept-0123456789abcdef", all=True, quiet=True)
    assert content(cache) == {"about": "theirs"}


def test_a_cache_in_a_folder_that_is_a_link_itself_is_cleaned_up(tmp_path: Path) -> None:
    cache = tmp_path / "disk/.nbdata/kept-0123456789abcdef"
    cache.mkdir(parents=True)
    (cache / "about").write_text("mine")
    linked(tmp_path / "data", tmp_path / "disk")
    nbdata.cleanup(tmp_path / "data/.nbdata/kept-0123456789abcdef", all=True, quiet=True)
    assert not cache.exists()


# -- convert ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [".nbdata", ".nbdata/converting", ".nbdata/converting/train"])
@pytest.mark.parametrize("only_plan", [False, True])
@pytest.mark.in_ci("True-*", 1)
def test_convert_refuses_a_link_in_the_place_of_its_own_folder(
    tmp_path: Path, project: Path, place: str, only_plan: bool
) -> None:
    before = content(project)
    link = linked(tmp_path / "out" / place, project)
    operation = nbdata.Convert(str(module(tmp_path, PLAIN)), str(tmp_path / "in"), str(tmp_path / "out"))
    with pytest.raises(UnsafeMember, match="a link has the place of a folder of nbdata") as refused:
        operation.plan() if only_plan else operation.run(quiet=True)
    assert refused.value.path == str(link)
    assert content(project) == before
    link.unlink()
    report = operation.run(quiet=True)
    assert report.counts == {"converted": 2}


def test_convert_writes_and_removes_nothing_through_a_link_below_an_unfinished_split(
    tmp_path: Path, project: Path
) -> None:
    """The records beside the link are those of an earlier run, so its parts would be kept."""
    out = tmp_path / "out"
    text = PLAIN + "\nclass Late(Numbers):\n    def get_meta(self):\n        raise RuntimeError('not yet')\n"
    text = text.replace("Numbers(50)", "Late(50)")
    # The functions are looked up late, so the class may follow them.
    operation = nbdata.Convert(str(module(tmp_path, text)), str(tmp_path / "in"), str(out))
    with pytest.raises(NbdataError, match="not yet"):
        operation.run(quiet=True)
    parts = out / ".nbdata/converting/train/ffrdata"
    for part in parts.iterdir():
        (project / "train/ffrdata" / part.name).write_bytes(part.read_bytes())
        part.unlink()
    parts.rmdir()
    linked(parts, project / "train/ffrdata")
    before = sorted(os.listdir(project / "train/ffrdata"))
    with pytest.raises(UnsafeMember, match="a link has the place"):
        operation.run(quiet=True)
    assert sorted(os.listdir(project / "train/ffrdata")) == before


# -- kept caches ------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [".nbdata", "cache"])
def test_a_kept_cache_refuses_a_link_in_the_place_of_its_folder(
    tmp_path: Path, project: Path, which: str
) -> None:
    before, parent = content(project), tmp_path / "disk"
    kept = KeptFolder(str(parent), "s3://bucket/x/", 4096, "boot", Seals(os.environ["NBDATA_STATE_DIR"]))
    link = linked(parent / ".nbdata" if which == ".nbdata" else Path(kept.path), project)
    with pytest.raises(UnsafeMember, match="a link has the place of a folder of nbdata"), kept:
        list(kept.found())
    assert content(project) == before
    assert not kept.in_use, "its lock is free again"
    link.unlink()
    with kept:
        assert list(kept.found()) == []


@pytest.mark.parametrize("kind", ["pipe", "hard link", "folder"])
def test_what_has_the_place_of_a_new_record_of_a_cache_is_replaced(
    tmp_path: Path, project: Path, kind: str
) -> None:
    """Root would wait for ever, or empty another file, where a user put it into a cache of theirs."""
    precious = tmp_path / "precious"
    precious.write_text("precious")
    with KeptFolder(str(tmp_path / "disk"), "s3://b/", 4096, "boot", Seals(str(tmp_path / "state"))) as kept:
        assert list(kept.found()) == []
        for name in ("about.part", "sealed.part"):
            at = Path(kept.path, name)
            if kind == "pipe":
                os.mkfifo(at)
            elif kind == "folder":
                at.mkdir()
            else:
                at.hardlink_to(precious)
        kept.write_about("about", durable=True)
        kept._write_anew({}, {}, set())
        assert Path(kept.path, "about").read_text() == "about\n"
    assert precious.read_text() == "precious"


def test_a_link_in_a_kept_cache_is_no_object_of_it(tmp_path: Path, project: Path) -> None:
    with KeptFolder(
        str(tmp_path), "s3://bucket/x/", 4096, "boot", Seals(os.environ["NBDATA_STATE_DIR"])
    ) as kept:
        list(kept.found())
        link = linked(Path(kept.file_of("0" * 32)), project / "thesis.tex")
    with kept:
        assert list(kept.found()) == []
    assert not link.is_symlink()
    assert (project / "thesis.tex").read_text() == "thesis.tex"


# -- the guard itself -------------------------------------------------------------------------------


def test_a_folder_that_the_user_named_may_be_a_link(tmp_path: Path, project: Path) -> None:
    link = linked(tmp_path / "data", project)
    assert own_folder(str(link), "converting", "x") == f"{link}/.nbdata/converting/x"


def test_a_file_in_the_place_of_an_own_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".nbdata").write_text("")
    with pytest.raises(UnsafeMember, match="a file has the place of a folder of nbdata"):
        own_folder(str(tmp_path), "converting")


# -- records ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["link", "link to zeros", "pipe", "folder", "too large", "sparse", "missing", "below a file"]
)
def test_only_a_small_regular_file_is_a_record(tmp_path: Path, kind: str) -> None:
    record = tmp_path / "record"
    (tmp_path / "a record").write_text("{}")
    if kind == "link":
        record.symlink_to(tmp_path / "a record")
    elif kind == "link to zeros":
        record.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(record)
    elif kind == "folder":
        record.mkdir()
    elif kind == "too large":
        record.write_bytes(bytes(101))
    elif kind == "sparse":
        record.touch()
        os.truncate(record, 1 << 40)
    elif kind == "below a file":
        record = tmp_path / "a record/x"
    with pytest.raises(FileNotFoundError):
        read_small(str(record), 100)
    assert read_small(str(tmp_path / "a record"), 2) == b"{}"


DEEP = """
import os, resource, sys
from nbdata.guarded_trees import Below
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
with Below(os.path.dirname(sys.argv[1])) as below:
    below.remove(os.path.basename(sys.argv[1]))
"""


def deep(at: Path, levels: int) -> int:
    """Make a folder this many levels deep, with a file in each, and return a descriptor of the last one."""
    at.mkdir()
    fd = os.open(at, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("sub", dir_fd=fd)
        os.close(os.open("file", os.O_CREAT, dir_fd=fd))
        inner = os.open("sub", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    return fd


def remove_tree(path: Path) -> None:
    with Below(str(path.parent)) as below:
        below.remove(path.name)


@pytest.mark.in_ci(1)
@pytest.mark.parametrize("levels", [10, 100, 3000])
def test_a_folder_of_any_depth_is_removed_with_few_descriptors(
    tmp_path: Path, project: Path, levels: int
) -> None:
    before, place = content(project), tmp_path / "own"
    last = deep(place, levels)
    os.symlink(project, "link", dir_fd=last)
    os.close(last)
    done = subprocess.run(
        [sys.executable, "-c", DEEP, str(place)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not place.exists()
    assert content(project) == before


def test_what_stays_in_a_deep_folder_is_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last = deep(tmp_path / "own", 200)
    os.close(os.open("kept", os.O_CREAT, dir_fd=last))
    os.close(last)
    unlink = os.unlink

    def refuse(path: str, *, dir_fd: int | None = None) -> None:
        if path == "kept":
            raise PermissionError(errno.EPERM, "not allowed", path)
        unlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(PermissionError, match="not allowed"):
        remove_tree(tmp_path / "own")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["kept"]


def test_an_empty_folder_that_cannot_be_moved_up_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "may not be written")

    monkeypatch.setattr(os, "rename", refuse)
    os.close(deep(tmp_path / "own", _DEEPEST))
    remove_tree(tmp_path / "own")
    os.close(deep(tmp_path / "own", _DEEPEST + 1))
    with pytest.raises(PermissionError, match="may not be written"):
        remove_tree(tmp_path / "own")


@pytest.mark.parametrize("kind", ["link", "file", "folder", "empty folder", "nothing"])
def test_what_has_the_place_of_an_own_file_is_removed_itself_but_no_folder_with_anything_in_it(
    tmp_path: Path, project: Path, kind: str
) -> None:
    before, place = content(project), tmp_path / "own"
    if kind == "link":
        place.symlink_to(project)
    elif kind == "file":
        place.write_text("x")
    elif kind == "folder":
        (place / "deep/er").mkdir(parents=True)
        (place / "deep/link").symlink_to(project)
        with pytest.raises(UnsafeMember, match="something else has the place of a file of nbdata"):
            remove(str(place))
        assert (place / "deep/er").is_dir()
        return
    elif kind == "empty folder":
        place.mkdir()
    remove(str(place))
    assert not os.path.lexists(place)
    assert content(project) == before


# -- what others may write in -----------------------------------------------------------------------


def test_an_own_folder_that_others_may_write_in_is_not_used(tmp_path: Path) -> None:
    """As one that came in an archive: whoever else knows of it could exchange what is in it."""
    (tmp_path / ".nbdata").mkdir()
    (tmp_path / ".nbdata").chmod(0o777)
    assert own_folder(str(tmp_path)) == f"{tmp_path}/.nbdata-{os.geteuid()}"


@pytest.mark.parametrize(
    ("around", "inner", "refused"), [(0o755, 0o777, True), (0o755, 0o755, False), (0o700, 0o777, False)]
)
def test_a_folder_below_that_others_may_write_in_is_refused_where_they_reach_it(
    tmp_path: Path, around: int, inner: int, refused: bool
) -> None:
    (tmp_path / ".nbdata/converting").mkdir(parents=True)
    (tmp_path / ".nbdata/converting").chmod(inner)
    (tmp_path / ".nbdata").chmod(around)
    if refused:
        with pytest.raises(UnsafeMember, match="others may write in a folder of nbdata"):
            own_folder(str(tmp_path), "converting")
    else:
        assert own_folder(str(tmp_path), "converting") == f"{tmp_path}/.nbdata/converting"


@pytest.mark.parametrize("place", ["mini", "mini/conv"])
def test_small_splits_are_not_made_through_a_link(tmp_path: Path, project: Path, place: str) -> None:
    before = content(project)
    linked(tmp_path / "sets" / place, project)
    operation = nbdata.Convert(
        str(module(tmp_path, PLAIN)), str(tmp_path / "in"), str(tmp_path / "sets/conv"), mini=5
    )
    with pytest.raises(UnsafeMember, match="a link has the place of the folder for small splits") as told:
        operation.run(quiet=True)
    assert told.value.path == str(tmp_path / "sets" / place)
    assert content(project) == before


def test_cleanup_follows_no_link_that_is_made_meanwhile(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / ".nbdata/converting/train").mkdir(parents=True)
    (project / ".nbdata/converting/train/x").write_text("x")
    before, data = content(project), tmp_path / "data"
    (data / "sub/.nbdata/converting/train").mkdir(parents=True)
    (data / "sub/.nbdata/converting/train/x").write_text("x")
    real = TargetLock.acquire

    def acquire(self: TargetLock, **options: bool) -> str | None:
        if not (data / "sub").is_symlink():
            (data / "sub").rename(data / "aside")
            (data / "sub").symlink_to(project)
        return real(self, **options)

    monkeypatch.setattr(TargetLock, "acquire", acquire)
    nbdata.cleanup(data, all=True, quiet=True)
    assert content(project) == before


# -- mounts -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def mounted(at: Path, what: Path | None) -> Iterator[None]:
    """Mount a folder there, of the same file system, or one in memory."""
    at.mkdir(parents=True)
    words = ["-t", "tmpfs", "none"] if what is None else ["--bind", str(what)]
    subprocess.run(["mount", *words, str(at)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


@pytest.mark.needs("mounts")
@pytest.mark.parametrize("bind", [True, False], ids=["the same disk", "another disk"])
@pytest.mark.parametrize(
    "place", ["cache-0123456789abcdef", "kept-0123456789abcdef/0", "converting/train/ffrdata"]
)
def test_cleanup_keeps_and_names_what_is_mounted_below_an_own_folder(
    tmp_path: Path, project: Path, place: str, bind: bool
) -> None:
    at = tmp_path / "data/.nbdata" / place
    with mounted(at, project if bind else None):
        (at / "precious").write_text("precious")
        report = nbdata.cleanup(tmp_path / "data", all=True, quiet=True)
        assert isinstance(report, nbdata.Report)
        assert (at / "precious").read_text() == "precious"
        kept = {row.path: row.detail.get("reason") for row in report.rows if row.action == "kept"}
        assert kept == {f".nbdata/{place}": "a file system is mounted there"}


@pytest.mark.needs("mounts")
@pytest.mark.parametrize("bind", [True, False], ids=["the same disk", "another disk"])
def test_cleanup_does_not_enter_an_own_folder_on_which_a_disk_is_mounted(
    tmp_path: Path, project: Path, bind: bool
) -> None:
    project.chmod(0o700)
    at = tmp_path / "data/.nbdata"
    with mounted(at, project if bind else None):
        at.chmod(0o700)
        (at / "cache-0123456789abcdef").mkdir()
        (at / "cache-0123456789abcdef/precious").write_text("precious")
        report = nbdata.cleanup(tmp_path / "data", all=True, quiet=True)
        assert isinstance(report, nbdata.Report)
        assert (at / "cache-0123456789abcdef/precious").read_text() == "precious"
        kept = {row.path: row.detail.get("reason") for row in report.rows if row.action == "kept"}
        assert kept == {".nbdata": "a file system is mounted there"}


@pytest.mark.needs("mounts")
@pytest.mark.parametrize("bind", [True, False], ids=["the same disk", "another disk"])
def test_what_deletes_trees_enters_nothing_mounted(tmp_path: Path, project: Path, bind: bool) -> None:
    at = tmp_path / "own/.nbdata/tree/mounted"
    with mounted(at, project if bind else None):
        (at / "precious").write_text("precious")
        with Below(str(tmp_path / "own")) as below:
            for path in (".nbdata/tree", ".nbdata/tree/mounted"):
                with pytest.raises(OSError, match="mounted there"):
                    below.remove(path)
            with pytest.raises(OSError, match="mounted there"):
                below.unlink(".nbdata/tree/mounted/precious")
        assert (at / "precious").read_text() == "precious"
