"""Names that are exchanged while a command runs, or between two commands, give nothing wrong a name or a record."""

from __future__ import annotations

import io
import itertools
import os
import shutil
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata import guarded_folders
from nbdata.archives.member import Member
from nbdata.client.converting import layout
from nbdata.client.converting.contract import Split
from nbdata.client.kept_lists import keep_list
from nbdata.engine.job.run import Run
from nbdata.engine.job.task import Task
from nbdata.engine.unpack import several_sets
from nbdata.engine.unpack.targets.folder.folders import ArchiveFolders
from nbdata.engine.unpack.targets.folder.hard_links import HardLinks
from nbdata.engine.upkeep import cleanup
from nbdata.guarded_folders import GuardedFolders, TargetLost
from nbdata.guarded_trees import Below
from nbdata.operation import Operation
from nbdata.report import Plan, Report, Snapshot
from nbdata.seals import Seals
from nbdata.stores.local import LocalStore
from nbdata.transfer import target_folder
from nbdata.transfer.committer import Committer, PendingFile
from nbdata.transfer.target_folder import TargetFolder
from nbdata.verbs.cleanup import Cleanup
from nbdata.verbs.pull import Pull
from nbdata.verbs.push import Push
from nbdata.writing.growing_file import GrowingFile
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.usefixtures("inline")


def swap(one: Path, other: Path) -> None:
    """Exchange the names of two folders, as nobody's time shows."""
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


@pytest.fixture
def alike(tmp_path: Path) -> Path:
    """Files that only their bytes and inodes tell apart: two folders with the same names, sizes and times."""
    tree = tmp_path / "tree"
    for folder in ("x", "y"):
        (tree / folder).mkdir(parents=True)
        for number in range(20):
            path = tree / folder / f"{number}"
            path.write_text(f"{folder} {number:02}")
            os.utime(path, (1_000_000_000, 1_000_000_000))
    return tree


def content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def _one_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all files have one ctime, as those that are made within a tick of the disk's clock."""
    real_stat, real_lstat, real_fstat = os.stat, os.lstat, os.fstat

    def shown(found: os.stat_result) -> os.stat_result:
        values = {name: getattr(found, name) for name in dir(found) if name.startswith("st_")}
        return os.stat_result(tuple(found), {**values, "st_ctime_ns": 1, "st_ctime": 1e-9})

    monkeypatch.setattr(os, "stat", lambda *a, **o: shown(real_stat(*a, **o)))
    monkeypatch.setattr(os, "lstat", lambda *a, **o: shown(real_lstat(*a, **o)))
    monkeypatch.setattr(os, "fstat", lambda *a, **o: shown(real_fstat(*a, **o)))


@pytest.mark.usefixtures("_one_tick")
def test_files_of_folders_that_have_exchanged_their_names_are_not_unchanged(
    tmp_path: Path, alike: Path
) -> None:
    with tarfile.open(tmp_path / "t.tar", "w") as tar:
        tar.add(alike, ".")
    out, pushed = tmp_path / "out", tmp_path / "pushed"
    nbdata.untar_volumes(str(tmp_path / "t.tar"), out, quiet=True)
    nbdata.push(f"{out}/", f"{pushed}/", quiet=True)
    swap(out / "x", out / "y")
    nbdata.push(f"{out}/", f"{pushed}/", overwrite="changed", quiet=True)
    assert content(pushed) == content(out)
    nbdata.untar_volumes(str(tmp_path / "t.tar"), out, quiet=True)
    assert content(out) == content(alike)


