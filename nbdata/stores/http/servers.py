"""Names of servers of all stores, which tell a bucket from one of the same name elsewhere, in records and caches."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from nbdata.redaction import is_secret_name
from nbdata.stores.base import Store

__all__ = ["account_in", "server_at", "server_of_files", "servers_of"]

_PORTS = {"http": 80, "https": 443}
# The endpoints of S3 at AWS. Within a partition of AWS, all regions know the same buckets.
_AWS = re.compile(
    r"(?:(?:bucket|accesspoint)\.vpce-[a-z0-9-]+\.)?s3(?:-accelerate|-fips|-external-1)?(?:[.-]dualstack)?"
    r"(?:[.-](?P<region>[a-z]{2}(?:-[a-z]+)+-\d+))?(?:\.vpce)?\.amazonaws\.com(?P<china>\.cn)?"
)
# Those of OBS, whose regions know the same buckets, too.
_OBS = re.compile(r"obs(?:\.[a-z0-9-]+)?\.(myhuaweicloud\.(?:com|eu))")
# Variables that lead file systems of fsspec to a server or an account, and their prefixes.
_LEADING = re.compile(
    r"(?:AWS|AZURE|STORAGE|GOOGLE|OBS|OSS|OCI)_(?=.*(?:ENDPOINT|PROFILE|ACCOUNT|EMULATOR|CONFIG_FILE))"
    r"(?!.*(?:KEY|TOKEN|SECRET))"
)
# The fields of a connection string of Azure that name the account.
_ACCOUNT = ("AccountName=", "BlobEndpoint=", "EndpointSuffix=", "UseDevelopmentStorage=")
# How many file systems over each other are looked at.
_DEPTH = 8


def server_at(endpoint: str) -> str:
    """Return the name of the server at an endpoint: the same for all spellings and regions of one service.

    Examples
    --------
    >>> server_at("https://s3.eu-west-1.amazonaws.com/") == server_at("https://s3.us-east-1.amazonaws.com")
    True
    >>> server_at("HTTP://Localhost:80/")
    'http://localhost'
    """
    parts = urlsplit(endpoint)
    scheme, host, path = parts.scheme.lower(), (parts.hostname or "").rstrip("."), parts.path.rstrip("/")
    port = parts.port if parts.port != _PORTS.get(scheme) else None
    if not port and not path:
        if aws := _AWS.fullmatch(host):
            region = aws["region"] or ""
            return f"aws{aws['china'] or ('-us-gov' if '-gov-' in region else '')}"
        if obs := _OBS.fullmatch(host):
            return f"obs.{obs[1]}"
    return f"{scheme}://{host}{f':{port}' if port else ''}{path}"


def servers_of(*ends: Iterable[Store]) -> str:
    """Return the servers of the stores at one end of a job or at both, as one text that stands in its records."""
    return "\n\n".join("\n".join(sorted({store.server for store in end})) for end in ends)


def account_in(connection_string: str) -> list[str]:
    """Return the parts of a connection string of Azure that name the account and its server, and no secret."""
    return [part for part in map(str.strip, connection_string.split(";")) if part.startswith(_ACCOUNT)]


def server_of_files(fs: Any, *, by_environment: bool) -> str:
    """Return a digest of what decides which server a file system of fsspec asks; empty if nothing does.

    These are its options, except secrets, which are renewed; and for stores in clouds the environment.
    """
    said = sorted(_options(fs, _DEPTH))
    if by_environment:
        said += sorted(f"{name}={value}" for name, value in os.environ.items() if _LEADING.match(name))
    text = json.dumps(said).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:32] if said else ""


def _options(value: Any, depth: int, name: str = "") -> Iterator[str]:
    """Yield the options of a file system, and of those below it, that are plain values and no secrets."""
    if isinstance(value, (str, int, float, bool)):
        yield f"{name}={value}"
    elif isinstance(value, Mapping) and depth:
        for key, inner in value.items():
            if key == "connection_string":
                yield from account_in(str(inner))
            elif key == "username" or not is_secret_name(str(key)):
                yield from _options(inner, depth - 1, f"{name}.{key}")
    elif isinstance(value, (list, tuple)) and depth:
        for number, inner in enumerate(value):
            yield from _options(inner, depth - 1, f"{name}.{number}")
    elif depth and isinstance(options := getattr(value, "storage_options", None), Mapping):
        yield from _options(options, depth - 1, name)
        yield from _options(getattr(value, "storage_args", ()), depth - 1, name)
