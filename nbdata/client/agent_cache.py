"""Uses a cache that an agent's job keeps: `nbdata.protocols.Cache` over its own connection."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nbdata.client.connection import Connection
from nbdata.errors import error_from_dict
from nbdata.protocols import Acquired, Epoch
from nbdata.wire import MAX_FRAME

__all__ = ["AgentCache"]

# Most bytes of objects in a message: in JSON a key may take several times its thousand bytes.
_AT_ONCE = MAX_FRAME // 4


class AgentCache:
    """The client's side of a cache's messages; see `nbdata.agent.cache_messages`.

    Parameters
    ----------
    connection : Connection
        Closed together with this object.
    folder : str
        The folder of the objects.
    identity : tuple of int
        Its device and inode.
    """

    def __init__(self, connection: Connection, folder: str, identity: tuple[int, int]) -> None:
        self._connection, self.folder, self.identity = connection, folder, identity

    def announce(self, objects: Sequence[tuple[Any, ...]]) -> None:
        some, size = list[tuple[Any, ...]](), 0
        for one in objects:
            more = len(json.dumps(one)) + 1
            if some and size + more > _AT_ONCE:
                self._connection.send({"announce": some})
                some, size = [], 0
            some.append(one)
            size += more
        if some:
            self._connection.send({"announce": some})

    def forget(self) -> None:
        self._connection.send({"forget": True})

    def acquire(self, names: Sequence[str]) -> Acquired:
        answer = self._connection.ask({"acquire": list(names)})
        failed = {name: error_from_dict(error) for name, error in answer["failed"].items()}
        return Acquired(failed, answer.get("fetched", 0))

    def release(self, read: int = 0) -> None:
        self._connection.send({"release": True, "read": read})

    def note_epoch(self, epoch: Epoch) -> None:
        self._connection.send({"epoch": list(epoch)})

    def close(self) -> None:
        self._connection.hang_up()
