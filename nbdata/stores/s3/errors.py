"""Translate S3's error responses to the errors of nbdata."""

from __future__ import annotations

import re
from typing import Any

from nbdata.bounded import whole_number
from nbdata.errors import AccessDenied, BadOption, NbdataError, NotFound, SourceChanged, StoreUnavailable
from nbdata.stores.http.answers import wrong_bytes
from nbdata.stores.http.client import Response

__all__ = ["EXPIRED", "error_of", "field", "new_region", "says_wrong_bytes"]

# Responses that are worth another try ("Error Responses", Amazon S3 API reference).
_BUSY_STATUS = {408, 429, 500, 502, 503, 504, 509}
_BUSY_CODE = {
    "InternalError",
    "RequestTimeout",
    "SlowDown",
    "ServiceUnavailable",
    "ThrottlingException",
    "OperationAborted",
}
#: Error codes for credentials that were valid once.
EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
# Codes for bytes that are not those of the announced digest. Amazon sends BadDigest, Alibaba's OSS also InvalidDigest;
# Garage has only a message: see _GARAGE.
_WRONG_BYTES = {"BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"}
_DENIED = {
    "AccessDenied": ("the store denies access", "Check that this identity may do this to this bucket"),
    "InvalidAccessKeyId": (
        "the store does not know the access key",
        "Check it, and that it belongs to this endpoint",
    ),
    "SignatureDoesNotMatch": ("the secret key is wrong", "Check it, also for blanks"),
    "ExpiredToken": ("the credentials have expired", "Log in again and run the command again to resume"),
    "InvalidToken": ("the session token is wrong", "Log in again and run the command again to resume"),
    "RequestTimeTooSkewed": ("this machine's clock is wrong", "Set the clock: S3 allows 15 minutes"),
    "InvalidObjectState": ("the object is archived", "Have the store restore it first"),
    "AllAccessDisabled": ("the store has disabled all access to this bucket", "Ask the bucket's owner"),
}
# Headers by which a store's answer to HEAD is known, which has no document.
_OF_STORES = (
    "x-amz-request-id",
    "x-amz-id-2",
    "x-oss-request-id",
    "x-obs-request-id",
    "x-cos-request-id",
    "x-tos-request-id",
)
# What Garage says of wrong bytes, in an answer whose code says nothing.
_GARAGE = re.compile("unable to validate content-md5", re.I)
# What stores say that want the bucket in the host's name.
_VIRTUAL = re.compile("virtual.?host|SecondLevelDomain|third.?level domain", re.I)
# The form of a region's name.
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
# Codes for a wrong region, in responses that do not name the right one.
_REGION = ("AuthorizationHeaderMalformed", "IllegalLocationConstraintException")

# The most bytes of a text in an error document; messages show it.
_SHOWN = 500


def field(data: bytes, name: str) -> str:
    """The text of an element in an error document, at any depth; at most `_SHOWN` bytes of it."""
    match = re.search(rb"<%b>([^<]*)</%b>" % (name.encode(), name.encode()), data)
    return match.group(1)[:_SHOWN].decode("utf-8", "replace") if match else ""


def _server(address: str) -> str:
    """The server in an address, without its path and query, which may hold a signature."""
    scheme, found, rest = address.partition("://")
    host = re.split(r"[/?#]", rest if found else address)[0].rpartition("@")[2]
    return f"{scheme}://{host}" if found and host else host


def new_region(response: Response, data: bytes) -> str:
    """The bucket's region according to a response, or ''."""
    if response.status not in (301, 307, 400, 403):
        return ""
    if response.status in (400, 403) and field(data, "Code") not in ("AuthorizationHeaderMalformed", ""):
        return ""
    region = response.headers.get("x-amz-bucket-region") or field(data, "Region")
    # It becomes a part of a host name and of a header.
    return region if _NAME.fullmatch(region) else ""


def says_wrong_bytes(data: bytes) -> bool:
    """Whether an error document says that bytes are not those of their digest."""
    return field(data, "Code") in _WRONG_BYTES or bool(_GARAGE.search(field(data, "Message")))


