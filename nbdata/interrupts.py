"""Holds back a Ctrl-C while a job is being started, until some code has the job and can end it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from nbdata.errors import AgentUnavailable

__all__ = ["PATIENCE", "Held", "held_interrupt", "unanswered"]

#: Seconds that a Ctrl-C waits for another process, which may be stopped.
PATIENCE = 0.8


def unanswered(pressed: KeyboardInterrupt) -> str:
    """Return what becomes of the job if Ctrl-C ended the wait for an agent that does not answer; else nothing."""
    # A subclass would not end a script as Ctrl-C does: Python compares the class itself.
    return str(pressed) if isinstance(pressed.__cause__, AgentUnavailable) else ""


class Held:
    """Records whether Ctrl-C was pressed while it was held back."""

    def __init__(self, signals: list[signal.Signals]) -> None:
        self.pressed = False
        self._signals = signals
        self._letting_go = threading.Lock()

    def let_go(self) -> None:
        """Stop holding: from here on Ctrl-C raises KeyboardInterrupt again."""
        with self._letting_go:
            signals, self._signals = self._signals, []
        for number in signals:
            signal.signal(number, signal.default_int_handler)

    def let_through(self) -> None:
        """Stop holding, and raise KeyboardInterrupt if a Ctrl-C was held; for a caller that can handle it."""
        self.let_go()
        pressed, self.pressed = self.pressed, False
        if pressed:
            raise KeyboardInterrupt

    def hold(self, number: int, _: object) -> None:
        """Handle a signal: note the first Ctrl-C, and raise the second one."""
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True
        timer = threading.Timer(PATIENCE, self._press_again, (number,))
        timer.daemon = True
        with contextlib.suppress(RuntimeError):  # the system refuses more threads: a second Ctrl-C is needed
            timer.start()

    def _press_again(self, number: int) -> None:
        """Raise the signal again in the main thread, which interrupts the system call that it waits in."""
        with self._letting_go:
            if self._signals:
                signal.pthread_kill(threading.main_thread().ident or 0, number)


@contextmanager
def held_interrupt() -> Iterator[Held]:
    """Hold back the first Ctrl-C, for at most `PATIENCE`.

    Without the answer, the caller cannot cancel the job that it started. But the other side may hang. So
    KeyboardInterrupt is raised after that time, and at once at a second Ctrl-C. Only the main thread receives signals;
    in other threads nothing is held. A nested use holds nothing either, since the outer one already does.
    """
    if threading.current_thread() is not threading.main_thread():
        yield Held([])
        return
    # The command treats SIGTERM like Ctrl-C. A signal that is ignored or has another handler is left as it is.
    numbers = [
        n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is signal.default_int_handler
    ]
    held = Held(list(numbers))
    for number in numbers:
        signal.signal(number, held.hold)
    try:
        yield held
    finally:
        held.let_go()
