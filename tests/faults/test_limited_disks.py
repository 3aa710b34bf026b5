"""Disks that refuse permissions, times, links, locks or syncs: every verb works there, and says once what it lacks."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata.errors import BadArchive, NbdataError, StoreUnavailable, TransferFailed
from nbdata.lock_files import INSTEAD, file_lock, held
from nbdata.optional_calls import CALLS, Watch, flock
from nbdata.runtime import runtime_folder
from nbdata.transfer.marks import Mark
from nbdata.transfer.staging import Staging
from tests.agent.rig import tmpfs
from tests.faults.limited_disk import CALLS as REFUSED
from tests.faults.limited_disk import limited_disk
from tests.hostile.scenes import VERBS, _Place, _source
from tests.hostile.users import ANNA, User, reachable
from tests.stores.folder_server import folder_server

__all__ = ["reachable", "run_all"]

pytestmark = [pytest.mark.needs("fuse"), pytest.mark.usefixtures("inline")]

_ALL = {call: errors[0] for call, errors in REFUSED.items()}
_OWNER = 54_321


@pytest.fixture
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a folder with the folder ``source``."""
    root = tmp_path_factory.mktemp("web")
    _source(root / "source")
    with folder_server(root) as server:
        yield server.url


def _members(path: Path) -> Path:
    """Make an archive with a program, a hard link to it, a symbolic link, and a private folder."""
    with tarfile.open(path, "w") as tar:
        file = tarfile.TarInfo("x/program")
        file.size, file.mode, file.mtime = 3, 0o755, 1_000
        tar.addfile(file, io.BytesIO(b"abc"))
        for name, kind, target in (
            ("x/same", tarfile.LNKTYPE, "x/program"),
            ("x/link", tarfile.SYMTYPE, "program"),
        ):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = kind, target
            tar.addfile(link)
        folder = tarfile.TarInfo("x/private")
        folder.type, folder.mode, folder.mtime = tarfile.DIRTYPE, 0o700, 5
        tar.addfile(folder)
    return path


def _unpacked(place: _Place) -> None:
    archive = str(_members(place.root / "l.tar"))
    nbdata.untar_volumes(archive, place.data, quiet=True)
    assert [(place.data / "x" / name).read_bytes() for name in ("program", "same", "link")] == [b"abc"] * 3
    assert nbdata.untar_volumes(archive, place.data, quiet=True).counts == {"unchanged": 3}


def _again(place: _Place) -> None:
    nbdata.pull(place.url, place.data, quiet=True)
    assert nbdata.pull(place.url, place.data, quiet=True).counts == {"unchanged": 3}


_ALL_VERBS: dict[str, Callable[[_Place], object]] = VERBS | {"links": _unpacked, "again": _again}


def run_all(disk: Path, web: str) -> None:
    """Run every verb in a folder of its own on a disk; fails with all that were not done."""
    failed = dict[str, str]()
    for verb, run in _ALL_VERBS.items():
        place = _Place(disk / verb, Path(), f"{web}source/")
        place.source = _source(disk / f"source of {verb}")
        try:
            run(place)
        except NbdataError as error:
            failed[verb] = str(error)
    assert failed == {}, failed


@pytest.mark.parametrize("call", REFUSED)
@pytest.mark.in_ci("link")
def test_every_verb_does_without_a_call(call: str, web: str) -> None:
    for error in REFUSED[call]:
        with limited_disk({call: error}) as disk:
            run_all(disk, web)


@pytest.mark.long
def test_every_verb_does_without_all_of_them_where_all_files_have_one_owner_and_mode(web: str) -> None:
    with limited_disk(_ALL, owner=_OWNER, mode=0o777) as disk:
        run_all(disk, web)


_AS_USER = (
    f"import sys; sys.path.append({str(Path(__file__).parents[2])!r}); "
    """
from pathlib import Path
from tests.faults.test_limited_disks import run_all
run_all(Path(sys.argv[1]), sys.argv[2])
"""
)


