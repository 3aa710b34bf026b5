"""An agent of one test's own, in a runtime folder of its own, and ways to be rude to it."""

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
    """The agent of this runtime folder; started when it is first asked for its pid."""

    def __init__(self) -> None:
        self._pid = 0

    @property
    def pid(self) -> int:
        """Its process, which must stay the same."""
        with connect() as connection:
            pid = int(connection.ask({"do": "hello"}, timeout=PATIENCE)["pid"])
        assert self._pid in (0, pid), "another agent was started: the first one died"
        self._pid = pid
        return pid

    def raw(self) -> socket.socket:
        """A connection on which anything can be said; the agent runs then."""
        assert self.pid
        return self.connected()

    def connected(self) -> socket.socket:
        """The same to an agent that runs."""
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(PATIENCE)
        folder = os.open(endpoint().folder, os.O_RDONLY)
        try:
            sock.connect(f"/proc/self/fd/{folder}/{os.path.basename(endpoint().socket)}")
        finally:
            os.close(folder)
        return sock

    def says(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """What it answers on a connection of its own; None if it closes."""
        with self.raw() as sock:
            try:
                wire.send(sock, message)
                return wire.receive(sock)
            except ConnectionError:
                return None

    def threads(self) -> int:
        """How many it has."""
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def memory(self) -> int:
        """Bytes that it has in memory."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def rigged(monkeypatch: Any) -> Iterator[Rig]:
    """A runtime folder beside the session's, without an agent; nothing of one may be left in it."""
    folder = Path(os.environ["NBDATA_RUNTIME_DIR"]).with_name(f"r{secrets.token_hex(4)}")
    folder.mkdir(mode=0o700)
    with monkeypatch.context() as patch:
        patch.setenv("NBDATA_RUNTIME_DIR", str(folder))
        try:
            yield Rig()
        finally:
            stop_all(now=True)
            left = [*folder.glob("*.sock"), *folder.glob("jobs/*"), *folder.glob("locks/*.lock")]
        assert not left, f"left behind: {left}"
    shutil.rmtree(folder)


@contextlib.contextmanager
def tmpfs(folder: Path, *, size: str) -> Iterator[Path]:
    """A small disk; needs root, as CI is."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    options = f"size={size},mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path, *, leave: int = 0) -> Path:
    """A file of somebody else that leaves only so many bytes of a disk."""
    filler = disk / "somebody-elses"
    found = os.statvfs(disk)
    free = found.f_bavail * found.f_frsize - leave
    with open(filler, "wb") as file:
        while free > 0:
            free -= file.write(bytes(min(free, 1 << 20)))
    return filler
