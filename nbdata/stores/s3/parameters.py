"""The options of s3fs that change what S3 stores: ``s3_additional_kwargs`` as headers, and ``config_kwargs``.

The names are those of boto3 ("PutObject", Amazon S3 API reference). What nbdata cannot send is refused by name: dropped
in silence, objects would be stored in another way than the user thinks.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import format_datetime
from typing import Any
from urllib.parse import urlencode

from nbdata.errors import BadOption
from nbdata.option import suggest
from nbdata.redaction import remember

__all__ = ["Parameters", "check_config", "parameters_of"]

# Parameters of requests that make an object, and their headers.
_STORED = {
    "ACL": "x-amz-acl",
    "BucketKeyEnabled": "x-amz-server-side-encryption-bucket-key-enabled",
    "CacheControl": "cache-control",
    "ContentDisposition": "content-disposition",
    "ContentEncoding": "content-encoding",
    "ContentLanguage": "content-language",
    "ContentType": "content-type",
    "Expires": "expires",
    "GrantFullControl": "x-amz-grant-full-control",
    "GrantRead": "x-amz-grant-read",
    "GrantReadACP": "x-amz-grant-read-acp",
    "GrantWriteACP": "x-amz-grant-write-acp",
    "ObjectLockLegalHoldStatus": "x-amz-object-lock-legal-hold",
    "ObjectLockMode": "x-amz-object-lock-mode",
    "ObjectLockRetainUntilDate": "x-amz-object-lock-retain-until-date",
    "SSEKMSEncryptionContext": "x-amz-server-side-encryption-context",
    "SSEKMSKeyId": "x-amz-server-side-encryption-aws-kms-key-id",
    "ServerSideEncryption": "x-amz-server-side-encryption",
    "StorageClass": "x-amz-storage-class",
    "Tagging": "x-amz-tagging",
    "WebsiteRedirectLocation": "x-amz-website-redirect-location",
}
_CUSTOMER = ("SSECustomerAlgorithm", "SSECustomerKey", "SSECustomerKeyMD5")
_OTHERS = ("Metadata", "ExpectedBucketOwner", "RequestPayer", *_CUSTOMER)
# The names of headers, as far as they are letters, digits and a few signs.
_KEY = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SSE_C = "server-side-encryption-customer-"
# Settings of botocore that only tune its own client, or that say what nbdata does anyway.
_TUNING = {
    "connect_timeout",
    "defaults_mode",
    "disable_request_compression",
    "inject_host_prefix",
    "max_pool_connections",
    "parameter_validation",
    "read_timeout",
    "region_name",
    "request_checksum_calculation",
    "request_min_compression_size_bytes",
    "response_checksum_validation",
    "retries",
    "tcp_keepalive",
    "user_agent",
    "user_agent_appid",
    "user_agent_extra",
}
_S3_TUNING = {"addressing_style", "us_east_1_regional_endpoint"}


@dataclass(frozen=True)
class Parameters:
    """Headers that requests get.

    Attributes
    ----------
    stored : dict of str to str
        Those of requests that make an object.
    key : dict of str to str
        Those with the customer's key (SSE-C), also of reads and of parts.
    source_key : dict of str to str
        The same for the source of a copy by the store.
    each : dict of str to str
        Those of all requests.
    """

    stored: dict[str, str] = field(default_factory=dict)
    key: dict[str, str] = field(default_factory=dict, repr=False)
    source_key: dict[str, str] = field(default_factory=dict, repr=False)
    each: dict[str, str] = field(default_factory=dict)

    @property
    def of_copies(self) -> dict[str, str]:
        """The headers of a copy by the store, which keeps what the source has unless told otherwise."""
        more = dict(self.stored)
        if "x-amz-tagging" in more:
            more["x-amz-tagging-directive"] = "REPLACE"
        return more

    @property
    def describes(self) -> bool:
        """Whether they replace what describes an object: its type, its metadata and so on. A copy keeps these whole."""
        return any(not name.startswith("x-amz-") or name.startswith("x-amz-meta-") for name in self.stored)


def parameters_of(options: Mapping[str, Any]) -> Parameters:
    """Read ``s3_additional_kwargs`` of storage options.

    Raises
    ------
    BadOption
        For a name that nbdata cannot send, or a value that is none.
    """
    given = options.get("s3_additional_kwargs") or {}
    if not isinstance(given, Mapping):
        raise BadOption(
            f"s3_additional_kwargs: {type(given).__name__} is not a choice",
            expected="a dictionary, or --option s3_additional_kwargs.StorageClass=STANDARD_IA",
        )
    stored, each = dict[str, str](), dict[str, str]()
    for name, value in given.items():
        if value is None or name in _CUSTOMER:
            continue
        if name in _STORED:
            stored[_STORED[name]] = _text(name, value)
        elif name == "Metadata" and isinstance(value, Mapping):
            for key, one in value.items():
                if not _KEY.fullmatch(str(key)):
                    raise BadOption(f"s3_additional_kwargs: Metadata.{key!r} is no name for metadata")
                stored[f"x-amz-meta-{str(key).lower()}"] = _text(f"Metadata.{key}", one)
        elif name == "ExpectedBucketOwner":
            each["x-amz-expected-bucket-owner"] = _text(name, value)
        elif name == "RequestPayer" and value == "requester":
            each["x-amz-request-payer"] = "requester"
        else:
            raise BadOption(
                f"s3_additional_kwargs: {name} cannot be sent"
                + ("" if name not in _OTHERS else f" as {value!r}"),
                remedy=suggest(name, [*_STORED, *_OTHERS]),
            )
    key = _customer_key(given)
    return Parameters(
        stored,
        {f"x-amz-{_SSE_C}{name}": value for name, value in key.items()},
        {f"x-amz-copy-source-{_SSE_C}{name}": value for name, value in key.items()},
        each,
    )


def _text(name: str, value: Any) -> str:
    """Return a parameter as the text of a header."""
    if name == "Tagging" and isinstance(value, Mapping):
        return urlencode(value)
    if name == "SSEKMSEncryptionContext" and isinstance(value, Mapping):
        return base64.b64encode(json.dumps(dict(value)).encode()).decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    if name == "Expires" and isinstance(value, datetime):
        return format_datetime(value.astimezone(timezone.utc), usegmt=True)
    if hasattr(value, "isoformat"):  # a time
        return str(value.isoformat())
    text = str(value)
    if not text.isascii() or not text.isprintable():
        raise BadOption(
            f"s3_additional_kwargs: {name} has other characters than printable ASCII", got=repr(text)
        )
    return text


def _customer_key(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the customer's key (SSE-C) as ends of headers; as boto3, encode it and compute its MD5 where needed."""
    key = given.get("SSECustomerKey")
    if key is None:
        for name in _CUSTOMER:
            if given.get(name) is not None:
                raise BadOption(
                    f"s3_additional_kwargs: {name} needs SSECustomerKey", remedy="Give the key too"
                )
        return {}
    raw = key if isinstance(key, bytes) else str(key).encode()
    if len(raw) != 32:  # encoded already
        try:
            raw = base64.b64decode(raw, validate=True)
        except binascii.Error:
            raw = b""
    if len(raw) != 32:
        raise BadOption(
            "s3_additional_kwargs: SSECustomerKey is no key", expected="32 bytes, as they are or in base64"
        )
    encoded = base64.b64encode(raw).decode()
    remember(encoded)
    digest = base64.b64encode(hashlib.md5(raw, usedforsecurity=False).digest()).decode()
    if given.get("SSECustomerKeyMD5") not in (None, digest):
        raise BadOption("s3_additional_kwargs: SSECustomerKeyMD5 is not the MD5 of SSECustomerKey")
    algorithm = str(given.get("SSECustomerAlgorithm") or "AES256")
    return {"algorithm": algorithm, "key": encoded, "key-md5": digest}