@pytest.mark.long
@pytest.mark.needs("other users")
@pytest.mark.usefixtures("reachable")
@pytest.mark.parametrize(
    "refused", [{}, {"chmod": "EPERM", "utimens": "EPERM"}], ids=["nothing refused", "refused"]
)
def test_so_it_does_for_a_user_on_a_disk_whose_files_are_all_of_root(
    refused: dict[str, str], web: str, tmp_path: Path
) -> None:
    user = User(ANNA, tmp_path / "anna").make()
    (tmp_path / "disk").mkdir()
    with limited_disk(refused, owner=0, mode=0o777, folder=tmp_path / "disk") as disk:
        user.python(_AS_USER, disk, web)


@pytest.mark.long
def test_so_it_does_if_nothing_can_be_synced_at_all(web: str) -> None:
    with limited_disk({"fsync": "EINVAL", "fsyncdir": "EINVAL"}) as disk:
        run_all(disk, web)


def test_a_report_says_once_what_the_disk_cannot_do(tmp_path: Path, web: str) -> None:
    archive = str(_members(tmp_path / "x.tar"))
    with limited_disk(_ALL) as disk:
        pulled = nbdata.pull(f"{web}source/", disk / "pulled", quiet=True)
        unpacked = nbdata.untar_volumes(archive, disk / "unpacked", quiet=True)
    told = {name: call.told for name, call in CALLS.items()}
    assert [note for note in pulled.notes if note in told.values()] == [told["permissions"], told["syncing"]]
    assert [note for note in unpacked.notes if note in told.values()] == [
        told[name] for name in ("permissions", "times", "syncing", "hard links")
    ]


def test_another_disk_s_refusals_are_not_told(tmp_path: Path, web: str) -> None:
    with limited_disk(_ALL) as disk:
        watch = Watch()
        nbdata.pull(f"{web}source/", disk / "pulled", quiet=True)
        assert watch.notes([str(tmp_path)]) == []
        assert watch.notes([str(disk), str(disk / "never made")]) != []
        assert Watch().notes([str(disk)]) == []  # nor earlier ones


@pytest.mark.parametrize("call", ["fsyncdir", "chmod"])
def test_a_disk_that_fails_is_an_error(call: str, web: str) -> None:
    with (
        limited_disk({call: "EIO"}) as disk,
        pytest.raises((StoreUnavailable, TransferFailed), match="the disk failed"),
    ):
        nbdata.pull(f"{web}source/", disk / "pulled", quiet=True)


def test_a_copy_in_place_of_a_hard_link_is_a_file_of_its_own(tmp_path: Path) -> None:
    archive = str(_members(tmp_path / "x.tar"))
    with limited_disk({"link": "EPERM"}) as disk:
        nbdata.untar_volumes(archive, disk / "t", quiet=True)
        program, same = (disk / "t/x" / name for name in ("program", "same"))
        assert (program.stat().st_nlink, same.stat().st_nlink) == (1, 1)
        assert stat.S_IMODE(same.stat().st_mode) == stat.S_IMODE(program.stat().st_mode)
        assert same.stat().st_mtime == program.stat().st_mtime == 1_000


