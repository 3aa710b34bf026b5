"""Listen on Unix sockets in the runtime folder, even if its path exceeds the limit of a socket's path (107 bytes)."""

from __future__ import annotations

import contextlib
import os
import socket

from nbdata.runtime import Endpoint

__all__ = ["listen"]


def listen(endpoint: Endpoint) -> socket.socket:
    """Return a listening socket on the endpoint's path. Replaces one that a dead agent left."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(endpoint.socket)
    folder = os.open(endpoint.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Through the folder's descriptor, the path is short whatever the folder's name is.
        path = f"/proc/self/fd/{folder}/{os.path.basename(endpoint.socket)}"
        sock.bind(path if os.path.isdir("/proc/self/fd") else endpoint.socket)
    finally:
        os.close(folder)
    sock.listen(128)
    return sock
