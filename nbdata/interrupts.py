"""Holds back a Ctrl-C while a job is being started, until some code has the job and can end it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Held", "held_interrupt"]


class Held:
    """Records whether Ctrl-C was pressed while it was held back."""

    def __init__(self, signals: list[signal.Signals]) -> None:
        self.pressed = False
        self._signals = signals

    def let_go(self) -> None:
        """Stop holding: from here on Ctrl-C raises KeyboardInterrupt again."""
        while self._signals:
            signal.signal(self._signals.pop(), signal.default_int_handler)

    def let_through(self) -> None:
        """Stop holding, and raise KeyboardInterrupt if a Ctrl-C was held; for a caller that can handle it."""
        self.let_go()
        pressed, self.pressed = self.pressed, False
        if pressed:
            raise KeyboardInterrupt


@contextmanager
def held_interrupt() -> Iterator[Held]:
    """Hold back the first Ctrl-C: a caller that misses the answer cannot cancel the job that it started.

    A second Ctrl-C is raised at once, because the other side may hang. Only the main thread receives signals; in other
    threads nothing is held. A nested use holds nothing either, since the outer one already does.
    """
    if threading.current_thread() is not threading.main_thread():
        yield Held([])
        return
    # The command treats SIGTERM like Ctrl-C. A signal that is ignored or has another handler is left as it is.
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
