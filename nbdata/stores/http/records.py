"""Receiving over TLS in blocks as large as what has come, by few threads at a time.

Python's ``ssl`` gives at most one record, 16 KiB, a call, and lets go of the interpreter's lock for each. Where every
record was hashed, written and counted by itself, by sixteen threads that handed the lock around among them, that took
more CPU than the decryption (docs/performance.md). So a thread that finds something to receive takes a turn, of which
there are as many as cores, and fills its block; nobody has one while it waits for a server.
"""

from __future__ import annotations

import os
import select
import ssl
import threading

__all__ = ["receive_records"]

_turns = threading.BoundedSemaphore(os.cpu_count() or 1)


def _after_fork() -> None:
    global _turns  # a thread may have had one that is not in the child
    _turns = threading.BoundedSemaphore(os.cpu_count() or 1)


os.register_at_fork(after_in_child=_after_fork)


def receive_records(sock: ssl.SSLSocket, buffer: memoryview, stall: float) -> int:
    """Some bytes, as many as have come and fit; 0 at the end. Waits for the first.

    Parameters
    ----------
    stall : float
        Seconds to wait, and the time limit of `sock` as it is found and left.

    Raises
    ------
    OSError
        If the connection broke, TimeoutError if nothing came.
    """
    if sock.pending() >= len(buffer):  # such as the lines of a chunked body, byte by byte
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
                except ssl.SSLWantReadError:  # that was all, or a part of a record
                    pass
                except OSError:
                    if not count:  # else the next call will meet it
                        raise
        return count
    finally:
        sock.settimeout(stall)
