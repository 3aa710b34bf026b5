"""Connect a socket to an origin: resolve the name, pass the proxy, set up TLS, and explain failures.

Holds the parts of `client` that are not HTTP, except for the CONNECT request to a proxy.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import math
import os
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from nbdata.errors import AccessDenied, BadOption
from nbdata.stores.base import Stop
from nbdata.stores.uninterruptible import waited_for

__all__ = [
    "Closed",
    "Malformed",
    "Origin",
    "dial",
    "proxy_address",
    "proxy_headers",
    "reason",
    "remedy",
    "shut",
    "stall_limit",
    "tls_context",
    "wants_password",
    "way",
]

CONNECT_TIMEOUT = 10.0
# A connection without a byte for this long is dead, in seconds.
_STALL, _STALL_NAME = 30.0, "NBDATA_STALL_TIMEOUT"
# Longest time limit. A larger value means "for ever", which neither sockets nor poll accept.
_LONGEST = 7 * 86400.0
# The most bytes of a proxy's response.
_ANSWER = 64 << 10
# OpenSSL's reasons for a response that is not TLS.
_PLAIN = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
_NO_TLS = "the server speaks no TLS there"


@dataclass(frozen=True)
class Origin:
    """Where and how to connect: scheme, host, port, proxy and trusted certificates.

    Attributes
    ----------
    proxy : str
        URL of a proxy, or ''. It may hold a password, so no repr shows it.
    ca : str
        File or folder of certificates to trust; '' for the system's.
    verify : bool
        Whether the server's certificate is checked.
    stall : float
        Seconds without a byte after which a connection is given up.
    certificate : tuple of (str, str)
        The files of the client's own certificate and of its key; empty for none.
    """

    scheme: str
    host: str
    port: int
    proxy: str = field(default="", repr=False)
    ca: str = ""
    verify: bool = True
    stall: float = _STALL
    certificate: tuple[str, str] = ("", "")

    @classmethod
    def of(cls, url: str, *, proxy: str, ca: str, verify: bool, stall: float) -> Origin:
        """The origin of a URL, at the default port of its scheme unless the URL has one."""
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return cls(parts.scheme, parts.hostname or "", port, proxy, ca, verify, stall)

    @property
    def netloc(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.scheme == "https" else 80) else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc}"


def stall_limit(env: Mapping[str, str]) -> float:
    """Seconds without a byte after which a connection is dead: NBDATA_STALL_TIMEOUT, or 30; a week at most.

    Raises
    ------
    BadOption
        If the variable is not a number of seconds.
    """
    text = env.get(_STALL_NAME)
    if not text:
        return _STALL
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise BadOption(f"{_STALL_NAME}: {text!r} is not a time", expected="seconds, such as 30 or 2.5")
    return min(seconds, _LONGEST)


class Closed(Exception):
    """The peer closed the connection, or did not speak HTTP."""


class Malformed(Closed):
    """A response breaks the rules of HTTP, so it is not certain where its body ends."""


def dial(origin: Origin, context: ssl.SSLContext | None, stop: Stop | None) -> socket.socket:
    """Connect to an origin through its proxy, if it has one, with TLS if `context` is given. `stop` interrupts it."""
    proxy = urlsplit(origin.proxy) if origin.proxy else None
    address = (proxy.hostname or "", proxy.port or 8080) if proxy else (origin.host, origin.port)
    sock = _open_socket(address, stop)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(CONNECT_TIMEOUT)
        if context is not None:
            if proxy:
                with _watched(sock, stop):
                    _tunnel(sock, origin)
            sock = context.wrap_socket(sock, server_hostname=origin.host, do_handshake_on_connect=False)
            with _watched(sock, stop):
                sock.do_handshake()
        return sock
    except BaseException:
        sock.close()
        raise


def _open_socket(address: tuple[str, int], stop: Stop | None) -> socket.socket:
    """Connect a socket to the first address of the name that responds. `stop` interrupts it."""
    last: OSError | None = None
    for family, kind, protocol, _, where in _addresses(address, stop):
        sock = socket.socket(family, kind, protocol)
        sock.settimeout(CONNECT_TIMEOUT)
        try:
            with _watched(sock, stop):
                sock.connect(where)
            return sock
        except OSError as error:
            last = error
            sock.close()
            if stop is not None and stop.is_set():
                break
        except BaseException:
            sock.close()
            raise
    raise last or OSError("the name has no address")


def _addresses(address: tuple[str, int], stop: Stop | None) -> Sequence[tuple[Any, ...]]:
    """Resolve a name. A resolver without a network may take a minute, so `stop` ends the waiting."""
    try:
        return socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:  # a name, not an address
        return waited_for(lambda: socket.getaddrinfo(*address, type=socket.SOCK_STREAM), stop)


@contextlib.contextmanager
def _watched(sock: socket.socket, stop: Stop | None) -> Iterator[None]:
    """Let `stop` interrupt blocking calls on a socket inside the ``with`` block."""
    abort = functools.partial(shut, sock)
    if stop is not None:
        stop.add(abort)
    try:
        yield
    finally:
        if stop is not None:
            stop.remove(abort)


def shut(sock: socket.socket) -> None:
    """Interrupt blocking calls on a socket, from another thread.

    Does not use SSLSocket's own method: that removes the TLS layer, and the next read would return ciphertext.
    """
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _tunnel(sock: socket.socket, origin: Origin) -> None:
    auth = proxy_headers(origin)
    target = f"{origin.host}:{origin.port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}", *(f"{n}: {v}" for n, v in auth.items()), "", ""]
    sock.sendall("\r\n".join(lines).encode("latin-1"))
    head = bytearray()
    while not head.endswith(b"\r\n\r\n"):
        byte = sock.recv(1)
        if not byte or len(head) > _ANSWER:
            raise Closed("the proxy closed the connection")
        head += byte
    line = head.split(b"\r\n")[0].decode("latin-1")
    status = line.split(" ")[1] if line.startswith("HTTP/1.") and " " in line else ""
    if status == "407":
        raise wants_password(origin)
    if status in ("400", "403", "405"):  # another try would be refused too
        raise AccessDenied(
            f"the proxy refuses to connect to {target}",
            path=proxy_address(origin.proxy),
            got=line,
            remedy="Ask its administrator, or exclude this host with no_proxy",
        )
    if status != "200":
        raise Closed(f"the proxy could not connect: {line}")


def wants_password(origin: Origin) -> AccessDenied:
    """The error for a proxy that rejects the credentials or needs some."""
    known = urlsplit(origin.proxy).username is not None
    return AccessDenied(
        "the proxy does not take this user and password"
        if known
        else "the proxy wants a user and a password",
        path=proxy_address(origin.proxy),
        remedy="Correct them in https_proxy or http_proxy: http://USER:PASSWORD@HOST:PORT",
    )


def proxy_address(proxy: str) -> str:
    """A proxy's URL without its password."""
    parts = urlsplit(proxy)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def way(origin: Origin) -> str:
    """An origin and the proxy on the way to it, for messages."""
    return f"{origin} through the proxy {proxy_address(origin.proxy)}" if origin.proxy else str(origin)


