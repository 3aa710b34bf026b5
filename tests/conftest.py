"""What all tests share: a private runtime folder, real servers, and a look at what is left behind."""

from __future__ import annotations

import functools
import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

# At the end, so that `tests` is found there and nbdata where it is installed.
sys.path.append(str(Path(__file__).parents[1]))

import nbdata
from nbdata.client.agents import stop_all
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import StoreUnavailable
from tests.capabilities import CAPABILITIES, why_missing
from tests.faults.gate import Gate
from tests.kernel import Kernel
from tests.slow import SlowProxy
from tests.waiting import PATIENCE, wait_until

# Set before anything is imported from a client's environment; short, since socket paths are.
_PRIVATE = tempfile.mkdtemp(prefix="nbt-", dir="/tmp")
_OUTSIDE = ("AWS_", "OBS_", "NBDATA_", "FSSPEC_", "S3_", "GOOGLE_", "AZURE_", "STORAGE_EMULATOR_HOST")
# What is said to the tests, not to nbdata.
_TOLD = ("NBDATA_TESTED", "NBDATA_FUZZ", "NBDATA_SCREENSHOTS", "NBDATA_PAGES", "NBDATA_FAILING_JOBS")


def pytest_configure() -> None:
    """Nothing of the user's own settings reaches a test.

    Neither do signals that a shell ignores for what runs in the background, or nohup: children would inherit that,
    and the tests press Ctrl-C and hang up.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    for name in list(os.environ):
        if name in _TOLD:
            continue
        if name.startswith(_OUTSIDE) or name.lower().endswith("_proxy"):
            del os.environ[name]
    os.environ["NBDATA_RUNTIME_DIR"] = f"{_PRIVATE}/run"
    os.environ["NBDATA_STATE_DIR"] = f"{_PRIVATE}/state"
    os.environ["NBDATA_AGENT_IDLE"] = "60"
    # A gate holds a body for as long as a test wants, and a server of a busy machine is silent for a while.
    os.environ["NBDATA_STALL_TIMEOUT"] = str(10 * PATIENCE)
    os.environ["AWS_CONFIG_FILE"] = f"{_PRIVATE}/no-config"
    os.environ["AWS_SHARED_CREDENTIALS_FILE"] = f"{_PRIVATE}/no-credentials"
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"


# -- what is not there on some machine ------------------------------------------------------------

_NOT_RUN = pytest.StashKey[Counter[str]]()


_IN_CI = os.environ.get("CI") == "true"


def _needed(item: pytest.Item) -> set[str]:
    """What a test needs, by its marks and its fixtures."""
    marked = {name for mark in item.iter_markers("needs") for name in mark.args}
    return marked | CAPABILITIES.keys() & set(getattr(item, "fixturenames", ()))


def _leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what cannot run here, and count it by the reason, for the end of the run.

    In CI a test stays that needs what must be there, and fails.
    """
    not_run = {item: why for item in items if (why := why_missing(_needed(item)))}
    if _IN_CI:
        not_run = {item: why for item, why in not_run.items() if not why_missing(_needed(item), in_ci=True)}
    config.stash[_NOT_RUN] = Counter(not_run.values())
    items[:] = [item for item in items if item not in not_run]
    config.hook.pytest_deselected(items=[*not_run])


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Only in CI does a test come so far that cannot run."""
    if why := why_missing(_needed(item)):
        pytest.fail(f"it cannot run here, and in CI it must: {why}", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A skip would be overlooked."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = (
            "failed",
            f"a test must not skip, but say what it needs: {report.longrepr}",
        )
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker tells what it left out; all of them leave out the same."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["not run"] = dict(session.config.stash.get(_NOT_RUN, Counter()))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """What a worker has told is kept for the end."""
    if told := getattr(node, "workeroutput", {}).get("not run"):
        node.config.stash[_NOT_RUN] = Counter(told)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what was not run, and why."""
    for why, number in config.stash.get(_NOT_RUN, Counter()).items():
        terminalreporter.write_line(
            f"not run here: {number} {'test' if number == 1 else 'tests'}, because {why}", yellow=True
        )


@pytest.fixture(scope="session")
def mounts() -> None:
    """Asked for by a fixture that mounts disks."""


@pytest.fixture(scope="session")
def chromium() -> None:
    """Asked for by a fixture that needs a browser."""


