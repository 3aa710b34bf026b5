"""The check for what a test leaves names each thing, and each test file has folders of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from nbdata.runtime import runtime_folder, state_folder
from tests import leftovers
from tests.announcement import announced
from tests.isolation import SESSION, Folders
from tests.waiting import wait_until

NOTHING = "sys.stdin.read()"


@contextmanager
def left_thread() -> Iterator[str]:
    over = threading.Event()
    thread = threading.Thread(target=over.wait, name="forgotten", daemon=True)
    thread.start()
    yield "thread forgotten"
    over.set()
    thread.join()


@contextmanager
def left_process() -> Iterator[str]:
    with subprocess.Popen([sys.executable, "-c", f"import sys; {NOTHING}"], stdin=subprocess.PIPE):
        yield NOTHING


@contextmanager
def left_file() -> Iterator[str]:
    with tempfile.NamedTemporaryFile(prefix="forgotten-"):
        yield "/forgotten-"


@contextmanager
def left_variable() -> Iterator[str]:
    os.environ["FORGOTTEN"] = "1"
    yield "the changed variable FORGOTTEN"
    del os.environ["FORGOTTEN"]


@contextmanager
def left_folder() -> Iterator[str]:
    before = Path.cwd()
    os.chdir("/")
    yield "another working folder: /"
    os.chdir(before)


@contextmanager
def left_descriptors() -> Iterator[str]:
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(leftovers.DESCRIPTORS + 1)]
    yield f"{len(opened)} descriptors: {os.devnull}"
    for one in opened:
        os.close(one)


@contextmanager
def left_mount() -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir=os.environ["HOME"]) as folder:
        subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
        yield f"mount {folder}"
        subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize(
    "leave",
    [
        left_thread,
        left_process,
        left_file,
        left_variable,
        left_folder,
        left_descriptors,
        pytest.param(left_mount, marks=pytest.mark.needs("mounts")),
    ],
)
def test_what_a_test_leaves_is_named(leave: Callable[[], AbstractContextManager[str]]) -> None:
    before = leftovers.look()
    with leave() as named:
        # A process has no command line for a moment after it was started.
        wait_until(
            lambda: any(named in line for line in leftovers._left(before)),
            why=lambda: leftovers._left(before),
        )
    assert leftovers._left(before) == []


def test_a_file_of_tests_has_its_own_folders(own_folders: Folders) -> None:
    assert own_folders.root.parent == SESSION.root
    assert runtime_folder() == str(own_folders.runtime)
    assert state_folder() == str(own_folders.state)
    assert Path.home() == own_folders.home
    assert tempfile.gettempdir() == str(own_folders.temporary)


def test_a_process_that_runs_in_the_folders_of_a_file_is_found(own_folders: Folders) -> None:
    with subprocess.Popen([sys.executable, "-c", f"import sys; {NOTHING}"], stdin=subprocess.PIPE) as process:
        wait_until(lambda: NOTHING in own_folders.processes().get(process.pid, ""))
    assert process.pid not in own_folders.processes()


def test_a_run_says_how_long_it_takes_where_a_table_tells_it(tmp_path: Path) -> None:
    ids = ["tests/engine/test_a.py::one", "tests/engine/test_b.py::two", "tests/test_c.py::three"]
    assert announced(ids, 4, tmp_path / "none")[0] == "tests: 3 in 3 files, by 4 processes"
    (tmp_path / "table").write_text('{"tests/engine": 1200, "tests/other": 9999}')
    assert announced(ids, 4, tmp_path / "table")[0] == "tests: 3 in 3 files, by 4 processes; about 6 min"
    (tmp_path / "table").write_text('{"tests/engine": 1200, "tests/engine/unpack": 2400}')
    of_package = ["tests/engine/unpack/test_a.py::one", "tests/engine/unpack/deeper/test_b.py::two"]
    assert (
        announced(of_package, 1, tmp_path / "table")[0] == "tests: 2 in 2 files, by 1 process; about 40 min"
    )
