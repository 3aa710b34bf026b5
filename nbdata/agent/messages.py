"""Parse client messages. An invalid message is a BadOption of the client, no fault of the agent."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from nbdata.errors import AgentUnavailable, BadOption, NbdataError
from nbdata.operation import Context, Operation
from nbdata.verbs import operation_from_dict

__all__ = ["context_of", "number_of", "operation_of"]

_T = TypeVar("_T")


def _read(name: str, read: Callable[[], _T]) -> _T:
    try:
        return read()
    except NbdataError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise BadOption(
            f"the agent cannot read the message's {name}: {type(error).__name__}: {error}"
        ) from error


def operation_of(message: dict[str, Any]) -> Operation:
    """Return the message's operation."""
    return _read("operation", lambda: operation_from_dict(message["operation"]))


def number_of(message: dict[str, Any], name: str, default: int) -> int:
    """Return a whole number of the message, 0 or more."""
    return _read(name, lambda: max(0, int(message.get(name, default))))


def context_of(message: dict[str, Any]) -> Context:
    """Return the client's context.

    Raises
    ------
    AgentUnavailable
        If the agent sees another disk at the target than the client does.
    """
    context = _read("context", lambda: Context.from_dict(message["context"]))
    if context.target_id is not None and not _read("target", lambda: _is_there(context.target_id)):
        raise AgentUnavailable(
            "the agent sees another disk there than this process (another container or mount namespace)",
            path=str(context.target_id[0]),
            details={"inline": True},
        )
    return context


def _is_there(place: Any) -> bool:
    path, device, inode = place
    try:
        status = os.stat(os.fspath(path))
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == (device, inode)
