"""How a process with many threads allocates its memory."""

from __future__ import annotations

import contextlib
import ctypes

__all__ = ["share_arenas"]

# Constants of <malloc.h>.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8


def share_arenas(*, large: int, kept: int) -> None:
    """Make all threads allocate from the same two arenas (mallopt(3)), where the C library is glibc.

    Threads come and go with each job. With an arena of its own for each, an agent grew by a megabyte per job. A
    decompressor allocates its blocks again and again. Freed memory is therefore kept, up to a limit. Otherwise the
    kernel would have to zero each page each time: half a second for 400 MB.

    Parameters
    ----------
    large : int
        Blocks of at least so many bytes return to the kernel when they are freed.
    kept : int
        Free bytes that are kept at the end of each arena.
    """
    with contextlib.suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_ARENA_MAX, 2)
        if libc.mallopt(_MMAP_THRESHOLD, large):  # otherwise keep malloc's own adaptation
            libc.mallopt(_TRIM_THRESHOLD, kept)