@pytest.mark.in_ci(1)
@pytest.mark.parametrize("error", ["EPERM", "EMLINK"])  # of a disk without links; and for one name too many
def test_copies_in_place_of_hard_links_count_for_max_expansion(error: str, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        file = tarfile.TarInfo("program")
        file.size = 100_000
        tar.addfile(file, io.BytesIO(bytes(file.size)))
        for number in range(4):
            link = tarfile.TarInfo(f"same{number}")
            link.type, link.linkname = tarfile.LNKTYPE, "program"
            tar.addfile(link)
    with limited_disk({"link": error}) as disk:
        with pytest.raises(
            BadArchive, match=r"the archive expands to more than 300\.0 kB, with a copy for each"
        ):
            nbdata.untar_volumes(tmp_path / "x.tar", disk / "t", max_expansion="300kB", quiet=True)
        assert len(list((disk / "t").glob("same*"))) <= 2
        nbdata.untar_volumes(tmp_path / "x.tar", disk / "u", max_expansion="510kB", quiet=True)
        assert len(list((disk / "u").glob("same*"))) == 4


@pytest.mark.needs("mounts")
def test_a_copy_in_place_of_a_hard_link_is_whole_or_an_error(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        file = tarfile.TarInfo("program")
        file.size = 900_000
        tar.addfile(file, io.BytesIO(bytes(file.size)))
        link = tarfile.TarInfo("same")
        link.type, link.linkname = tarfile.LNKTYPE, "program"
        tar.addfile(link)
    (tmp_path / "disk").mkdir()
    with (
        tmpfs(tmp_path / "disk", size="1500k") as small,
        limited_disk({"link": "EPERM"}, folder=small) as disk,
    ):
        with pytest.raises(NbdataError, match=r"not enough space|became full"):
            nbdata.untar_volumes(tmp_path / "x.tar", disk / "t", ignore_space=True, quiet=True)
        assert not (disk / "t/same").exists()
        assert (disk / "t/program").stat().st_size == 900_000


def test_a_link_that_the_disk_cannot_make_is_named(tmp_path: Path) -> None:
    archive = str(_members(tmp_path / "x.tar"))
    with (
        limited_disk({"symlink": "EPERM"}) as disk,
        pytest.raises(TransferFailed, match="makes no symbolic links"),
    ):
        nbdata.untar_volumes(archive, disk / "t", quiet=True)


_HOLD = """
import sys
from nbdata.lock_files import file_lock
file_lock(sys.argv[1]).acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.in_ci(1)
@pytest.mark.parametrize("error", REFUSED["flock"])
def test_a_lock_keeps_processes_of_this_machine_out_all_the_same(error: str) -> None:
    with limited_disk({"flock": error}) as disk:
        path, before = str(disk / "lock"), _instead()
        with subprocess.Popen(
            [sys.executable, "-c", _HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            assert held(path)
            assert not file_lock(path).acquire(wait=False)
            (instead,) = _instead() - before
            holder.kill()
            holder.wait()
        assert not held(path)
        mine = file_lock(path)
        assert mine.acquire(wait=False)
        assert instead in _instead()
        mine.release()
        assert instead not in _instead()


def _instead() -> set[str]:
    """Return the names of the files that are locked in place of others, or were."""
    return {name for name in os.listdir(f"{runtime_folder()}/locks") if name.endswith(INSTEAD)}


def test_a_cache_in_use_on_a_disk_without_locks_is_not_cleaned_up(web: str) -> None:
    with (
        limited_disk({"flock": "ENOLCK"}) as disk,
        nbdata.samples(f"{web}source/", cache="2MB", cache_dir=str(disk)) as samples,
    ):
        before = list(samples)
        nbdata.cleanup(disk, all=True, quiet=True)
        assert list(disk.glob(".nbdata/kept-*/about")) != []
        assert list(samples) == before


def test_a_mark_is_kept_fresh_on_a_disk_without_times() -> None:
    with limited_disk({"utimens": "EPERM"}) as disk:
        (disk / ".nbdata").mkdir(mode=0o700)
        mark = Mark(Staging(str(disk / ".nbdata")), "a" * 12)
        path = disk / ".nbdata" / f"{'a' * 12}0"
        before, content = path.stat().st_mtime_ns, path.read_bytes()
        mark.remove_dead()
        assert path.stat().st_mtime_ns > before
        assert path.read_bytes() == content


def test_a_growing_file_on_a_disk_without_locks_is_left_alone_for_a_day() -> None:
    with limited_disk({"flock": "ENOLCK"}) as disk:
        path = disk / f".{'a' * 16}.nbdata-partial"
        path.write_bytes(b"grows")
        fd = os.open(path, os.O_RDWR)
        assert not flock(fd, wait=False)
        os.close(fd)
        for age, left in ((3_600, True), (90_000, False)):
            os.utime(path, (path.stat().st_mtime - age,) * 2)
            nbdata.cleanup(disk, quiet=True)
            assert path.exists() is left
