"""Opens places of a store for this process, with its credentials and one control that stops all reading."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nbdata.client.context import bindings_of, capture
from nbdata.errors import BadOption
from nbdata.stores.base import Location
from nbdata.stores.resolve import open_place
from nbdata.transfer.free_control import FreeControl
from nbdata.verbs.options import Connecting

__all__ = ["Opened", "resolved"]


class Opened:
    """Opens the places of an operation (see `nbdata.transfer.sources.Opener`); belongs to one process.

    Attributes
    ----------
    operation : Connecting
    context : Context
        With the credentials of this process.
    control : FreeControl
        Stops all reading.
    """

    def __init__(self, operation: Connecting) -> None:
        self.operation = operation
        self.context = capture(replace(operation, storage_options=resolved(operation.storage_options)))
        self.control = FreeControl()
        self._fs = bindings_of(operation).get("fs")

    def open(self, place: str) -> Location:
        """Return the store and key of a place."""
        return open_place(place, self.context, stop=self.control, fs=self._fs)


def resolved(options: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return storage options with the values of ``env:NAME`` filled in from this process's environment."""
    if options is None:
        return None
    resolved_options = dict(options)
    for key, value in options.items():
        if isinstance(value, str) and value.startswith("env:"):
            name = value.removeprefix("env:")
            if name not in os.environ:
                raise BadOption(
                    f"storage_options: {key!r} names {name}, which is not set", remedy=f"Set {name}"
                )
            resolved_options[key] = os.environ[name]
    return resolved_options
