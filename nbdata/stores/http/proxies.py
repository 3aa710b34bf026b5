"""Find the proxy for a URL in the usual environment variables."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from nbdata.errors import BadOption

__all__ = ["authorities_in", "proxy_for"]


def proxy_for(url: str, env: Mapping[str, str]) -> str:
    """Return the URL of the proxy, or ''. Variables in lower case win, as in curl.

    Raises
    ------
    BadOption
        If a variable holds no URL.
    """
    parts = urlsplit(url)
    port = parts.port or {"https": 443, "http": 80}.get(parts.scheme, 0)
    excluded = env.get("no_proxy") or env.get("NO_PROXY") or ""
    if any(
        _excludes(entry, (parts.hostname or "").lower(), port)
        for entry in re.split(r"[\s,]+", excluded.lower())
    ):
        return ""
    name = f"{parts.scheme}_proxy"
    # A web request's header can set HTTP_PROXY in capitals (httpoxy), so curl and nbdata ignore it.
    address = env.get(name) or (env.get(name.upper()) if parts.scheme == "https" else "")
    address = address or env.get("all_proxy") or env.get("ALL_PROXY") or ""
    if not address:
        return ""
    proxy = address if "://" in address else f"http://{address}"
    try:
        good = bool(urlsplit(proxy).hostname) and (urlsplit(proxy).port or 1) > 0
    except ValueError:
        good = False
    if good and urlsplit(proxy).scheme.lower() not in ("http", "https"):
        raise BadOption(
            f"{name} or all_proxy: {urlsplit(proxy).scheme}:// is no proxy that nbdata can use",
            expected="http:// or https://",
            remedy="Name an HTTP proxy there, or the host in no_proxy if it can be reached without one",
        )
    if not good:  # the value may hold a password, so it is not shown
        raise BadOption(
            f"{name}: the proxy is not a URL",
            expected="http://user:password@host:port, with '/', '?' and '#' of a password escaped",
        )
    return proxy


def _excludes(entry: str, host: str, port: int) -> bool:
    """Whether an entry of ``no_proxy`` means a host: a name or address, with a port or without, or a network.

    A name stands also for what ends in it, whether it begins with a dot, with ``*.`` or with neither, as in curl and
    requests.
    """
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, _, of_port = entry.rpartition(":")
    if name and of_port.isdigit() and (":" not in name or name.endswith("]")):
        if int(of_port) != port:
            return False
        entry = name
    entry = entry.strip("[]").removeprefix("*").lstrip(".")
    return bool(entry) and (host == entry or host.endswith(f".{entry}"))


def authorities_in(env: Mapping[str, str]) -> str:
    """The file or folder of certificates to trust, or '' for the system's."""
    return env.get("REQUESTS_CA_BUNDLE") or env.get("SSL_CERT_FILE") or ""
