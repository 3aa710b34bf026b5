"""Receive over TLS in blocks as large as what has arrived, in few threads at a time.

Python's ``ssl`` returns at most one record (16 KiB) per call, and releases the interpreter's lock for each. Sixteen
threads that hashed, wrote and counted each record passed that lock around. This took more CPU than the decryption
(docs/performance.md). So a thread with data to receive takes a turn and fills its block. There are as many turns as
cores, and no thread holds one while it waits for a server.
"""

from __future__ import annotations

import os
import select
import ssl
import threading

__all__ = ["receive_records"]

_turns = threading.BoundedSemaphore(os.cpu_count() or 1)


def _after_fork() -> None:
    global _turns  # a thread of the parent may have held a turn
    _turns = threading.BoundedSemaphore(os.cpu_count() or 1)


os.register_at_fork(after_in_child=_after_fork)


def receive_records(sock: ssl.SSLSocket, buffer: memoryview, stall: float) -> int:
    """Receive as many bytes as have arrived and fit; 0 at the end. Waits for the first byte.

    Parameters
    ----------
    stall : float
        Seconds to wait. `sock` has this time limit before and after the call.

    Raises
    ------
    OSError
        If the connection broke; TimeoutError if no byte came.
    """
    if sock.pending() >= len(buffer):  # such as the lines of a chunked body, read byte by byte
        return sock.recv_into(buffer)
    count = 0
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    sock.settimeout(0.0)
    try:
        while not count:
            if not sock.pending() and not poll.poll(stall * 1000):
                raise TimeoutError("no byte came")
            with _turns:
                try:
                    while count < len(buffer):
                        more = sock.recv_into(buffer[count:])
                        if not more:
                            return count
                        count += more
                except ssl.SSLWantReadError:  # all that arrived is read, or the rest is a part of a record
                    pass
                except OSError:
                    if not count:  # otherwise the next call meets the error
                        raise
        return count
    finally:
        sock.settimeout(stall)
