"""Fails a test that leaves something: threads, processes, mounts, descriptors, variables, or files in shared folders.

A test that leaves a thread or a child process disturbs a later one, and that one fails. So every test is compared
before its first fixture and after its last one. Fixtures of a wider scope may start things that stay: what appears
while such a fixture is set up counts as known. The two looks together cost about a third of a millisecond per test.

What a passed test may leave for longer is listed in `STAYS`, each with its reason. Things that end by themselves a
moment later are waited for, but only if something is left. Jobs that fill a cache of samples wait for the next epoch;
those of this process are ended here.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import tempfile
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nbdata.client.inline import inline_host
from nbdata.stores.http.client import _all_pools
from tests.waiting import wait_until

__all__ = ["STAYS", "Stays", "look", "nothing_left_by_this_test"]

#: Descriptors that a test may leave beyond those of `STAYS`: an event loop that a library keeps has a pair of sockets,
#: and others open a file or two when first used.
DESCRIPTORS = 4


@dataclass(frozen=True)
class Stays:
    """Something that may stay after a test: its kind, a pattern for its name, and the reason."""

    kind: str
    pattern: str
    why: str


STAYS = (
    Stays(
        "thread",
        r"asyncio_\d+|ThreadPoolExecutor-\d+_\d+ \(asyncio\)",
        "the pool of an event loop of a library",
    ),
    Stays("thread", r"Dask-.*|TCP-Executor-\d+", "dask.distributed keeps some pools per process"),
    Stays("thread", r".* - runner", "jupyter_core keeps one event loop per thread that asks it"),
    Stays("thread", r"fsspecIO", "fsspec keeps one event loop per process"),
    Stays("thread", r"Tornado selector|IOPub|pymain", "jupyter_client keeps one event loop per process"),
    Stays("process", r"multiprocessing\.(resource_tracker|forkserver)", "Python keeps one per process"),
    Stays("descriptor", r"/proc/\d+/stat", "dask.distributed watches its own process"),
    Stays(
        "descriptor",
        r"/holder-[0-9a-f]{16}$",
        "names this process in the ledger of a runtime folder until it ends",
    ),
    Stays(
        "descriptor",
        "kept connection of nbdata",
        "stores share them for 45 seconds; the next request reuses them",
    ),
    Stays("descriptor", r"anon_inode:\[(eventpoll|eventfd)\]", "of an event loop that a library keeps"),
    Stays("folder", r"pymp-.*|pytest-of-.*", "Python and pytest keep one per process"),
)


def _stays(kind: str, name: str) -> bool:
    return any(one.kind == kind and re.search(one.pattern, name) for one in STAYS)


@dataclass
class Look:
    """What this process has at one moment."""

    threads: set[threading.Thread] = field(default_factory=set)
    processes: set[int] = field(default_factory=set)
    mounts: set[str] = field(default_factory=set)
    descriptors: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    variables: dict[str, str] = field(default_factory=dict)
    folder: str = ""

    def since(self, before: Look) -> dict[str, Any]:
        """Return what is new since another look, by its name."""
        return {name: getattr(self, name) - getattr(before, name) for name in _SETS}


_SETS = ("threads", "processes", "mounts", "descriptors", "files")


def look() -> Look:
    """Return what this process has now. The names of things are read only if something is left."""
    processes: set[int] = set()
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/children", "rb") as file:
                processes.update(map(int, file.read().split()))
        except FileNotFoundError:  # the thread has just ended, or the kernel does not tell
            continue
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        mounts = set(file)
    return Look(
        set(threading.enumerate()),
        processes,
        mounts,
        _descriptors(),
        {f"{folder}/{name}" for folder in _shared_folders() for name in os.listdir(folder)},
        {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"},
        _working_folder(),
    )


def _descriptors() -> set[str]:
    """Return the numbers of all descriptors, without the one of this listing, whose number is free again."""
    numbers = set(os.listdir("/proc/self/fd"))
    os.close(free := os.dup(0))
    return numbers - {str(free)}


def _working_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "a removed folder"


def _shared_folders() -> list[str]:
    """Return the folders in which the tests of a file could leave files for one another, and the checkout."""
    return [tempfile.gettempdir(), str(_CHECKOUT)]


_CHECKOUT = Path(__file__).parents[1]
# Made there by pytest, Hypothesis and Python.
_MADE = {f"{_CHECKOUT}/{name}" for name in (".pytest_cache", ".hypothesis", "__pycache__", "build")}


def _left(before: Look) -> list[str]:
    """Return sentences on what is left since `before`."""
    now = look()
    new = now.since(before)
    found = [f"thread {t.name}" for t in new["threads"] if t.is_alive() and not _stays("thread", t.name)]
    found += [f"process {pid}: {name}" for pid in new["processes"] if (name := _command(pid))]
    found += [f"mount {line.split()[4]}" for line in new["mounts"] if _is_ours(line.split()[4])]
    found += [f"file {name}" for name in new["files"] - _MADE if not _stays("folder", os.path.basename(name))]
    if len(now.descriptors) > len(before.descriptors) + DESCRIPTORS:
        kept = {str(one.sock.fileno()) for pool in list(_all_pools) for one in list(pool._idle)}
        opened = [name for number in new["descriptors"] if (name := _target(number, kept))]
        if len(opened) > DESCRIPTORS:
            found.append(f"{len(opened)} descriptors: {', '.join(sorted(opened))}")
    names = before.variables.keys() | now.variables.keys()
    changed = [name for name in sorted(names) if before.variables.get(name) != now.variables.get(name)]
    found += [f"the changed variable {name}" for name in changed]
    if now.folder != before.folder:
        found.append(f"another working folder: {now.folder}")
    return found


def _nothing_left(before: Look) -> bool:
    gc.collect()  # each time, because a thread that has just ended may have held what leads to the rest
    return not _left(before)


def _command(pid: int) -> str:
    """Return the command line of a child, or '' if it has ended and been waited for, or may stay."""
    try:
        command = (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        )
    except OSError:
        return ""
    return "" if _stays("process", command) else command[:300] or "ended, but not waited for"


def _target(number: str, kept: set[str]) -> str:
    """Return what a descriptor leads to, or '' if it is closed or may stay. Those of `kept` are kept connections."""
    try:
        target = os.readlink(f"/proc/self/fd/{number}") if number not in kept else "kept connection of nbdata"
    except OSError:
        return ""
    return "" if _stays("descriptor", target) else target


def _is_ours(point: str) -> bool:
    """True if a mount point lies in this process's folders: other workers of pytest-xdist mount disks too."""
    return any(
        point.startswith(f"{folder}/") for folder in (*_our_folders, os.path.dirname(tempfile.gettempdir()))
    )


