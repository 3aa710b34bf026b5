"""A cluster is closed to others: TLS, no pages, private folders, no secrets in what Dask keeps, alike workers only."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import distributed
import pytest

import nbdata
from nbdata.client.context import capture
from nbdata.cluster import opening, performer
from nbdata.cluster.listeners import listeners, refuse_theirs
from nbdata.cluster.opening import Cluster
from nbdata.demo.server import EmbeddedServer
from nbdata.engine.job.dealing import Moved, PartReport, encoded_report, encoded_rows, report_in, rows_in
from nbdata.engine.job.dealt_plan import DealtPlan
from nbdata.report import Plan, Row
from nbdata.transfer.free_control import FreeControl
from nbdata.transfer.index import Record
from nbdata.transfer.staged_files import StagedFile
from tests.cluster.conftest import Put
from tests.faults.gate import Gate
from tests.hostile.users import ANNA, User, anna, reachable
from tests.waiting import AT_ONCE, wait_until

__all__ = ["anna", "reachable"]

OBJECTS = {f"d{n % 3}/f{n:03}": os.urandom(20_000) for n in range(100)}
#: Seconds after which a script is taken to start workers without end.
WITHOUT_END = 100.0


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Cluster]]:
    """The clusters that jobs of this process open."""
    found: list[Cluster] = []
    enter = Cluster.__enter__

    def entered(cluster: Cluster) -> Cluster:
        found.append(enter(cluster))
        return found[-1]

    monkeypatch.setattr(Cluster, "__enter__", entered)
    yield found
    found.clear()


def begun(job: Any, gate: Gate) -> None:
    wait_until(lambda: gate.holds or job.snapshot().finished)
    assert job.snapshot().state == "RUNNING", job.snapshot()


@pytest.mark.usefixtures("inline")
def test_a_local_cluster_is_closed_and_holds_no_secret_where_dask_could_show_it(
    put: Put, s3: EmbeddedServer, gate: Gate, tmp_path: Path, opened: list[Cluster], monkeypatch: Any
) -> None:
    source, canary = put(OBJECTS), "canary-" + os.urandom(8).hex()
    monkeypatch.setenv("NBDATA_CANARY", canary)
    options = {**s3.storage_options(), "endpoint_url": gate.url}
    gate.close(after=400_000)
    job = nbdata.Pull(source, str(tmp_path / "out"), cluster="local:2", storage_options=options).start()
    begun(job, gate)
    client = opened[0].client
    address = client.scheduler.address
    assert address.startswith("tls://127.0.0.1:")
    # Another user knows the port, but has no certificate.
    theirs = distributed.Security.temporary().get_connection_args("client")
    for other, args in ((address, theirs), (address.replace("tls", "tcp"), {})):
        with pytest.raises(OSError, match=r"certificate does not match|onnect"):
            asyncio.run(distributed.core.connect(other, timeout=3, **args))
    cluster = client.cluster
    pages = cluster.scheduler.http_server.port
    with pytest.raises(HTTPError, match="404"):
        urlopen(f"http://127.0.0.1:{pages}/status")
    folders = client.run(lambda dask_worker: dask_worker.local_directory)
    assert {stat.S_IMODE(os.stat(folder).st_mode) for folder in folders.values()} == {0o700}
    # What Dask remembers of tasks and logs, on the scheduler and on the workers.
    client.dump_cluster_state(str(tmp_path / "dump"), format="yaml")
    told = (tmp_path / "dump.yaml").read_text() + json.dumps(
        [client.get_scheduler_logs(), client.get_worker_logs()], default=str
    )
    secret = s3.storage_options()["secret"]
    assert "nbdata-pull-" in told, "the parts are there"
    assert canary not in told
    assert secret not in told
    # Connections keep no messages for developers: each has all rows of a part.
    sent = [client.scheduler_comm, *cluster.scheduler.stream_comms.values()]
    assert [stream.recent_message_log.maxlen for stream in sent] == [1, 1, 1]
    gate.open()
    assert job.wait().counts == {"fetched": len(OBJECTS)}


@pytest.mark.usefixtures("inline")
def test_secret_options_are_not_sent_to_workers_of_a_cluster_that_runs(
    put: Put, s3: EmbeddedServer, tmp_path: Path, workers: distributed.Client
) -> None:
    options = {"storage_options": s3.storage_options(), "cluster": workers, "quiet": True}
    with pytest.raises(nbdata.BadOption, match=r"is not sent to the workers.*[Ss]et it on the workers"):
        nbdata.pull(put({"a": b"x"}), tmp_path / "out", **options)


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("https://user:hunter2hunter2@127.0.0.1:9/data/", {}),
        ("https://127.0.0.1:9/a.bin?X-Amz-Signature=hunter2hunter2", {}),
        ("sftp://user:hunter2hunter2@127.0.0.1:9/data/", {}),
        ("s3://a/", {"endpoint_url": "http://user:hunter2hunter2@127.0.0.1:9"}),
    ],
)
def test_a_password_in_a_url_is_not_sent_to_workers_of_a_cluster_that_runs(
    source: str, options: dict[str, str], workers: distributed.Client
) -> None:
    operation = nbdata.Pull(source, "/w", cluster=workers, storage_options=options)
    cluster = Cluster("job", operation, capture(operation), FreeControl())
    cluster.client = workers
    with pytest.raises(nbdata.BadOption, match="not sent to the workers") as caught:
        cluster.enter(workers.nthreads())
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("address", ["tcp://10.1.2.3:8786", "tcp://example.com:8786", "tcp://[fe80::1]:8786"])
def test_a_scheduler_without_tls_on_another_machine_is_refused(address: str) -> None:
    with pytest.raises(nbdata.BadOption, match=r"has no TLS.*--insecure-cluster"):
        nbdata.Copy("s3://a/b/", "s3://c/d/", cluster=address)
    assert nbdata.Copy("s3://a/b/", "s3://c/d/", cluster=address, insecure_cluster=True).cluster == address


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:8786", "tcp://localhost:1", "tls://example.com:8786"])
def test_loopback_and_tls_are_accepted(address: str) -> None:
    assert nbdata.Copy("s3://a/b/", "s3://c/d/", cluster=address).line().endswith(f"--cluster {address}")


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("name", ["nbdata", "Python"])
def test_a_worker_of_another_version_is_refused_by_name(
    name: str, put: Put, tmp_path: Path, workers: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The coordinator is the one with the other version.
    monkeypatch.setattr(performer, "hello", _Hello({**performer.hello(), name: "0.0"}))
    with pytest.raises(nbdata.BadOption, match=rf"the worker tls://127.* has another {name}.*0\.0"):
        nbdata.pull(put({"a": b"x"}), tmp_path / "out", cluster=workers, quiet=True)


class _Hello:
    """Says another version here, and the true one on a worker."""

    def __init__(self, said: dict[str, str]) -> None:
        self._said = said

    def __call__(self) -> dict[str, str]:
        return self._said

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (performer, "hello")


@pytest.mark.usefixtures("inline")
def test_without_dask_the_error_says_what_to_install(
    put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = put({"a": b"x"})
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(nbdata.BadOption, match="pip install distributed cryptography"):
        nbdata.pull(source, tmp_path / "out", cluster="local:1", quiet=True)


@pytest.mark.usefixtures("inline")
def test_the_line_that_starts_workers_is_refused_in_a_worker_that_imports_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = SimpleNamespace(_inheriting=True)
    monkeypatch.setattr(opening, "multiprocessing", SimpleNamespace(current_process=lambda: worker))
    with pytest.raises(nbdata.BadOption, match="if __name__ == '__main__'"):
        nbdata.copy("s3://bucket/in/", "s3://bucket/out/", cluster="local:1", quiet=True)


@pytest.mark.long
def test_a_script_without_a_guard_is_told_so(put: Put, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"import nbdata\nnbdata.pull({put({'a': b'x'})!r}, {str(tmp_path / 'out')!r}, cluster='local:1')\n"
    )
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NBDATA_HOST": "inline", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,
    ) as run:
        try:
            _, told = run.communicate(timeout=WITHOUT_END)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)  # also the workers, if they start others
    assert run.returncode == 1
    assert "if __name__ == '__main__':" in told
    assert "bootstrapping phase" not in told


@pytest.mark.usefixtures("inline")
def test_a_scheduler_that_does_not_answer_is_named(put: Put, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(opening, "_PATIENCE", 0.5)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(nbdata.NbdataError, match=r"scheduler does not answer.*" + address):
            nbdata.pull(put({"a": b"x"}), tmp_path / "out", cluster=address, quiet=True)


@pytest.mark.usefixtures("inline")
def test_cancel_ends_the_parts_and_nothing_is_left(
    put: Put, gate: Gate, tmp_path: Path, workers: distributed.Client
) -> None:
    source = put(OBJECTS)
    options = {"endpoint_url": gate.url}
    gate.close(after=400_000)
    job = nbdata.Pull(source, str(tmp_path / "out"), cluster=workers, storage_options=options).start()
    begun(job, gate)
    began = time.monotonic()
    job.cancel()
    with pytest.raises(nbdata.Cancelled):
        job.wait()
    assert time.monotonic() - began < AT_ONCE
    wait_until(lambda: not any(workers.run(_busy).values()))
    assert not list((tmp_path / "out").glob(".nbdata*/*"))
    gate.open()
    report = nbdata.pull(source, tmp_path / "out", cluster=workers, quiet=True)
    assert sum(report.counts.values()) == len(OBJECTS)


def _busy() -> bool:
    return bool(performer._jobs)


def test_a_report_about_other_objects_is_refused(tmp_path: Path) -> None:
    class NoResults:
        def merge(self, part: PartReport) -> None:
            raise AssertionError("merged")

    work = DealtPlan(None, Plan("pull"), NoResults(), ("fetch",))  # type: ignore[arg-type]
    rows = {"a": Row("a", "fetch", 1, {})}
    others = (
        PartReport(rows=[Row("b", "failed", 1, {})]),
        PartReport(records={"b": None}),
        PartReport(staged=[StagedFile("b", "x", 1, 1, 1, "", False, True, 0)]),
    )
    for part in others:
        with pytest.raises(nbdata.NbdataError, match="was not in its part"):
            work.take(rows, part)


@pytest.mark.needs("other users")
@pytest.mark.usefixtures("inline")
def test_a_scheduler_of_another_user_is_not_connected_to(put: Put, anna: User, tmp_path: Path) -> None:
    """It would send pickles, which run code as whoever unpickles them."""
    listens = (
        "import socket, sys\nsock = socket.create_server(('127.0.0.1', 0))\n"
        "print(sock.getsockname()[1], flush=True)\nsys.stdin.read()\nsock.setblocking(False)\n"
        "try: print('connected', sock.accept())\nexcept BlockingIOError: print('nobody')"
    )
    with anna.start(listens) as theirs:
        assert theirs.stdout is not None
        port = int(theirs.stdout.readline())
        assert listeners(port) == {ANNA}
        with pytest.raises(nbdata.BadOption, match="another user listens"):
            refuse_theirs(f"tcp://localhost:{port}")
        with pytest.raises(nbdata.BadOption, match="another user listens"):
            nbdata.pull(put({"a": b"x"}), tmp_path / "out", cluster=f"tcp://127.0.0.1:{port}", quiet=True)
        assert theirs.communicate()[0] == "nobody\n"


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
def test_it_is_known_who_listens_at_a_port(host: str) -> None:
    with socket.create_server((host, 0)) as sock:
        port = sock.getsockname()[1]
        assert listeners(port) == {os.geteuid()}
        refuse_theirs(f"tcp://localhost:{port}")
    assert listeners(port) == set()


@pytest.mark.skipif(sys.byteorder != "little", reason="as this table is written")
def test_listeners_of_both_families_count_unless_they_are_not_reached_over_loopback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = {
        "00000000000000000000000001000000": 1,  # ::1
        "0" * 32: 2,  # ::
        "0000000000000000FFFF00000100007F": 3,  # ::ffff:127.0.0.1
        "0500007F": 4,  # 127.0.0.5
        "0100000A": 5,  # 10.0.0.1
        "000080FE00000000000000000100FEFF": 6,  # fe80::…
    }
    lines = [f" 0: {address}:2252 0:0 0A 0:0 0:0 0 {user} 0 1\n" for address, user in at.items()]
    lines += [" 9: 0100007F:2252 0:0 01 0:0 0:0 0 7 0 1\n", " 9: 0100007F:2253 0:0 0A 0:0 0:0 0 8 0 1\n"]
    (tmp_path / "tcp").write_text(
        "  sl  local_address rem_address st tx rx tr tm->when uid timeout\n" + "".join(lines)
    )
    monkeypatch.setattr("nbdata.cluster.listeners._TABLES", (str(tmp_path / "tcp"), str(tmp_path / "none")))
    assert listeners(0x2252) == {1, 2, 3, 4}


def test_a_part_report_survives_its_way() -> None:
    part = PartReport(
        rows=[Row("ü\udc80", "failed", -1, {"reason": "x"})],
        records={"a": Record("t", 1, 2, 3, 4, 5), "b": None},
        staged=[StagedFile("a", "0f", 1, 2, 3, "t", True, False, 4)],
        tallies={"kept": 2},
        about=["a note"],
        details={"samples": 3},
        data=b"\n\x00\n",
        moved=Moved(1, 2, 3, 4),
        error=nbdata.NotFound("gone", path="a"),
    )
    back = report_in(encoded_report(part))
    assert vars(back) | {"error": str(back.error)} == vars(part) | {"error": str(part.error)}
    assert isinstance(back.error, nbdata.NotFound)


def test_the_rows_of_a_part_take_little_room_on_their_way() -> None:
    tags = [os.urandom(16).hex() for _ in range(1000)]
    rows = [
        Row(
            f"folder/object-{n:09}", "copy", 100, {"etag": tag, "mtime": 1.7e9, "target": f"to/object-{n:09}"}
        )
        for n, tag in enumerate(tags)
    ]
    data = encoded_rows(rows, {}, {"fact": 1})
    assert rows_in(data) == ({"fact": 1}, {}, rows)
    # A client of the user's own keeps the last thousand messages.
    assert len(data) < 50 * len(rows)
