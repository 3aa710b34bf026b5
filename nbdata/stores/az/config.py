"""Configuration of ``az://``: account and credentials, from storage options (adlfs's names) and environment."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nbdata.errors import BadOption
from nbdata.operation import Context
from nbdata.origins import origin_of
from nbdata.stores.credentials.bearer import AskedToken, FixedToken, TokenSource
from nbdata.stores.credentials.storage_options import (
    is_address,
    layered,
    refuse_set,
    refuse_unknown,
    trusted,
    truth,
)
from nbdata.stores.http.dial import stall_limit
from nbdata.stores.http.proxies import authorities_in, proxy_for
from nbdata.stores.objects import Stop

__all__ = ["AzConfig", "account_origins", "az_config"]

_OPTIONS = [
    "account_name",
    "account_key",
    "connection_string",
    "sas_token",
    "credential",
    "tenant_id",
    "client_id",
    "client_secret",
    "anon",
    "account_host",
    "endpoint_url",
    "verify",
    "request_session",
    "location_mode",
]
# Options of adlfs that have no effect here.
_IGNORED = {
    "socket_timeout",
    "blocksize",
    "default_fill_cache",
    "default_cache_type",
    "version_aware",
    "assume_container_exists",
    "max_concurrency",
    "asynchronous",
    "loop",
    "use_listings_cache",
    "listings_expiry_time",
    "max_paths",
    "skip_instance_cache",
    "exclude_shared_token_cache_credential",
}
# The account of every emulator ("Use the Azurite emulator", Azure Storage documentation). It is no secret.
_EMULATED = {
    "AccountName": "devstoreaccount1",
    "AccountKey": "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
    "BlobEndpoint": "http://127.0.0.1:10000/devstoreaccount1",
}


@dataclass(frozen=True)
class AzConfig:
    """The settings that decide where requests go and which credentials they carry.

    Attributes
    ----------
    key : str
        The account's key for signing, or ''.
    sas : str
        A shared access signature, as a query, or ''.
    """

    account: str
    endpoint: str
    key: str = field(default="", repr=False)
    sas: str = field(default="", repr=False)
    tokens: TokenSource = field(default=FixedToken("", "nobody"), repr=False)
    source: str = ""
    proxy: str = field(default="", repr=False)
    ca: str = ""
    verify: bool = True
    stall: float = 30.0


def az_config(host: str, context: Context, *, stop: Stop | None = None) -> AzConfig:
    """Return the configuration of ``az://`` for a client. Storage options override the environment.

    Parameters
    ----------
    host : str
        The account's host in the URL (``account.dfs.core.windows.net``), or ''.

    Raises
    ------
    BadOption
        For an unknown storage option, a missing account, or an endpoint that is not a URL.
    AccessDenied
        If there are no credentials.
    """
    options = layered(context, "az", "abfs", "abfss")
    refuse_set(options, "request_session")
    refuse_set(options, "location_mode", usual="primary")
    refuse_unknown(options, _OPTIONS, _IGNORED)
    env = context.env
    connection = _connection(str(options.get("connection_string") or ""))
    given = bool(
        set(options) & {"account_key", "sas_token", "credential", "connection_string", "client_secret"}
    )
    if not given and not options.get("account_name") and not host:
        connection = _connection(env.get("AZURE_STORAGE_CONNECTION_STRING", ""))
    account = str(
        options.get("account_name")
        or host.partition(".")[0]
        or connection.get("AccountName")
        or env.get("AZURE_STORAGE_ACCOUNT")
        or env.get("AZURE_STORAGE_ACCOUNT_NAME")
        or ""
    )
    endpoint = str(options.get("endpoint_url") or connection.get("BlobEndpoint") or "").rstrip("/")
    if not endpoint:
        if not account:
            raise BadOption(
                "az:// needs an account",
                remedy="Set AZURE_STORAGE_ACCOUNT, or --option account_name=…, or write abfs://container@account…",
            )
        suffix = connection.get("EndpointSuffix", "core.windows.net")
        where = str(
            options.get("account_host") or host.replace(".dfs.", ".blob.") or f"{account}.blob.{suffix}"
        )
        endpoint = f"{connection.get('DefaultEndpointsProtocol', 'https')}://{where}"
    if not is_address(endpoint) or "?" in endpoint or "@" in endpoint:  # not shown, since it may hold a SAS
        raise BadOption("endpoint_url: this is not a URL", expected="https://account.blob.core.windows.net")
    credentials = _credentials(options, connection, env, account, stop)
    ca, verify = trusted(options.get("verify", True), authorities_in(env))
    return AzConfig(account, endpoint, *credentials, proxy_for(endpoint, env), ca, verify, stall_limit(env))


def account_origins(context: Context) -> tuple[str, ...] | None:
    """Return the origins (see `nbdata.origins`) of the accounts that options and environment name.

    None: they name the endpoint, which then gets the requests whatever host is in a URL.
    """
    options, env = layered(context, "az", "abfs", "abfss"), context.env
    given = _connection(str(options.get("connection_string") or ""))
    if options.get("endpoint_url") or given.get("BlobEndpoint"):
        return None
    connection = given
    if not given:
        with contextlib.suppress(BadOption):  # who uses it is told
            connection = _connection(env.get("AZURE_STORAGE_CONNECTION_STRING", ""))
    accounts = (
        options.get("account_name"),
        connection.get("AccountName"),
        env.get("AZURE_STORAGE_ACCOUNT"),
        env.get("AZURE_STORAGE_ACCOUNT_NAME"),
    )
    suffix = connection.get("EndpointSuffix", "core.windows.net")
    hosts = [f"{account}.blob.{suffix}" for account in accounts if account]
    if options.get("account_host"):
        hosts.append(str(options["account_host"]))
    return ("az://", *(origin_of(f"az://container@{host}") for host in hosts))


def _credentials(
    options: Mapping[str, Any],
    connection: Mapping[str, str],
    env: Mapping[str, str],
    account: str,
    stop: Stop | None,
) -> tuple[str, str, TokenSource, str]:
    """Return key, SAS, tokens and their origin, from the first place that has any.

    The key and the SAS of the environment are those of the account that it names, if it names one.
    """
    nobody = FixedToken("", "anonymous access")
    if truth(options.get("anon", False), "anon"):
        return "", "", nobody, nobody.source
    given = options.get("credential")
    if given is not None and not isinstance(given, str):
        raise BadOption(
            "credential: only a key or a SAS can be given", remedy="Leave it out: nbdata then logs in itself"
        )
    key = str(options.get("account_key") or "")
    sas = str(options.get("sas_token") or "")
    if given:
        key, sas = ("", given) if "sig=" in given else (given, "")
    if key or sas:
        return key, sas.lstrip("?"), nobody, "storage options"
    if options.get("client_secret"):
        question = {
            name: str(options.get(name) or "") for name in ("tenant_id", "client_id", "client_secret")
        }
        tokens = AskedToken("azure_session", question, env, "storage options", stop)
        return "", "", tokens, tokens.source
    if connection.get("AccountKey") or connection.get("SharedAccessSignature"):
        return (
            connection.get("AccountKey", ""),
            connection.get("SharedAccessSignature", ""),
            nobody,
            "the connection string",
        )
    key = env.get("AZURE_STORAGE_KEY") or env.get("AZURE_STORAGE_ACCOUNT_KEY") or ""
    sas = env.get("AZURE_STORAGE_SAS_TOKEN") or ""
    named = env.get("AZURE_STORAGE_ACCOUNT") or env.get("AZURE_STORAGE_ACCOUNT_NAME") or account
    if (key or sas) and named.lower() == account.lower():
        return key, "" if key else sas.lstrip("?"), nobody, "the environment"
    tokens = AskedToken("azure_session", None, env, "the environment (azure-identity)", stop)
    return "", "", tokens, tokens.source


def _connection(text: str) -> dict[str, str]:
    """Parse a connection string ("Configure Azure Storage connection strings"). Raises BadOption if it is not one."""
    fields = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, equals, value = part.partition("=")
        if not equals:
            raise BadOption("connection_string: this is none", expected="Name=value;Name=value …")
        fields[name] = value
    if fields.get("UseDevelopmentStorage", "").lower() == "true":
        return {**_EMULATED, **fields}
    return fields
