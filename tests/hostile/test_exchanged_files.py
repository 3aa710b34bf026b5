"""Files that somebody exchanges before they get their names are not taken for those that were written."""

from __future__ import annotations

import gc
import io
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata import same_files
from nbdata.client.records import dumping
from nbdata.client.records.dumping import dump
from nbdata.client.records.writer import FileWriter
from nbdata.disk import PARTIAL
from nbdata.errors import AccessDenied, NbdataError, UnsafeMember
from nbdata.guarded_folders import TargetLost
from nbdata.same_files import same_file
from nbdata.stores.local import LocalStore
from nbdata.transfer.committer import Committer, PendingFile
from nbdata.writing.growing_file import GrowingFile, remove_left

pytestmark = pytest.mark.usefixtures("inline")

SIZES = {"small": 10, "whole": 1_000_000, "parts": 17 << 20}
EXCHANGED = "exchanged by somebody else"


def look_alike(path: str, dir_fd: int | None = None) -> None:
    """Move a file or a link aside, and put another one of the same size in its place."""
    found = os.lstat(path, dir_fd=dir_fd)
    os.rename(path, f"{path}.aside", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    if stat.S_ISLNK(found.st_mode):
        os.symlink("x" * found.st_size, path, dir_fd=dir_fd)
        return
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=dir_fd), "wb") as file:
        file.truncate(found.st_size)


