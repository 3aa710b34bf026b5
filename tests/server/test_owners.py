"""Which jobs count as begun on this server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import Any

from nbdata.server.owners import Owners


class Sessions:
    """A server's notebooks, or one that does not answer."""

    def __init__(self, *paths: str, broken: bool = False) -> None:
        self.paths, self.broken = list(paths), broken
        self.asked = 0

    async def list_sessions(self) -> list[dict[str, Any]]:
        self.asked += 1
        if self.broken:
            raise OSError("no gateway")
        return [{"path": path} for path in self.paths]


def learned(owners: Owners, *names: str) -> list[str]:
    asyncio.run(owners.learn(set(names)))
    return [name for name in names if name in owners]


def test_notebooks_that_are_open_here_are_known_by_their_names() -> None:
    sessions = Sessions("work/train.ipynb")
    owners = Owners({"session_manager": sessions})
    assert learned(owners, "train.ipynb", "other.ipynb") == ["train.ipynb"]
    assert learned(owners, "train.ipynb", "other.ipynb") == ["train.ipynb"]
    assert sessions.asked == 1  # not again for each look at the jobs
    sessions.paths = ["new.ipynb"]
    assert learned(owners, "train.ipynb", "new.ipynb") == ["train.ipynb", "new.ipynb"]


def test_processes_are_known_that_descend_from_the_server() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        here = [f"kernel {child.pid}", f"terminal, process {child.pid}", f"process {os.getpid()}"]
        owners = Owners({"session_manager": Sessions()})
        assert learned(owners, *here, f"process {os.getppid()}", "kernel 1", "kernel 99999999") == here
    finally:
        child.communicate(b"\n")
    assert here[0] in owners  # it stays known when the process is over


def test_a_server_that_does_not_tell_its_notebooks_does_no_harm() -> None:
    assert learned(Owners({"session_manager": Sessions(broken=True)}), "train.ipynb") == []
    assert learned(Owners({}), "train.ipynb") == []
