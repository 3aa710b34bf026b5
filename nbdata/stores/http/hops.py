"""Follow redirects, but only to servers that may get the user's requests.

This is the one rule for the client of single requests (`follow`) and for the multiplexer (`Hops.following`). A redirect
is followed with the same method and body, at most `MOST` times, never in a circle and never from https to http. Nothing
is remembered of it: the next request begins at the server that the user named. Whoever makes the requests signs each
for its server, and a server that is not allowed gets nothing at all.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, unquote, urljoin, urlsplit

from nbdata.errors import BadOption, StoreUnavailable
from nbdata.stores.filling import Pieces, begun
from nbdata.stores.http.client import Response
from nbdata.stores.http.dial import Origin
from nbdata.stores.http.proxies import proxy_for

__all__ = ["MOST", "REDIRECTED", "Hops", "Hosts", "NamedHosts", "Target", "follow", "hops_of", "is_redirect"]

#: The status codes of redirects that keep method and body; 303 does not.
REDIRECTED = (301, 302, 307, 308)
#: The most redirects of one request.
MOST = 5
# The longest body of a redirect that is read, so that its connection can be kept.
_BODY = 64 << 10
# Characters of a path or query that stay as written: all valid ones, and escapes.
_WRITTEN = "/-_.~!$&'()*+,;=:@%[]?"
_PLAIN = re.compile(r"[A-Za-z0-9/._~!$&'()*+,;=:@%?-]*")
# The most servers that are remembered as they are written.
_ORIGINS = 4096
_EXPECT = {"expect": "100-continue"}


def is_redirect(status: int, headers: Mapping[str, str]) -> bool:
    """Whether a response leads elsewhere. If it names the bucket's region, its store knows the address by itself."""
    return status in REDIRECTED and "location" in headers and "x-amz-bucket-region" not in headers


class Target(NamedTuple):
    """The place of one request: its server, and path with query.

    Attributes
    ----------
    origin : Origin
    target : str
    key : str
        The key of the object, with which the path ends; empty for a bucket.
    """

    origin: Origin
    target: str
    key: str = ""

    @property
    def path(self) -> str:
        """The path without the query."""
        return self.target.partition("?")[0]


class Hosts(Protocol):
    """The servers that redirects may lead to."""

    def allows(self, origin: Origin) -> bool:
        """Whether a server may get the user's requests. May raise NbdataError, if it cannot be found out."""


class NamedHosts:
    """The hosts that the user named in ``redirects=``.

    Parameters
    ----------
    entries : sequence of str
        Names, addresses or networks: ``node1``, ``node1:8081``, ``10.0.0.7``, ``10.0.0.0/8``. A name stands for itself
        alone, and a network for addresses, not for names.

    Raises
    ------
    BadOption
        If an entry is none of these.
    """

    def __init__(self, entries: Sequence[str]) -> None:
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        self._hosts: set[tuple[str, int]] = set()  # with port 0 for any
        for entry in entries:
            self._add(entry.strip().lower())

    def _add(self, entry: str) -> None:
        try:
            self._networks.append(ipaddress.ip_network(entry.strip("[]"), strict=False))
            return
        except ValueError:
            pass
        try:
            parts = urlsplit(f"//{entry}")
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = urlsplit(""), None, None
        if not host or parts.netloc != entry or set(entry) & set("*?%@ "):
            raise BadOption(
                f"redirects: {entry!r} is no host and no network", expected="such as node1:8081 or 10.0.0.0/8"
            )
        self._hosts.add((host, port or 0))

    def allows(self, origin: Origin) -> bool:
        host = origin.host.lower()
        if {(host, 0), (host, origin.port)} & self._hosts:
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._networks)


