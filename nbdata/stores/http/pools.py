"""The connection pools of this process, one per identity and origin."""

from __future__ import annotations

from nbdata.stores.http.client import Origin, Pool, close_idle
from nbdata.threads import ForkLock

__all__ = ["pool_of"]

_pools: dict[tuple[Origin, object], Pool] = {}
_pools_lock = ForkLock()


def pool_of(origin: Origin, identity: object) -> Pool:
    """Return the pool of one identity at one origin. Identities never share connections.

    Each renewal of credentials makes another pool, so a new one takes the place of those that are not used any more.
    """
    with _pools_lock:
        pool = _pools.get((origin, identity))
        if pool is None:
            close_idle()
            for key in [key for key, old in _pools.items() if old.close_idle()]:
                del _pools[key]
            pool = _pools[origin, identity] = Pool(origin)
        return pool
