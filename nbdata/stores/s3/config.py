"""Configuration of S3: credentials and endpoint, from storage options, the environment and AWS profiles.

Options have the names of s3fs's ``storage_options``. Static keys need no botocore. For settings of AWS's configuration
files or credential providers, botocore is asked in a short-lived process with the client's environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from nbdata.errors import AccessDenied, BadOption
from nbdata.operation import Context
from nbdata.stores.credentials.asked import ask
from nbdata.stores.credentials.storage_options import (
    configured,
    layered,
    refuse_no_address,
    refuse_unknown,
    trusted,
    truth,
)
from nbdata.stores.http.dial import stall_limit
from nbdata.stores.http.hops import Hops, hops_of
from nbdata.stores.http.proxies import authorities_in, proxy_for
from nbdata.stores.objects import Stop
from nbdata.stores.s3.parameters import Parameters, check_config, parameters_of
from nbdata.stores.s3.sigv4 import Identity

__all__ = ["S3Config", "s3_config"]

_OPTIONS = [
    "key",
    "secret",
    "token",
    "username",
    "password",
    "anon",
    "endpoint_url",
    "profile",
    "use_ssl",
    "client_kwargs",
    "config_kwargs",
    "requester_pays",
    "region",
    "addressing_style",
    "verify",
    "s3_additional_kwargs",
    "redirects",
]
# Options of s3fs that have no effect here.
_IGNORED = {
    "default_block_size",
    "default_fill_cache",
    "default_cache_type",
    "version_aware",
    "cache_regions",
    "asynchronous",
    "loop",
    "use_listings_cache",
    "listings_expiry_time",
    "max_paths",
    "skip_instance_cache",
    "session",
    "max_concurrency",
    "fixed_upload_size",
    "retries",
}


@dataclass(frozen=True)
class S3Config:
    """The settings that decide how requests for one bucket are addressed and signed."""

    identity: Identity | None
    region: str
    endpoint: str
    addressing: str
    proxy: str = field(default="", repr=False)
    ca: str = ""
    verify: bool = True
    requester_pays: bool = False
    stall: float = 30.0
    parameters: Parameters = field(default_factory=Parameters)
    hops: Hops | None = None

    @property
    def address(self) -> str:
        """The URL of the service."""
        return self.endpoint or self._aws_endpoint()

    def host_for(self, bucket: str) -> tuple[str, str, int, str]:
        """Return scheme, host, port and path prefix for a bucket, or without a bucket for the service itself."""
        parts = urlsplit(self.address)
        scheme = parts.scheme.lower()
        port = parts.port or (443 if scheme == "https" else 80)
        host = parts.hostname or ""
        prefix = parts.path.rstrip("/")
        if not bucket:
            return scheme, host, port, prefix
        virtual = self.addressing == "virtual" or (
            self.addressing == "auto" and not self.endpoint and "." not in bucket
        )
        return (
            (scheme, f"{bucket}.{host}", port, prefix)
            if virtual
            else (scheme, host, port, f"{prefix}/{bucket}")
        )

    def names_bucket(self, bucket: str) -> bool:
        """True if the given endpoint seems to name the bucket: as the end of its path, or the start of its host."""
        parts = urlsplit(self.endpoint)
        in_path = parts.path.rstrip("/").rpartition("/")[2] == bucket
        return bool(bucket) and (in_path or (parts.hostname or "").startswith(f"{bucket}."))

    def _aws_endpoint(self) -> str:
        suffix = "amazonaws.com.cn" if self.region.startswith("cn-") else "amazonaws.com"
        return f"https://s3.{self.region}.{suffix}"


def s3_config(scheme: str, context: Context, *, refused: str = "", stop: Stop | None = None) -> S3Config:
    """Return the configuration for ``s3://`` or ``obs://`` in a client's context.

    Storage options of the operation override fsspec's configuration. That overrides the environment, which overrides
    AWS's configuration files. Keys and token come from one place, never from two. A `refused` session token is replaced
    by a new one, if it came from botocore.

    Raises
    ------
    BadOption
        For an unknown storage option, a key without its secret, or an endpoint that is not a URL.
    AccessDenied
        If there are no credentials, or the profile cannot be used.
    """
    layers = {
        "storage options": context.storage_options,
        "fsspec's configuration": configured(scheme, context),
    }
    options = layered(context, scheme)
    refuse_unknown(options, _OPTIONS, _IGNORED)
    client = dict(options.get("client_kwargs") or {})
    env = context.env
    identity, anonymous, profile = _chosen(layers)
    if check_config(options):
        identity, anonymous = None, True
    endpoint = options.get("endpoint_url") or client.get("endpoint_url")
    region = options.get("region") or client.get("region_name")
    given = identity is not None or anonymous or bool(profile)
    if scheme == "obs":
        if not given:
            identity = _from_environment(
                env, "OBS_ACCESS_KEY_ID", "OBS_SECRET_ACCESS_KEY", "OBS_SECURITY_TOKEN"
            )
            given = identity is not None
        region = region or env.get("OBS_REGION")
        endpoint = (
            endpoint
            or env.get("OBS_ENDPOINT")
            or (f"https://obs.{region}.myhuaweicloud.com" if region else "")
        )
        if not endpoint:
            raise BadOption(
                "obs:// needs an endpoint",
                remedy="Set OBS_REGION or OBS_ENDPOINT, or --option endpoint_url=…",
            )
    endpoint = endpoint or env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or ""
    region = region or env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION")
    addressing = _addressing(options)
    ca = env.get("AWS_CA_BUNDLE") or authorities_in(env)
    if not given:
        identity = _from_environment(env, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        if identity is not None and env.get("AWS_PROFILE"):
            identity = replace(identity, source="the environment, whose keys go before AWS_PROFILE")
    profile = profile or env.get("AWS_PROFILE") or env.get("AWS_DEFAULT_PROFILE")
    if scheme == "s3" and ((identity is None and not anonymous) or _has_config_file(env)):
        # botocore does not read AWS_REGION, unlike other AWS clients.
        settings = {"AWS_DEFAULT_REGION": str(region), **env} if region else env
        asked = ask("aws_session", profile, settings, refused=refused, stop=stop)
        region = region or asked.get("region")
        endpoint = endpoint or asked.get("endpoint") or ""
        addressing = addressing or asked.get("addressing")
        ca = ca or asked.get("ca") or ""
        if identity is None and not anonymous:
            identity = _identity_of(asked, profile)
    if identity is None and not anonymous:
        raise AccessDenied(
            f"no credentials for {scheme}://",
            remedy="Set them in the environment, or --option anon=true for a public bucket",
        )
    endpoint = _checked_endpoint(str(endpoint), options)
    ca, verify = trusted(options.get("verify", client.get("verify", True)), ca)
    return S3Config(
        identity,
        str(region or "us-east-1"),
        endpoint,
        addressing or ("virtual" if scheme == "obs" else "auto"),
        proxy_for(endpoint or f"https://s3.{region or 'us-east-1'}.amazonaws.com", env),
        ca,
        verify,
        truth(options.get("requester_pays", False), "requester_pays"),
        stall_limit(env),
        parameters_of(options),
        hops_of(options, env),
    )


def _chosen(layers: Mapping[str, Mapping[str, Any]]) -> tuple[Identity | None, bool, str | None]:
    """Return identity, anonymity and profile from the first layer that has any of them."""
    for source, options in layers.items():
        client = dict(options.get("client_kwargs") or {})
        key = options.get("key") or options.get("username") or client.get("aws_access_key_id")
        secret = options.get("secret") or options.get("password") or client.get("aws_secret_access_key")
        token = options.get("token") or client.get("aws_session_token") or ""
        if truth(options.get("anon", False), "anon"):
            return None, True, None
        if bool(key) != bool(secret):
            raise BadOption(
                f"key and secret belong together, and {source} have one", remedy="Give both or none"
            )
        if key:
            return Identity(str(key), str(secret), str(token), source), False, None
        if options.get("profile"):
            return None, False, str(options["profile"])
    return None, False, None


def _from_environment(env: Mapping[str, str], key: str, secret: str, token: str) -> Identity | None:
    if not env.get(key) or not env.get(secret):
        return None
    return Identity(env[key], env[secret], env.get(token, ""), "the environment")


def _addressing(options: Mapping[str, Any]) -> str | None:
    config = options.get("config_kwargs") or {}
    s3 = config.get("s3") if isinstance(config, dict) else None
    style = options.get("addressing_style") or (s3.get("addressing_style") if isinstance(s3, dict) else None)
    if style is not None and style not in ("path", "virtual", "auto"):
        raise BadOption(f"addressing_style: {style!r} is not a choice", expected="path, virtual or auto")
    return style


def _checked_endpoint(endpoint: str, options: Mapping[str, Any]) -> str:
    if not endpoint:
        return ""
    if "://" not in endpoint:
        endpoint = f"{'https' if truth(options.get('use_ssl', True), 'use_ssl') else 'http'}://{endpoint}"
    refuse_no_address(endpoint)
    return endpoint


def _has_config_file(env: Mapping[str, str]) -> bool:
    home = env.get("HOME") or os.path.expanduser("~")
    return os.path.exists(os.path.expanduser(env.get("AWS_CONFIG_FILE") or f"{home}/.aws/config"))


def _identity_of(asked: Mapping[str, Any], profile: str | None) -> Identity:
    whose = f"the AWS profile {profile!r}" if profile else "the environment and AWS's configuration files"
    if asked.get("error"):
        partial = "Partial credentials" in str(asked["error"])
        raise AccessDenied(
            f"no credentials from {whose}: {asked['error']}",
            remedy="Set that one too" if partial else "Log in again, or choose another profile",
        )
    if not asked.get("key"):
        raise AccessDenied(
            f"no credentials in {whose}",
            remedy="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or a profile; --option anon=true if public",
        )
    return Identity(asked["key"], asked["secret"], asked.get("token") or "", whose, asked.get("expires"))
