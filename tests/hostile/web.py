"""A web server of the tests: serves files from memory and keeps each request with its headers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

__all__ = ["Asked", "Site", "served"]


class Asked(NamedTuple):
    """One request. The names of headers are in lower case."""

    method: str
    path: str
    headers: dict[str, str]


class Site(NamedTuple):
    """A server, its files by path, and its requests. In place of a file, a text is a redirect, an int a status."""

    url: str
    files: dict[str, bytes | str | int]
    asked: list[Asked]


@contextmanager
def served() -> Iterator[Site]:
    """Serve files at a new origin until the end of the block."""
    files: dict[str, bytes | str | int] = {}
    asked: list[Asked] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            asked.append(Asked(self.command, self.path, {n.lower(): v for n, v in self.headers.items()}))
            found = files.get(self.path.partition("?")[0], 404)
            data = found if isinstance(found, bytes) else b""
            start, end = 0, len(data)
            if isinstance(found, int):
                self.send_response(found)
            elif isinstance(found, str):
                self.send_response(302)
                self.send_header("location", found)
            elif wanted := self.headers.get("range", "").removeprefix("bytes="):
                first, _, last = wanted.partition("-")
                start, end = int(first), min(len(data), int(last) + 1 if last else len(data))
                self.send_response(206)
                self.send_header("content-range", f"bytes {start}-{end - 1}/{len(data)}")
            else:
                self.send_response(200)
            self.send_header("content-length", str(end - start))
            self.send_header("etag", f'"{hash(data) & 0xFFFFFF:06x}"')
            self.end_headers()
            if body:
                self.wfile.write(data[start:end])

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield Site(f"http://127.0.0.1:{server.server_port}", files, asked)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
