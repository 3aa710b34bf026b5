"""Fixtures that all tests share: an isolated environment, real store servers, and checks for leftovers.

This file also leaves out tests that the machine cannot run. Some machines lack a browser, mounts or an emulator.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import sys
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# Appended to the path: `tests` is found in the checkout, but nbdata is the installed one.
sys.path.append(str(Path(__file__).parents[1]))

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import StoreUnavailable
from tests import announcement, in_ci, isolation, leftovers
from tests.budget import Durations
from tests.capabilities import CAPABILITIES, why_missing
from tests.faults.gate import Gate
from tests.kernel import Kernel
from tests.s3_client import S3Client
from tests.servers.aistore.cluster import Cluster, cluster
from tests.slow import SlowProxy

# Where what the notebooks had made before waits for the end of the session.
_ASIDE = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    """Isolate the tests from the user's settings.

    Restore the default handling of SIGINT and SIGHUP. A shell ignores them for background jobs and under nohup, and
    children inherit that, but tests send these signals.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # Examples take as long as the machine is busy, and the outcome of a test must not depend on that.
    hypothesis.settings.register_profile(
        "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("any machine")
    isolation.isolate()
    config.pluginmanager.register(isolation, "isolation")
    config.pluginmanager.register(leftovers, "leftovers")
    config.pluginmanager.register(announcement, "announcement")
    config.pluginmanager.register(in_ci, "in_ci")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations(len(getattr(config.option, "tx", None) or ())), "durations")
        if isolation.DEMO.exists():  # the user's own, or of a session before
            config.stash[_ASIDE] = isolation.DEMO.with_name(f"{isolation.DEMO.name}-{secrets.token_hex(4)}")
            isolation.DEMO.rename(config.stash[_ASIDE])


def pytest_unconfigure(config: pytest.Config) -> None:
    """Put the folder that notebooks make back, if there was one."""
    if (aside := config.stash.get(_ASIDE, None)) is not None and aside.exists():
        shutil.rmtree(isolation.DEMO, ignore_errors=True)
        aside.rename(isolation.DEMO)


# -- requirements that some machines do not meet --------------------------------------------------

_NOT_RUN = pytest.StashKey[Counter[str]]()


# Where CI is set, pytest compares two values that differ to their end, which takes hours for 30 MB. So it is known by
# another name from here on, also to the workers of pytest-xdist.
if os.environ.pop("CI", None) == "true":
    os.environ["NBDATA_CI"] = "true"
_IN_CI = os.environ.get("NBDATA_CI") == "true"


def _needed(item: pytest.Item) -> set[str]:
    """Return the capabilities that a test needs, from its marks and its fixtures."""
    marked = {name for mark in item.iter_markers("needs") for name in mark.args}
    return marked | CAPABILITIES.keys() & set(getattr(item, "fixturenames", ()))


def _leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that cannot run here; the end of the run lists the reasons with their counts.

    In CI, a test that CI must be able to run stays selected and fails.
    """
    not_run = {item: why for item in items if (why := why_missing(_needed(item)))}
    if _IN_CI:
        not_run = {item: why for item, why in not_run.items() if not why_missing(_needed(item), in_ci=True)}
    config.stash[_NOT_RUN] = Counter(not_run.values())
    items[:] = [item for item in items if item not in not_run]
    config.hook.pytest_deselected(items=[*not_run])


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test that cannot run here. Outside CI, `_leave_out` has already deselected such tests."""
    if why := why_missing(_needed(item)):
        pytest.fail(f"it cannot run here, and in CI it must: {why}", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure, because skips are easily overlooked."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = (
            "failed",
            f"a test must not skip, but say what it needs: {report.longrepr}",
        )
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send this worker's counts of left-out tests to the main process (pytest-xdist)."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["not run"] = dict(session.config.stash.get(_NOT_RUN, Counter()))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Keep a worker's counts. All workers leave out the same tests, so one worker's counts suffice."""
    if told := getattr(node, "workeroutput", {}).get("not run"):
        node.config.stash[_NOT_RUN] = Counter(told)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print how many tests were not run, and why."""
    for why, number in config.stash.get(_NOT_RUN, Counter()).items():
        terminalreporter.write_line(
            f"not run here: {number} {'test' if number == 1 else 'tests'}, because {why}", yellow=True
        )


@pytest.fixture(scope="session")
def mounts() -> None:
    """Marks a fixture or test that mounts disks; see `tests.capabilities`."""


@pytest.fixture(scope="session")
def chromium() -> None:
    """Marks a fixture or test that needs a browser."""


@pytest.fixture(scope="session")
def azurite() -> None:
    """Marks a fixture or test that needs Azurite, the emulator of Azure's store."""


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Marks a fixture or test that creates processes in separate namespaces."""


# -- the session and its processes ----------------------------------------------------------------


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Interleave files with few tests and files with many, so that parallel workers stay busy.

    Files with few tests (browsers, kernels, kills) need CPU; files with many mostly wait.
    """
    _leave_out(config, items)
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    left = deque(sorted(files.values(), key=len))
    items[:] = []
    while left:
        items += left.popleft()
        if left:
            items += left.pop()


