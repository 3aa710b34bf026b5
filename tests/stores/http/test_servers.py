"""Which server a store is at: one name for each, whatever its spelling, region or style."""

from __future__ import annotations

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from nbdata.operation import Context
from nbdata.stores.fsspec_store import FsspecStore
from nbdata.stores.http.servers import account_in, server_at
from nbdata.stores.resolve import open_place

ANON = {"anon": "true"}


def server(place: str, env: dict[str, str] | None = None, **options: str) -> str:
    """Return the server of a place with some options, asked as anybody."""
    given = options if place.startswith("http") else {**ANON, **options}
    context = Context("/", env={"HOME": "/nonexistent", **(env or {})}, storage_options=given)
    return open_place(place, context).store.server


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://s3.amazonaws.com",
        "https://s3.eu-west-1.amazonaws.com/",
        "HTTPS://S3-us-west-2.amazonaws.com:443",
        "https://s3.dualstack.ap-southeast-3.amazonaws.com",
        "https://s3-fips.us-east-1.amazonaws.com",
        "https://s3-accelerate.dualstack.amazonaws.com",
        "https://bucket.vpce-1a2b3c4d-5e6f.s3.us-east-1.vpce.amazonaws.com",
    ],
)
def test_all_regions_of_aws_are_one_server(endpoint: str) -> None:
    assert server_at(endpoint) == "aws"


def test_what_has_other_buckets_of_the_same_names_is_another_server() -> None:
    others = [
        "https://s3.amazonaws.com",
        "https://s3.cn-north-1.amazonaws.com.cn",
        "https://s3.us-gov-west-1.amazonaws.com",
        "https://s3.amazonaws.com.example.org",
        "https://s3-outposts.us-east-1.amazonaws.com",
        "https://s3.amazonaws.com:8443",
        "https://bucket.s3.amazonaws.com",
        "https://obs.eu-101.myhuaweicloud.eu",
        "https://obs.cn-north-4.myhuaweicloud.com",
        "http://localhost",
        "https://localhost",
        "http://localhost:9000",
        "http://localhost:9000/a",
        "http://localhost:9000/A",
    ]
    assert len({server_at(endpoint) for endpoint in others}) == len(others)


def test_the_spelling_of_an_endpoint_does_not_count() -> None:
    spellings = ["http://Localhost:80/x/", "HTTP://localhost/x", "http://user@localhost:80/x"]
    assert {server_at(endpoint) for endpoint in spellings} == {"http://localhost/x"}
    regions = ["https://obs.cn-north-4.myhuaweicloud.com", "https://obs.myhuaweicloud.com/"]
    assert len({server_at(endpoint) for endpoint in regions}) == 1


def test_region_and_style_of_a_bucket_at_aws_do_not_count() -> None:
    names = {
        server("s3://bucket/"),
        server("s3://bucket/", region="eu-west-1"),
        server("s3://bucket/", addressing_style="path"),
        server("s3://bucket/", endpoint_url="https://s3.us-west-2.amazonaws.com"),
        server("s3://bucket/", env={"AWS_REGION": "eu-central-1"}),
    }
    assert names == {"aws"}
    assert server("s3://bucket/", region="cn-north-1") != "aws"


def test_stores_of_google_and_azure_tell_their_server_and_account() -> None:
    assert server("gs://b/") == server("gs://b/", endpoint_url="https://storage.googleapis.com/")
    assert server("gs://b/") != server("gs://b/", env={"STORAGE_EMULATOR_HOST": "localhost:4443"})
    mine, other = (server("az://c/", account_name=name) for name in ("mine", "other"))
    assert mine != other
    assert mine == server("az://c/", env={"AZURE_STORAGE_ACCOUNT": "mine"})
    assert mine == server("abfs://c@mine.dfs.core.windows.net/")
    at = {"endpoint_url": "http://127.0.0.1:10000"}
    assert server("az://c/", account_name="mine", **at) != server("az://c/", account_name="other", **at)


def test_a_web_server_is_its_origin() -> None:
    assert server("https://Example.org:443/a/b") == server("https://example.org/") == "https://example.org"


def test_a_file_system_of_fsspec_is_at_the_server_that_its_options_name() -> None:
    class Far(MemoryFileSystem):  # type: ignore[misc]
        protocol = "far"
        cachable = False

    def at(**options: object) -> str:
        return FsspecStore(Far(**options)).server

    assert at(host="a") == at(host="a", password="1", token="2")
    assert at(host="a") != at(host="b")
    assert at(client_kwargs={"endpoint_url": "a"}) != at(client_kwargs={"endpoint_url": "b"})
    assert at(connection_string="AccountName=a;AccountKey=1") == at(
        connection_string="AccountName=a;AccountKey=2"
    )
    assert at(connection_string="AccountName=a") != at(connection_string="AccountName=b")
    assert at() == ""


def test_no_secret_of_a_connection_string_is_told() -> None:
    text = "DefaultEndpointsProtocol=https; AccountName=a;AccountKey=secret==;SharedAccessSignature=sig"
    assert account_in(text) == ["AccountName=a"]
