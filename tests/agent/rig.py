"""A test's own agent in its own runtime folder, and ways to misuse it."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nbdata import wire
from nbdata.client.agents import stop_all
from nbdata.client.launch import connect
from nbdata.runtime import endpoint
from tests.waiting import PATIENCE


class Rig:
    """The agent of the current runtime folder. It starts when `pid` is first read."""

    def __init__(self) -> None:
        self._pid = 0

    @property
    def pid(self) -> int:
        """The agent's process id; fails if the agent was replaced."""
        with connect() as connection:
            pid = int(connection.ask({"do": "hello"}, timeout=PATIENCE)["pid"])
        assert self._pid in (0, pid), "another agent was started: the first one died"
        self._pid = pid
        return pid

    def raw(self) -> socket.socket:
        """Start the agent if necessary, and return a raw connection to it for arbitrary bytes."""
        assert self.pid
        return self.connected()

    def connected(self) -> socket.socket:
        """Return a raw connection to the running agent."""
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(PATIENCE)
        folder = os.open(endpoint().folder, os.O_RDONLY)
        try:
            sock.connect(f"/proc/self/fd/{folder}/{os.path.basename(endpoint().socket)}")
        finally:
            os.close(folder)
        return sock

    def says(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """Send a message on a new connection and return the answer; None if the agent closes the connection."""
        with self.raw() as sock:
            try:
                wire.send(sock, message)
                return wire.receive(sock)
            except ConnectionError:
                return None

    def threads(self) -> int:
        """Return the number of the agent's threads."""
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def memory(self) -> int:
        """Return the agent's resident memory in bytes."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def rigged(monkeypatch: Any, state: Path | None = None) -> Iterator[Rig]:
    """Use a new runtime folder without an agent; fail if an agent leaves anything in it.

    Its state folder is `state`, or if that is None, a new one: the history is empty.
    """
    folder = Path(os.environ["NBDATA_RUNTIME_DIR"]).with_name(f"r{secrets.token_hex(4)}")
    folder.mkdir(mode=0o700)
    with monkeypatch.context() as patch:
        patch.setenv("NBDATA_RUNTIME_DIR", str(folder))
        patch.setenv("NBDATA_STATE_DIR", str(state or f"{folder}-state"))
        try:
            yield Rig()
        finally:
            stop_all(now=True)
            left = [*folder.glob("*.sock"), *folder.glob("jobs/*"), *folder.glob("locks/*.lock")]
        assert not left, f"left behind: {left}"
    shutil.rmtree(folder)


@contextlib.contextmanager
def tmpfs(folder: Path, *, size: str) -> Iterator[Path]:
    """Mount a small disk; needs root."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    options = f"size={size},mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path, *, leave: int = 0) -> Path:
    """Write a file that leaves only `leave` bytes free on a disk."""
    filler = disk / "somebody-elses"
    found = os.statvfs(disk)
    free = found.f_bavail * found.f_frsize - leave
    # Somebody else may fill it first.
    with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
        while free > 0:
            free -= file.write(bytes(min(free, 1 << 20)))
    return filler
