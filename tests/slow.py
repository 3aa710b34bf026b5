"""Things that take time: a proxy on loopback with limited bandwidth, and slow servers, consumers and work.

With the proxy, transfers last long enough for a test to disturb them.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from types import TracebackType
from urllib.parse import urlsplit

from tests.waiting import PATIENCE


def take(seconds: float) -> None:
    """Take time, as a slow server, a slow consumer or a piece of work does. Never wait for an event with this."""
    time.sleep(seconds)


class SlowProxy:
    """Forwards connections to `upstream` with limited bandwidth.

    All responses together get `rate` bytes a second, all requests `upload_rate`. `answered` and `asked` count the bytes
    of responses and requests, so tests can check how much was fetched and sent.
    """

    def __init__(self, upstream: str, *, rate: int, upload_rate: int | None = None, port: int = 0) -> None:
        parts = urlsplit(upstream)
        self._to = (parts.hostname or "", parts.port or 80)
        self._rates = {True: rate, False: upload_rate}
        self._lock = threading.Lock()
        self._free_at = {True: 0.0, False: 0.0}
        self._sockets: set[socket.socket] = set()
        self.answered = self.asked = 0
        self._listener = socket.create_server(("127.0.0.1", port))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._acceptor = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> SlowProxy:
        self._acceptor.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.take_no_more()
        if self._acceptor.ident is not None:
            self._acceptor.join(PATIENCE)  # it may have accepted a connection just before
        for sock in list(self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def take_no_more(self) -> int:
        """Leave the port to another one, and keep the connections; return the port."""
        port = int(self.url.rpartition(":")[2])
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        return port

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._to)
            except OSError:
                client.close()
                continue
            self._sockets |= {client, server}
            threading.Thread(target=self._forward, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._forward, args=(server, client, True), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(16384):
                self._see(data, answers)
                self._wait(len(data), answers)
                target.sendall(data)
        for sock in (source, target):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        with self._lock:
            done = {source, target} - self._sockets
            self._sockets -= {source}
        for sock in (source, *done):
            sock.close()

    def pace(self, rate: int) -> None:
        """Change the bandwidth of responses."""
        self._rates[True] = rate

    def _count(self, size: int, answers: bool) -> None:
        if answers:
            self.answered += size
        else:
            self.asked += size

    def _see(self, data: bytes, answers: bool) -> None:
        """Note bytes before they are forwarded; subclasses override this."""

    def _wait(self, size: int, answers: bool) -> None:
        """Delay bytes so that the bandwidth is kept; called before they are forwarded."""
        rate = self._rates[answers]
        with self._lock:
            self._count(size, answers)
            if rate is None:
                return
            now = time.monotonic()
            self._free_at[answers] = max(self._free_at[answers], now) + size / rate
            pause = self._free_at[answers] - now
        time.sleep(pause)
