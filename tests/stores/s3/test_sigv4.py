"""nbdata's SigV4 signatures equal those of botocore."""

from __future__ import annotations

import calendar
import datetime as dt
import hashlib
from unittest import mock

import botocore.auth
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from nbdata.stores.s3.sigv4 import EMPTY, UNSIGNED, Identity, Signer, quote_path, quote_query

HOST = "bucket.example.com:9000"
NOW = dt.datetime(2026, 11, 20, 12, 34, 56, tzinfo=dt.timezone.utc)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
keys = texts.filter(lambda key: key not in (".", ".."))
names = st.text("abcdefghijklmnopqrstuvwxyz-ABC", min_size=1, max_size=12)
methods = st.sampled_from(["GET", "PUT", "HEAD", "POST", "DELETE"])
payloads = st.sampled_from([EMPTY, UNSIGNED, hashlib.sha256(b"body").hexdigest()])


class FixedTime(dt.datetime):
    """The clock that botocore uses for signing."""

    @classmethod
    def utcnow(cls) -> dt.datetime:
        return NOW.replace(tzinfo=None)

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:
        return NOW


def authorization_of_botocore(
    identity: Identity, region: str, method: str, target: str, headers: dict[str, str], payload: str
) -> str:
    scheme = "https" if payload == UNSIGNED else "http"
    request = AWSRequest(
        method, f"{scheme}://{HOST}{target}", headers={**headers, "X-Amz-Content-SHA256": payload}
    )
    auth = S3SigV4Auth(Credentials(identity.key, identity.secret, identity.token or None), "s3", region)
    auth.payload = lambda request: (
        payload
    )  # callers decide if the payload is signed, so it is not compared here
    with (
        mock.patch.object(
            botocore.auth, "get_current_datetime", return_value=NOW.replace(tzinfo=None), create=True
        ),
        mock.patch.object(botocore.auth.datetime, "datetime", FixedTime, create=True),
    ):
        auth.add_auth(request)
    return str(request.headers["Authorization"])


@given(
    key=keys,
    query=st.dictionaries(names, texts, max_size=4),
    token=st.sampled_from(["", "TOKEN/with+odd=characters"]),
    method=methods,
    payload=payloads,
    region=st.sampled_from(["us-east-1", "eu-central-1", "cn-north-1"]),
    extra=st.sampled_from(
        [{}, {"range": "bytes=0-9"}, {"x-amz-checksum-mode": "ENABLED", "if-match": '"abc"'}]
    ),
)
def test_signatures_are_those_of_botocore(
    key: str, query: dict[str, str], token: str, method: str, payload: str, region: str, extra: dict[str, str]
) -> None:
    identity = Identity("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", token)
    path, text = "/" + quote_path(key), quote_query(query)
    now = calendar.timegm(NOW.timetuple())
    ours = Signer(identity, region, HOST).headers(method, path, text, extra, payload, now)
    theirs = authorization_of_botocore(
        identity, region, method, f"{path}?{text}" if text else path, extra, payload
    )
    assert ours["Authorization"].split("Signature=")[1] == theirs.split("Signature=")[1]
    assert ours["Authorization"] == theirs


def test_a_new_day_has_a_new_key() -> None:
    signer = Signer(Identity("k", "s"), "us-east-1", HOST)
    fresh = Signer(Identity("k", "s"), "us-east-1", HOST)
    day = 86400.0
    first = signer.headers("GET", "/x", "", {}, EMPTY, 0)
    second = signer.headers("GET", "/x", "", {}, EMPTY, day)
    assert first["Authorization"] != second["Authorization"]
    assert second == fresh.headers("GET", "/x", "", {}, EMPTY, day)
    assert signer.headers("GET", "/x", "", {}, EMPTY, 0) == first


def test_no_secret_is_in_a_repr() -> None:
    shown = repr(Identity("AKIAKEY", "SECRETSECRET", "TOKENTOKEN", "the environment"))
    assert "the environment" in shown
    for secret in ("AKIAKEY", "SECRETSECRET", "TOKENTOKEN"):
        assert secret not in shown
