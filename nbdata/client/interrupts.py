"""A Ctrl-C that comes while something is said to an agent: it waits for the answer."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Held", "held_interrupt"]


class Held:
    """Whether somebody pressed Ctrl-C meanwhile."""

    pressed = False


@contextmanager
def held_interrupt() -> Iterator[Held]:
    """Hold the first Ctrl-C back, as who does not hear the answer cannot take back what was begun by it.

    A second one is raised at once: whoever is to answer may hang. Only the main thread gets signals; in others
    nothing is held.
    """
    held = Held()
    if threading.current_thread() is not threading.main_thread():
        yield held
        return

    def hold(*_: object) -> None:
        if held.pressed:
            raise KeyboardInterrupt
        held.pressed = True

    # A terminal takes SIGTERM for one too; who handles a signal in another way, or not at all, goes on doing so.
    numbers = [
        n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is signal.default_int_handler
    ]
    for number in numbers:
        signal.signal(number, hold)
    try:
        yield held
    finally:
        for number in numbers:
            signal.signal(number, signal.default_int_handler)
