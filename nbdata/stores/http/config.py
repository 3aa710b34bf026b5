"""Credentials and trusted certificates of an HTTP server: from the URL, storage options and the environment."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from nbdata.errors import BadOption
from nbdata.operation import Context
from nbdata.stores.credentials.storage_options import layered, refuse_unknown, trusted
from nbdata.stores.http.proxies import authorities_in

__all__ = ["HttpConfig", "for_one_server", "http_config"]

_OPTIONS = ["username", "password", "token", "headers", "verify", "client_kwargs"]
# Options of fsspec's file system that have no effect here.
_IGNORED = {
    "simple_links",
    "block_size",
    "same_scheme",
    "size_policy",
    "cache_type",
    "cache_options",
    "asynchronous",
    "loop",
    "get_client",
    "encoded",
    "use_listings_cache",
    "listings_expiry_time",
    "max_paths",
    "skip_instance_cache",
}
_NAME, _VALUE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"), re.compile(r"[^\x00-\x1f\x7f]*")


@dataclass(frozen=True)
class HttpConfig:
    """The headers and trust settings for requests to the named server. No other server gets them.

    Attributes
    ----------
    authorization : str
        The Authorization header, or ''.
    headers : tuple of (str, str)
        Further headers, with names in lower case.
    source : str
        The origin of the user and password, shown in messages.
    env : mapping
        The client's environment, which names proxies.
    allow_html : bool
        Whether a web page may be the content of a file with another name.
    """

    authorization: str = field(default="", repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    source: str = "anonymous access"
    ca: str = ""
    verify: bool = True
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    allow_html: bool = False


def http_config(url: str, context: Context) -> HttpConfig:
    """Return the configuration for a URL in a client's context. User and password in the URL win.

    Raises
    ------
    BadOption
        For an unknown storage option, or a header that would break the request.
    """
    options = layered(context, "http", "https")
    refuse_unknown(options, _OPTIONS, _IGNORED)
    client = options.get("client_kwargs")
    headers = dict(client.get("headers") or {}) if isinstance(client, dict) else {}
    given = options.get("headers")
    if given is not None and not isinstance(given, dict):
        raise BadOption(
            "headers: this is no mapping of names to values", remedy="Give it in Python, as a dict"
        )
    headers = {str(name).lower(): str(value) for name, value in {**headers, **(given or {})}.items()}
    for name, value in headers.items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value) or not value.isascii():
            raise BadOption(f"headers: {name!r} cannot be sent", expected="one line of ASCII")
    parts = urlsplit(url)
    user, password, source = parts.username, parts.password, "the URL"
    if user is None and options.get("username"):
        user, password, source = options["username"], options.get("password"), "storage options"
    elif user is not None:
        user, password = unquote(user), unquote(password or "")
    authorization = headers.pop("authorization", "")
    if authorization:
        source = "storage options" if user is None else source
    if user is not None:
        authorization = "Basic " + base64.b64encode(f"{user}:{password or ''}".encode()).decode()
    elif options.get("token"):
        authorization, source = f"Bearer {options['token']}", "storage options"
        if not _VALUE.fullmatch(authorization) or not authorization.isascii():
            raise BadOption("token: this cannot be sent", expected="one line of ASCII")
    ca, verify = trusted(options.get("verify", True), authorities_in(context.env))
    return HttpConfig(
        authorization,
        tuple(sorted(headers.items())),
        source if authorization else "anonymous access",
        ca,
        verify,
        context.env,
        context.allow_html,
    )


def for_one_server(options: Mapping[str, Any]) -> list[str]:
    """Return the names of the options that say to a server who asks, or who the server must be.

    Any header may be a secret, whatever its name.
    """
    found = [
        name for name in _OPTIONS if name != "client_kwargs" and options.get(name) not in (None, "", {}, True)
    ]
    client = options.get("client_kwargs")
    return [*found, *(["client_kwargs"] if isinstance(client, dict) and client.get("headers") else [])]
