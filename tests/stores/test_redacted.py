"""Users never see a password or a signature of a URL."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import nbdata
from tests.stores.servers import answering, ok, read_head, serving

pytestmark = pytest.mark.usefixtures("inline")
REFUSED = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("place", "answer"),
    [
        ("http://u:SECRET@{}/x", REFUSED),
        ("http://{}/x?Signature=SECRET", REFUSED),
        ("s3://k:SECRET@{}/x", REFUSED),
        ("s3://k:SECRET/more@{}/x", REFUSED),
        ("http://u:SECRET/more@{}/x", REFUSED),
    ],
)
def test_an_error_names_the_place_without_its_secrets(place: str, answer: bytes, tmp_path: Path) -> None:
    with serving(answering(answer)) as port, pytest.raises(nbdata.NbdataError) as caught:
        nbdata.pull(place.format(f"127.0.0.1:{port}"), f"{tmp_path}/out/", quiet=True)
    assert "SECRET" not in f"{caught.value} {caught.value.to_dict()}"


def test_a_signed_url_is_fetched_and_its_signature_is_in_no_name(tmp_path: Path) -> None:
    asked: list[bytes] = []

    def handle(connection: socket.socket) -> None:
        asked.append(head := read_head(connection))
        answer = ok(b"data", "Connection: close")
        connection.sendall(answer if head.startswith(b"GET") else answer.removesuffix(b"data"))

    with serving(handle) as port:
        place = f"http://127.0.0.1:{port}/set/volume.bin?X-Amz-Signature=SECRET%2Fx%3D&v=1/"
        report = nbdata.pull(place, f"{tmp_path}/out/", quiet=True)
    assert (tmp_path / "out" / "volume.bin").read_bytes() == b"data"
    assert [row.path for row in report.rows] == ["volume.bin"]
    assert "SECRET" not in repr(report) + repr(list(report.rows))
    assert [head.split()[1] for head in asked if b"Signature=SECRET" not in head] == []


def test_a_proxy_that_is_no_url_is_refused_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("https_proxy", "http://user:SECRET/more@proxy:3128")
    with pytest.raises(nbdata.BadOption) as caught:
        nbdata.pull("s3://bucket/x", f"{tmp_path}/out/", quiet=True)
    assert "SECRET" not in f"{caught.value} {caught.value.to_dict()}"