@pytest.fixture(scope="session")
def azurite() -> None:
    """Asked for by a fixture that needs the emulator of Azure's store."""


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Asked for by a fixture that makes processes in name spaces of their own."""


# -- the run --------------------------------------------------------------------------------------


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files of few tests (browsers, kernels, kills) use the cores, those of many wait most of the time: by turns."""
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


def pytest_unconfigure() -> None:
    shutil.rmtree(_PRIVATE, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def installed() -> None:
    """Where the run says so, what is tested is the installed wheel, not the source tree beside it."""
    if os.environ.get("NBDATA_TESTED") == "wheel":
        assert "site-packages" in nbdata.__file__, nbdata.__file__


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Stops the agent at the end of the session, and fails if a process or a socket of it is left."""
    yield
    stop_all(now=True)
    wait_until(lambda: not _processes(), why=lambda: f"processes left behind: {_processes()}")
    run = Path(_PRIVATE, "run")
    assert not (sockets := list(run.glob("*.sock"))), f"sockets left behind: {sockets}"


def _processes() -> dict[int, str]:
    """Agents whose runtime folder is this session's."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"NBDATA_RUNTIME_DIR={_PRIVATE}".encode() in environment and "bootstrap.py" in command:
            found[int(process.name)] = command
    return found


@pytest.fixture(autouse=True)
def no_history() -> None:
    """What the agents of other tests did is none of this test's business."""
    Path(os.environ["NBDATA_STATE_DIR"], "jobs.log").unlink(missing_ok=True)


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """A SeaweedFS server for the whole session; all hangs on it, so it has two tries to come up."""
    try:
        server = EmbeddedServer.start(tmp_path_factory.mktemp("seaweedfs"), kind="seaweedfs")
    except StoreUnavailable:
        server = EmbeddedServer.start(tmp_path_factory.mktemp("seaweedfs"), kind="seaweedfs")
    with server:
        yield server


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """A moto server for the whole session."""
    with EmbeddedServer.start(tmp_path_factory.mktemp("moto"), kind="moto") as server:
        yield server


@pytest.fixture
def s3(seaweedfs: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> EmbeddedServer:
    """SeaweedFS, with the environment set so that ``s3://`` means it."""
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    return seaweedfs


@functools.lru_cache(maxsize=1)
def _session() -> Any:
    """One for all: each reads botocore's models anew, a tenth of a second."""
    import botocore.session

    return botocore.session.Session()


def client_of(server: EmbeddedServer) -> Any:
    """A botocore client for a server, whatever the environment says."""
    return _session().create_client(
        "s3",
        endpoint_url=server.url,
        region_name="us-east-1",
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
    )


@pytest.fixture
def bucket(s3: EmbeddedServer) -> Iterator[str]:
    """The name of a new bucket on SeaweedFS; deleted afterwards, since each one takes volumes of a bounded number."""
    name = f"test-{secrets.token_hex(6)}"
    s3.create_bucket(name)
    yield name
    client = client_of(s3)
    client.delete_bucket(Bucket=name)
    client.close()


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Carry operations out in this process."""
    monkeypatch.setenv("NBDATA_HOST", "inline")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small folder of files: nested, an empty one, odd but representable names."""
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
    """SeaweedFS behind a line of 4 MB/s, so that there is a middle of a transfer."""
    with SlowProxy(s3.url, rate=4_000_000) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        yield proxy


@pytest.fixture
def gate(s3: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """SeaweedFS behind a gate, open at first; closed, it holds a transfer in its middle for as long as a test wants."""
    with Gate(s3.url) as line:
        monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
        yield line


@pytest.fixture
def put(s3: EmbeddedServer, bucket: str) -> Callable[[dict[str, bytes]], str]:
    """Puts objects straight into a new bucket on SeaweedFS; returns its URL."""
    client = client_of(s3)

    def put_all(objects: dict[str, bytes]) -> str:
        for key, data in objects.items():
            client.put_object(Bucket=bucket, Key=key, Body=data)
        return f"s3://{bucket}/"

    return put_all


@pytest.fixture
def kernel(s3: EmbeddedServer, tmp_path: Path) -> Iterator[Kernel]:
    """A real IPython kernel with nbdata loaded, whose ``s3://`` is SeaweedFS."""
    with Kernel(tmp_path) as running:
        assert running.run("%load_ext nbdata").error is None
        yield running
