"""The agent's main function: become the only agent, serve, and end when idle."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

from nbdata.agent.arenas import share_arenas
from nbdata.agent.log import Log, say
from nbdata.agent.server import Server
from nbdata.engine.runner import load_all
from nbdata.lock_files import file_lock
from nbdata.redaction import ScrubbedStream
from nbdata.runtime import Endpoint, agent_id, runtime_folder
from nbdata.sockets import listen

__all__ = ["main"]


def main(name: str) -> None:
    """Serve on the endpoint of that name until idle or stopped."""
    # The log is on disk, so secrets are removed from all output, also that of libraries.
    sys.stderr = sys.stdout = ScrubbedStream(Log(2))
    endpoint = Endpoint(runtime_folder(), name)
    alive = file_lock(endpoint.alive)
    if not alive.acquire(wait=False):
        return  # another agent was faster
    if not name.endswith(agent_id()):
        # The files were replaced after the client's import: two builds must not be mixed. Or the client has changed its
        # groups or namespaces meanwhile.
        say("this build, or these groups and namespaces, are not those of the client; restart that")
        return
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")  # the user's model matters more than a transfer that can resume
    share_arenas(large=4 << 20, kept=32 << 20)
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
        # Threads that block in a store must not keep the process alive.
        os._exit(0)
