"""The short-lived credentials of a job, for the workers of a cluster that runs (``--send-credentials``).

Only what ends by itself is sent: what others make of it is bounded in time. It is resolved here, by the user's profile
or login, and becomes storage options of the job's places. Nothing else of this machine's configuration goes along.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any
from urllib.parse import parse_qs

from nbdata.errors import BadOption
from nbdata.operation import Context, Operation
from nbdata.redaction import AZURE_SCHEMES, S3_SCHEMES, redacted, secret_options
from nbdata.stores.az.config import az_config
from nbdata.stores.credentials.asked import EARLY
from nbdata.stores.gs.config import gs_config
from nbdata.stores.http.config import http_config
from nbdata.stores.objects import Stop
from nbdata.stores.s3.config import s3_config
from nbdata.verbs.ends import urls_of_options

__all__ = ["PLACE", "Sent", "sent_credentials"]

#: The storage options that describe a place. All others may be secret.
PLACE = ("endpoint_url", "region", "anon", "requester_pays", "addressing_style", "account_name", "project")
# The storage options that say who asks: they are resolved here, and not sent.
_IDENTITY = (
    *("key", "secret", "token", "username", "password", "profile", "sas_token", "credential", "account_key"),
    *("connection_string", "tenant_id", "client_id", "client_secret"),
)
# The longest time in seconds until short-lived credentials end: that of AWS's session tokens.
_LONGEST = 36 * 3600.0
# Seconds until the next look for newer credentials, if the last ones are still the same.
_AGAIN = 30.0
_REMEDY = (
    "Set credentials on the workers, in their environment or their profile, and leave out --send-credentials"
)


@dataclass(frozen=True)
class Sent:
    """The storage options for workers.

    Attributes
    ----------
    storage_options, target_options : dict
        As in a Context, with credentials.
    expires : float or None
        When the first of them end, in seconds since the epoch; None if that is not known.
    """

    storage_options: dict[str, Any] = field(repr=False)
    target_options: dict[str, Any] = field(repr=False)
    expires: float | None

    @property
    def renew_at(self) -> float:
        """When to look for newer ones, in seconds since the epoch."""
        return float("inf") if self.expires is None else max(self.expires - EARLY, time.time() + _AGAIN)


def sent_credentials(operation: Operation, context: Context, stop: Stop | None = None) -> Sent:
    """Resolve the credentials of all places of an operation.

    Raises
    ------
    BadOption
        If they do not end by themselves, or nbdata has none that do for a store.
    AccessDenied
        If there are none.
    """
    found: dict[str, dict[str, Any]] = {}
    ends: list[float] = []
    by_flag = urls_of_options(operation)
    for flag, urls in by_flag.items():
        at_target = flag == "--target-option"
        if at_target and not context.target_options and set(urls) <= set(by_flag["--option"]):
            continue  # the options of the source apply
        given = replace(
            context, storage_options=context.target_options if at_target else context.storage_options
        )
        for url in filter(context.knows, urls):
            options, expires = _of(url, given, stop)
            if found.setdefault(flag, options) != options:
                raise BadOption(
                    "--send-credentials: the places need different credentials",
                    path=redacted(url),
                    remedy=_REMEDY,
                )
            ends += [] if expires is None else [expires]
    return Sent(found.get("--option", {}), found.get("--target-option", {}), min(ends, default=None))


def _of(url: str, context: Context, stop: Stop | None) -> tuple[dict[str, Any], float | None]:
    """Return the storage options for a URL, and when the credentials in them end."""
    scheme = url.partition("://")[0]
    place = _place(context.storage_options)
    resolve: Callable[..., tuple[dict[str, Any], float | None]]
    if scheme in S3_SCHEMES:
        resolve = _of_s3
    elif scheme in ("gs", "gcs"):
        resolve = _of_gs
    elif scheme in AZURE_SCHEMES:
        resolve = _of_az
    elif scheme in ("http", "https") and not _says_who(url, context):
        return place, None
    else:
        raise BadOption(
            f"--send-credentials: nbdata has no short-lived credentials for {scheme}://",
            path=redacted(url),
            expected="s3, obs, gs or az",
            remedy=_REMEDY,
        )
    options, expires = resolve(url, context, stop)
    if expires is not None and expires - time.time() > _LONGEST:
        raise _refused(url, "these end in more than 36 hours")
    return {**place, **options}, expires


def _place(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that describe a place; any other one that is not replaced by the resolved ones is refused."""
    for name in options:
        if name not in PLACE and name not in _IDENTITY:
            raise BadOption(f"--option {name} is not sent to workers", remedy=_REMEDY)
    place = {name: value for name, value in options.items() if name in PLACE}
    if secret := secret_options(place):
        raise BadOption(
            f"--option {secret[0]} holds a password, which is not sent to workers", remedy=_REMEDY
        )
    return place


