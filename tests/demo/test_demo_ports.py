"""Other users of the machine can neither read nor write through the ports of the embedded SeaweedFS."""

from __future__ import annotations

import json
import ssl
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from nbdata.demo import programs
from nbdata.demo.server import EmbeddedServer
from tests.waiting import PATIENCE


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with EmbeddedServer.start(tmp_path_factory.mktemp("closed"), kind="seaweedfs") as running:
        running.create_bucket("demo")
        file = running.folder / "object"
        file.write_bytes(b"content" * 1000)
        running.put("demo", "object", file)
        yield running


def ports(server: EmbeddedServer) -> dict[str, int]:
    found: dict[str, int] = json.loads((server.folder / "server.json").read_text())["ports"]
    return found


def asked(url: str, data: bytes | None = None, trusted: ssl.SSLContext | None = None) -> tuple[int, bytes]:
    """Ask without a certificate, unless `trusted` has one; 0 if no answer comes at all."""
    context = trusted or ssl._create_unverified_context()  # what another user can do
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    try:
        with opener.open(urllib.request.Request(url, data=data), timeout=PATIENCE) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        try:
            return error.code, error.read()
        except OSError:  # it has not read what was written, so its answer may be cut
            return error.code, b""
    except (OSError, ValueError):
        return 0, b""


_PATHS = [
    "/",
    "/buckets/demo/object",
    "/dir/assign",
    "/dir/status",
    "/status",
    "/metrics",
    "/admin/assign_volume?volume=9",
]


@pytest.mark.in_ci(1)
@pytest.mark.parametrize("protocol", ["http", "https"])
def test_no_port_beside_s3_answers_without_the_certificate(server: EmbeddedServer, protocol: str) -> None:
    for name, port in ports(server).items():
        if name == "s3":
            continue
        for path in _PATHS:
            for data in (None, b"written"):
                status, body = asked(f"{protocol}://127.0.0.1:{port}{path}", data)
                assert status in (0, 400), (name, path, status, body[:200])
                assert b"content" not in body


def test_s3_asks_for_keys(server: EmbeddedServer) -> None:
    assert asked(f"{server.url}/demo/object")[0] == 403
    assert asked(f"{server.url}/demo/another", b"written")[0] in (403, 405)
    assert asked(f"{server.url}/")[0] == 403


def test_the_ports_work_with_the_certificate_which_only_the_user_can_read(server: EmbeddedServer) -> None:
    from nbdata.demo.certificates import trusted

    status, body = asked(
        f"https://127.0.0.1:{ports(server)['filer']}/buckets/demo/object", None, trusted(server.folder)
    )
    assert (status, body[:7]) == (200, b"content")
    for path in (server.folder / "certificate.pem", server.folder / "tmp" / "security.toml"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_the_sockets_in_the_folder_of_all_are_closed_to_others(server: EmbeddedServer) -> None:
    made = [Path(path) for path in programs.leftovers("seaweedfs", ports(server))]
    there = [path for path in made if path.exists()]
    assert there
    for path in there:
        assert not path.stat().st_mode & 0o077, path


@pytest.mark.long
def test_an_open_server_forgets_the_settings_of_a_closed_one(tmp_path: Path) -> None:
    with EmbeddedServer.start(tmp_path, kind="seaweedfs") as server:
        server.create_bucket("demo")
    with EmbeddedServer.start(tmp_path, kind="seaweedfs", private=False) as server:
        server.create_bucket("demo")
        assert not (tmp_path / "certificate.pem").exists()
        assert asked(f"http://127.0.0.1:{ports(server)['master']}/dir/status")[0] == 200
