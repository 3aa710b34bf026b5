"""Messages between a client and the agent: a length of 4 bytes (big endian), then one JSON object.

Frames are at most `MAX_FRAME` bytes: rows of plans and reports are paged, never sent in one piece.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any

from nbdata.ready import is_ready

__all__ = ["MAX_FRAME", "PROTOCOL", "FrameError", "receive", "send"]

MAX_FRAME = 1 << 20
# Raised only when the frozen messages (hello list watch pause resume cancel stop) change.
PROTOCOL = 1

_LENGTH = struct.Struct(">I")
# Most bytes to ask for at a time.
_CHUNK = 64 << 10


class FrameError(ConnectionError):
    """The peer sent something that is not a message; the connection cannot be used any more."""


def send(sock: socket.socket, message: dict[str, Any]) -> None:
    """Send one message; raise FrameError, without sending, if it is too long."""
    body = json.dumps(message, separators=(",", ":")).encode("utf-8", "surrogatepass")
    if len(body) > MAX_FRAME:
        raise FrameError(f"message of {len(body)} bytes is over the limit of {MAX_FRAME}")
    sock.sendall(_LENGTH.pack(len(body)) + body)


def receive(sock: socket.socket, *, within: float | None = None) -> dict[str, Any] | None:
    """Return the next message, or None if the peer closed the connection between two messages.

    Parameters
    ----------
    sock : socket
    within : float, optional
        Seconds within which a message that has begun must be complete. None: the socket's own timeout applies.
    """
    first = _some(sock, 1, None)
    if not first:
        return None
    end = None if within is None else time.monotonic() + within
    (length,) = _LENGTH.unpack(first + _exactly(sock, _LENGTH.size - 1, end))
    if length > MAX_FRAME:
        raise FrameError(f"peer announced a message of {length} bytes")
    body = _exactly(sock, length, end)
    try:
        message = json.loads(body.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise FrameError("peer sent something that is not JSON") from error
    if not isinstance(message, dict):
        raise FrameError("peer sent JSON that is no object")
    return message


def _exactly(sock: socket.socket, count: int, end: float | None) -> bytes:
    """Receive exactly `count` bytes; only bytes that came are held, whatever length was announced."""
    data = bytearray()
    while len(data) < count:
        got = _some(sock, min(_CHUNK, count - len(data)), end)
        if not got:
            raise FrameError("peer closed in the middle of a message")
        data += got
    return bytes(data)


def _some(sock: socket.socket, count: int, end: float | None) -> bytes:
    if end is not None:
        left = end - time.monotonic()
        if left <= 0 or not is_ready(sock, left):
            raise FrameError("peer did not finish its message in time")
    return sock.recv(count)
