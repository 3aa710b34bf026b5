"""Which owners of jobs are notebooks and terminals of this server; see `nbdata.client.context.owner_name`."""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import Any

__all__ = ["Owners"]

# Seconds after which an owner that was not found is looked for again: its notebook may be opened here meanwhile.
_AGAIN = 10.0
# The most names that are kept.
_MOST = 10_000


class Owners:
    """The names of the owners that have been found here; used only by the event loop's thread.

    A job names its notebook by the last part of its path, and a terminal by a process. So a notebook of another server
    counts as one of this server while one of the same name is open here.

    Parameters
    ----------
    settings : dict
        Those of the Jupyter server; ``session_manager`` knows its notebooks.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._here = dict[str, None]()
        self._missed = dict[str, float]()  # when an owner was looked for in vain

    def __contains__(self, owner: object) -> bool:
        return owner in self._here

    async def learn(self, owners: set[str]) -> None:
        """Look for owners that are not known yet."""
        now = time.monotonic()
        unknown = {
            one for one in owners - self._here.keys() if now - self._missed.get(one, -_AGAIN) >= _AGAIN
        }
        for owner in unknown:
            self._missed[owner] = now
            found = re.search(r"(?:kernel|process) (\d+)$", owner)
            if found and _descends(int(found[1]), os.getpid()):
                self._here[owner] = None
        if unknown - self._here.keys():
            with contextlib.suppress(Exception):  # a gateway that does not answer must not stop the feed
                for session in await self._settings["session_manager"].list_sessions():
                    self._here[os.path.basename(str(session["path"]))] = None
        while len(self._here) > _MOST:
            del self._here[next(iter(self._here))]
        while len(self._missed) > _MOST:
            del self._missed[next(iter(self._missed))]


def _descends(pid: int, ancestor: int) -> bool:
    """True if a process was started by `ancestor` or by one of its descendants; False where that cannot be seen."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        while pid > 1:
            if pid == ancestor:
                return True
            with open(f"/proc/{pid}/stat") as line:
                pid = int(line.read().rpartition(")")[2].split()[1])
    return False
