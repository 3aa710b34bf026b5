"""Recognizes the file system for which the ffrecord library aligns its reads."""

from __future__ import annotations

import fcntl
import sys

__all__ = ["checkFsAlign"]

# The request by which the ffrecord library asks a file system, https://github.com/HFAiLab/ffrecord, src/utils.cpp.
_ASK = 0x80046664


def checkFsAlign(fd: int) -> bool:  # noqa: N802  # the original's name
    """Return whether a file lies on the file system of HFAiLab, where the ffrecord library aligns its reads.

    nbdata reads such files like all others.

    Parameters
    ----------
    fd : int
        The descriptor of an open file.
    """
    answer = bytearray(4)
    try:
        fcntl.ioctl(fd, _ASK, answer)
    except OSError:  # any other file system does not know the request
        return False
    return int.from_bytes(answer, sys.byteorder) == 1
