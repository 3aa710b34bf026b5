"""Waits until a file descriptor can be read."""

from __future__ import annotations

import select
from typing import Protocol

__all__ = ["is_ready"]


class _HasDescriptor(Protocol):
    def fileno(self) -> int: ...


def is_ready(source: int | _HasDescriptor, seconds: float) -> bool:
    """Wait up to `seconds` for data, an end or an error of a file or socket; False if none comes.

    Unlike `select.select`, which takes no descriptor from 1,024 on, it works in a process with many open files.
    """
    waiter = select.poll()
    waiter.register(source, select.POLLIN)
    return bool(waiter.poll(max(0, seconds) * 1000))
