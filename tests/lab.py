"""A real JupyterLab server with nbdata's extension, in its own folders."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import nbdata
from tests.ports import free_port
from tests.waiting import PATIENCE, wait_until

_SOURCE = Path(__file__).parents[1]
# Seconds that a JupyterLab without kernels has left to end.
_LAST = 10.0


def _command(pid: str) -> bytes:
    """Return the command line of a process, or b'' if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


@dataclass
class Answer:
    """A response of the server."""

    status: int
    body: str

    def json(self) -> Any:
        return json.loads(self.body)


class Lab:
    """A JupyterLab server that runs in `folder`, with more `options` and variables of the `environment`.

    A context manager. Its file browser shows `root`.
    """

    def __init__(self, folder: Path, *options: str, environment: dict[str, str] | None = None) -> None:
        self._folder, self._options, self._more = folder, options, environment or {}
        self.root = folder / "root"
        self.token = secrets.token_hex(16)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / "lab.log"

    def __enter__(self) -> Lab:
        self.root.mkdir()
        environment = self._environment()
        # On a busy machine a kernel takes longer to complete than the second that JupyterLab waits.
        patient = {"providerTimeout": int(1_000 * PATIENCE)}
        quiet = {"fetchNews": "false", "checkForUpdates": False}
        for plugin, values in (
            ("apputils-extension/notification", quiet),
            ("completer-extension/manager", patient),
        ):
            file = Path(
                environment["JUPYTERLAB_SETTINGS_DIR"], "@jupyterlab", f"{plugin}.jupyterlab-settings"
            )
            file.parent.mkdir(parents=True)
            file.write_text(json.dumps(values))
        command = [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
            f"--ServerApp.port={self.port}",
            "--ServerApp.port_retries=0",
            "--ServerApp.ip=127.0.0.1",
            f"--ServerApp.root_dir={self.root}",
            f"--IdentityProvider.token={self.token}",
            "--LabApp.expose_app_in_browser=True",
            "--LabApp.news_url=None",
            *self._options,
        ]
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                command, env=environment, cwd=self._folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

        def answers() -> bool:
            with contextlib.suppress(OSError):
                return self.ask("api").status == 200
            return False

        def not_started() -> str:
            self._process.kill()
            return f"JupyterLab did not start:\n{self.log.read_text()[-3000:]}"

        wait_until(lambda: answers() or self._process.poll() is not None, why=not_started)
        assert self._process.poll() is None, not_started()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.terminate()
        # If a request for a folder or a file is unfinished when Jupyter Server stops, a thread of anyio stays, and the
        # process never ends (jupyter_server 2.21, anyio 4.16; no thread of nbdata is there then). Once its kernels have
        # ended, nothing is lost by a kill.
        wait_until(lambda: self._process.poll() is not None or not self._kernels())
        try:
            self._process.wait(_LAST)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGABRT)  # its log then says where each of its threads is
            self._process.wait()
            print(f"JupyterLab did not end:\n{self.log.read_text()[-10_000:]}")

    def _kernels(self) -> list[str]:
        """Return the processes of kernels that this JupyterLab has started and not yet ended."""
        found: list[str] = []
        with contextlib.suppress(OSError):  # it has just ended
            for task in Path(f"/proc/{self._process.pid}/task").iterdir():
                found += (task / "children").read_text().split()
        return [pid for pid in found if b"ipykernel" in _command(pid)]

    @property
    def process_id(self) -> int:
        """The process of the server."""
        return self._process.pid

    def _environment(self) -> dict[str, str]:
        """Return an environment without the user's Jupyter settings.

        If the source tree is tested, it includes its extension.
        """
        environment = {n: v for n, v in os.environ.items() if not n.startswith(("JUPYTER", "JPY_"))}
        for name in ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR"):
            environment[f"JUPYTER_{name}"] = str(self._folder / name.lower())
        environment["JUPYTERLAB_SETTINGS_DIR"] = str(self._folder / "settings")
        environment["JUPYTERLAB_WORKSPACES_DIR"] = str(self._folder / "workspaces")
        environment["PYTHONFAULTHANDLER"] = "1"
        environment.update(self._more)
        environment["IPYTHONDIR"] = str(self._folder / "ipython")
        if "site-packages" not in nbdata.__file__:
            extensions = self._folder / "share" / "labextensions"
            extensions.mkdir(parents=True)
            (extensions / "nbdata").symlink_to(_SOURCE / "nbdata" / "labextension")
            config = self._folder / "etc" / "jupyter_server_config.d"
            config.mkdir(parents=True)
            (config / "nbdata.json").symlink_to(_SOURCE / "jupyter-config" / "nbdata.json")
            environment["JUPYTER_PATH"] = str(extensions.parent)
            environment["JUPYTER_CONFIG_PATH"] = str(config.parent)
            environment["PYTHONPATH"] = str(_SOURCE)
        return environment

    def ask(
        self,
        path: str,
        method: str = "GET",
        *,
        token: bool = True,
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """Send one request and return the response."""
        request = urllib.request.Request(
            f"{self.url}/{path}", method=method, headers=headers or {}, data=body
        )
        if token:
            request.add_header("Authorization", f"token {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
                return Answer(reply.status, reply.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read().decode())

    def jobs(self) -> dict[str, dict[str, Any]]:
        """Return the jobs by id, in the form that the panel receives."""
        return {job["id"]: job for job in self.ask("nbdata/api/jobs").json()["jobs"]}