def test_a_pull_replaces_a_link_whatever_it_leads_to(tmp_path: Path, alike: Path) -> None:
    out = tmp_path / "out"
    nbdata.pull(f"{alike}/", out, quiet=True)
    (tmp_path / "theirs").write_bytes((alike / "x/3").read_bytes())
    for name in ("x/3", "x/4"):
        (out / name).unlink()
    (out / "x/3").symlink_to(tmp_path / "theirs")
    (out / "x/4").symlink_to(out / "x/5")
    report = nbdata.pull(f"{alike}/", out, quiet=True)
    assert isinstance(report, nbdata.Report)
    assert report.counts == {"overwritten (edited here)": 2, "unchanged": 38}
    assert content(out) == content(alike)
    assert not any(path.is_symlink() for path in out.rglob("*"))
    (out / "x/3").unlink()
    (out / "x/3").symlink_to(tmp_path / "theirs")
    report = nbdata.pull(f"{alike}/", out, overwrite="never", quiet=True)
    assert isinstance(report, nbdata.Report)
    assert (report.counts["skipped"], (out / "x/3").is_symlink()) == (40, True)


def test_a_folder_for_temporaries_that_is_exchanged_gives_no_foreign_bytes_a_name(tmp_path: Path) -> None:
    """As the owner of the folder above it can, also in a sticky one."""
    root, done = tmp_path / "out", list[PendingFile]()
    task = Task(Snapshot(id="t", verb="pull"))
    with Committer(str(root), task, umask=0o022, committed=done.extend) as committer:
        final, staging = committer.target.prepare("a")
        temporary, written = committer.target.written(staging, memoryview(b"right"), "a")
        own = Path(staging)
        own.rename(tmp_path / "aside")
        own.mkdir()
        for name in os.listdir(tmp_path / "aside"):
            (own / name).write_text("wrong")
        committer.commit(PendingFile("a", temporary, final, 5, written))
        committer.flush()
    (file,) = done
    assert file.error is not None or (root / "a").read_text() == "right"
    assert not (root / "a").exists() or (root / "a").read_text() == "right"


