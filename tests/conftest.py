"""What all tests share: a private runtime folder, real servers, and a look at what is left behind."""

from __future__ import annotations

import functools
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# At the end, so that `tests` is found there and nbdata where it is installed.
sys.path.append(str(Path(__file__).parents[1]))

import nbdata
from nbdata.client.agents import stop_all
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import StoreUnavailable
from tests.kernel import Kernel
from tests.slow import SlowProxy

# Set before anything is imported from a client's environment; short, since socket paths are.
_PRIVATE = tempfile.mkdtemp(prefix="nbt-", dir="/tmp")
_OUTSIDE = ("AWS_", "OBS_", "NBDATA_", "FSSPEC_", "S3_", "GOOGLE_", "AZURE_", "STORAGE_EMULATOR_HOST")
# What is said to the tests, not to nbdata.
_TOLD = ("NBDATA_TESTED", "NBDATA_SCREENSHOTS", "NBDATA_PAGES", "NBDATA_FAILING_JOBS")


def pytest_configure() -> None:
    """Nothing of the user's own settings reaches a test."""
    for name in list(os.environ):
        if name in _TOLD:
            continue
        if name.startswith(_OUTSIDE) or name.lower().endswith("_proxy"):
            del os.environ[name]
    os.environ["NBDATA_RUNTIME_DIR"] = f"{_PRIVATE}/run"
    os.environ["NBDATA_STATE_DIR"] = f"{_PRIVATE}/state"
    os.environ["NBDATA_AGENT_IDLE"] = "60"
    os.environ["AWS_CONFIG_FILE"] = f"{_PRIVATE}/no-config"
    os.environ["AWS_SHARED_CREDENTIALS_FILE"] = f"{_PRIVATE}/no-credentials"
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of few tests (browsers, kernels, kills) use the cores, those of many wait most of the time: by turns."""
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
    end = time.monotonic() + 10
    while (left := _processes()) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left, f"processes left behind: {left}"
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
