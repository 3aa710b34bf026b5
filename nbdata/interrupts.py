"""A Ctrl-C that comes while a job is begun: it waits until somebody has the job and can end it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Held", "held_interrupt"]


class Held:
    """Whether somebody pressed Ctrl-C meanwhile."""

    def __init__(self, signals: list[signal.Signals]) -> None:
        self.pressed = False
        self._signals = signals

    def let_go(self) -> None:
        """Hold no more: from here on Ctrl-C raises KeyboardInterrupt again."""
        while self._signals:
            signal.signal(self._signals.pop(), signal.default_int_handler)

    def let_through(self) -> None:
        """Hold no more, and raise the KeyboardInterrupt of a Ctrl-C that was held; for who can handle it."""
        self.let_go()
        pressed, self.pressed = self.pressed, False
        if pressed:
            raise KeyboardInterrupt


@contextmanager
def held_interrupt() -> Iterator[Held]:
    """Hold the first Ctrl-C back, as who does not hear the answer cannot take back what was begun by it.

    A second one is raised at once: whoever is to answer may hang. Only the main thread gets signals; in others
    nothing is held. Nor is it within another of these, which holds it already.
    """
    if threading.current_thread() is not threading.main_thread():
        yield Held([])
        return
    # A terminal takes SIGTERM for one too; who handles a signal in another way, or not at all, goes on doing so.
    numbers = [
        n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is signal.default_int_handler
    ]
    held = Held(list(numbers))

    def hold(*_: object) -> None:
        if held.pressed:
            raise KeyboardInterrupt
        held.pressed = True

    for number in numbers:
        signal.signal(number, hold)
    try:
        yield held
    finally:
        held.let_go()
