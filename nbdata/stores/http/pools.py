"""The connection pools of this process, one per identity and origin."""

from __future__ import annotations

from nbdata.stores.http.client import Origin, Pool
from nbdata.threads import ForkLock

__all__ = ["pool_of"]

_pools: dict[tuple[Origin, object], Pool] = {}
_pools_lock = ForkLock()


def pool_of(origin: Origin, identity: object) -> Pool:
    """Return the pool of one identity at one origin. Identities never share connections."""
    with _pools_lock:
        return _pools.setdefault((origin, identity), Pool(origin))