def _end_caches() -> None:
    """End the jobs of this process that fill caches of samples: they wait for a while for the next epoch."""
    if inline_host.cache_info().currsize:
        for job in inline_host()._jobs.unfinished():
            if job.operation.shared:
                job.task.cancel()


_our_folders: list[str] = []
_before: list[Look] = []
_passed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note whether a test passed: a failed one keeps things alive in its traceback."""
    report = yield
    if call.when == "call":
        item.stash[_passed] = report.passed
    return report


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    """Count what appears during the setup of a fixture of a wider scope as known, also in the middle of a test."""
    if fixturedef.scope == "function" or not _before:
        return (yield)
    then = look()
    made = yield
    for name, new in look().since(then).items():
        getattr(_before[-1], name).update(new)
    return made


@pytest.fixture(autouse=True)
def nothing_left_by_this_test(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Fail a test that passed and left something. It is the first fixture of a test, so it ends last."""
    if not _our_folders:
        _our_folders.append(str(tmp_path_factory.getbasetemp()))
    _before.append(look())
    try:
        yield
        left = request.node.stash.get(_passed, False) and _left(_before[-1])
        if left:
            request.node.funcargs.clear()  # values of fixtures that have ended
            _end_caches()
            with contextlib.suppress(AssertionError):
                wait_until(lambda: _nothing_left(_before[-1]))
            left = _left(_before[-1])
        before = _before[-1].variables
    finally:
        _before.pop()
    if left:
        for name in os.environ.keys() - before.keys() - {"PYTEST_CURRENT_TEST"}:
            del os.environ[name]
        os.environ |= before
        pytest.fail("this test left behind:\n  " + "\n  ".join(left), pytrace=False)
