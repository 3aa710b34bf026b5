"""A real Jupyter kernel that tests drive as a notebook front end does."""

from __future__ import annotations

import contextlib
import os
import queue
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from jupyter_client.manager import KernelManager

from tests.waiting import PATIENCE, wait_until


@dataclass
class Output:
    """The output of a cell."""

    text: str = ""
    displays: list[str] = field(default_factory=list)
    error: str | None = None


@dataclass
class Page:
    """The state of a notebook front end: its displays in order, and every iopub message.

    An update changes every display with its id, as in real front ends, whichever cell the display belongs to.
    """

    displays: list[dict[str, Any]] = field(default_factory=list)  # bundle, metadata, id, cell
    messages: list[dict[str, Any]] = field(default_factory=list)

    def see(self, message: dict[str, Any]) -> None:
        """Process one message."""
        self.messages.append(message)
        content = message["content"]
        if message["msg_type"] in ("display_data", "execute_result"):
            name, cell = (
                content.get("transient", {}).get("display_id"),
                message["parent_header"].get("msg_id"),
            )
            self.displays.append({"bundle": content["data"], "id": name, "cell": cell})
        elif message["msg_type"] == "update_display_data":
            for shown in self.displays:
                if shown["id"] == content["transient"]["display_id"]:
                    shown["bundle"] = content["data"]

    def of(self, cell: str) -> list[dict[str, Any]]:
        """Return the current mime bundles below one cell."""
        return [shown["bundle"] for shown in self.displays if shown["cell"] == cell]

    def texts(self, cell: str) -> str:
        """Return the plain text of the bundles below one cell."""
        return "\n".join(bundle.get("text/plain", "") for bundle in self.of(cell))


def kernel_manager() -> KernelManager:
    """Create a kernel manager that uses socket files. A TCP port could be taken before the kernel binds it."""
    folder = tempfile.mkdtemp(prefix="k-", dir=Path(os.environ["NBDATA_RUNTIME_DIR"]).parent)
    return KernelManager(transport="ipc", connection_file=f"{folder}/k.json")


class Kernel:
    """A running kernel in a folder; a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.page = Page()

    def __enter__(self) -> Kernel:
        self.manager = kernel_manager()
        with (self._folder / "kernel.log").open("a") as log:
            self.manager.start_kernel(cwd=str(self._folder), stderr=log.fileno())
        self._connect()
        return self

    def _connect(self) -> None:
        self.client = self.manager.client()
        self.client.start_channels()
        try:
            self.client.wait_for_ready(timeout=PATIENCE)
        except RuntimeError as error:
            self.__exit__(None, None, None)
            raise RuntimeError((self._folder / "kernel.log").read_text()[-4_000:]) from error

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.client.stop_channels()
        with contextlib.suppress(RuntimeError):
            self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()
        self.client.context.destroy(linger=0)

    def start(self, code: str) -> str:
        """Start a cell and return its id, for `collect`."""
        return self.client.execute(code)

    def run(self, code: str, bound: float = PATIENCE) -> Output:
        """Run a cell and wait at most `bound` seconds for its end."""
        return self.collect(self.start(code), bound)

    def collect(self, cell: str, bound: float = PATIENCE) -> Output:
        """Wait for the end of a cell and return its output."""
        out, end = Output(), time.monotonic() + bound
        while True:
            message: dict[str, Any] = self.client.get_iopub_msg(timeout=max(0.1, end - time.monotonic()))
            self.page.see(message)
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

    def until(self, true: Callable[[], bool]) -> None:
        """Process the kernel's messages until `true` returns a true value."""

        def look() -> bool:
            if not true():
                with contextlib.suppress(queue.Empty):
                    self.page.see(self.client.get_iopub_msg(timeout=0.2))
            return true()

        wait_until(look, why=lambda: f"the page: {self.page.displays}")

    def finish(self, cell: str) -> None:
        """Process the kernel's messages until a cell has ended."""

        def idle() -> bool:
            return any(
                m["msg_type"] == "status"
                and m["content"]["execution_state"] == "idle"
                and m["parent_header"].get("msg_id") == cell
                for m in self.page.messages
            )

        self.until(idle)

    def click(self, model: str) -> None:
        """Click a button widget as a front end does."""
        content = {"comm_id": model, "data": {"method": "custom", "content": {"event": "click"}}}
        self.client.shell_channel.send(self.client.session.msg("comm_msg", content))

    def widgets(self) -> dict[str, dict[str, Any]]:
        """Return the state of every open widget, by model id."""
        states: dict[str, dict[str, Any]] = {}
        for message in self.page.messages:
            content = message["content"]
            if message["msg_type"] == "comm_open":
                states[content["comm_id"]] = dict(content["data"]["state"])
            elif message["msg_type"] == "comm_msg" and content["comm_id"] in states:
                states[content["comm_id"]].update(content["data"].get("state", {}))
        return states

    def restart(self, *, now: bool) -> None:
        """Restart the kernel as Jupyter does."""
        self.client.stop_channels()
        with (self._folder / "kernel.log").open("a") as log:
            self.manager.restart_kernel(now=now, stderr=log.fileno())
        self._connect()
