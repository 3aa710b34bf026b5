"""Gives each test file its own folders and its own agent, and fails a file that leaves something in them.

A test asserts only over state that its file made: the runtime folder (locks, ledger, agents), the state folder
(history, records of uploads), the home folder and the folder of temporary files are new for each file. Agents start
when they are needed; they end with the file.

Servers that all files share (fixtures of the scope ``session``) start in the folders of the session, because they
outlive the file that first needs them.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from nbdata.client import hosts
from nbdata.client.agents import stop_all
from nbdata.client.inline import inline_host
from nbdata.reading import fetcher
from nbdata.space import holders
from tests.waiting import PATIENCE, wait_until

__all__ = ["SESSION", "Folders", "isolate", "nothing_left_behind", "own_folders"]

# Variables of the user that could lead a test to the user's stores, settings or programs.
_OUTSIDE = (
    *("AWS_", "OBS_", "NBDATA_", "FSSPEC_", "S3_", "GOOGLE_", "AZURE_", "STORAGE_EMULATOR_HOST"),
    *("XDG_", "IPYTHONDIR", "JUPYTER_", "JPY_"),
)
# Variables that are meant for the tests, not for nbdata.
_TOLD = (
    "NBDATA_CI",
    "NBDATA_TESTED",
    "NBDATA_FUZZ",
    "NBDATA_SCREENSHOTS",
    "NBDATA_PAGES",
    "NBDATA_FAILING_JOBS",
)


class Folders:
    """The folders of one test file or of the session. Their paths are short, because socket paths are limited."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runtime, self.state = root / "run", root / "state"
        self.home, self.temporary = root / "home", root / "tmp"

    def make(self) -> None:
        """Make the folders that programs expect to exist."""
        for folder in (self.root, self.home, self.temporary):
            folder.mkdir(mode=0o700, exist_ok=True)

    def environment(self) -> dict[str, str]:
        """Return the variables that lead programs to these folders."""
        return {
            "NBDATA_RUNTIME_DIR": str(self.runtime),
            "NBDATA_STATE_DIR": str(self.state),
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
        }

    def processes(self) -> dict[int, str]:
        """Return the running processes that were started with one of these folders: command lines by id."""
        mark, found = f"={self.root}/".encode(), {}
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (process / "environ").read_bytes():
                    command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found[int(process.name)] = command.strip()
        return found


#: The folders of this session; those of its files lie in them. `isolate` makes them, so not a process that only imports
#: this module.
#: What the notebooks make beside them. Its seal is of the state folder of one session, so each needs a new one.
DEMO = Path(__file__).parents[1] / "notebooks" / "demo-data"
SESSION = Folders(Path(f"/tmp/nbt-{secrets.token_hex(4)}"))
_numbers = itertools.count(1)


def isolate() -> None:
    """Lead this process and its children away from the user's settings, into the folders of the session."""
    home = Path.home()
    for name in list(os.environ):
        if name not in _TOLD and (name.startswith(_OUTSIDE) or name.lower().endswith("_proxy")):
            del os.environ[name]
    # Without its cache of bytecode each agent, kernel and server would compile all of its libraries: a second of CPU.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    SESSION.make()
    os.environ |= _caches(home)
    os.environ["NBDATA_AGENT_IDLE"] = "60"
    # The thread of a data set that is gone ends after this time, and a test ends after its threads.
    fetcher._IDLE = 1.0
    # SeaweedFS, a program in Go, otherwise grows to 900 MB, once for each worker of pytest-xdist.
    os.environ |= {"GOGC": "50", "GOMEMLIMIT": "400MiB"}
    _keep_memory_small()
    # A closed `Gate` holds a response body for as long as a test needs, and servers on a busy machine respond late.
    os.environ["NBDATA_STALL_TIMEOUT"] = str(10 * PATIENCE)
    os.environ["AWS_CONFIG_FILE"] = f"{SESSION.root}/no-config"
    os.environ["AWS_SHARED_CREDENTIALS_FILE"] = f"{SESSION.root}/no-credentials"
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    # PyTorch makes one folder per user when it first compiles.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{SESSION.root}/inductor"
    _enter(SESSION.environment())


