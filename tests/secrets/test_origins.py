"""Credentials of each store go to the origins that the user named, and to no other one."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbdata.errors import NbdataError
from nbdata.operation import Context
from nbdata.origins import origin_of
from nbdata.stores.resolve import open_place
from tests.stores.certificates import self_signed
from tests.stores.servers import each, ok, serving

CANARY = "canary0f7e6d5c4b3a2918"
SAS = f"sv=2024-01-01&sig={CANARY}"
# For each kind of place: the environment and the storage options that hold secrets of the user.
WAYS: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
    "s3, environment": ("s3://bucket/x", {"AWS_ACCESS_KEY_ID": CANARY, "AWS_SECRET_ACCESS_KEY": CANARY}, {}),
    "s3, options": ("s3://bucket/x", {}, {"key": CANARY, "secret": CANARY, "token": CANARY}),
    "obs, environment": (
        "obs://bucket/x",
        {"OBS_ACCESS_KEY_ID": CANARY, "OBS_SECRET_ACCESS_KEY": CANARY, "OBS_SECURITY_TOKEN": CANARY},
        {},
    ),
    "gs, options": ("gs://bucket/x", {}, {"token": CANARY}),
    "ais, environment": ("ais://bucket/x", {"AIS_AUTHN_TOKEN": CANARY}, {}),
    "ais, options": ("ais://@aws/bucket/x", {}, {"token": CANARY}),
    "az, environment": ("abfss://c@HOST/x", {"AZURE_STORAGE_SAS_TOKEN": SAS}, {}),
    "az, options": ("az://c@HOST/x", {}, {"sas_token": SAS}),
    "az, connection string": (
        "az://c@HOST/x",
        {"AZURE_STORAGE_CONNECTION_STRING": f"AccountName=mine;SharedAccessSignature={SAS}"},
        {"connection_string": f"AccountName=mine;SharedAccessSignature={SAS}"},
    ),
    "http, token": ("https://HOST/x", {}, {"token": CANARY}),
    "http, headers": ("https://HOST/x", {}, {"headers": {"x-api-key": CANARY}}),
    "http, password": ("https://HOST/x", {}, {"username": "user", "password": CANARY}),
}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("tls") / "cert.pem")


@contextlib.contextmanager
def heard(certificate: Path, way: str, origins: tuple[str, ...]) -> Iterator[list[str]]:
    """Ask a server for an object of a place, with these named origins; yield the heads that the server got."""
    place, secrets, options = WAYS[way]
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    heads: list[str] = []
    with serving(each(lambda head: ok(b"x"), heads), tls=tls) as port:
        server = f"127.0.0.1:{port}"
        env = {
            **secrets,
            "HOME": "/nonexistent",
            "AWS_ENDPOINT_URL": f"https://{server}",
            "OBS_ENDPOINT": f"https://{server}",
            "OBS_REGION": "path",
            "AIS_ENDPOINT": f"https://{server}",
            "STORAGE_EMULATOR_HOST": f"https://{server}",
            "SSL_CERT_FILE": str(certificate),
        }
        if place.startswith("obs"):
            options = {**options, "addressing_style": "path"}
        place = place.replace("HOST", server)
        context = Context("/", env=env, storage_options=options, origins=origins or (origin_of(place),))
        with contextlib.suppress(NbdataError):
            location = open_place(place, context)
            location.store.head(location.key)
        yield heads


def _tells(way: str, heads: list[str]) -> bool:
    """Return whether a request shows who asks: by a secret, its encoding, or a signature made with it."""
    words = (CANARY, "authorization:", "x-amz-security-token", "x-api-key")
    return any(word.lower() in head.lower() for head in heads for word in words)


@pytest.mark.parametrize("way", WAYS)
def test_the_origin_that_was_named_gets_credentials(way: str, certificate: Path) -> None:
    with heard(certificate, way, ()) as heads:
        assert heads
        assert _tells(way, heads)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("named", ["", "https://other.example:443", "sftp://other"])
def test_no_other_origin_gets_any(way: str, named: str, certificate: Path) -> None:
    with heard(certificate, way, (named,)) as heads:
        assert heads or way.startswith("obs")  # its buckets are named by host alone
        assert not _tells(way, heads)