def check_config(options: Mapping[str, Any]) -> bool:
    """Check ``config_kwargs`` of storage options; return whether it asks for unsigned requests.

    Raises
    ------
    BadOption
        For a setting that changes what requests mean, and that nbdata does not have.
    """
    config = options.get("config_kwargs") or {}
    if not isinstance(config, Mapping):
        raise BadOption("config_kwargs is no dictionary", got=type(config).__name__)
    unsigned = False
    for name, value in config.items():
        if name == "signature_version":
            if value is None:
                continue
            unsigned = not isinstance(value, str) or value == "unsigned"  # botocore.UNSIGNED is an object
            if not unsigned and value not in ("s3v4", "v4"):
                raise BadOption(
                    f"config_kwargs: signature_version {value!r} is not a choice", expected="s3v4 or unsigned"
                )
        elif name == "s3" and isinstance(value, Mapping):
            for inner, wanted in value.items():
                if inner not in _S3_TUNING and _is_set(wanted):
                    raise _not_here(f"s3.{inner}")
        elif name not in _TUNING and _is_set(value):
            raise _not_here(name)
    return unsigned


def _is_set(value: Any) -> bool:
    """Whether a setting asks for something: flags are off by default."""
    return value not in (None, False, "", "false", "False", {})


def _not_here(name: str) -> BadOption:
    return BadOption(
        f"config_kwargs: nbdata has no {name}",
        remedy="Leave it out. The address is endpoint_url=…, a proxy https_proxy, certificates verify=…",
    )
