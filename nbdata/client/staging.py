"""A process's use of a cache that an agent's job keeps: `nbdata.protocols.Staging` over a connection of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nbdata.client.connection import Connection
from nbdata.errors import NbdataError, error_from_dict

__all__ = ["AgentStaging"]

# Objects of a message; a key may have a thousand bytes.
_AT_ONCE = 500


class AgentStaging:
    """See `nbdata.agent.staging` for what is said.

    Parameters
    ----------
    connection : Connection
        Closed with this.
    folder : str
        Where the objects are.
    """

    def __init__(self, connection: Connection, folder: str) -> None:
        self._connection, self.folder = connection, folder

    def announce(self, objects: Sequence[tuple[Any, ...]]) -> None:
        for start in range(0, len(objects), _AT_ONCE):
            self._connection.send({"announce": objects[start : start + _AT_ONCE]})

    def forget(self) -> None:
        self._connection.send({"forget": True})

    def acquire(self, names: Sequence[str]) -> dict[str, NbdataError]:
        answer = self._connection.ask({"acquire": list(names)})
        return {name: error_from_dict(error) for name, error in answer["failed"].items()}

    def release(self) -> None:
        self._connection.send({"release": True})

    def close(self) -> None:
        self._connection.close()
