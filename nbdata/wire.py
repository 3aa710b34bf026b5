"""Messages between a client and the agent: a length of 4 bytes (big endian), then one JSON object.

Frames are at most `MAX_FRAME` bytes: rows of plans and reports are paged, never sent in one piece.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

__all__ = ["MAX_FRAME", "PROTOCOL", "FrameError", "receive", "send"]

MAX_FRAME = 1 << 20
# Raised only when the frozen messages (hello list watch pause resume cancel stop) change.
PROTOCOL = 1

_LENGTH = struct.Struct(">I")


class FrameError(ConnectionError):
    """The peer sent something that is no message; the connection is of no more use."""


def send(sock: socket.socket, message: dict[str, Any]) -> None:
    """Send one message; raises FrameError, without sending, if it is too long."""
    body = json.dumps(message, separators=(",", ":")).encode("utf-8", "surrogatepass")
    if len(body) > MAX_FRAME:
        raise FrameError(f"message of {len(body)} bytes is over the limit of {MAX_FRAME}")
    sock.sendall(_LENGTH.pack(len(body)) + body)


def receive(sock: socket.socket) -> dict[str, Any] | None:
    """The next message, or None when the peer closed between two messages."""
    head = _exactly(sock, _LENGTH.size, may_end=True)
    if head is None:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > MAX_FRAME:
        raise FrameError(f"peer announced a message of {length} bytes")
    body = _exactly(sock, length)
    assert body is not None
    try:
        message = json.loads(body.decode("utf-8", "surrogatepass"))
    except ValueError as error:
        raise FrameError("peer sent something that is not JSON") from error
    if not isinstance(message, dict):
        raise FrameError("peer sent JSON that is no object")
    return message


def _exactly(sock: socket.socket, count: int, *, may_end: bool = False) -> bytes | None:
    data = bytearray(count)
    view, filled = memoryview(data), 0
    while filled < count:
        got = sock.recv_into(view[filled:])
        if not got:
            if may_end and not filled:
                return None
            raise FrameError("peer closed in the middle of a message")
        filled += got
    return bytes(data)
