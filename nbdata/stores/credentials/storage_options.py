"""Storage options that all stores over HTTP share: their layers, flags, certificates and addresses."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

from nbdata.errors import BadOption
from nbdata.operation import Context
from nbdata.option import suggest

__all__ = [
    "configured",
    "is_address",
    "layered",
    "refuse_no_address",
    "refuse_set",
    "refuse_unknown",
    "trusted",
    "truth",
]


_TRUTH = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(
    ("", "0", "false", "no", "off"), False
)


def configured(protocol: str, context: Context) -> dict[str, Any]:
    """The storage options of a protocol in fsspec's configuration."""
    options = context.fsspec_conf.get(protocol)
    return dict(options) if isinstance(options, dict) else {}


def layered(context: Context, *protocols: str) -> dict[str, Any]:
    """The storage options of the operation, which override those in fsspec's configuration for the protocols."""
    options: dict[str, Any] = {}
    for protocol in protocols:
        options |= configured(protocol, context)
    return options | context.storage_options


def refuse_unknown(options: Mapping[str, Any], known: list[str], ignored: Collection[str]) -> None:
    """Raise BadOption for an option that neither the store nor its fsspec file system knows."""
    for name in options:
        if name not in known and name not in ignored:
            raise BadOption(f"unknown storage option {name!r}", remedy=suggest(name, known))


def refuse_set(options: Mapping[str, Any], name: str, *, usual: object = None) -> None:
    """Raise BadOption for an option of the fsspec file system that would mean something, and does not here."""
    if options.get(name) not in (None, {}, usual):
        raise BadOption(
            f"storage option {name}: nbdata cannot do this",
            remedy="Leave it out; a proxy is set by https_proxy, certificates by verify=…",
        )


def truth(value: Any, name: str) -> bool:
    """A flag, which may be text as in ``--option anon=true``; BadOption names the option."""
    if not isinstance(value, str):
        return bool(value)
    if value.strip().lower() not in _TRUTH:
        raise BadOption(f"--option {name}: {value!r} is not valid", expected="true or false")
    return _TRUTH[value.strip().lower()]


def trusted(verify: Any, ca: str) -> tuple[str, bool]:
    """The certificates to trust, and whether to check the server's certificate at all.

    Parameters
    ----------
    verify : bool or str
        A flag, or a file or folder of certificates, which overrides `ca`.
    """
    if isinstance(verify, str) and verify.strip().lower() not in _TRUTH:
        if not set("./") & set(verify) and not os.path.exists(verify):
            raise BadOption(
                f"--option verify: {verify!r} is not valid",
                expected="true, false, or a file or folder of certificates",
            )
        return verify, True
    return ca, truth(verify, "verify")


def is_address(url: str) -> bool:
    """Whether this is the URL of an http or https server."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False


def refuse_no_address(endpoint: str) -> None:
    """Raise BadOption for an endpoint that is not the URL of a server."""
    if not is_address(endpoint):
        raise BadOption(
            f"endpoint_url: {endpoint!r} is not a URL", expected="http://host:port or https://host"
        )