def proxy_headers(origin: Origin) -> dict[str, str]:
    """The headers for a proxy: its credentials, if its URL has any."""
    proxy = urlsplit(origin.proxy)
    if proxy.username is None:
        return {}
    token = base64.b64encode(f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()).decode()
    return {"Proxy-Authorization": f"Basic {token}"}


def tls_context(origin: Origin) -> ssl.SSLContext:
    """A TLS context with the certificates that the origin trusts."""
    context = ssl.create_default_context()
    if origin.ca:
        folder = os.path.isdir(origin.ca)
        try:
            context.load_verify_locations(
                cafile=None if folder else origin.ca, capath=origin.ca if folder else None
            )
        except OSError as error:
            raise BadOption(
                "the file of trusted certificates cannot be used",
                path=origin.ca,
                got=os.strerror(error.errno or 0)
                if not isinstance(error, ssl.SSLError)
                else "no certificates",
                remedy="Correct AWS_CA_BUNDLE, REQUESTS_CA_BUNDLE, SSL_CERT_FILE or the option verify",
            ) from error
    if origin.certificate[0]:
        try:
            context.load_cert_chain(*origin.certificate)
        except OSError as error:
            raise BadOption(
                "the client's certificate or its key cannot be used",
                path=origin.certificate[0],
                got=os.strerror(error.errno or 0)
                if not isinstance(error, ssl.SSLError)
                else "no pair of them",
                remedy="Correct AIS_CRT and AIS_CRT_KEY",
            ) from error
    if not origin.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def reason(error: Exception) -> str:
    """Explain in words why there is no response."""
    if isinstance(error, TimeoutError):
        return "it took too long"
    if isinstance(error, socket.gaierror):
        return "the name of the server cannot be resolved"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return _NO_TLS if error.reason in _PLAIN else f"TLS failed ({(error.reason or 'broken off').lower()})"
    if isinstance(error, ConnectionRefusedError):
        return "no server listens there"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


def remedy(error: Exception) -> str:
    """Advice for the user about a failed connection."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "Name the authority in AWS_CA_BUNDLE or SSL_CERT_FILE"
    if isinstance(error, ssl.SSLError) and error.reason in _PLAIN:
        return "Write http:// in place of https:// in the endpoint, or name the port that https has"
    return "Check the address (for S3: endpoint_url or AWS_ENDPOINT_URL), the network and the proxy settings"
