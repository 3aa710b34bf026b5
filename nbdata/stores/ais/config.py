"""Configuration of ``ais://``: gateway, bucket and token, from storage options and the environment.

The variables have the names of AIStore's own clients (``api/env`` of its sources, and its Python SDK).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nbdata.bounded import Unreadable, parse_json
from nbdata.errors import AccessDenied, BadOption
from nbdata.operation import Context
from nbdata.redaction import remember
from nbdata.stores.ais.answers import is_bucket_name
from nbdata.stores.credentials.storage_options import (
    layered,
    refuse_no_address,
    refuse_unknown,
    trusted,
    truth,
)
from nbdata.stores.http.dial import stall_limit
from nbdata.stores.http.hops import Hops, hops_of
from nbdata.stores.http.proxies import authorities_in, proxy_for

__all__ = ["AisBucket", "AisConfig", "ais_config", "bucket_of", "service_of"]

_OPTIONS = ["endpoint_url", "token", "anon", "provider", "verify", "redirects"]
# The names of backends, with their aliases (``sdk/provider.py``).
_PROVIDERS = {name: name for name in ("ais", "aws", "azure", "gcp", "oci")} | {
    "s3": "aws",
    "gs": "gcp",
    "az": "azure",
}
# The most bytes of a file with a token.
_TOKEN = 64 << 10


@dataclass(frozen=True)
class AisBucket:
    """A bucket of a cluster.

    Attributes
    ----------
    provider : str
        Whose bucket it is: ``ais``, or the backend behind it.
    namespace : str
        Of another AIStore cluster that is attached to this one, as ``@NAME``; empty for this cluster.
    """

    name: str
    provider: str = "ais"
    namespace: str = ""

    def __str__(self) -> str:
        before = self.namespace or ("" if self.provider == "ais" else f"@{self.provider}")
        return f"ais://{before}/{self.name}" if before else f"ais://{self.name}"

    @property
    def query(self) -> dict[str, str]:
        """What says in the query of a request which bucket is meant."""
        return {"provider": self.provider} | ({"namespace": f"{self.namespace}#"} if self.namespace else {})


@dataclass(frozen=True)
class AisConfig:
    """The settings that decide where requests go and which credentials they carry.

    Attributes
    ----------
    hops : Hops or None
        The redirects that the user allows; None for the nodes of the cluster's own map.
    certificate : tuple of (str, str)
        The files of the client's certificate and of its key; empty for none.
    """

    endpoint: str
    token: str = field(default="", repr=False)
    source: str = "anonymous access"
    proxy: str = field(default="", repr=False)
    ca: str = ""
    verify: bool = True
    stall: float = 30.0
    hops: Hops | None = None
    certificate: tuple[str, str] = ("", "")
    env: Mapping[str, str] = field(default_factory=dict, repr=False)


def bucket_of(place: str, context: Context) -> tuple[AisBucket, str, str]:
    """Return bucket, the slash after it (or ''), and key of ``ais://bucket/key`` or ``ais://@aws/bucket/key``.

    Behind ``@`` stands a backend or the name of an attached cluster. The option ``provider`` says the same for a URL
    without it.

    Raises
    ------
    BadOption
        If the URL names no bucket, or the provider is not known.
    """
    where, rest = _where(place)
    first, slash, key = rest.partition("/")
    provider, namespace = _provider(where, context)
    if not first or namespace == "@":
        raise BadOption(f"{place} names no bucket", expected="ais://bucket/key or ais://@aws/bucket/key")
    if not is_bucket_name(first):
        raise BadOption(
            "this is no name of a bucket",
            path=place,
            expected="letters, digits and .-_",
            remedy="Give the gateway as --option endpoint_url=http://HOST:PORT or in AIS_ENDPOINT"
            if ":" in first
            else "",
        )
    return AisBucket(first, provider, namespace), slash, key


def service_of(place: str, context: Context) -> tuple[AisBucket, str, str] | None:
    """Return the service behind a URL that ends before or in the name of a bucket; None for any other URL.

    It is a bucket without a name. With it come the URL that its buckets begin with, and how the wanted ones do.
    """
    where, rest = _where(place)
    if "/" in rest:
        return None
    provider, namespace = _provider(where, context)
    return AisBucket("", provider, namespace), f"ais://{where}/" if where else "ais://", rest


def _where(place: str) -> tuple[str, str]:
    """Split ``ais://@aws/bucket/key`` into ``@aws``, or '', and what comes behind it."""
    rest = place.partition("://")[2]
    if not rest.startswith("@"):
        return "", rest
    where, _, rest = rest.partition("/")
    return where, rest


