"""Messages between a client and the agent: a length of 4 bytes (big endian), then one JSON object.

Frames are at most `MAX_FRAME` bytes: rows of plans and reports are paged, never sent in one piece. Texts may come from
anywhere, such as a key of megabytes from an odd server: `send_shown` shortens those that are only shown.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any

from nbdata.ready import is_ready
from nbdata.redaction import shortened

__all__ = ["MAX_FRAME", "PROTOCOL", "FrameError", "MessageTooLong", "receive", "send", "send_shown"]

MAX_FRAME = 1 << 20
# Raised only when the frozen messages (hello list watch pause resume cancel stop) change.
PROTOCOL = 1

_LENGTH = struct.Struct(">I")
# Most bytes to ask for at a time.
_CHUNK = 64 << 10
# Characters to which the texts of a message that is too long are shortened, one after the other until it fits.
_SHORTER = (4096, 512, 64)


class FrameError(ConnectionError):
    """The peer sent something that is not a message; the connection cannot be used any more."""


class MessageTooLong(FrameError):
    """A message is over `MAX_FRAME`; nothing was sent, and the connection can be used.

    Attributes
    ----------
    name : str
        The longest value in it: names joined by dots.
    size : int
        Bytes of that value as JSON.
    """

    def __init__(self, message: dict[str, Any]) -> None:
        self.name, self.size = _longest(message)
        super().__init__(f"{self.name} has {self.size} bytes, and a message at most {MAX_FRAME}")


def send(sock: socket.socket, message: dict[str, Any]) -> None:
    """Send one message; raise MessageTooLong, without sending, if it is too long."""
    body = _encoded(message)
    if len(body) > MAX_FRAME:
        raise MessageTooLong(message)
    sock.sendall(_LENGTH.pack(len(body)) + body)


def send_shown(sock: socket.socket, message: dict[str, Any]) -> None:
    """Send a message that people read: if it is too long, its long texts are shortened in their middle.

    Raises
    ------
    MessageTooLong
        If it is too long even so.
    """
    body = _encoded(message)
    for most in _SHORTER:
        if len(body) <= MAX_FRAME:
            break
        message = _cut(message, most)
        body = _encoded(message)
    if len(body) > MAX_FRAME:
        raise MessageTooLong(message)
    sock.sendall(_LENGTH.pack(len(body)) + body)


def _encoded(message: Any) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _cut(data: Any, most: int) -> Any:
    """Return JSON-able data with shorter texts; the names in it stay."""
    if isinstance(data, str):
        return shortened(data, most)
    if isinstance(data, dict):
        return {name: _cut(value, most) for name, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_cut(value, most) for value in data]
    return data


def _longest(message: dict[str, Any]) -> tuple[str, int]:
    """Return the name and the bytes of the value that makes a message long, as deep in it as one value has the most."""
    names, value = list[str](), message
    while isinstance(value, dict) and value:
        sizes = {name: len(_encoded(inner)) for name, inner in value.items()}
        name = max(sizes, key=sizes.__getitem__)
        names.append(shortened(str(name), 64))
        value, size = value[name], sizes[name]
    return ".".join(names), size if names else 0


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
