"""A cache's folder: its disk use, and that dead processes leave nothing."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbdata.cache.folder import CacheFolder, cache_folders, room_of
from nbdata.errors import NbdataError
from nbdata.made_folders import MADE
from nbdata.runtime import state_folder
from nbdata.seals import Seals


def taken(folder: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in [folder, *folder.rglob("*")])


_NAMES = st.text("abé", min_size=1, max_size=80).filter(lambda name: len(name.encode()) <= 255)
_FILES = st.dictionaries(
    st.lists(_NAMES, min_size=1, max_size=4).map("/".join), st.integers(0, 20000), min_size=1, max_size=40
)


@settings(max_examples=30, deadline=None)
@given(_FILES)
def test_files_take_no_more_than_was_said_before(tmp_path_factory, files):
    files = {p: s for p, s in files.items() if not any(q.startswith(p + "/") for q in files)}
    folder = tmp_path_factory.mktemp("slot")
    for path, size in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(b"x" * size)
    block = os.statvfs(folder).f_frsize
    assert taken(folder) <= room_of(list(files.items()), block)


def test_a_closed_cache_leaves_nothing_and_other_caches_stay(tmp_path):
    with CacheFolder(str(tmp_path), 4096, Seals(state_folder())) as one:
        with CacheFolder(str(tmp_path), 4096, Seals(state_folder())) as other:
            os.makedirs(other.slot(0) + "/deep")
            assert dict(cache_folders(f"{tmp_path}/.nbdata")) == {one.path: True, other.path: True}
        assert dict(cache_folders(f"{tmp_path}/.nbdata")) == {one.path: True}
    assert not list(tmp_path.iterdir())


def test_caches_that_begin_while_others_end_find_their_folder(tmp_path):
    def often(_):
        for _ in range(300):
            with CacheFolder(str(tmp_path), 4096, Seals(state_folder())):
                pass

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(often, range(4)))
    assert not list(tmp_path.iterdir())


def test_the_files_of_a_new_cache_are_within_the_declared_overhead(tmp_path):
    with CacheFolder(str(tmp_path), 4096, Seals(state_folder())) as folder:
        assert taken(tmp_path / ".nbdata") <= folder.overhead


def test_the_next_cache_removes_that_of_a_killed_process(tmp_path):
    code = """
        import os, signal, sys
        from nbdata.cache.folder import CacheFolder
        from nbdata.runtime import state_folder
        from nbdata.seals import Seals
        with CacheFolder(sys.argv[1], 4096, Seals(state_folder())) as folder:
            os.mkdir(folder.slot(0))
            open(folder.slot(0) + "/x", "w").write("x")
            print("made", flush=True)
            signal.pause()
    """
    code = "\n".join(line[8:] for line in code.splitlines())
    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "made\n"
        with CacheFolder(
            str(tmp_path), 4096, Seals(state_folder())
        ) as own:  # its owner is alive, so it stays
            assert len(dict(cache_folders(f"{tmp_path}/.nbdata"))) == 2
        process.send_signal(signal.SIGKILL)
    ((path, alive),) = cache_folders(f"{tmp_path}/.nbdata")
    assert not alive
    with CacheFolder(str(tmp_path), 4096, Seals(state_folder())) as own:
        assert not os.path.exists(path)
        assert os.path.exists(own.path)
    assert not list(tmp_path.iterdir())


def test_a_file_in_its_place_is_named(tmp_path):
    (tmp_path / ".nbdata").write_text("mine")
    with (
        pytest.raises(NbdataError, match=r"\.nbdata"),
        CacheFolder(str(tmp_path), 4096, Seals(state_folder())),
    ):
        pass
    assert (tmp_path / ".nbdata").read_text() == "mine"


def test_a_folder_that_the_user_moved_and_linked_back_is_kept(tmp_path):
    mine = tmp_path / "mine"
    with CacheFolder(str(tmp_path / "cache"), 4096, Seals(state_folder())) as folder:
        os.mkdir(folder.slot(1))
        Path(folder.slot(1), "x").write_text("x")
        os.rename(folder.slot(1), mine)
        os.symlink(mine, folder.slot(1))
        os.makedirs(folder.slot(2) + "/deep")
        os.symlink(mine, folder.slot(2) + "/deep/link")
        folder.remove(1)
        folder.remove(2)
        assert os.listdir(folder.path) == [MADE]
    assert (mine / "x").read_text() == "x"


def test_files_that_the_user_deleted_are_no_error(tmp_path):
    with CacheFolder(str(tmp_path), 4096, Seals(state_folder())) as folder:
        folder.remove(5)
        os.makedirs(folder.slot(1) + "/a/b")
        folder.remove(1)
        assert not os.path.exists(folder.slot(1))
