"""The pools of connections of this process, one for each identity at each origin."""

from __future__ import annotations

import os
import threading

from nbdata.stores.http.client import Origin, Pool

__all__ = ["pool_of"]

_pools: dict[tuple[Origin, object], Pool] = {}
_pools_lock = threading.Lock()


def pool_of(origin: Origin, identity: object) -> Pool:
    """The connections of one identity to one origin: never shared between identities."""
    with _pools_lock:
        return _pools.setdefault((origin, identity), Pool(origin))


def _after_fork() -> None:
    global _pools_lock
    _pools_lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