def error_of(
    response: Response,
    data: bytes,
    *,
    path: str,
    identity: str,
    copied_along: str = "",
    has_token: bool = False,
    bucket_twice: bool = False,
    proxy: str = "",
) -> NbdataError:
    """Return the error that a response stands for.

    Parameters
    ----------
    data : bytes
        The error document; empty after HEAD.
    path : str
        The requested object.
    identity : str
        The origin of the credentials, shown in messages; never a key.
    copied_along : str
        What is wrong with the form of the keys (`Identity.copied_along`), or ''.
    has_token : bool
        Whether a session token was sent along with the keys.
    bucket_twice : bool
        Whether the endpoint seems to name the bucket, too.
    proxy : str
        The proxy that the request went through, without its password, or ''.
    """
    status, code = response.status, field(data, "Code")
    details: dict[str, Any] = {"status": status, "code": code}
    if status == 404 or code in ("NoSuchKey", "NoSuchBucket"):
        again = (
            "The endpoint has the bucket's name in it, which each request adds: give the endpoint without it"
        )
        if bucket_twice and path.count("/") == 2:  # a listing, which no bucket answers like this
            return NotFound(
                "there is no such bucket there", path=path, remedy=again, details={**details, "bucket": True}
            )
        if code == "NoSuchBucket":
            bucket = "/".join(path.split("/")[:3])
            return NotFound(
                "there is no such bucket",
                path=bucket,
                remedy="Check the name and the endpoint",
                details={**details, "bucket": True},
            )
        what = "unfinished upload" if code == "NoSuchUpload" else "object"
        return NotFound(f"there is no such {what}", path=path, details=details)
    if code in _REGION:
        return BadOption(
            "the store expects requests for another region",
            path=path,
            got=field(data, "Message") or None,
            remedy="Set the bucket's region with --option region=NAME or AWS_REGION",
            details=details,
        )
    message = field(data, "Message")
    if status in (400, 403) and _VIRTUAL.search(f"{code} {message}"):
        return BadOption(
            f"the store refused ({code}: {message})",
            path=path,
            details=details,
            remedy="It wants the bucket in the name of the host: --option addressing_style=virtual",
        )
    if code in _DENIED or status in (401, 403):
        if proxy and not code and not any(name in response.headers for name in _OF_STORES):
            return AccessDenied(
                f"access is denied (status {status}), and not by the store: the answer has no form of S3, and came "
                "through a proxy",
                path=path,
                got=proxy,
                details=details,
                remedy="Have the proxy allow this host, or name the host in no_proxy if it can be reached without it",
            )
        return _denied(code, message, path, identity, copied_along, details, has_token=has_token)
    if status in (412, 409) and code in ("PreconditionFailed", "ConditionalRequestConflict", ""):
        return SourceChanged(
            "the object changed while it was read",
            path=path,
            remedy="Run the command again: it takes the new version",
            details=details,
        )
    if status in _BUSY_STATUS or code in _BUSY_CODE:
        details["retry"] = True
        after = whole_number(response.headers.get("retry-after"))
        if after >= 0:
            details["retry_after"] = after
        return StoreUnavailable(
            f"the store is busy or broken (status {status}{', ' + code if code else ''})",
            path=path,
            details=details,
        )
    if says_wrong_bytes(data):
        return wrong_bytes(path, status, code)
    if status in (301, 307, 308):
        return BadOption(
            "the bucket is at another endpoint",
            path=path,
            got=_server(field(data, "Endpoint") or response.headers.get("location", ""))
            or f"status {status}",
            remedy="Set AWS_ENDPOINT_URL or --option endpoint_url=…, or the region, to where the bucket is. If that "
            "server belongs to the same cluster, --option redirects=HOST lets requests follow it there",
            details=details,
        )
    if code == "KeyTooLongError":
        length = len("/".join(path.split("/")[3:]).encode())
        return BadOption(
            "the key is too long for the store",
            path=path,
            expected="at most 1,024 bytes",
            got=f"{length:,} bytes",
            remedy="Shorten the name, or leave it out with --exclude",
            details=details,
        )
    return NbdataError(
        f"the store refused ({', '.join(filter(None, [f'status {status}', code, message]))})",
        path=path,
        remedy="Check the endpoint and the storage options",
        details=details,
    )


def _denied(
    code: str,
    message: str,
    path: str,
    identity: str,
    copied_along: str,
    details: dict[str, Any],
    *,
    has_token: bool,
) -> NbdataError:
    """Return the error for a store that refuses; a cause is named only where the store's code or message says it."""
    answer = ": ".join(filter(None, [code, message.rstrip(".")]))
    what, remedy = _DENIED.get(
        code, ("the store refuses this", "See what it says, and ask whoever runs the bucket")
    )
    if not code:
        what, remedy = _DENIED["AccessDenied"]
    if "kms" in message.lower():
        remedy = "Let this identity use the KMS key with which the bucket encrypts, or choose another key"
    if copied_along and code not in ("ExpiredToken", "RequestTimeTooSkewed", "InvalidObjectState"):
        # A response to HEAD has no code, and most stores then only deny access.
        what, remedy = f"the store denies access, and {copied_along}", "Take it away"
    elif has_token and code in ("InvalidAccessKeyId", "InvalidToken"):
        remedy += (
            ". A session token (AWS_SESSION_TOKEN or token) is sent along: remove it if it does not belong to "
            "this key"
        )
    return AccessDenied(
        what, path=path, got=answer or None, remedy=f"{remedy} (identity from {identity})", details=details
    )
