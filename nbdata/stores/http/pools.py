"""The pools of connections of this process, one for each identity at each origin."""

from __future__ import annotations

from nbdata.stores.http.client import Origin, Pool
from nbdata.threads import ForkLock

__all__ = ["pool_of"]

_pools: dict[tuple[Origin, object], Pool] = {}
_pools_lock = ForkLock()


def pool_of(origin: Origin, identity: object) -> Pool:
    """The connections of one identity to one origin: never shared between identities."""
    with _pools_lock:
        return _pools.setdefault((origin, identity), Pool(origin))