def _refused(url: str, why: str) -> BadOption:
    return BadOption(
        f"--send-credentials: {why}",
        path=redacted(url),
        expected="credentials that end by themselves, such as those of a role, an SSO login or a token",
        remedy=_REMEDY,
    )


def _of_s3(url: str, context: Context, stop: Stop | None) -> tuple[dict[str, Any], float | None]:
    config = s3_config("obs" if url.startswith("obs:") else "s3", context, stop=stop)
    where = {"region": config.region, "addressing_style": config.addressing}
    if config.endpoint:
        where["endpoint_url"] = config.endpoint
    identity = config.identity
    if identity is None:
        return {**where, "anon": True}, None
    if not identity.token:
        raise _refused(url, f"the keys from {identity.source} have no session token, so they do not end")
    # In one value: a store that looks while it is exchanged gets all of the old or all of the new ones.
    keys = {
        "aws_access_key_id": identity.key,
        "aws_secret_access_key": identity.secret,
        "aws_session_token": identity.token,
    }
    return {**where, "client_kwargs": keys}, identity.expires


def _of_gs(_: str, context: Context, stop: Stop | None) -> tuple[dict[str, Any], float | None]:
    config = gs_config(context, stop=stop)
    header = config.tokens.header()
    if not header:
        return {"endpoint_url": config.endpoint, "anon": True}, None
    token = header.removeprefix("Bearer ")
    return {"endpoint_url": config.endpoint, "token": token}, config.tokens.expires


def _of_az(url: str, context: Context, stop: Stop | None) -> tuple[dict[str, Any], float | None]:
    config = az_config(url.partition("://")[2].partition("/")[0].partition("@")[2], context, stop=stop)
    where = {"account_name": config.account, "endpoint_url": config.endpoint}
    if config.key:
        raise _refused(url, f"the account key from {config.source} does not end")
    if config.sas:
        if (expires := _end_of_sas(config.sas)) is None:
            raise _refused(url, "the signature does not say when it ends")
        return {**where, "sas_token": config.sas}, expires
    if config.source == "anonymous access":
        return {**where, "anon": True}, None
    raise _refused(url, "of Azure's credentials only a shared access signature is sent")


def _end_of_sas(sas: str) -> float | None:
    """Return the end of a shared access signature ("Create a service SAS", Azure Storage documentation)."""
    said = parse_qs(sas.lstrip("?")).get("se", [""])[-1]
    try:
        end = datetime.fromisoformat(said.replace("Z", "+00:00"))
    except ValueError:
        return None
    return (end if end.tzinfo is not None else end.replace(tzinfo=timezone.utc)).timestamp()


def _says_who(url: str, context: Context) -> bool:
    """True if requests to an HTTP server say who asks."""
    config, rest = http_config(url, context), url.partition("://")[2]
    return bool(config.authorization or config.headers or "@" in rest.partition("/")[0] or "?" in rest)
