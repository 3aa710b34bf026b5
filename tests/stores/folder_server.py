"""A web server over a folder, like Apache and nginx: index pages, ranges, validators."""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Python's handler with index pages, plus ranges and ETags."""

    protocol_version = "HTTP/1.1"
    #: Request lines and headers, in order.
    seen: list[tuple[str, dict[str, str]]]
    #: Whether responses contain validators, which reveal a change of the file.
    validators = True
    _left: int | None = None  # bytes of the file that are still to be sent

    def log_message(self, *args: Any) -> None:
        """Suppress output on the terminal."""

    def send_head(self) -> Any:
        self.seen.append((f"{self.command} {self.path}", {k.lower(): v for k, v in self.headers.items()}))
        self._left = None
        path = self.translate_path(self.path)
        if os.path.isdir(path) or path.endswith("/"):
            return super().send_head()
        try:
            file = open(path, "rb")  # noqa: SIM115  the caller closes it
        except OSError:
            self.send_error(404)
            return None
        found = os.fstat(file.fileno())
        etag = f'"{found.st_mtime_ns:x}-{found.st_ino:x}-{found.st_size:x}"'
        wanted = self.headers.get("if-match")
        if wanted is not None and wanted != etag:
            file.close()
            self.send_error(412)
            return None
        start, end, status = 0, found.st_size, 200
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("range", ""))
        if match:
            start, end = int(match[1]), min(end, int(match[2] or end) + 1)
            status = 206
            if start >= found.st_size:
                file.close()
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{found.st_size}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return None
        self.send_response(status)
        if self.validators:
            self.send_header("ETag", etag)
            self.send_header("Last-Modified", self.date_time_string(int(found.st_mtime)))
        self.send_header("Content-Length", str(end - start))
        self.send_header("Accept-Ranges", "bytes")
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{found.st_size}")
        self.end_headers()
        file.seek(start)
        self._left = end - start
        return file

    def copyfile(self, source: Any, outputfile: Any) -> None:
        left = self._left
        if left is None:
            super().copyfile(source, outputfile)
            return
        while left and (data := source.read(min(left, 1 << 16))):
            outputfile.write(data)
            left -= len(data)


class FolderServer:
    """A running server; `url` ends with a slash."""

    def __init__(self, url: str, seen: list[tuple[str, dict[str, str]]]) -> None:
        self.url, self.seen = url, seen


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = False  # so that server_close waits for them

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._accepted: list[socket.socket] = []

    def get_request(self) -> Any:
        accepted = super().get_request()
        self._accepted.append(accepted[0])
        return accepted

    def hang_up(self) -> None:
        """End all connections: clients keep theirs for the next request."""
        for connection in self._accepted:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that went away."""


@contextlib.contextmanager
def folder_server(folder: Path, handler: type[_Handler] = _Handler) -> Iterator[FolderServer]:
    """Serve a folder on loopback."""
    seen: list[tuple[str, dict[str, str]]] = []
    kind = type("Handler", (handler,), {"seen": seen})
    server = _Server(("127.0.0.1", 0), functools.partial(kind, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield FolderServer(f"http://127.0.0.1:{server.server_address[1]}/", seen)
    finally:
        server.shutdown()
        server.hang_up()
        server.server_close()
        thread.join(PATIENCE)
