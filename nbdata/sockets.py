"""The Unix sockets of agents in the runtime folder, and the user at their other end.

A path that exceeds the limit of a socket's path (107 bytes) is short if it begins at the folder's descriptor.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from collections.abc import Iterator

from nbdata.errors import UnsafeMember
from nbdata.runtime import Endpoint

__all__ = ["connect", "listen", "peer"]

# Of <sys/un.h> on macOS; its `struct xucred` begins with a version and the user.
_SOL_LOCAL, _LOCAL_PEERCRED = 0, 1


def listen(endpoint: Endpoint) -> socket.socket:
    """Return a listening socket on the endpoint's path. Replaces one that a dead agent left."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(endpoint.socket)
    with _short(endpoint) as path:
        sock.bind(path)
    sock.listen(128)
    return sock


def connect(endpoint: Endpoint, *, timeout: float) -> socket.socket:
    """Return a socket with this time limit that is connected to a process of this user at the endpoint's path.

    Raises
    ------
    UnsafeMember
        If another user's process listens there. It was sent nothing.
    OSError
        If no process listens there.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.settimeout(timeout)
        with _short(endpoint) as path:
            sock.connect(path)
        user = peer(sock)[1]
        if user not in (None, os.geteuid()):
            raise UnsafeMember(
                "a process of another user has the place of the agent, and was sent nothing",
                path=endpoint.socket,
                expected=f"a process of user {os.geteuid()}",
                got=f"one of user {user}",
                remedy="Name a folder in NBDATA_RUNTIME_DIR that nobody else can exchange, or unset it",
            )
    except BaseException:
        sock.close()
        raise
    return sock


@contextlib.contextmanager
def _short(endpoint: Endpoint) -> Iterator[str]:
    folder = os.open(endpoint.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        path = f"/proc/self/fd/{folder}/{os.path.basename(endpoint.socket)}"
        yield path if os.path.isdir("/proc/self/fd") else endpoint.socket
    finally:
        os.close(folder)


def peer(sock: socket.socket) -> tuple[int, int | None]:
    """Return the process and the user at the other end.

    The process is 0 if the system does not tell it, or it is in another container. The user is None if the system does
    not tell it.
    """
    if sys.platform == "darwin":
        _, user = struct.unpack_from("2I", sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, 128))
        return 0, user
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return 0, None
    process, user, _ = struct.unpack(
        "iII", sock.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("iII"))
    )
    return process, user
