"""The agent's log. It is bounded, and writing to it never fails, even if the disk does."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time

from nbdata.redaction import printable
from nbdata.runtime import LOG_BYTES

__all__ = ["Log", "say"]


class Log(io.TextIOBase):
    """A text stream to an open file. A file that gets too long is emptied.

    Parameters
    ----------
    fd : int
        The descriptor of a file opened for appending.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        """The file's descriptor."""
        return self._fd

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Append the text. On a full disk the text is lost, and the agent continues."""
        with contextlib.suppress(OSError):
            if os.fstat(self._fd).st_size > LOG_BYTES:
                os.ftruncate(self._fd, 0)
            os.write(self._fd, text.encode("utf-8", "backslashreplace"))
        return len(text)


def say(text: str) -> None:
    """Write a line to the log. Names in it may be anybody's, and make no second line."""
    sys.stderr.write(
        f"{time.strftime('%Y-%m-%d %H:%M:%S')} {printable(text)}\n"
    )  # in one call, because several threads write
    sys.stderr.flush()
