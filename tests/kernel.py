"""A real Jupyter kernel, driven as a notebook would."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from jupyter_client.manager import KernelManager


@dataclass
class Output:
    """What a cell put out."""

    text: str = ""
    displays: list[str] = field(default_factory=list)
    error: str | None = None


class Kernel:
    """A kernel in a folder; a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Kernel:
        self.manager = KernelManager()
        with (self._folder / "kernel.log").open("a") as log:
            self.manager.start_kernel(cwd=str(self._folder), stderr=log.fileno())
        self._connect()
        return self

    def _connect(self) -> None:
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.client.stop_channels()
        with contextlib.suppress(RuntimeError):
            self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()
        self.client.context.destroy(linger=0)

    def start(self, code: str) -> str:
        """Run a cell; its id, for `collect`."""
        return self.client.execute(code)

    def run(self, code: str, timeout: float = 60) -> Output:
        """Run a cell and wait for its end."""
        return self.collect(self.start(code), timeout)

    def collect(self, cell: str, timeout: float = 60) -> Output:
        """What a cell put out, when it has ended."""
        out, end = Output(), time.monotonic() + timeout
        while True:
            message: dict[str, Any] = self.client.get_iopub_msg(timeout=max(0.1, end - time.monotonic()))
            if message["parent_header"].get("msg_id") != cell:
                continue
            content = message["content"]
            match message["msg_type"]:
                case "status" if content["execution_state"] == "idle":
                    return out
                case "stream":
                    out.text += content["text"]
                case "display_data" | "update_display_data" | "execute_result":
                    out.displays.append(content["data"].get("text/plain", ""))
                case "error":
                    out.error = "\n".join(content["traceback"])

    def restart(self, *, now: bool) -> None:
        """Restart it as Jupyter does."""
        self.client.stop_channels()
        with (self._folder / "kernel.log").open("a") as log:
            self.manager.restart_kernel(now=now, stderr=log.fileno())
        self._connect()
