"""The address of a cluster of dask.distributed, as users write it; nothing of Dask is imported here."""

from __future__ import annotations

import ipaddress
import re
import sys
from typing import Any

from nbdata.errors import BadOption

__all__ = [
    "LOCAL",
    "address_of",
    "checked_cluster",
    "is_encrypted",
    "is_open",
    "local_workers",
    "loopback_port",
]

#: A cluster that nbdata starts on this machine for one job.
LOCAL = "local"
# The most workers of such a cluster.
_MOST = 256
_LOCAL = re.compile(r"local(?::([1-9][0-9]{0,2}))?")
_ADDRESS = re.compile(r"(tcp|tls)://(\[[0-9a-fA-F:.%]+\]|[A-Za-z0-9_.-]+):([0-9]{1,5})")


def checked_cluster(name: str, value: Any) -> Any:
    """Return the value of ``--cluster`` if it is an address, or a client of distributed; else raise BadOption."""
    if not isinstance(value, str):
        if _is_client(value):
            return value
        raise BadOption(
            f"{name}: this is no cluster",
            expected="local, local:N, the address of a scheduler, or a distributed.Client",
            got=type(value).__name__,
        )
    local = _LOCAL.fullmatch(value)
    if local is None and _ADDRESS.fullmatch(value) is None:
        raise BadOption(
            f"--{name}: {value!r} is no cluster",
            expected="local, local:N, or the address of a scheduler such as tls://host:8786",
        )
    if local is not None and local[1] is not None and int(local[1]) > _MOST:
        raise BadOption(f"--{name}: {value} are too many workers", expected=f"at most {_MOST}")
    return value


def _is_client(value: object) -> bool:
    """True for a client of distributed, which the caller has imported then."""
    distributed = sys.modules.get("distributed")
    return distributed is not None and isinstance(value, distributed.Client)


def address_of(cluster: Any) -> str:
    """Return the text of a cluster: the one that the user wrote, or the address of a client's scheduler."""
    return (
        cluster if isinstance(cluster, str) else str(getattr(cluster.scheduler, "address", "a closed client"))
    )


def local_workers(cluster: Any) -> int | None:
    """Return N of ``local:N``; 0 for ``local``, which is as many as the machine has cores; None for any other."""
    found = _LOCAL.fullmatch(cluster) if isinstance(cluster, str) else None
    return None if found is None else int(found[1] or 0)


def is_encrypted(cluster: Any) -> bool:
    """True if what is sent to the scheduler is encrypted: it has TLS, or is started by nbdata."""
    return local_workers(cluster) is not None or address_of(cluster).startswith("tls://")


def is_open(cluster: Any) -> bool:
    """True if whoever reaches the scheduler can run code as its owner: it is off this machine, without TLS."""
    found = _ADDRESS.fullmatch(address_of(cluster))
    if found is None or found[1] == "tls" or found[2] == "localhost":
        return False
    try:
        return not ipaddress.ip_address(found[2].strip("[]")).is_loopback
    except ValueError:  # a name, which may lead anywhere
        return True


def loopback_port(cluster: Any) -> int | None:
    """Return the port of a scheduler without TLS on this machine; None for any other."""
    found = _ADDRESS.fullmatch(address_of(cluster))
    return None if found is None or found[1] == "tls" or is_open(cluster) else int(found[3])