@pytest.fixture(scope="session", autouse=True)
def installed() -> None:
    """If the run requires it, check that the tests import the installed wheel, not the source tree."""
    if os.environ.get("NBDATA_TESTED") == "wheel":
        assert "site-packages" in nbdata.__file__, nbdata.__file__


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """A SeaweedFS server for the whole session. All tests depend on it, so it gets two attempts to start."""
    try:
        server = EmbeddedServer.start(tmp_path_factory.mktemp("seaweedfs"), kind="seaweedfs", private=False)
    except StoreUnavailable:
        server = EmbeddedServer.start(tmp_path_factory.mktemp("seaweedfs"), kind="seaweedfs", private=False)
    with server:
        yield server


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """A moto server for the whole session."""
    with EmbeddedServer.start(tmp_path_factory.mktemp("moto"), kind="moto") as server:
        yield server


@pytest.fixture(scope="session")
def aistore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The server that stands in for AIStore, for the whole session: a gateway and three nodes."""
    with cluster(tmp_path_factory.mktemp("aistore")) as running:
        yield running


@pytest.fixture
def s3(seaweedfs: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> EmbeddedServer:
    """SeaweedFS as the store for ``s3://``, configured by environment variables."""
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    return seaweedfs


def client_of(server: EmbeddedServer) -> S3Client:
    """Create an S3 client for a server, independent of the environment."""
    return S3Client(server)


@pytest.fixture
def bucket(s3: EmbeddedServer) -> Iterator[str]:
    """The name of a new bucket on SeaweedFS.

    It is deleted afterwards, because SeaweedFS limits the number of volumes.
    """
    name, client = f"test-{secrets.token_hex(6)}", client_of(s3)
    client.create_bucket(Bucket=name)
    yield name
    client.delete_bucket(Bucket=name)
    client.close()


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run operations in this process, without an agent."""
    monkeypatch.setenv("NBDATA_HOST", "inline")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small folder of files: nested folders, an empty file, and unusual but valid names."""
    root = tmp_path / "tree"
    for name, data in {
        "a.txt": b"alpha\n",
        "b/c.bin": os.urandom(100_000),
        "b/d/empty": b"",
        "with space & ünï.txt": b"odd name\n",
        "b/e.txt": b"e" * 5000,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


@pytest.fixture
def slow(s3: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowProxy]:
    """SeaweedFS behind a proxy that forwards 4 MB/s, so that a test can act in the middle of a transfer."""
    with SlowProxy(s3.url, rate=4_000_000) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        yield proxy


@pytest.fixture
def gate(s3: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """SeaweedFS behind a gate that starts open. A closed gate holds a transfer for as long as the test needs."""
    with Gate(s3.url) as line:
        monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
        yield line


@pytest.fixture
def put(s3: EmbeddedServer, bucket: str) -> Iterator[Callable[[dict[str, bytes]], str]]:
    """Return a function that uploads objects to a new bucket on SeaweedFS, without nbdata, and returns the URL."""
    client = client_of(s3)

    def put_all(objects: dict[str, bytes]) -> str:
        for key, data in objects.items():
            client.put_object(Bucket=bucket, Key=key, Body=data)
        return f"s3://{bucket}/"

    yield put_all
    client.close()


@pytest.fixture
def kernel(s3: EmbeddedServer, tmp_path: Path) -> Iterator[Kernel]:
    """A real IPython kernel with nbdata loaded; its ``s3://`` is SeaweedFS."""
    with Kernel(tmp_path) as running:
        assert running.run("%load_ext nbdata").error is None
        yield running
