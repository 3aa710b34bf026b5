"""An agent's life: prove to be the only one, serve, end when there is nothing left to do."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

from nbdata.agent.log import Log, say
from nbdata.agent.server import Server
from nbdata.agent.sockets import listen
from nbdata.engine.runner import load_all
from nbdata.redaction import ScrubbedStream
from nbdata.runtime import Endpoint, build_id, file_lock, runtime_folder

__all__ = ["main"]

# Of <malloc.h>.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
# Bytes from which memory is the kernel's own again, and how many are kept at the end of each place.
_LARGE, _KEPT = 4 << 20, 32 << 20


def main(name: str) -> None:
    """Serve on the endpoint of that name until idle or told to stop."""
    # Whatever is written to the log, also by libraries: it lies on the disk.
    sys.stderr = sys.stdout = ScrubbedStream(Log(2))
    endpoint = Endpoint(runtime_folder(), name)
    alive = file_lock(endpoint.alive)
    if not alive.acquire(wait=False):
        return  # another one was faster
    if not name.endswith(build_id()):
        # The files were replaced between the client's import and now: two builds must not be mixed.
        say("this is not the build that was asked for; the client has to be restarted")
        return
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")  # the user's model is worth more than a transfer that can go on
    _share_memory()
    load_all()
    server = Server(endpoint)
    signal.signal(signal.SIGTERM, lambda *_: server.stop_now())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    listener = listen(endpoint)
    say(f"agent {os.getpid()} serves {name}")
    try:
        server.serve(listener)
    finally:
        server.jobs.close()
        say(f"agent {os.getpid()} ends")
        alive.release()
        # Threads that block in a store must not keep the process.
        os._exit(0)


def _share_memory() -> None:
    """Have all threads take their memory from the same two places.

    They come and go with each job, and where each kept one of its own (mallopt(3)) an agent grew by a megabyte a job.
    Blocks of a decompressor are made anew again and again; what they leave is kept up to a bound, or the kernel would
    have to zero each of their pages each time: half a second for 400 MB.
    """
    with contextlib.suppress(AttributeError, OSError):  # not glibc
        libc = ctypes.CDLL(None)
        libc.mallopt(_ARENA_MAX, 2)
        if libc.mallopt(_MMAP_THRESHOLD, _LARGE):  # else it would adapt no more, and be as it was
            libc.mallopt(_TRIM_THRESHOLD, _KEPT)