@pytest.fixture
def exchange(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Returns a function that has the temporary of a path exchanged once, just before it gets its name."""
    real = Committer._commit_batch

    def begin(path: str) -> None:
        def exchanged(committer: Committer, batch: list[PendingFile]) -> None:
            for file in batch:
                if file.path == path:
                    look_alike(file.temporary)
                    monkeypatch.setattr(Committer, "_commit_batch", real)
            real(committer, batch)

        monkeypatch.setattr(Committer, "_commit_batch", exchanged)

    return begin


@pytest.fixture
def _exchanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let somebody exchange the first unfinished file, just before it gets its name."""
    real = os.replace

    def replace(old: Any, new: Any, **folders: Any) -> None:
        if str(old).endswith(PARTIAL):
            look_alike(old, folders.get("src_dir_fd"))
            monkeypatch.setattr(os, "replace", real)
        real(old, new, **folders)

    monkeypatch.setattr(os, "replace", replace)
    yield
    assert os.replace is real, "nothing was exchanged"


def content(root: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in root.iterdir() if path.is_file() and path.suffix != ".aside"
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.txt").write_bytes(os.urandom(10_000))
    return folder


@pytest.mark.parametrize("name", SIZES)
def test_a_pull_takes_no_other_file_for_the_one_that_it_fetched(
    tmp_path: Path, exchange: Callable[[str], None], name: str
) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    (source / name).write_bytes(os.urandom(SIZES[name]))
    exchange(name)
    with pytest.raises(nbdata.NbdataError, match=f"{EXCHANGED}.*{name}"):
        nbdata.pull(f"{source}/", out, quiet=True)
    if name == "parts":  # another job may have begun the file again, so that it is not whole
        assert not (out / name).exists()
        return
    report = nbdata.pull(f"{source}/", out, quiet=True)
    assert "unchanged" not in report.counts
    assert content(out) == content(source)


@pytest.mark.parametrize("name", ["small", "large", "symbolic", "hard"])
def test_an_extraction_takes_no_other_file_for_the_one_that_it_wrote(
    tmp_path: Path, exchange: Callable[[str], None], name: str
) -> None:
    tree, out = tmp_path / "tree", tmp_path / "out"
    tree.mkdir()
    (tree / "small").write_bytes(b"small")
    (tree / "large").write_bytes(os.urandom(2_000_000))
    (tree / "symbolic").symlink_to("small")
    (tree / "hard").hardlink_to(tree / "small")
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for each in ("small", "large", "symbolic", "hard"):
            tar.add(tree / each, each)
    exchange(name)
    with pytest.raises(nbdata.NbdataError, match=f"{EXCHANGED}.*{name}"):
        nbdata.untar_volumes(str(tmp_path / "x.tar"), out, quiet=True)
    report = nbdata.untar_volumes(str(tmp_path / "x.tar"), out, overwrite="always", quiet=True)
    assert report.ok
    assert content(out) == content(tree)
    assert os.readlink(out / "symbolic") == "small"
    assert os.path.samefile(out / "hard", out / "small")


def test_a_checksum_file_is_not_taken_for_another(source: Path, exchange: Callable[[str], None]) -> None:
    exchange("1.txt.md5")
    with pytest.raises(nbdata.NbdataError, match=EXCHANGED):
        nbdata.md5check(source, write="sidecars", quiet=True)


def test_a_new_file_that_got_the_inode_of_a_deleted_one_is_another(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    found = os.lstat(tmp_path / "x")
    assert same_file(found, os.lstat(tmp_path / "x"))
    for place in (stat.ST_UID, stat.ST_SIZE):
        assert not same_file(found, changed(found, place, found.st_mtime_ns))
    for place in (stat.ST_DEV, stat.ST_INO):
        assert not same_file(found, changed(found, place, found.st_mtime_ns + 1))


@pytest.mark.parametrize("place", [stat.ST_DEV, stat.ST_INO])
@pytest.mark.parametrize("anew", [True, False])
def test_a_file_that_the_disk_numbers_anew_is_known_by_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int, anew: bool
) -> None:
    monkeypatch.setattr(same_files, "_numbers_anew", lambda _: anew)
    (tmp_path / "x").write_bytes(b"x")
    found = os.lstat(tmp_path / "x")
    assert same_file(found, changed(found, place, found.st_mtime_ns)) == anew


def test_a_disk_numbers_files_anew_unless_it_is_known_not_to() -> None:
    assert not same_files._numbers_anew(os.stat("/dev/shm").st_dev)
    assert same_files._numbers_anew(os.stat("/proc").st_dev)
    assert same_files._numbers_anew(os.makedev(4000, 1))


def test_two_files_of_an_archive_that_are_alike_but_for_their_bytes_are_not_exchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who owns a folder can rename the temporaries of root in it, and an archive may give all files one time."""
    monkeypatch.setattr(same_files, "_numbers_anew", lambda _: False)
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for name in ("good", "evil"):
            member = tarfile.TarInfo(name)
            member.size, member.mtime = 4, 1_700_000_000
            tar.addfile(member, io.BytesIO(name.encode()))
    commit = Committer._commit_batch

    def exchanged(committer: Committer, batch: list[PendingFile]) -> None:
        one, other = (file.temporary for file in batch)
        os.rename(one, f"{one}x")
        os.rename(other, one)
        os.rename(f"{one}x", other)
        commit(committer, batch)

    monkeypatch.setattr(Committer, "_commit_batch", exchanged)
    with pytest.raises(nbdata.NbdataError, match=EXCHANGED):
        nbdata.untar_volumes(str(tmp_path / "x.tar"), tmp_path / "out", quiet=True)


def changed(found: os.stat_result, place: int, mtime_ns: int) -> os.stat_result:
    """Return a status with another value in one place, and with this time."""
    values = list(found)
    values[place] += 1
    return os.stat_result(values, {"st_mtime_ns": mtime_ns})


@pytest.mark.usefixtures("_exchanging")
def test_a_push_takes_no_other_file_for_the_one_that_it_wrote(tmp_path: Path, source: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(nbdata.NbdataError, match=EXCHANGED):
        nbdata.push(f"{source}/", f"{out}/", quiet=True)
    assert nbdata.push(f"{source}/", f"{out}/", overwrite="changed", quiet=True).counts["sent"] >= 1
    assert content(out) == content(source)


@pytest.mark.usefixtures("_exchanging")
@pytest.mark.parametrize(
    ("form", "name"), [("shards", "x-%03d.tar"), ("tar", "x.tar"), ("ffrecord", "x-%03d.ffr")]
)
def test_a_pack_takes_no_other_file_for_the_one_that_it_wrote(
    tmp_path: Path, source: Path, form: str, name: str
) -> None:
    made, right = tmp_path / "made", tmp_path / "right"
    with pytest.raises(nbdata.NbdataError, match=EXCHANGED):
        nbdata.pack(f"{source}/", f"{made}/{name}", format=form, quiet=True)
    nbdata.pack(f"{source}/", f"{made}/{name}", format=form, quiet=True)
    nbdata.pack(f"{source}/", f"{right}/{name}", format=form, quiet=True)
    assert content(made) == content(right)


@pytest.mark.usefixtures("_exchanging")
@pytest.mark.parametrize("n", [1, None])
def test_a_record_file_is_not_taken_for_another(tmp_path: Path, n: int | None) -> None:
    with pytest.raises(AccessDenied, match=EXCHANGED), FileWriter(tmp_path / "x.ffr", n) as writer:
        writer.write_one(b"sample")


@pytest.fixture
def named(tmp_path: Path) -> Path:
    """A folder that the user named, with another one in it, beside one that is nobody's business."""
    (tmp_path / "named/sub").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    return tmp_path / "named"


def lead_out(folder: Path) -> None:
    """Put a link out of the named folder in the place of a folder."""
    folder.rename(folder.with_name("moved"))
    folder.symlink_to("../secret")


def test_a_growing_file_follows_no_link_that_takes_the_place_of_its_folder(named: Path) -> None:
    secret, store, folder = named.with_name("secret"), LocalStore(named=str(named)), f"{named}/sub/"[1:]
    begun, ended = (GrowingFile(store, folder, name, lambda _: None) for name in ("begun", "ended"))
    for file in (begun, ended):
        file.write(b"bytes")
    ended.end()
    left = set(os.listdir(named / "sub"))
    lead_out(named / "sub")
    for name in left:
        (secret / name).write_text("theirs")
    for file in (begun, ended):
        with pytest.raises(UnsafeMember, match="a symbolic link leads out"):
            file.finish()
        file.give_up()
    with pytest.raises(UnsafeMember, match="a symbolic link leads out"):
        GrowingFile(store, folder, "begun", lambda _: None)
    with pytest.raises(UnsafeMember, match="a symbolic link leads out"):
        remove_left(store, folder, ["begun", "ended"].__getitem__, 2)
    assert set(content(secret).values()) == {b"theirs"}
    assert set(os.listdir(secret)) == left == set(os.listdir(named / "moved"))


def test_no_shard_is_written_to_where_a_link_leads_that_appears_after_the_first(
    tmp_path: Path, named: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "archives").mkdir()
    for name in ("sub", "other"):
        with tarfile.open(tmp_path / f"archives/{name}.tar", "w") as tar:
            for number in range(3):
                (tmp_path / f"{number}.bin").write_bytes(os.urandom(1 << 20))
                tar.add(tmp_path / f"{number}.bin", f"{number}.bin")
    real, begun = GrowingFile.__init__, list[str]()

    def begin(
        file: GrowingFile, store: LocalStore, folder: str, name: str, claim: Callable[[int], None]
    ) -> None:
        if folder.endswith("/sub/"):
            begun.append(name)
            if len(begun) == 2:
                lead_out(named / "sub")
        real(file, store, folder, name, claim)

    monkeypatch.setattr(GrowingFile, "__init__", begin)
    with pytest.raises(nbdata.NbdataError, match="a symbolic link leads out"):
        nbdata.untar_volumes(f"{tmp_path}/archives/", f"{named}/s-%06d.tar", shard_size=1 << 20, quiet=True)
    assert os.listdir(tmp_path / "secret") == []


@pytest.fixture
def umask() -> Iterator[Callable[[int], None]]:
    """Returns a function that sets the umask of this process until the end of the test."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize(
    ("mask", "there", "wanted"), [(0o077, 0o666, 0o600), (0o022, 0o600, 0o600), (0o022, 0o666, 0o644)]
)
def test_what_replaces_a_file_is_no_more_open_than_that_and_the_umask_allow(
    tmp_path: Path, source: Path, umask: Callable[[int], None], mask: int, there: int, wanted: int
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name in ("0.txt", "s-000.tar", "x.tar", "x.ffr", "r-000.ffr"):
        (out / name).write_text("planted")
        (out / name).chmod(there)
    umask(mask)
    nbdata.push(f"{source}/", f"{out}/", include="0.txt", overwrite="always", quiet=True)
    for form, name in (("shards", "s-%03d.tar"), ("tar", "x.tar"), ("ffrecord", "r-%03d.ffr")):
        nbdata.pack(f"{source}/", f"{out}/{name}", format=form, overwrite="always", quiet=True)
    with FileWriter(out / "x.ffr") as writer:
        writer.write_one(b"sample")
    for name in ("0.txt", "s-000.tar", "x.tar", "x.ffr", "r-000.ffr"):
        assert (out / name).read_bytes() != b"planted"
        assert (out / name).stat().st_mode & 0o777 == wanted, name


@pytest.mark.parametrize("n", [None, 1])
def test_a_writer_follows_no_folder_that_is_exchanged_meanwhile(tmp_path: Path, n: int | None) -> None:
    out, private = tmp_path / "out", tmp_path / "private"
    out.mkdir()
    private.mkdir()
    (private / "x.ffr").write_text("mine")
    gc.collect()  # what earlier tests have left has no descriptor that is closed meanwhile
    before = len(os.listdir("/proc/self/fd"))
    writer = FileWriter(out / "x.ffr", n)
    writer.write_one(b"sample")
    out.rename(tmp_path / "aside")
    out.symlink_to(private)
    with pytest.raises(TargetLost, match="exchanged"):
        writer.close()
    assert os.listdir(private) == ["x.ffr"]
    assert (private / "x.ffr").read_text() == "mine"
    assert os.listdir(tmp_path / "aside") == [], "nothing stays"
    del writer
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_writer_that_is_exchanged_in_the_last_moment_stays_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, private = tmp_path / "out", tmp_path / "private"
    out.mkdir()
    private.mkdir()
    (private / "x.ffr").write_text("mine")
    writer = FileWriter(out / "x.ffr")
    writer.write_one(b"sample")
    real = os.replace

    def replace(*args: Any, **named: Any) -> None:
        out.rename(tmp_path / "aside")
        out.symlink_to(private)
        real(*args, **named)

    monkeypatch.setattr(os, "replace", replace)
    writer.close()
    assert (private / "x.ffr").read_text() == "mine"
    assert os.listdir(tmp_path / "aside") == ["x.ffr"]


class _Exchanging:
    """Six samples. While the one of a number is read, `out` is exchanged for a link to `private`."""

    def __init__(self, out: Path, private: Path, number: int) -> None:
        self._out, self._private, self._number = out, private, number

    def __len__(self) -> int:
        return 6

    def __getitem__(self, number: int) -> bytes:
        if number == self._number:
            self._out.rename(self._out.with_name("aside"))
            self._out.symlink_to(self._private)
        return b"sample"


@pytest.mark.parametrize("number", range(6))
def test_a_dump_writes_and_deletes_nothing_in_a_folder_that_takes_the_place_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(dumping, "_MOST_PROCESSES", 1)
    out, private = tmp_path / "out", tmp_path / "private"
    private.mkdir()
    for part in range(3):
        (private / f"PART_{part:05d}.ffr").write_text("mine")
    with pytest.raises(NbdataError, match="exchanged"):
        dump(_Exchanging(out, private, number), out, nfiles=3)
    assert [path.read_text() for path in private.iterdir()] == ["mine"] * 3
    assert os.listdir(tmp_path / "aside") == [], "nothing stays"


def test_a_dump_that_fails_deletes_no_file_of_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dumping, "_MOST_PROCESSES", 1)
    first = tmp_path / "out/PART_00000.ffr"

    class Failing(list[bytes]):
        def __getitem__(self, number: Any) -> Any:
            if number == 1:
                (tmp_path / "other").write_text("of another dump")
                (tmp_path / "other").rename(first)
                raise ValueError("no sample")
            return b"sample"

    with pytest.raises(ValueError, match="no sample"):
        dump(Failing([b"", b"", b""]), tmp_path / "out", nfiles=3)
    assert os.listdir(tmp_path / "out") == [first.name]
    assert first.read_text() == "of another dump"
