"""Servers that ignore ranges, do not say how long a file is or say it wrongly, or have long keys."""

from __future__ import annotations

import contextlib
import http.server
import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from tests.stores.s3.test_odd_servers import job
from tests.stores.servers import each, ok, read_head, serving
from tests.stores.test_bad_listings import page

NONE = b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"
DATA = random.Random(6).randbytes(1 << 20)


class _Plain(http.server.SimpleHTTPRequestHandler):
    """Answers each range with the whole file."""

    def log_message(self, *args: Any) -> None:
        """Suppress output on the terminal."""


class _Chunked(_Plain):
    """Does not say how long a file is, either."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._begin()

    def do_GET(self) -> None:
        self._begin()
        data = Path(self.translate_path(self.path)).read_bytes()
        with contextlib.suppress(ConnectionError):  # the client has read enough
            for start in range(0, len(data), 50_000):
                block = data[start : start + 50_000]
                self.wfile.write(b"%x\r\n%b\r\n" % (len(block), block))
            self.wfile.write(b"0\r\n\r\n")

    def _begin(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()


@pytest.fixture(params=[_Plain, _Chunked])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a file that each server has in turn."""
    (tmp_path / "data.bin").write_bytes(DATA)
    (tmp_path / "empty.bin").write_bytes(b"")

    def handler(*args: Any) -> None:
        with contextlib.suppress(ConnectionError):
            request.param(*args, directory=str(tmp_path))

    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)  # type: ignore[arg-type]
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/data.bin"
    server.shutdown()
    server.server_close()
    thread.join()


SLICES = [(None, None), (100, 110), (0, 5), (5, None), (None, -5), (0, -5), (-5, None)]
SLICES += [(1_000_000, 1_000_010), (2 << 20, (2 << 20) + 9)]


def test_slices_are_those_of_the_file(url: str) -> None:
    files = nbdata.filesystem(url)
    wanted = [DATA[start:end] for start, end in SLICES]
    assert [files.cat_file(url, start, end) for start, end in SLICES] == wanted
    assert files.cat_ranges([url] * len(SLICES), *map(list, zip(*SLICES, strict=True))) == wanted
    assert files.cat_file(url.replace("data", "empty"), 0, 10) == b""


@pytest.mark.parametrize("url", [_Plain], indirect=True)
def test_a_file_is_read_in_any_order(url: str) -> None:
    with nbdata.open(url, "rb") as file:
        assert file.read(1000) == DATA[:1000]
        file.seek(900_000)
        assert file.read(10) == DATA[900_000:900_010]
        file.seek(1000)
        assert file.read() == DATA[1000:]


@pytest.mark.parametrize("url", [_Plain], indirect=True)
def test_a_password_in_a_url_is_not_shown(url: str) -> None:
    with nbdata.open(url.replace("http://", "http://user:sesame-open@"), "rb") as file:
        assert "sesame" not in repr(file)
        with pytest.raises(OSError, match="Invalid") as caught:
            file.seek(-1)
        assert "sesame" not in str(caught.value)


def test_a_file_that_is_longer_than_its_server_says_is_an_error() -> None:
    told = (
        b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-99/100\r\nTransfer-Encoding: chunked\r\n\r\n"
    )

    def answer(connection: socket.socket) -> None:
        if read_head(connection):
            connection.sendall(told + b"fff\r\n" + bytes(0xFFF) + b"\r\n0\r\n\r\n")

    with serving(answer) as port:
        url = f"http://127.0.0.1:{port}/data.bin"
        with pytest.raises(nbdata.SourceChanged, match="longer than the store said"):
            nbdata.filesystem(url).cat_file(url)


def test_the_folders_above_long_keys_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [(f"d/{number}{'/a' * 500}/f", "7") for number in range(20)]
    monkeypatch.setattr("nbdata.files.names._FOLDERS", 5_000_000)
    with serving(each(lambda head: ok(page(*keys)) if "list-type" in head else NONE)) as port:
        files = nbdata.filesystem("s3://b", **job(port))
        assert len(files.find("b/d")) == len(keys)
        with pytest.raises(
            nbdata.BadOption, match="the names of all folders above the files take too much memory"
        ):
            files.find("b/d", withdirs=True)
        monkeypatch.setattr("nbdata.files.names._FOLDERS", 20_000_000)
        assert len(files.find("b/d", withdirs=True)) == 1 + 502 * len(keys)