def _provider(where: str, context: Context) -> tuple[str, str]:
    """Return the provider and the namespace that ``@…`` means, or without it the option ``provider``."""
    name = where[1:].lower() if where else str(layered(context, "ais").get("provider") or "ais").lower()
    if where and name not in _PROVIDERS:
        return "ais", where
    if name not in _PROVIDERS:
        raise BadOption(f"provider: {name!r} is not known", expected=", ".join(_PROVIDERS))
    return _PROVIDERS[name], ""


def ais_config(context: Context) -> AisConfig:
    """Return the configuration of ``ais://`` for a client. Storage options override fsspec's configuration.

    Raises
    ------
    BadOption
        For an unknown storage option, or without the address of a gateway.
    AccessDenied
        If the file of the token cannot be read.
    """
    options, env = layered(context, "ais"), context.env
    refuse_unknown(options, _OPTIONS, ())
    endpoint = str(options.get("endpoint_url") or env.get("AIS_ENDPOINT") or "")
    if not endpoint:
        raise BadOption(
            "ais:// needs the address of a gateway",
            remedy="Set AIS_ENDPOINT=http://HOST:PORT, or --option endpoint_url=…",
        )
    if "://" not in endpoint:
        endpoint = f"http://{endpoint}"
    refuse_no_address(endpoint)
    token, source = _token(options, context)
    skips = env.get("AIS_SKIP_VERIFY_CRT") or env.get("AIS_SKIP_VERIFY") or "false"
    verify = options.get("verify", not truth(skips, "AIS_SKIP_VERIFY_CRT"))
    ca, verify = trusted(verify, env.get("AIS_CLIENT_CA") or authorities_in(env))
    return AisConfig(
        endpoint.rstrip("/").removesuffix("/v1"),
        token,
        source,
        proxy_for(endpoint, env),
        ca,
        verify,
        stall_limit(env),
        hops_of(options, env),
        _certificate(env),
        env,
    )


def _token(options: Mapping[str, Any], context: Context) -> tuple[str, str]:
    """Return the token and where it is from."""
    env = context.env
    if truth(options.get("anon", False), "anon"):
        return "", "anonymous access"
    token, source = str(options.get("token") or ""), "storage options"
    if not token:
        token, source = env.get("AIS_AUTHN_TOKEN", ""), "AIS_AUTHN_TOKEN"
    if not token and (file := env.get("AIS_AUTHN_TOKEN_FILE")):
        token, source = _token_in(os.path.join(context.cwd, file)), "AIS_AUTHN_TOKEN_FILE"
    if not token:
        return "", "anonymous access"
    if not token.isascii() or not token.isprintable() or " " in token:
        raise BadOption("token: this cannot be sent", expected="one line of ASCII without blanks")
    remember(token)
    return token, source


def _token_in(file: str) -> str:
    """Read a token from a file: JSON with a member ``token``, as AIStore's own client writes it, or the text alone."""
    try:
        with open(file, "rb") as opened:
            data = opened.read(_TOKEN)
    except OSError as error:
        raise AccessDenied(
            f"the file of the token cannot be read ({os.strerror(error.errno or 0)})",
            path=file,
            remedy="Correct AIS_AUTHN_TOKEN_FILE, or log in again with AIStore's client",
        ) from error
    try:
        told = parse_json(data)
    except Unreadable:
        return data.decode("utf-8", "replace").strip()
    token = told.get("token") if isinstance(told, dict) else told
    return token if isinstance(token, str) else ""


def _certificate(env: Mapping[str, str]) -> tuple[str, str]:
    """The client's own certificate (mutual TLS): both files, or neither."""
    certificate, key = env.get("AIS_CRT", ""), env.get("AIS_CRT_KEY", "")
    return (certificate, key) if certificate and key else ("", "")
