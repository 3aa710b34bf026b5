"""Tells whose sockets listen at a port of this machine, where the system says that: on Linux."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import sys

from nbdata.clusters import loopback_port
from nbdata.errors import BadOption

__all__ = ["listeners", "refuse_theirs"]

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
# The state of a socket that listens, in these tables.
_LISTENS = "0A"


def listeners(port: int) -> set[int]:
    """Return the users whose sockets get connections to a port of the loopback interface."""
    found = set[int]()
    for table in _TABLES:
        with contextlib.suppress(OSError), open(table, encoding="ascii") as lines:
            for line in lines:
                _, local, _, state, _, _, _, user, *_ = line.split()
                address, _, at = local.partition(":")
                if state == _LISTENS and int(at, 16) == port and _is_here(address):
                    found.add(int(user))
    return found


def _is_here(address: str) -> bool:
    """Return whether a socket at an address of these tables gets connections to the loopback interface."""
    words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
    found = ipaddress.ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words))
    found = getattr(found, "ipv4_mapped", None) or found
    return found.is_loopback or found.is_unspecified


def refuse_theirs(cluster: str) -> None:
    """Raise BadOption if another user listens where a scheduler without TLS is expected on this machine.

    Whoever has that port runs code as the user who connects.
    """
    port = loopback_port(cluster)
    others = set() if port is None else listeners(port) - {os.geteuid(), 0}
    if others:
        raise BadOption(
            f"another user listens at {cluster}, who could run code as you",
            expected=f"a scheduler of user {os.geteuid()} or root",
            got=f"user {min(others)}",
            remedy="Start a scheduler of your own, or one with TLS (tls://…). If you trust that user, add "
            "--insecure-cluster",
        )
