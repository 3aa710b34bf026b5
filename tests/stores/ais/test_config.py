"""Where ``ais://`` finds gateway, token and certificates, and which URLs it takes."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nbdata.errors import AccessDenied, BadOption, NbdataError, StoreUnavailable
from nbdata.operation import Context
from nbdata.origins import origin_of, store_of
from nbdata.redaction import redacted, scrub
from nbdata.stores.ais.config import ais_config, bucket_of
from tests.servers.aistore.cluster import Cluster, cluster
from tests.stores.ais.conftest import opened
from tests.stores.certificates import self_signed
from tests.stores.http.test_hops import got, read_together

TOKEN = "eyJhbGciOiJIUzI1NiJ9.a-token-of-the-tests"


def context(env: dict[str, str] | None = None, **options: object) -> Context:
    """Return a context with these variables and options."""
    return Context(cwd="/", env=dict(env or {}), storage_options=options)


@pytest.mark.parametrize(
    ("url", "options", "query", "key"),
    [
        ("ais://b/a/c", {}, {"provider": "ais"}, "a/c"),
        ("ais://@aws/b/a/c", {}, {"provider": "aws"}, "a/c"),
        ("ais://@s3/b/", {}, {"provider": "aws"}, ""),
        ("ais://@gs/b/x", {}, {"provider": "gcp"}, "x"),
        ("ais://b/x", {"provider": "az"}, {"provider": "azure"}, "x"),
        ("ais://@remais/b/x", {}, {"provider": "ais", "namespace": "@remais#"}, "x"),
    ],
)
def test_a_url_names_bucket_and_backend(
    url: str, options: dict[str, str], query: dict[str, str], key: str
) -> None:
    bucket, _, found = bucket_of(url, context(None, **options))
    assert (bucket.name, bucket.query, found) == ("b", query, key)
    assert redacted(url) == url
    assert origin_of(url) == "ais://"
    assert store_of(url) == f"ais:///{url.partition('://')[2].removesuffix('/' + key).rstrip('/')}"


@pytest.mark.parametrize(
    "url", ["ais://", "ais:///x", "ais://@aws", "ais://@aws/", "ais://@/b/x", "ais://b?x/y", "ais://h:80/b"]
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(BadOption):
        bucket_of(url, context())


def test_without_a_gateway_the_error_says_how_to_name_one() -> None:
    with pytest.raises(BadOption, match="AIS_ENDPOINT"):
        ais_config(context())


def test_options_go_before_variables(tmp_path: Path) -> None:
    file = tmp_path / "auth.token"
    file.write_text(json.dumps({"token": "of-the-file"}))
    env = {"AIS_ENDPOINT": "gateway:51080/", "AIS_AUTHN_TOKEN_FILE": str(file)}
    assert (ais_config(context(env)).endpoint, ais_config(context(env)).token) == (
        "http://gateway:51080",
        "of-the-file",
    )
    file.write_text("plain\n")
    assert ais_config(context(env)).token == "plain"
    env["AIS_AUTHN_TOKEN"] = "of-the-environment"
    assert ais_config(context(env)).token == "of-the-environment"
    config = ais_config(context(env, token="given", endpoint_url="https://other/v1", verify=False))
    assert (config.endpoint, config.token, config.verify) == ("https://other", "given", False)
    assert ais_config(context(env, anon=True)).token == ""
    assert "given" not in repr(config)
    del env["AIS_AUTHN_TOKEN"]
    file.unlink()
    with pytest.raises(AccessDenied, match="token"):
        ais_config(context(env))


@pytest.mark.parametrize(
    ("env", "verify"),
    [
        ({}, True),
        ({"AIS_SKIP_VERIFY_CRT": "true"}, False),
        ({"AIS_SKIP_VERIFY": "1"}, False),
        ({"AIS_SKIP_VERIFY_CRT": "false", "AIS_SKIP_VERIFY": "1"}, True),
    ],
)
def test_certificates_are_checked_unless_a_variable_says_no(env: dict[str, str], verify: bool) -> None:
    config = ais_config(context({"AIS_ENDPOINT": "https://gateway", **env, "AIS_CLIENT_CA": "/ca.pem"}))
    assert (config.verify, config.ca) == (verify, "/ca.pem")


@pytest.mark.parametrize(
    "option", [{"endpoint": "x"}, {"redirects": 5}, {"token": "two words"}, {"provider": "x"}]
)
def test_wrong_options_are_refused(option: dict[str, object]) -> None:
    with pytest.raises(BadOption):
        opened("ais://b/x", {"AIS_ENDPOINT": "http://gateway"}, **option)


# -- a cluster that demands things ------------------------------------------------------------------


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Path]]:
    """A cluster over HTTPS that wants a token and a certificate, and signs its redirects; and its certificate."""
    folder = tmp_path_factory.mktemp("secured")
    file = self_signed(folder / "certificate.pem")
    settings = {
        "certificate": str(file),
        "key": str(file),
        "clients": str(file),
        "client": [str(file), str(file)],
    }
    with cluster(folder, nodes=2, signs="a-key", token=TOKEN, **settings) as running:
        running.create_bucket("bucket")
        yield running, file


def test_token_certificate_and_signed_redirects_work_together(secured: tuple[Cluster, Path]) -> None:
    running, file = secured
    env = {"AIS_ENDPOINT": running.url, "AIS_AUTHN_TOKEN": TOKEN, "AIS_CLIENT_CA": str(file)}
    env |= {"AIS_CRT": str(file), "AIS_CRT_KEY": str(file)}
    store = opened("ais://bucket/", env)
    data = {f"k{number}": bytes([number]) * 70_000 for number in range(5)}
    for key, value in data.items():
        store.write(key, io.BytesIO(value), len(value))
    store.write("big", io.BytesIO(bytes(3 << 20)), 3 << 20)
    assert got(store, "big") == bytes(3 << 20)
    infos = list(store.list("k"))
    assert {key: one.request.of[0] for key, one in read_together(store, infos).items()} == data
    upload = store.upload("parts", 10)
    upload.part(1, io.BytesIO(b"0123456789"), 10)
    upload.finish([""])
    assert got(store, "parts") == b"0123456789"


@pytest.mark.parametrize("token", ["", "a-wrong-token-of-the-tests"])
def test_a_wrong_token_is_denied_and_not_shown(secured: tuple[Cluster, Path], token: str) -> None:
    running, file = secured
    env = {"AIS_ENDPOINT": running.url, "AIS_AUTHN_TOKEN": token, "AIS_CLIENT_CA": str(file)}
    store = opened("ais://bucket/", env | {"AIS_CRT": str(file), "AIS_CRT_KEY": str(file)})
    for act in (lambda: list(store.list("")), lambda: store.head("k1"), lambda: store.read("k1")):
        with pytest.raises(AccessDenied) as caught:
            act()
        assert "AIS_AUTHN_TOKEN" in str(caught.value)
        assert not token or token not in f"{caught.value} {caught.value.to_dict()}"
    assert not token or token not in scrub(f"Authorization: {token}")


def test_a_server_that_is_not_trusted_gets_no_request(secured: tuple[Cluster, Path]) -> None:
    running, file = secured
    running.seen()
    env = {"AIS_ENDPOINT": running.url, "AIS_AUTHN_TOKEN": TOKEN}
    with pytest.raises(StoreUnavailable, match="certificate is not trusted"):
        opened("ais://bucket/", env).head("k1")
    assert running.seen()["p0"] == []
    with pytest.raises(NbdataError):  # it wants a certificate of the client
        opened("ais://bucket/", env | {"AIS_CLIENT_CA": str(file)}).head("k1")
