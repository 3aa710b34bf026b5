"""Messages of a process that uses a cache over a connection, and their answers.

Each message is one of these. Only ``acquire`` is answered, by ``{"failed": {NAME: ERROR}, "fetched": BYTES}``, once all
objects are there. The answer has some of the failed objects, and the bytes fetched for the request:

- ``{"announce": [[NAME, KEY, SIZE, ETAG, MODIFIED, VERSION], …]}``: the next objects to be acquired;
- ``{"forget": true}``: withdraw the announcements;
- ``{"acquire": [NAME, …]}``: hold these announced objects;
- ``{"release": true, "read": BYTES}``: release them; so many bytes of them were read;
- ``{"epoch": [LOOP, NAME, WHOLE, OVER]}``: an epoch begins or is over, see `nbdata.protocols.Epoch`.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable
from typing import Any

from nbdata import wire
from nbdata.engine.job.shared_cache import Consumer
from nbdata.errors import NbdataError
from nbdata.protocols import Epoch
from nbdata.ready import is_ready

__all__ = ["lives", "serve"]

# Seconds in which a message must arrive completely once it has begun.
_MESSAGE = 30.0
# The most failed objects in an answer: thousands would be too long for a message.
_TOLD = 20


def serve(sock: socket.socket, consumer: Consumer, send: Callable[[dict[str, Any]], None]) -> None:
    """Serve a process's messages until its connection ends."""
    while (message := wire.receive(sock, within=_MESSAGE)) is not None:
        try:
            if "announce" in message:
                consumer.announce([(str(one[0]), *one[1:]) for one in message["announce"]])
            elif "acquire" in message:
                got = consumer.acquire(message["acquire"], lambda: lives(sock))
                named = itertools.islice(got.failed.items(), _TOLD)
                send({"failed": {name: error.to_dict() for name, error in named}, "fetched": got.fetched})
            elif "release" in message:
                consumer.release(_bytes(message.get("read")))
            elif "forget" in message:
                consumer.forget()
            elif "epoch" in message:
                consumer.note_epoch(Epoch(*message["epoch"]))
        except NbdataError as error:
            send({"error": error.to_dict()})
        except (KeyError, TypeError, ValueError) as error:
            raise wire.FrameError(f"a cache is not asked so: {error!r}") from error


def _bytes(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} are no bytes")
    return value


def lives(sock: socket.socket) -> bool:
    """Return whether the other end of a connection is alive."""
    if not is_ready(sock, 0):
        return True
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except OSError:
        return False
