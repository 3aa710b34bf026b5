"""Find the proxy for a URL in the usual environment variables."""

from __future__ import annotations

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
    host = (parts.hostname or "").lower()
    excluded = env.get("no_proxy") or env.get("NO_PROXY") or ""
    for entry in (e.strip().lower().lstrip(".") for e in excluded.split(",")):
        if entry == "*" or (entry and (host == entry or host.endswith("." + entry))):
            return ""
    name = f"{parts.scheme}_proxy"
    # A web request's header can set HTTP_PROXY in capitals (httpoxy), so curl and nbdata ignore it.
    found = env.get(name) or (env.get(name.upper()) if parts.scheme == "https" else "")
    found = found or env.get("all_proxy") or env.get("ALL_PROXY") or ""
    if not found:
        return ""
    proxy = found if "://" in found else f"http://{found}"
    try:
        good = bool(urlsplit(proxy).hostname) and (urlsplit(proxy).port or 1) > 0
    except ValueError:
        good = False
    if not good:  # the value may hold a password, so it is not shown
        raise BadOption(
            f"{name}: the proxy is not a URL",
            expected="http://user:password@host:port, with '/', '?' and '#' of a password escaped",
        )
    return proxy


def authorities_in(env: Mapping[str, str]) -> str:
    """The file or folder of certificates to trust, or '' for the system's."""
    return env.get("REQUESTS_CA_BUNDLE") or env.get("SSL_CERT_FILE") or ""
