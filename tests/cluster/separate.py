"""A scheduler and workers of dask.distributed with TLS, each a process of its own, which tests may kill."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from distributed.security import Security

from tests.waiting import PATIENCE, wait_until

__all__ = ["Separate"]


class Separate:
    """A scheduler and some workers. A context manager, which ends them all.

    Parameters
    ----------
    folder : Path
        For certificates, logs and the folders of the workers.
    workers : int
    port : int
        Of the scheduler; 0 for any.
    """

    def __init__(self, folder: Path, *, workers: int, port: int = 0) -> None:
        self.folder, self._workers, self._port = folder, workers, port
        self.address = ""
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Separate:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        made = Security.temporary()
        for name in ("tls_ca_file", "tls_client_cert", "tls_client_key"):
            (self.folder / f"{name}.pem").write_text(getattr(made, name))
        self.start()
        return self

    def start(self) -> None:
        """Start all processes; the scheduler has the port that it had before."""
        said = self.folder / "scheduler.json"
        said.unlink(missing_ok=True)
        self.scheduler = self._process(
            "scheduler", "--scheduler-file", str(said), "--protocol", "tls", "--host", "127.0.0.1",
            "--port", str(self._port), "--no-dashboard", "--dashboard-address", "127.0.0.1:0",
        )  # fmt: skip

        def started() -> str:
            with contextlib.suppress(OSError, ValueError):
                return str(json.loads(said.read_text())["address"])
            return ""

        self.address = wait_until(started)
        self._port = int(self.address.rpartition(":")[2])
        self.workers = [self.add_worker() for _ in range(self._workers)]

    def add_worker(self) -> subprocess.Popen[bytes]:
        """Start one more worker."""
        return self._process(
            "worker", self.address, "--nthreads", "1", "--no-nanny", "--memory-limit", "0", "--no-dashboard",
            "--local-directory", str(self.folder), "--death-timeout", "30",
        )  # fmt: skip

    def environment(self) -> dict[str, str]:
        """Return the variables by which a client finds the certificates."""
        return {
            "DASK_DISTRIBUTED__COMM__TLS__CA_FILE": str(self.folder / "tls_ca_file.pem"),
            "DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT": str(self.folder / "tls_client_cert.pem"),
            "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY": str(self.folder / "tls_client_key.pem"),
        }

    def _process(self, command: str, *words: str) -> subprocess.Popen[bytes]:
        files = [
            *("--tls-ca-file", str(self.folder / "tls_ca_file.pem")),
            *("--tls-cert", str(self.folder / "tls_client_cert.pem")),
            *("--tls-key", str(self.folder / "tls_client_key.pem")),
        ]
        with (self.folder / f"{command}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "distributed.cli.dask_" + command, *words, *files],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=os.environ
                | {
                    "DASK_TEMPORARY_DIRECTORY": str(self.folder),
                    # See `nbdata.cluster.opening`: a worker could stop for ever.
                    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                },
            )

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill one process and wait for its end."""
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)

    def kill_all(self) -> None:
        """Kill all processes."""
        for process in filter(None, [self.scheduler, *self.workers]):
            self.kill(process)
        self.workers.clear()

    def log(self) -> str:
        """Return what all processes have logged."""
        return "".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log")))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill_all()
