"""The cluster map of AIStore: which servers are gateways and nodes of the user's cluster.

It is fetched from the gateway that the user named (``/v1/daemon?what=smap``) when a redirect first leads elsewhere, and
again when one leads to a server that is not in it, but not twice within some seconds. Only these servers get requests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from nbdata.bounded import Unreadable, parse_json
from nbdata.errors import StoreUnavailable
from nbdata.stores.http.dial import Origin

__all__ = ["ClusterMap", "servers_in"]

# Seconds between two requests for the map, and after which it is asked for anew.
_AGAIN, _VALID = 5.0, 600.0
# The most digits of a number in it: the digest of a node's id has 64 bits.
_DIGITS = 20
# The networks of a node (``core/meta/snode_wire.go``).
_NETWORKS = ("public_net", "intra_control_net", "intra_data_net")

_Server = tuple[str, str, int]


class ClusterMap:
    """The servers of a cluster, as the gateway tells them. Safe to use from many threads.

    Parameters
    ----------
    fetch : callable
        Returns the map as it came; raises NbdataError if it cannot.
    """

    def __init__(self, fetch: Callable[[], bytes]) -> None:
        self._fetch, self._lock = fetch, threading.Lock()
        self._servers = frozenset[_Server]()
        self._fetched = -_VALID

    def allows(self, origin: Origin) -> bool:
        """Whether a server belongs to the cluster."""
        server = (origin.scheme, origin.host.lower(), origin.port)
        if server in self._servers and time.monotonic() - self._fetched < _VALID:
            return True
        with self._lock:
            if time.monotonic() - self._fetched > (_VALID if server in self._servers else _AGAIN):
                self._servers = servers_in(self._fetch())
                self._fetched = time.monotonic()
            return server in self._servers


def servers_in(data: bytes) -> frozenset[_Server]:
    """Return scheme, host and port of all servers in a map.

    Raises
    ------
    StoreUnavailable
        If it cannot be read.
    """
    try:
        told = parse_json(data, digits=_DIGITS)
    except Unreadable as error:
        raise StoreUnavailable("the cluster map cannot be read", details={"retry": True}) from error
    found = set[_Server]()
    for url in _urls(told):
        try:
            parts = urlsplit(url)
            host, port = (parts.hostname or "").lower(), parts.port
        except ValueError:
            continue
        if host and parts.scheme in ("http", "https"):
            found.add((parts.scheme, host, port or (443 if parts.scheme == "https" else 80)))
    return frozenset(found)


def _urls(told: Any) -> Iterator[str]:
    for nodes in ("pmap", "tmap"):
        members = told.get(nodes) if isinstance(told, dict) else None
        for node in members.values() if isinstance(members, dict) else ():
            if not isinstance(node, dict):
                continue
            extra = node.get("pub_extra")
            for net in (*(node.get(name) for name in _NETWORKS), *(extra if isinstance(extra, list) else ())):
                url = net.get("direct_url") if isinstance(net, dict) else None
                if isinstance(url, str):
                    yield url
