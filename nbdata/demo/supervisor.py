"""The small process between an embedded server and its owner: it ends the server when the owner ends.

Run as a script by `nbdata.demo.server`, never imported by it::

    python -I -S supervisor.py '{"command": […], "owner": PID, "lock": FD, "leftovers": […], "folder": PATH}'

It starts the command, writes the server's process id as one line to standard output, and then waits for the first of
these events: a line on standard input (the owner stops it), the end of standard input (the owner died), another parent
process (the owner died, but a forked child still holds the pipe), SIGTERM, or the end of the server. Then the server
gets SIGTERM and, `GRACE` seconds later, SIGKILL, and this process ends. It also removes the folder if that contains a
file ``temporary``.

A separate process is needed for three reasons. ``atexit`` does not run after SIGKILL. ``preexec_fn`` is unsafe in a
process with threads, such as a kernel. Linux's parent-death signal is sent when the *thread* that started the child
ends. This process has one thread, so it may fork, and on Linux it requests that signal in the child. So even a SIGKILL
to the supervisor leaves no server behind.

The lock (flock on the inherited descriptor) shows that the server is alive. Server and supervisor both hold it. As long
as one of them lives, no other process opens the same data.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import sys
import time
from types import FrameType
from typing import Any

GRACE = 4.0  # SeaweedFS needs one second, or hangs once its data is closed
_POLL = 0.5
_PR_SET_PDEATHSIG = 1
_ENDING = (signal.SIGTERM, signal.SIGHUP)


class _Ended(Exception):
    """Raised when a signal requests the end."""


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    raise _Ended


def _death_signal() -> Any:
    """Return the C library's prctl on Linux, looked up before the fork; elsewhere None."""
    if not sys.platform.startswith("linux"):
        return None
    with contextlib.suppress(OSError, AttributeError):
        return ctypes.CDLL(None, use_errno=True).prctl
    return None


def _spawn(command: list[str]) -> int:
    prctl = _death_signal()
    us = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != us:  # died before the signal was requested
                os._exit(1)
        os.umask(0o077)  # the sockets that SeaweedFS makes in /tmp are as good as its ports
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)  # standard error is the log
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        os.execv(command[0], command)  # noqa: S606 - no shell is meant
    except OSError as exc:
        os.write(2, f"{command[0]}: {exc.strerror}\n".encode())
    finally:
        os._exit(127)


def _ended(pid: int) -> bool:
    return os.waitpid(pid, os.WNOHANG)[0] == pid


def _wait(pid: int, owner: int) -> bool:
    """Wait for a reason to end; True if the server itself ended."""
    while True:
        ready, _, _ = select.select([0], [], [], _POLL)
        if _ended(pid):
            return True
        if ready or os.getppid() != owner:
            return False


def _stop(pid: int) -> None:
    for number, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, GRACE)):
        os.kill(pid, number)  # our own child, not yet waited for, so its id cannot be reused
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if _ended(pid):
                return
            time.sleep(0.02)


def main(text: str) -> int:
    """Run the server described by the JSON text until there is a reason to end it."""
    task = json.loads(text)
    os.set_inheritable(task["lock"], True)
    for number in _ENDING:
        signal.signal(number, _on_signal)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Signals are blocked during the fork: none is lost in the child before its exec, and none ends this process without
    # it.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    pid = _spawn(task["command"])
    gone = False
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        with contextlib.suppress(BrokenPipeError):
            os.write(1, f"{pid}\n".encode())
        gone = _wait(pid, task["owner"])
    except _Ended:
        pass
    finally:
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)
        if not gone:
            _stop(pid)
        for path in task["leftovers"]:
            with contextlib.suppress(OSError):
                os.unlink(path)
        if os.path.exists(os.path.join(task["folder"], "temporary")):
            shutil.rmtree(task["folder"], ignore_errors=True)
    return 1 if gone else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