class Hops:
    """The redirects of one store.

    Parameters
    ----------
    hosts : Hosts
    proxy_for : callable
        Returns the proxy on the way to a URL, or ''.
    """

    def __init__(self, hosts: Hosts, proxy_for: Callable[[str], str]) -> None:
        self._hosts, self._proxy_for = hosts, proxy_for
        self._origins: dict[tuple[str, str], Origin] = {}  # by scheme and server, as they are written

    def following(self, trail: Sequence[Target], headers: Mapping[str, str], path: str) -> Target:
        """Return where the answer to the last request of a trail leads.

        Parameters
        ----------
        path : str
            What was requested, as users know it.

        Raises
        ------
        BadOption
            If that is a server that may not get the user's requests.
        StoreUnavailable
            If it leads nowhere, in a circle, too far, from https to http, or to another object: a server that cleans
            paths redirects ``/b/x/../../c/k`` to ``/c/k``.
        """
        last, location = trail[-1], headers.get("location", "")
        scheme, _, rest = location.partition("://")
        server, _, target = rest.partition("/")
        origin = self._origins.get((scheme, server))
        if origin is not None and _PLAIN.fullmatch(target):  # most redirects lead to a few nodes
            found = Target(origin, f"/{target}")
        else:
            found = self._parsed(last, location, path)
            if found.origin.netloc == server and len(self._origins) < _ORIGINS:
                self._origins[scheme, server] = found.origin
        origin = found.origin
        if origin.scheme == "http" and last.origin.scheme == "https":
            raise StoreUnavailable("the server redirects from https to http", path=path, got=str(origin))
        if any((one.origin, one.path) == (origin, found.path) for one in trail):
            raise StoreUnavailable("the server redirects in a circle", path=path, got=str(origin))
        if last.key and not unquote(found.path, errors="surrogateescape").endswith(f"/{last.key}"):
            raise StoreUnavailable("the server redirects to another object", path=path, got=found.path)
        if len(trail) > MOST:
            raise StoreUnavailable(f"the server redirects more than {MOST} times", path=path)
        if not self._hosts.allows(origin):
            raise BadOption(
                "the server redirects to a host that may not get your requests",
                path=path,
                got=str(origin),
                remedy="If it belongs to the same cluster, name it: --option redirects=HOST or a network, such as "
                "10.0.0.0/8",
            )
        return found._replace(key=last.key)

    def _parsed(self, last: Target, location: str, path: str) -> Target:
        """Read a location, which may be relative to the last request."""
        # Some servers escape only a part of it. The bytes of a header came as Latin-1.
        location = "".join(one if one.isascii() else f"%{ord(one):02X}" for one in location)
        try:
            parts = urlsplit(urljoin(f"{last.origin}{last.target}", location))
            host, port = (parts.hostname or "").encode("idna").decode(), parts.port
        except ValueError:  # also UnicodeError; the address may hold a signature, so it is not shown
            parts, host, port = urlsplit(""), "", None
        if not host or parts.scheme not in ("http", "https") or parts.username is not None:
            raise StoreUnavailable("the server redirects to what is no http address", path=path)
        port = port or (443 if parts.scheme == "https" else 80)
        origin = replace(last.origin, scheme=parts.scheme, host=host, port=port)
        query = f"?{quote(parts.query, safe=_WRITTEN)}" if parts.query else ""
        target = quote(parts.path or "/", safe=_WRITTEN) + query
        return Target(replace(origin, proxy=self._proxy_for(str(origin))), target)


def hops_of(options: Mapping[str, Any], env: Mapping[str, str]) -> Hops | None:
    """The redirects that the option ``redirects`` allows: a list of hosts, or a text with commas; None without it.

    Raises
    ------
    BadOption
        If an entry is neither a host nor a network.
    """
    given = options.get("redirects")
    if given is None or given in ("", (), []):
        return None
    entries = given.split(",") if isinstance(given, str) else given
    if not isinstance(entries, (list, tuple)) or not all(isinstance(one, str) for one in entries):
        raise BadOption("redirects: this is no list of hosts", expected="such as node1:8081,10.0.0.0/8")
    return Hops(NamedHosts(entries), partial(proxy_for, env=env))


def follow(
    hops: Hops,
    first: Target,
    send: Callable[[Target, bytes | Iterator[memoryview] | None, dict[str, str]], Response],
    body: bytes | Iterator[memoryview] | None,
    path: str,
    *,
    asks: bool = True,
) -> Response:
    """Send a request and follow its redirects. Returns the response that is none.

    A server that redirects gets no body: the request asks for leave to send it (``Expect: 100-continue``).

    Parameters
    ----------
    send : callable
        Sends the request to a place, with this body and these further headers.
    path : str
        What is requested, as users know it.
    asks : bool
        False for a small body, which is sent at once: the connection of a server that is asked is lost.

    Raises
    ------
    StoreUnavailable
        If a server redirects although it took the body; with ``details["retry"]``. Otherwise as `Hops.following`.
    """
    if body is not None and not isinstance(body, bytes):
        body = Pieces(body)
    trail = [first]
    while True:
        # Bytes can be sent again: only the first server is asked for leave to send them.
        led = len(trail) > 1
        asking = asks and bool(body) and (not led or not isinstance(body, bytes))
        try:
            response = send(trail[-1], body, _EXPECT if asking else {})
        except StoreUnavailable as error:
            if led:  # the user did not mistype this server, and the next redirect may lead to another
                error.details.pop("unreached", None)
            raise
        if not is_redirect(response.status, response.headers):
            return response
        try:
            trail.append(hops.following(trail, response.headers, path))
        finally:
            _finish(response)
        if begun(body):
            raise StoreUnavailable(
                "the server redirects after the body was sent", path=path, details={"retry": True}
            )


def _finish(response: Response) -> None:
    """Read the body of a redirect, so that the connection can be kept, if it is short."""
    try:
        if 0 <= response.length <= _BODY:
            response.read(limit=_BODY)
    except StoreUnavailable:
        pass
    finally:
        response.close()
