"""Places as users write them: what they mean, and which are refused."""

from __future__ import annotations

import os

import pytest

from nbdata.errors import BadOption
from nbdata.paths import as_folder, canonical


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("S3://bucket/x", "s3://bucket/x"),
        ("s3:/bucket/x", "s3://bucket/x"),
        ("S3:/bucket/x/", "s3://bucket/x/"),
        ("file:///data/a b/", "/data/a b/"),
        ("FILE:/data", "/data"),
        ("file://localhost/data%20x", "/data x"),
        ("./s3:bucket", f"{os.getcwd()}/s3:bucket"),
        ("s3/bucket", f"{os.getcwd()}/s3/bucket"),
        ("s3.csv", f"{os.getcwd()}/s3.csv"),
        ("https_logs/", f"{os.getcwd()}/https_logs/"),
        ("a//b", f"{os.getcwd()}/a/b"),
    ],
)
def test_a_place_has_one_spelling(written: str, meant: str) -> None:
    assert canonical(written) == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("s3//bucket/x/", "s3://bucket/x/"),
        ("s3:bucket/x", "s3://bucket/x"),
        ("S3;//bucket", "s3://bucket"),
        (r"s3:\\bucket\x", "s3://bucket/x"),
        (" s3://bucket/x", "s3://bucket/x"),
        ("https//host/a", "https://host/a"),
        ("gs:///bucket", None),
    ],
)
def test_a_misspelt_url_is_no_folder(written: str, meant: str | None) -> None:
    if meant is None:
        assert canonical(written) == written  # a URL without a bucket, which the store refuses
        return
    with pytest.raises(BadOption, match="is no URL of") as caught:
        canonical(written)
    assert f"Did you mean {meant}?" in str(caught.value)


@pytest.mark.parametrize("written", ["file://data", "file://data/", "file://other/x"])
def test_a_file_url_with_a_host_does_not_mean_the_working_folder(written: str) -> None:
    with pytest.raises(BadOption, match="names a host"):
        canonical(written)


@pytest.mark.parametrize(
    ("place", "folder"),
    [
        ("s3://b/x", "s3://b/x/"),
        ("/data//", "/data/"),
        ("http://h/x?sig=1", "http://h/x/?sig=1"),
        ("gs://", "gs://"),
        ("s3://b", "s3://b/"),
    ],
)
def test_a_folder_ends_with_a_slash_and_a_store_stays_one(place: str, folder: str) -> None:
    assert as_folder(place) == folder
