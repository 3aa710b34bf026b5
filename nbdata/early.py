"""Handles Ctrl-C in the first moments of the command ``nbdata``, while Python still imports the rest of it.

Python imports the package before any code of the command runs, so ``nbdata/__init__.py`` calls this first.
"""

from __future__ import annotations

import os
import signal
import sys

__all__ = ["is_command", "leave_interrupts", "take_interrupts"]


def is_command() -> bool:
    """True if this process is the command ``nbdata`` or ``python -m nbdata``, and no other program that imports it."""
    if sys.argv[:1] == ["-m"]:  # its value while Python imports the package of the module to run
        options = [number for number, word in enumerate(sys.orig_argv) if word == "-m"]
        return bool(options) and sys.orig_argv[options[0] + 1 :][:1] == ["nbdata"]
    return os.path.basename(sys.argv[0] if sys.argv else "") == "nbdata"


def _end(*_: object) -> None:
    os._exit(130)  # nothing has started, and there is nothing to report


def take_interrupts() -> None:
    """Exit with status 130 and no traceback on Ctrl-C and SIGTERM, until `leave_interrupts`."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell's background jobs ignore it
        signal.signal(signal.SIGINT, _end)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)


def leave_interrupts() -> None:
    """Turn both signals into exceptions from now on; the command handles them."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # A batch system sends SIGTERM and means Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