def _caches(home: Path) -> dict[str, str]:
    """Return variables that keep the user's caches of programs: making them anew for each file takes seconds."""
    caches = {
        "MPLCONFIGDIR": home / ".cache/matplotlib",
        "PLAYWRIGHT_BROWSERS_PATH": home / ".cache/ms-playwright",
        "GOCACHE": home / ".cache/go-build",
        "GOPATH": home / "go",
    }
    return {name: str(path) for name, path in caches.items() if name not in os.environ and path.exists()}


# Of mallopt(3).
_M_ARENA_MAX = -8


def _libc() -> ctypes.CDLL | None:
    """Return the C library if it is glibc."""
    found = ctypes.CDLL(None)
    return found if hasattr(found, "malloc_trim") and hasattr(found, "mallopt") else None


def _keep_memory_small() -> None:
    """Let all threads of this process share two heaps. With one heap for each, freed memory adds up to a gigabyte."""
    if (libc := _libc()) is not None:
        libc.mallopt(_M_ARENA_MAX, 2)


def pytest_collection_finish() -> None:
    _set_aside()


def _set_aside() -> None:
    """Free what lies in circles, and let no later search for circles look at what stays: modules and all tests.

    They are 700,000 objects, and looking at them took half of the CPU time of a run: a search needs half a second.
    """
    gc.collect()
    gc.freeze()


def _give_memory_back() -> None:
    """Free what the tests of a file have left in circles, and give free pages back to the system."""
    _set_aside()
    if (libc := _libc()) is not None:
        libc.malloc_trim(0)


def _enter(environment: dict[str, str]) -> None:
    os.environ |= environment
    tempfile.tempdir = None  # read TMPDIR again


@contextlib.contextmanager
def _inside(folders: Folders) -> Iterator[None]:
    """Use these folders, and afterwards those that were used before."""
    new = folders.environment()
    before = {name: os.environ[name] for name in new}
    _enter(new)
    try:
        yield
    finally:
        _enter(before)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    """Start what the whole session shares in the session's folders, not in those of the file that first needs it."""
    if fixturedef.scope != "session":
        return (yield)
    with _inside(SESSION):
        return (yield)


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Make what Python makes once per process in the session's folders; at the end, check for left agents."""
    tmp_path_factory.getbasetemp()
    multiprocessing.current_process()._config["tempdir"] = str(SESSION.temporary)
    multiprocessing.resource_tracker.ensure_running()
    yield
    _end(SESSION)


@pytest.fixture(scope="module", autouse=True)
def own_folders(nothing_left_behind: None) -> Iterator[Folders]:
    """New folders for each test file. At its end, stop its agents, and fail if anything else still runs in them."""
    folders = Folders(SESSION.root / str(next(_numbers)))
    folders.make()
    with _inside(folders):
        yield folders
        _forget_jobs()
        # It would start the workers of later files in the folders of this one. It starts again when it is needed.
        multiprocessing.forkserver._forkserver._stop()
        _end(folders)
    shutil.rmtree(folders.root)
    _give_memory_back()


def _end(folders: Folders) -> None:
    """Stop the agents of these folders, and fail if one of their processes or sockets remains."""
    if folders.runtime.exists():
        stop_all(now=True)
    try:
        ours = multiprocessing.resource_tracker._resource_tracker._pid
        wait_until(
            lambda: not folders.processes().keys() - {ours},
            why=lambda: f"processes left behind: {folders.processes()}",
        )
    except AssertionError:
        for process in folders.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        raise
    assert not (sockets := list(folders.runtime.glob("*.sock"))), f"sockets left behind: {sockets}"


def _forget_jobs() -> None:
    """Forget the jobs, the messages and the locks that this process keeps for its runtime folder."""
    if inline_host.cache_info().currsize:
        host = inline_host()
        host.close()
        inline_host.cache_clear()
    hosts._say_once.cache_clear()
    for folder in [name for name in holders._holders if name.startswith(f"{SESSION.root}/")]:
        holders._holders.pop(folder).release()


def pytest_unconfigure() -> None:
    shutil.rmtree(SESSION.root, ignore_errors=True)
