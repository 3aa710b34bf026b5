"""Keys of every kind are pulled to the disk and pushed back; on moto, which keeps keys unchanged."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from tests.conftest import client_of

GOOD = [
    "plain",
    "with space",
    " leading and trailing ",
    "NFC \u00e9",
    "NFD e\u0301",
    "+ % # ? & ' \" ; , [ ] { } * ~ \\ ` = @ : ! ( ) < > | ^ $",
    "%41 is not A",
    "-rf",
    "...",
    ".hidden",
    "trailing dot.",
    "tab\there",
    "lower",
    "LOWER",
    "\U0001f600",
    "deep/" * 40 + "leaf",
    "x" * 255,
]
ODD = [
    "double//slash",
    "/leading slash",
    "dots/../up",
    "dots/./here",
    "folder with bytes/",
    ".nbdata/forged",
    "sub/.NBData",
    "y" * 256,
    "z/" + "long component " * 50,
    "file",
    "file/below",
    "file/below/that",
    "%_",
    "end%.",
]


@pytest.fixture
def odd(moto: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket with keys of every kind; each object contains the digest of its key."""
    for name, value in moto.environment().items():
        monkeypatch.setenv(name, value)
    moto.create_bucket("odd-names")
    client = client_of(moto)
    for key in (*GOOD, *ODD):
        client.put_object(Bucket="odd-names", Key=f"in/{key}", Body=content(key))
    client.put_object(Bucket="odd-names", Key="in/empty", Body=b"")
    client.put_object(Bucket="odd-names", Key="in/marker/", Body=b"")
    return "s3://odd-names"


def content(key: str) -> bytes:
    return hashlib.sha256(key.encode()).hexdigest().encode() + b"\n"


def keys(moto: EmbeddedServer, prefix: str) -> dict[str, bytes]:
    client = client_of(moto)
    pages = client.get_paginator("list_objects_v2").paginate(
        Bucket="odd-names", Prefix=prefix, PaginationConfig={"PageSize": 7}
    )
    found = [o["Key"] for page in pages for o in page.get("Contents", ())]
    return {
        key.removeprefix(prefix): client.get_object(Bucket="odd-names", Key=key)["Body"].read()
        for key in found
    }


def test_each_key_is_a_file_or_is_named_as_one_that_cannot_be(odd: str, tmp_path: Path) -> None:
    report = nbdata.pull(f"{odd}/in/", f"{tmp_path}/out", on_error="report", quiet=True)
    possible = [*GOOD, "file", "%_", "end%."]
    for key in possible:
        assert (tmp_path / "out" / key).read_bytes() == content(key)
    assert (tmp_path / "out" / "empty").read_bytes() == b""
    assert report.counts == {"fetched": len(possible) + 1, "unrepresentable": len(ODD) - 3}
    assert "--encode-names" in report.failures[0][1]
    assert {path for path, _ in report.failures} == set(ODD) - {"file", "%_", "end%."}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


def test_with_encoding_every_key_becomes_a_file_and_the_same_key_again(
    odd: str, moto: EmbeddedServer, tmp_path: Path
) -> None:
    out = f"{tmp_path}/out"
    report = nbdata.pull(f"{odd}/in/", out, encode_names=True, quiet=True)
    assert report.counts == {"fetched": len(GOOD) + len(ODD) + 1}
    again = nbdata.pull(f"{odd}/in/", out, encode_names=True, delete=True, quiet=True)
    assert again.counts == {"unchanged": len(GOOD) + len(ODD) + 1}
    sent = nbdata.push(out, f"{odd}/back/", encode_names=True, quiet=True)
    assert sent.counts == {"sent": len(GOOD) + len(ODD) + 1}
    assert keys(moto, "back/") == {k: c for k, c in keys(moto, "in/").items() if k != "marker/"}
    mirrored = nbdata.push(out, f"{odd}/back/", encode_names=True, delete=True, quiet=True)
    assert set(mirrored.counts) == {"unchanged"}


def test_two_files_of_one_key_are_not_both_sent(odd: str, moto: EmbeddedServer, tmp_path: Path) -> None:
    for name in ("a", "%61"):
        (tmp_path / name).write_text(name)
    report = nbdata.push(f"{tmp_path}/", f"{odd}/two/", encode_names=True, on_error="report", quiet=True)
    assert report.counts == {"sent": 1, "unrepresentable": 1}
    assert "same key" in report.failures[0][1]


def test_a_name_with_a_line_break_is_valid(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "line\nfeed").write_text("x")
    assert nbdata.pull(f"{tmp_path}/in/", f"{tmp_path}/out", quiet=True).counts == {"fetched": 1}
    assert (tmp_path / "out" / "line\nfeed").read_text() == "x"


def test_a_name_that_is_no_text_is_told_before_anything_is_sent(odd: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "good").write_text("x")
    with open(os.fsencode(f"{tmp_path}/in/") + b"caf\xe9", "w") as file:
        file.write("y")
    report = nbdata.push(f"{tmp_path}/in/", f"{odd}/text/", on_error="report", quiet=True)
    assert report.counts == {"sent": 1, "unrepresentable": 1}
    assert "not UTF-8" in report.failures[0][1]