@pytest.mark.parametrize("kind", ["link", "pipe", "folder is a link"])
def test_nothing_but_the_temporary_itself_is_opened_to_sync_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Where root works in a folder of a user, that user could lead it to a device that does something when opened."""
    root, done = tmp_path / "out", list[PendingFile]()
    (tmp_path / "private").mkdir()
    opened, real = list[tuple[int, int]](), os.open

    def noted(path: Any, flags: int, *args: Any, **more: Any) -> int:
        fd = real(path, flags, *args, **more)
        opened.append((os.fstat(fd).st_dev, os.fstat(fd).st_ino))
        return fd

    task = Task(Snapshot(id="t", verb="pull"))
    with Committer(str(root), task, umask=0o022, committed=done.extend) as committer:
        final, staging = committer.target.prepare("a")
        temporary, written = committer.target.written(staging, memoryview(b"right"), "a")
        private = tmp_path / "private" / os.path.basename(temporary)
        private.write_text("device")
        if kind == "folder is a link":
            Path(staging).rename(tmp_path / "aside")
            Path(staging).symlink_to(tmp_path / "private")
            for name in os.listdir(tmp_path / "aside"):  # the mark of the job too
                (tmp_path / "private" / name).touch()
        else:
            os.unlink(temporary)
            os.mkfifo(temporary) if kind == "pipe" else os.symlink(private, temporary)
        monkeypatch.setattr(os, "open", noted)
        committer.commit(PendingFile("a", temporary, final, 5, written))
        committer.flush()
        monkeypatch.setattr(os, "open", real)
    assert (private.stat().st_dev, private.stat().st_ino) not in opened
    (file,) = done
    assert file.error is not None if kind != "folder is a link" else (root / "a").read_text() == "right"


@pytest.mark.parametrize("shards", ["", "shard-%06d.tar"])
def test_the_folder_of_an_archive_that_becomes_a_link_is_not_taken_as_named(
    tmp_path: Path, alike: Path, monkeypatch: pytest.MonkeyPatch, shards: str
) -> None:
    (tmp_path / "archives").mkdir()
    for name in ("x", "y"):
        with tarfile.open(tmp_path / f"archives/{name}.tar", "w") as tar:
            for file in (alike / name).iterdir():
                tar.add(file, f"{file.name}.txt")
    secret, out, real = tmp_path / "secret", tmp_path / "out", several_sets.unpack_set
    secret.mkdir()

    def after_the_plan(part: Run, planned: Plan, **more: list[str]) -> Report:
        if not (out / "y").is_symlink():
            out.mkdir(exist_ok=True)
            (out / "y").symlink_to(secret)
        return real(part, planned, **more)

    monkeypatch.setattr(several_sets, "unpack_set", after_the_plan)
    with pytest.raises(nbdata.NbdataError, match=r"y.*symbolic link leads out"):
        nbdata.untar_volumes(f"{tmp_path}/archives/", f"{out}/{shards}", quiet=True)
    assert os.listdir(secret) == []
    assert len(os.listdir(out / "x")) == (2 if shards else 20)


# -- the target itself, which the owner of the folder above it exchanges ----------------------------


class Exchange:
    """A target that is exchanged once for a link to a private folder with files of the same names."""

    def __init__(self, root: Path, tree: Path) -> None:
        self.target, self.private, self.aside = root / "target", root / "private", root / "aside"
        self.target.mkdir()
        shutil.copytree(tree, self.private)
        for path in self.private.rglob("*"):
            if path.is_file():
                path.write_bytes(b"mine")
        (self.private / ".nbdata/converting").mkdir(parents=True)  # as earlier jobs leave it
        for own in (self.private / ".nbdata", self.private / ".nbdata/converting"):
            own.chmod(0o700)
            (own / "file").write_text("mine")
        self.before = content(self.private)
        self.times = self._times()

    def _times(self) -> list[int]:
        return [path.stat().st_mtime_ns for path in (self.private, self.private / ".nbdata")]

    def make(self) -> None:
        if not self.target.is_symlink():
            self.target.rename(self.aside)
            self.target.symlink_to(self.private)

    def before_each(self, patched: pytest.MonkeyPatch, owner: object, name: str, *, calls: int = 1) -> None:
        """Exchange it before the call with that number."""
        real, counted = getattr(owner, name), itertools.count(1)

        def late(*given: Any, **named: Any) -> Any:
            if next(counted) == calls:
                self.make()
            return real(*given, **named)

        patched.setattr(owner, name, late)

    def refused(self) -> None:
        """Nothing in the private folder was changed, and nothing was put into it."""
        assert self.target.is_symlink(), "it was exchanged"
        assert content(self.private) == self.before
        assert self._times() == self.times


EXCHANGED = r"the folder was (exchanged|deleted) while this job worked in it"


@pytest.fixture
def exchange(tmp_path: Path, alike: Path) -> Exchange:
    return Exchange(tmp_path, alike)


@pytest.mark.parametrize("calls", [1, 3])
def test_no_push_follows_a_target_that_is_exchanged(
    alike: Path, exchange: Exchange, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    exchange.before_each(monkeypatch, LocalStore, "write", calls=calls)
    with pytest.raises(nbdata.NbdataError, match=EXCHANGED) as told:
        nbdata.push(f"{alike}/", f"{exchange.target}/", concurrency=1, quiet=True)
    assert not isinstance(told.value, nbdata.TransferFailed), "it ends with the first file"
    exchange.refused()


def test_no_deletion_of_a_push_follows_a_target_that_is_exchanged(
    tmp_path: Path, alike: Path, exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "less").mkdir()
    (tmp_path / "less/0").touch()
    shutil.copytree(alike / "x", exchange.target / "x")
    exchange.before_each(monkeypatch, LocalStore, "delete")
    with pytest.raises(nbdata.NbdataError, match=EXCHANGED):
        nbdata.push(f"{tmp_path}/less/", f"{exchange.target}/", delete=True, force=True, quiet=True)
    exchange.refused()


CALLS = [
    (Committer, "_give_name", 1),
    (Committer, "_give_name", 25),
    (TargetFolder, "enter", 1),
    (TargetFolder, "prepare", 1),
    (target_folder, "open_own_folder", 1),
]


@pytest.mark.parametrize(
    ("verb", "owner", "name", "calls"),
    [(verb, *call) for verb in ("pull", "untar") for call in CALLS]
    + [("untar", GuardedFolders, "set_time", 1)],
)
def test_no_file_of_a_pull_or_an_archive_follows_a_target_that_is_exchanged(
    tmp_path: Path, alike: Path, exchange: Exchange, monkeypatch: pytest.MonkeyPatch,
    verb: str, owner: object, name: str, calls: int,
) -> None:  # fmt: skip
    with tarfile.open(tmp_path / "t.tar", "w") as tar:
        tar.add(alike, ".")
    times = {path: path.stat().st_mtime_ns for path in exchange.private.iterdir()}
    exchange.before_each(monkeypatch, owner, name, calls=calls)
    work, source = {
        "pull": (nbdata.pull, f"{alike}/"),
        "untar": (nbdata.untar_volumes, f"{tmp_path}/t.tar"),
    }[verb]
    with pytest.raises(nbdata.NbdataError, match=EXCHANGED):
        work(source, exchange.target, quiet=True)
    exchange.refused()
    assert {path: path.stat().st_mtime_ns for path in exchange.private.iterdir() if path in times} == times


def test_no_deletion_of_a_pull_follows_a_target_that_is_exchanged(
    tmp_path: Path, alike: Path, exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbdata.pull(f"{alike}/", exchange.target, quiet=True)
    shutil.rmtree(alike / "y")
    exchange.before_each(monkeypatch, GuardedFolders, "unlink")
    with pytest.raises(nbdata.NbdataError, match=EXCHANGED):
        nbdata.pull(f"{alike}/", exchange.target, delete=True, force=True, quiet=True)
    exchange.refused()


@pytest.mark.parametrize(
    ("name", "options", "owner", "call"),
    [
        ("s-%06d.tar", {"by": "file"}, LocalStore, "write"),
        ("all.tar", {"format": "tar"}, GrowingFile, "finish"),
    ],
)
def test_no_shard_and_no_archive_follows_a_target_that_is_exchanged(
    alike: Path, exchange: Exchange, monkeypatch: pytest.MonkeyPatch,
    name: str, options: dict[str, Any], owner: object, call: str,
) -> None:  # fmt: skip
    exchange.before_each(monkeypatch, owner, call)
    with pytest.raises(nbdata.NbdataError, match=EXCHANGED):
        nbdata.pack(f"{alike}/", f"{exchange.target}/{name}", quiet=True, **options)
    exchange.refused()


@pytest.mark.parametrize("calls", ["begin", "finish"])
def test_no_split_of_a_conversion_follows_a_target_that_is_exchanged(
    tmp_path: Path, exchange: Exchange, monkeypatch: pytest.MonkeyPatch, calls: str
) -> None:
    names = GuardedFolders(str(exchange.target))
    names.hold()
    (exchange.private / "train").mkdir()
    (exchange.private / "train/thesis").write_text("mine")
    (exchange.target / "train").mkdir()
    (exchange.target / "train/PART_00000.ffr").touch()
    shutil.copytree(exchange.target / "train", exchange.private / "train", dirs_exist_ok=True)
    exchange.before, exchange.times = content(exchange.private), exchange._times()
    split = Split("train", [b"x"], 1, 1, bytes, "bytes")
    plan = layout.planned(split, str(exchange.target), 1 << 20, "always", Seals(str(tmp_path)), names)
    if calls == "finish":
        plan.begin()
    exchange.make()
    with pytest.raises((nbdata.NbdataError, OSError)):
        getattr(plan, calls)()
    exchange.refused()
    assert (exchange.aside / "train/PART_00000.ffr").exists()


def test_the_folder_of_unfinished_splits_must_lie_in_the_data_set(
    exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = GuardedFolders(str(exchange.target))
    names.hold()

    def opened(path: str) -> Below:
        """Open it while the data set is exchanged, for this moment only."""
        exchange.make()
        try:
            return Below(path)
        finally:
            exchange.target.unlink()
            exchange.aside.rename(exchange.target)

    monkeypatch.setattr(layout, "Below", opened)
    with (
        pytest.raises(nbdata.NbdataError, match=EXCHANGED),
        layout._opened(names, str(exchange.target), Seals(str(exchange.aside)), make=True),
    ):
        pass


def test_what_gets_the_name_of_a_split_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    target = tmp_path / "target"
    for planned in (False, True):
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        if planned:
            (target / "train").mkdir()
            (target / "train/PART_00000.ffr").touch()
        names = GuardedFolders(str(target))
        split = Split("train", [], 0, 0, bytes, "bytes")
        plan = layout.planned(split, str(target), 1 << 20, "always", Seals(str(tmp_path)), names)
        plan.begin()
        if planned:
            (target / "train").rename(target / "old")
        (target / "train").mkdir()
        (target / "train/thesis").write_text("mine")
        with (
            layout._opened(names, str(target), Seals(str(tmp_path))) as (below, above),
            pytest.raises(nbdata.NbdataError, match="something else got the name of a split"),
        ):
            plan._swap(below, above)
        assert (target / "train/thesis").read_text() == "mine"


# -- modes ------------------------------------------------------------------------------------------


def test_the_mode_of_a_new_folder_is_set_through_no_link(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir(mode=0o700)
    (tmp_path / "out").mkdir()

    def mkdir(name: str, above: int | None, path: str) -> None:
        os.mkdir(name, dir_fd=above)
        if name == "sub":
            os.rename(path, tmp_path / "aside")
            os.symlink(secret, path)

    folders = GuardedFolders(str(tmp_path / "out"), umask=0o022, mkdir=mkdir)
    with pytest.raises((OSError, nbdata.NbdataError)):
        folders.open_to_write(str(tmp_path / "out/sub/deep"))
    assert secret.stat().st_mode & 0o777 == 0o700
    assert os.listdir(secret) == []


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    """Returns a function that sets the umask of this process until the end of the test."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize("above", ["", "/sub"])
def test_a_private_folder_that_gets_the_name_of_a_new_one_is_not_opened_further(
    tmp_path: Path, above: str
) -> None:
    """As the owner of the folder above it can, also in a sticky one."""
    (tmp_path / "out").mkdir()
    private, root = tmp_path / "out/private", tmp_path / f"out{above}"
    private.mkdir(mode=0o700)
    (private / "diary").touch(0o644)

    def mkdir(name: str, above: int | None, path: str) -> None:
        os.mkdir(name, dir_fd=above)
        if path.endswith("/sub"):
            swap(Path(path), private)

    folders = GuardedFolders(str(root), umask=0o022, mkdir=mkdir)
    os.close(folders.open_to_write(str(tmp_path / "out/sub/deep")))
    assert (tmp_path / "out/sub").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "out/sub/diary").exists()


