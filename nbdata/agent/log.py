"""The agent's log: bounded, and nothing that is written to it can fail, whatever became of its disk."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time

from nbdata.runtime import LOG_BYTES

__all__ = ["Log", "say"]


class Log(io.TextIOBase):
    """A text stream into an open file, which is begun anew when it is too long.

    Parameters
    ----------
    fd : int
        Of a file that was opened for appending.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        """The file's descriptor."""
        return self._fd

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, text: str) -> int:
        """Append the text; on a full disk it is lost, and the agent goes on."""
        with contextlib.suppress(OSError):
            if os.fstat(self._fd).st_size > LOG_BYTES:
                os.ftruncate(self._fd, 0)
            os.write(self._fd, text.encode("utf-8", "backslashreplace"))
        return len(text)


def say(text: str) -> None:
    """A line in the log."""
    sys.stderr.write(
        f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n"
    )  # in one piece: several threads say something
    sys.stderr.flush()
