"""Objects that change while an fsspec file system reads them with several requests without a version."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

import nbdata
from tests.stores.servers import read_head, serving

pytestmark = pytest.mark.usefixtures("inline")

SIZE = 20 << 20


class Changing:
    """A web server with one object, which changes after its first part was read."""

    def __init__(self) -> None:
        self.version = self.reads = 0

    def handle(self, connection: socket.socket) -> None:
        while head := read_head(connection).decode():
            tag = f'Accept-Ranges: bytes\r\nETag: "{self.version}"\r\n'
            asked = re.search("(?i)range: bytes=([0-9]+)-([0-9]+)", head)
            if not asked:
                connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n{tag}\r\n".encode())
                if not head.startswith("HEAD"):
                    connection.sendall(bytes([self.version]) * SIZE)
                continue
            first, last = int(asked[1]), min(int(asked[2]), SIZE - 1)
            size, where = last - first + 1, f"Content-Range: bytes {first}-{last}/{SIZE}"
            said = f"HTTP/1.1 206 Partial Content\r\nContent-Length: {size}\r\n{where}\r\n{tag}\r\n"
            connection.sendall(said.encode() + bytes([self.version]) * size)
            self.reads += 1
            if self.reads == 1:
                self.version += 1


def pulled(url: str, folder: Path) -> bytes:
    nbdata.pull(url, folder / "f", fs=fsspec.filesystem("http"), quiet=True)
    return (folder / "f").read_bytes()


def copied(url: str, folder: Path) -> bytes:
    nbdata.copy(url, f"memory://{folder.name}/f", fs=fsspec.filesystem("http"), quiet=True)
    return bytes(fsspec.filesystem("memory").cat_file(f"/{folder.name}/f"))


@pytest.mark.parametrize("verb", [pulled, copied])
def test_no_object_is_made_of_two_versions(verb: Callable[[str, Path], bytes], tmp_path: Path) -> None:
    with serving(Changing().handle) as port:
        url = f"http://127.0.0.1:{port}/f"
        with pytest.raises(nbdata.TransferFailed, match="changed"):
            verb(url, tmp_path)
        assert verb(url, tmp_path) == b"\1" * SIZE