@pytest.mark.parametrize("process", [0o002, 0o077])
def test_new_folders_keep_the_group_of_the_folder_around_them(
    tmp_path: Path, umask: Callable[[int], int], process: int
) -> None:
    """As those that mkdir makes; the agent has another umask than the user."""
    out = tmp_path / "out"
    out.mkdir()
    out.chmod(0o2775)
    umask(process)
    os.close(GuardedFolders(str(out), umask=0o002).open_to_write(f"{out}/sub/deep"))
    assert {(out / name).stat().st_mode & 0o7777 for name in ("sub", "sub/deep")} == {0o2775}


def test_a_pull_keeps_the_group_of_the_folder_around_new_ones(
    tmp_path: Path, alike: Path, umask: Callable[[int], int]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    out.chmod(0o2775)
    umask(0o002)
    nbdata.pull(f"{alike}/", out, quiet=True)
    assert {(out / name).stat().st_mode & 0o7777 for name in "xy"} == {0o2775}


def test_a_folder_has_its_mode_before_another_thread_writes_in_it(
    tmp_path: Path, umask: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would get none once something is in it."""
    umask(0o077)
    waits, threads = threading.Event(), list[threading.Thread]()
    real_mode, real_wait = guarded_folders._set_mode, guarded_folders._wait_for

    def make(path: str) -> None:
        os.close(GuardedFolders(str(tmp_path / "out"), umask=0o022).open_to_write(f"{tmp_path}/out/{path}"))

    def set_mode(name: str, above: int | None, mode: int) -> None:
        if name == "sub":
            threads.append(threading.Thread(target=make, args=("sub/deep",)))
            threads[0].start()
            wait_until(lambda: waits.is_set() or not threads[0].is_alive())
        real_mode(name, above, mode)

    def wait_for(path: str) -> None:
        if threads and path.endswith("/sub"):
            waits.set()
        real_wait(path)

    monkeypatch.setattr(guarded_folders, "_set_mode", set_mode)
    monkeypatch.setattr(guarded_folders, "_wait_for", wait_for)
    make("sub")
    threads[0].join(PATIENCE)
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in ("out", "out/sub", "out/sub/deep")} == {
        0o755
    }


def test_a_file_that_is_replaced_is_not_opened_further(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    for name, size in (("small", 10), ("whole", 1_000_000), ("parts", 17 << 20)):
        (tmp_path / "source" / name).write_bytes(os.urandom(size))
    nbdata.md5check(tmp_path / "source", write=True, quiet=True)
    out = tmp_path / "out"
    nbdata.pull(f"{tmp_path / 'source'}/", out, quiet=True)
    for name in ("small", "whole", "parts"):
        assert (out / name).stat().st_mode & 0o777 == 0o644
        (out / name).write_bytes(b"spoilt")
        (out / name).chmod(0o600)
    nbdata.md5check(out, repair=f"{tmp_path / 'source'}/", quiet=True)
    assert content(out) == content(tmp_path / "source")
    assert {(out / name).stat().st_mode & 0o777 for name in ("small", "whole", "parts")} == {0o600}
    (out / "small").write_bytes(b"planted")
    (out / "small").chmod(0o666)
    nbdata.md5check(out, repair=f"{tmp_path / 'source'}/", quiet=True)
    assert (out / "small").stat().st_mode & 0o777 == 0o644, "nor does it stay open"


# -- unpacking --------------------------------------------------------------------------------------


def packed(at: Path, *members: tuple[str, bytes, str]) -> str:
    """Write an archive of members with a name, a type, and what a link leads to or a file holds."""
    with tarfile.open(at, "w") as tar:
        for name, kind, said in members:
            member = tarfile.TarInfo(name)
            member.type, member.mtime, member.mode = kind, 1_000, 0o755
            if kind == tarfile.REGTYPE:
                member.size = len(said)
            else:
                member.linkname = said
            tar.addfile(member, io.BytesIO(said.encode()))
    return str(at)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A folder of this user that no archive may reach."""
    (tmp_path / "secret/b").mkdir(parents=True)
    (tmp_path / "secret/file").write_text("diary")
    os.utime(tmp_path / "secret/b", (5_000, 5_000))
    return tmp_path / "secret"


def put_in_place(at: Path, secret: Path) -> None:
    """Put a link into the place of a folder of the target."""
    at.rename(at.parent.with_name("aside"))
    at.symlink_to(secret)


@pytest.mark.parametrize("exchanged", ["folder before", "folder", "file"])
def test_a_hard_link_is_made_only_to_the_file_that_was_looked_at(
    tmp_path: Path, secret: Path, monkeypatch: pytest.MonkeyPatch, exchanged: str
) -> None:
    out = tmp_path / "out"
    source = packed(
        tmp_path / "t.tar",
        ("a/file", tarfile.REGTYPE, "abc"),
        ("x/l", tarfile.LNKTYPE, "a/file"),
        ("y/m", tarfile.LNKTYPE, "a/file"),
    )
    real_link, real_make = os.link, HardLinks.make

    def link(name: str, new: str, **more: Any) -> None:
        if exchanged == "folder" and not (out / "a").is_symlink():
            put_in_place(out / "a", secret)
        elif exchanged == "file":
            os.replace(secret / "file", out / "a/file")
        real_link(name, new, **more)

    def make(links: HardLinks, member: Member, temporary: str) -> None:
        if exchanged == "folder before":
            put_in_place(out / "a", secret)
        real_make(links, member, temporary)

    monkeypatch.setattr(os, "link", link)
    monkeypatch.setattr(HardLinks, "make", make)
    with pytest.raises(nbdata.NbdataError):
        nbdata.untar_volumes(source, out, quiet=True)
    held = [path.read_text() for path in (out / "x").glob("*")]
    assert held == (["abc"] if exchanged == "folder" else [])
    assert all(path.stat().st_nlink == 1 for path in secret.rglob("file"))


def test_no_time_is_set_and_no_folder_removed_through_a_link(
    tmp_path: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    source = packed(tmp_path / "t.tar", ("a", tarfile.DIRTYPE, ""), ("a/b", tarfile.DIRTYPE, ""))
    real_time, real_rmdir = GuardedFolders.set_time, GuardedFolders.rmdir

    def set_time(folders: GuardedFolders, path: str, mtime_ns: int) -> None:
        if not (out / "a").is_symlink():
            put_in_place(out / "a", secret)
        real_time(folders, path, mtime_ns)

    def rmdir(folders: GuardedFolders, path: str) -> None:
        if path.endswith("/b"):
            put_in_place(out / "a", secret)
        real_rmdir(folders, path)

    monkeypatch.setattr(GuardedFolders, "set_time", set_time)
    nbdata.untar_volumes(source, out, quiet=True)
    assert (secret.joinpath("b").stat().st_mtime, (out / "a").lstat().st_mtime > 1_000) == (5_000, True)
    monkeypatch.setattr(GuardedFolders, "rmdir", rmdir)
    (out / "a").unlink()
    (tmp_path / "aside").rename(tmp_path / "first")
    monkeypatch.setattr(ArchiveFolders, "sync", _fails)
    with pytest.raises(nbdata.NbdataError):
        nbdata.untar_volumes(source, out, overwrite="always", quiet=True)
    assert ((out / "a").is_symlink(), (secret / "b").is_dir()) == (True, True)


def _fails(*_: object) -> None:
    raise nbdata.NbdataError("no room")


def test_a_further_hard_link_is_made_only_to_the_recorded_file(
    tmp_path: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first link has changed the ctime of the file, which then tells nothing."""
    out, real = tmp_path / "out", HardLinks.make
    links = [(name, tarfile.LNKTYPE, "a/file") for name in ("x/l", "y/m")]
    source = packed(tmp_path / "t.tar", ("a/file", tarfile.REGTYPE, "abc"), *links)

    def make(links: HardLinks, member: Member, temporary: str) -> os.stat_result:
        if member.name == "y/m":
            os.replace(secret / "file", out / "a/file")
        return real(links, member, temporary)

    monkeypatch.setattr(HardLinks, "make", make)
    with pytest.raises(nbdata.NbdataError, match="differs from the archive"):
        nbdata.untar_volumes(source, out, quiet=True)
    assert (out / "x/l").read_text() == "abc"
    assert not (out / "y/m").exists()
    assert (out / "a/file").stat().st_nlink == 1


# -- the working folder, by a relative name --


@pytest.fixture
def working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, beside a folder with two files to pull."""
    (tmp_path / "source").mkdir()
    for name in ("a", "b"):
        (tmp_path / "source" / name).write_text("new")
    for name in ("working", "private"):
        (tmp_path / name / "sub").mkdir(parents=True)
        for file in ("a", "sub/a"):
            (tmp_path / name / file).write_text("precious")
    monkeypatch.chdir(tmp_path / "working")
    return tmp_path / "working"


def lead_elsewhere(working: Path) -> dict[str, bytes]:
    """Let the name of the working folder lead to a private one, and return the content of that."""
    working.rename(working.with_name("aside"))
    working.symlink_to(working.with_name("private"))
    return content(working)


@pytest.mark.parametrize("target", [".", "./", "sub", "new/x"])
@pytest.mark.parametrize("by", ["a link", "a folder"])
def test_a_relative_target_is_in_the_working_folder_whatever_has_its_name(
    working: Path, target: str, by: str
) -> None:
    """Who owns the folder above can rename the working folder at any time; its files are meant, not its name."""
    pull = Pull(f"{working.with_name('source')}/", target)
    before = lead_elsewhere(working)
    if by == "a folder":
        working.unlink()
        working.with_name("private").rename(working)
    with pytest.raises(TargetLost, match="exchanged") as lost:
        pull.run(quiet=True)
    assert lost.value.path == str(working)
    assert content(working) == before


def test_a_relative_target_is_opened_from_the_working_folder(
    working: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is exchanged right after the job has compared it."""
    real = guarded_folders._identity
    exchanged = list[dict[str, bytes]]()

    def identity(fd: int) -> tuple[int, int]:
        found = real(fd)
        if not exchanged and os.path.samestat(os.fstat(fd), os.stat(".")):
            exchanged.append(lead_elsewhere(working))
        return found

    pull = Pull(f"{working.with_name('source')}/", "sub")
    monkeypatch.setattr(guarded_folders, "_identity", identity)
    with pytest.raises(TargetLost, match="exchanged"):
        pull.run(quiet=True)
    assert [content(working)] == exchanged


def test_a_list_from_a_pipe_leaves_the_target_in_the_working_folder(working: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"a\n")
    os.close(writing)
    pull = Pull(f"{working.with_name('source')}/", ".", files_from=f"/dev/fd/{reading}")
    before = lead_elsewhere(working)
    kept = keep_list(pull)
    os.close(reading)
    with pytest.raises(TargetLost, match="exchanged"):
        kept.run(quiet=True)
    assert content(working) == before


@pytest.mark.parametrize("verb", [Push, Cleanup])
def test_a_relative_source_is_in_the_working_folder(working: Path, verb: type[Operation]) -> None:
    """Its files are deleted: by --delete-source, or as what nbdata left."""
    (working / ".nbdata/0123456789abc").mkdir(parents=True, mode=0o700)
    (working.with_name("private") / ".nbdata/0123456789abc").mkdir(parents=True, mode=0o700)
    if verb is Push:
        operation: Operation = Push("./", f"{working.with_name('out')}/", delete_source=True)
    else:
        operation = Cleanup(".")
    before = lead_elsewhere(working)
    with pytest.raises(TargetLost, match="exchanged"):
        operation.run(quiet=True)
    assert content(working) == before
    assert (working / ".nbdata/0123456789abc").exists()


def test_a_working_folder_that_nobody_renamed_is_written_in(working: Path) -> None:
    source = f"{working.with_name('source')}/"
    assert nbdata.pull(source, ".", quiet=True).counts["fetched"] == 2
    assert nbdata.pull(source, "new/x", quiet=True).counts["fetched"] == 2
    assert nbdata.push("a", f"{working.with_name('out')}/", quiet=True).counts["sent"] == 1
    assert (working / "a").read_text() == (working / "new/x/b").read_text() == "new"


@pytest.mark.parametrize("step", ["__init__", "_below"])
def test_cleanup_of_a_folder_that_was_exchanged_since_it_looked_removes_nothing(
    tmp_path: Path, inline: None, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    part = Path(".nbdata/0123456789abc")
    for name in ("named", "private"):
        (tmp_path / name / part).mkdir(parents=True, mode=0o700)
    real = getattr(cleanup._Cleaning, step)

    def exchanged(self: Any, *args: Any) -> None:
        (tmp_path / "named").rename(tmp_path / "away")
        (tmp_path / "named").symlink_to(tmp_path / "private")
        real(self, *args)

    monkeypatch.setattr(cleanup._Cleaning, step, exchanged)
    with pytest.raises(TargetLost, match="exchanged"):
        nbdata.cleanup(tmp_path / "named", quiet=True)
    assert (tmp_path / "private" / part).exists()
