"""A URL with a new signature leads to the same object: work on it goes on, and what is there counts as unchanged."""

from __future__ import annotations

import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

import nbdata
from nbdata.errors import NbdataError
from tests.stores.folder_server import FolderServer, _Handler, folder_server

pytestmark = pytest.mark.usefixtures("inline")

MIB = 1 << 20


class _Signed(_Handler):
    """A server of signed URLs; each signature is good for so many requests."""

    good: ClassVar[dict[str, int]] = {}
    _lock = threading.Lock()

    def send_head(self) -> object:
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        (signature,) = query.get("X-Amz-Signature", [""])
        with self._lock:
            good = self.good.get(signature, 0)
            self.good[signature] = good - 1
        if good <= 0:
            self.send_error(403)
            return None
        return super().send_head()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FolderServer]:
    (tmp_path / "web").mkdir()
    _Signed.good = {}
    with folder_server(tmp_path / "web", _Signed) as running:
        yield running


def _url(server: FolderServer, name: str, signature: str, good: int = 1_000) -> str:
    _Signed.good[signature] = good
    return f"{server.url}{name}?X-Amz-Expires=60&X-Amz-Signature={signature}&part=1"


def _sent(server: FolderServer) -> int:
    """Return how many bytes were asked for by ranges since the last call."""
    ranges = [headers["range"][6:].split("-") for _, headers in server.seen if "range" in headers]
    server.seen.clear()
    return sum(int(end) - int(start) + 1 for start, end in ranges if end)


def test_a_pull_whose_signature_expires_goes_on_with_a_new_one(server: FolderServer, tmp_path: Path) -> None:
    content = bytes(range(256)) * (64 * MIB // 256)
    (tmp_path / "web/x.bin").write_bytes(content)
    with pytest.raises(NbdataError, match="signature in the URL may have expired"):
        nbdata.pull(_url(server, "x.bin", "a", good=4), tmp_path / "x.bin", concurrency=1, quiet=True)
    _sent(server)
    nbdata.pull(_url(server, "x.bin", "b"), tmp_path / "x.bin", concurrency=1, quiet=True)
    assert 0 < _sent(server) < 64 * MIB
    assert (tmp_path / "x.bin").read_bytes() == content
    again = nbdata.pull(_url(server, "x.bin", "c"), tmp_path / "x.bin", quiet=True)
    assert again.counts == {"unchanged": 1}


def test_another_query_is_another_object(server: FolderServer, tmp_path: Path) -> None:
    (tmp_path / "web/x.bin").write_bytes(b"x" * MIB)
    nbdata.pull(_url(server, "x.bin", "a"), tmp_path / "x.bin", quiet=True)
    other = _url(server, "x.bin", "b").replace("part=1", "part=2")
    assert nbdata.pull(other, tmp_path / "x.bin", quiet=True, verify="none").counts != {"unchanged": 1}
