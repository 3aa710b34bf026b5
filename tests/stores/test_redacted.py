"""No password and no signature of a URL is in what users see."""

from __future__ import annotations

from pathlib import Path

import pytest

import nbdata
from tests.stores.servers import answering, serving

pytestmark = pytest.mark.usefixtures("inline")
REFUSED = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("place", "answer"),
    [("http://u:SECRET@{}/x", REFUSED), ("http://{}/x?Signature=SECRET", REFUSED)],
)
def test_an_error_names_the_place_without_its_secrets(place: str, answer: bytes, tmp_path: Path) -> None:
    with serving(answering(answer)) as port, pytest.raises(nbdata.NbdataError) as caught:
        nbdata.pull(place.format(f"127.0.0.1:{port}"), f"{tmp_path}/out/", quiet=True)
    assert "SECRET" not in f"{caught.value} {caught.value.to_dict()}"


def test_a_proxy_that_is_no_url_is_refused_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("https_proxy", "http://user:SECRET/more@proxy:3128")
    with pytest.raises(nbdata.BadOption) as caught:
        nbdata.pull("s3://bucket/x", f"{tmp_path}/out/", quiet=True)
    assert "SECRET" not in f"{caught.value} {caught.value.to_dict()}"
