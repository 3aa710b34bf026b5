"""The origin of a place: whose credentials go there, and what an index that lies there may lead to.

Credentials belong to the origins that the user typed. An index (a file in a store that names other files) leads only to
its own store, at or below its own folder.
"""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from nbdata.paths import is_url
from nbdata.redaction import AZURE_SCHEMES

__all__ = ["SERVICES", "is_below", "leads_up", "origin_of", "store_of"]

#: The origins of services whose server the user's configuration decides.
SERVICES = frozenset({"s3://", "obs://", "gs://", "az://", "ais://"})

_PORTS = {"http": 80, "https": 443}
# The schemes of these services, and their usual name.
_SERVICES = {"s3": "s3", "s3a": "s3", "obs": "obs", "gs": "gs", "gcs": "gs", "ais": "ais"}
# How often a key may be escaped; a server in front of another one may unescape it, too.
_ESCAPED = 4


def origin_of(place: str) -> str:
    """Return what decides which server gets the requests for a place.

    For http it is scheme, host and port. For s3, obs, gs and ais it is the service alone: the user's configuration says
    which server that is, whatever the bucket. For az it is the account's host, if the URL has one. For other schemes
    it is what comes before the first slash. Empty for a local path.

    Examples
    --------
    >>> origin_of("https://user:secret@Example.org/data/a.tar")
    'https://example.org:443'
    >>> origin_of("s3://bucket/data/") == origin_of("s3://other/")
    True
    """
    if not is_url(place):
        return ""
    scheme, host = _parted(place)
    if scheme in _PORTS:
        try:
            parts = urlsplit(place)
            name = parts.hostname or ""
            return f"{scheme}://{f'[{name}]' if ':' in name else name}:{parts.port or _PORTS[scheme]}"
        except ValueError:  # opening it tells what is wrong
            return f"{scheme}://"
    if scheme in AZURE_SCHEMES:
        return f"az://{host.partition('@')[2].lower()}".replace(".dfs.", ".blob.")
    service = _SERVICES.get(scheme)
    return f"{service}://" if service else f"{scheme}://{host.rpartition('@')[2]}"


def store_of(place: str) -> str:
    """Return the origin of a place, with its bucket or container; empty for a local path."""
    scheme, host = _parted(place) if is_url(place) else ("", "")
    if scheme == "ais":
        return f"{origin_of(place)}/{host}"
    bucket = host.partition("@")[0] if scheme in AZURE_SCHEMES or scheme in _SERVICES else ""
    return f"{origin_of(place)}/{bucket}" if bucket else origin_of(place)


def is_below(key: str, folder: str) -> bool:
    """Return whether a key lies below a folder, which is empty or ends in a slash, however it is escaped."""
    return key.startswith(folder) and not leads_up(key[len(folder) :], also=".")


def leads_up(path: str, *, also: str = "..") -> bool:
    """Return whether a path may lead out of the folder above it, here or in a server that unescapes it.

    `also` is another name of a component that counts as ``..``. So does what has a parameter, as ``..;a``: some servers
    leave it out.

    Examples
    --------
    >>> leads_up("a/%252e%252e/b"), leads_up("..;v=1/b"), leads_up("a/..b;c")
    (True, True, False)
    """
    rest = path
    for _ in range(_ESCAPED):
        names = (name.partition(";")[0] for name in rest.replace("\\", "/").split("/"))
        if not {"..", also}.isdisjoint(names):
            return True
        escaped, rest = rest, unquote(rest)
        if escaped == rest:
            return False
    return True


def _parted(place: str) -> tuple[str, str]:
    """Return the scheme of a URL, and what comes before the first slash after it."""
    scheme, _, rest = place.partition("://")
    host, slash, after = rest.partition("/")
    if scheme.lower() == "ais" and host.startswith("@"):  # whose bucket it is comes before the bucket
        host += slash + after.partition("/")[0]
    return scheme.lower(), host
