"""Configuration of ``gs://``: endpoint and credentials, from storage options (gcsfs's names) and environment."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from nbdata.errors import BadOption
from nbdata.operation import Context
from nbdata.stores.credentials.bearer import AskedToken, FixedToken, TokenSource
from nbdata.stores.credentials.storage_options import (
    layered,
    refuse_no_address,
    refuse_set,
    refuse_unknown,
    trusted,
    truth,
)
from nbdata.stores.http.dial import stall_limit
from nbdata.stores.http.proxies import authorities_in, proxy_for
from nbdata.stores.objects import Stop

__all__ = ["GsConfig", "gs_config"]

_OPTIONS = ["token", "anon", "endpoint_url", "project", "requester_pays", "verify", "session_kwargs"]
# Options of gcsfs that have no effect here.
_IGNORED = {
    "access",
    "consistency",
    "cache_timeout",
    "secure_serialize",
    "check_connection",
    "default_location",
    "version_aware",
    "asynchronous",
    "loop",
    "callback_timeout",
    "block_size",
    "default_block_size",
    "use_listings_cache",
    "listings_expiry_time",
    "max_paths",
    "skip_instance_cache",
    "timeout",
}
_ENDPOINT = "https://storage.googleapis.com"


@dataclass(frozen=True)
class GsConfig:
    """The settings that decide where requests go and which credentials they carry."""

    endpoint: str
    tokens: TokenSource = field(repr=False)
    user_project: str = ""
    proxy: str = field(default="", repr=False)
    ca: str = ""
    verify: bool = True
    stall: float = 30.0


def gs_config(context: Context, *, stop: Stop | None = None) -> GsConfig:
    """Return the configuration of ``gs://`` for a client. Storage options override fsspec's configuration.

    Without a `token` option, google-auth finds the credentials in the client's environment
    (GOOGLE_APPLICATION_CREDENTIALS and so on). STORAGE_EMULATOR_HOST names another server, which gets no credentials.

    Raises
    ------
    BadOption
        For an unknown storage option, or an endpoint that is not a URL.
    """
    options = layered(context, "gcs", "gs")
    refuse_set(options, "session_kwargs", usual={"trust_env": True})
    refuse_unknown(options, _OPTIONS, _IGNORED)
    emulator = context.env.get("STORAGE_EMULATOR_HOST", "")
    endpoint = str(options.get("endpoint_url") or emulator or _ENDPOINT)
    if "://" not in endpoint:
        endpoint = f"http://{endpoint}"
    refuse_no_address(endpoint)
    pays = options.get("requester_pays", False)
    project = options.get("project")
    if isinstance(pays, str) and pays.lower() not in ("true", "false"):
        project, pays = pays, True  # gcsfs accepts the name of the paying project here
    pays = pays is True or str(pays).lower() == "true"
    if pays and not project:
        raise BadOption("requester_pays needs the project that pays", remedy="Give --option project=NAME too")
    ca, verify = trusted(options.get("verify", True), authorities_in(context.env))
    return GsConfig(
        endpoint,
        _tokens(options, context, stop, emulated=bool(emulator) and not options.get("endpoint_url")),
        str(project) if pays else "",
        proxy_for(endpoint, context.env),
        ca,
        verify,
        stall_limit(context.env),
    )


def _tokens(options: dict[str, Any], context: Context, stop: Stop | None, *, emulated: bool) -> TokenSource:
    token = options.get("token")
    if token in ("anon",) or truth(options.get("anon", False), "anon"):
        return FixedToken("", "anonymous access")
    if token is None and emulated:
        return FixedToken("", "anonymous access (an emulator)")
    if isinstance(token, dict):
        return AskedToken("google_session", token, context.env, "storage options", stop)
    if token in (None, "google_default", "cloud"):
        source = "the environment (GOOGLE_APPLICATION_CREDENTIALS, gcloud's login, or this machine's account)"
        return AskedToken("google_session", None, context.env, source, stop)
    if token in ("cache", "browser"):
        raise BadOption(
            f"token: {token!r} asks at a browser, which nbdata does not",
            remedy="Log in with gcloud auth application-default login, or name a file of credentials",
        )
    path = os.path.join(context.cwd, os.path.expanduser(str(token)))
    if os.path.isfile(path):
        return AskedToken("google_session", path, context.env, f"the file {token}", stop)
    text = str(token)
    if text.endswith(".json") or "/" in text or not text.isascii() or any(c.isspace() for c in text):
        raise BadOption(
            "token: there is no such file", expected="a file of credentials, an access token, or anon"
        )
    return FixedToken(text, "storage options")
