"""A network line with latency between client and server, simulated by `delayline.c`, which is compiled on first use.

``python benchmarks/line.py`` prints how much this line can carry here. Rows of `make bench` that reach more than 70 %
of that measure the line rather than the tools.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

SOURCE = Path(__file__).with_name("delayline.c")


class Line:
    """A proxy with latency in front of a server; a context manager.

    Parameters
    ----------
    url : str
        URL of the server, ``http://ADDRESS:PORT``.
    delay : float
        Milliseconds in each direction.
    rate : float
        Bytes per second that each connection carries from the server; 0 for no limit.
    """

    def __init__(self, url: str, delay: float, rate: float) -> None:
        where = urlsplit(url)
        self._folder = tempfile.mkdtemp(prefix="nbdata-line-")
        program = f"{self._folder}/delayline"
        subprocess.run(["cc", "-O2", "-o", program, str(SOURCE)], check=True)
        command = [program, str(where.hostname), str(where.port), str(delay), str(int(rate))]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Line:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.communicate("")
        shutil.rmtree(self._folder)


def carried(connections: int, seconds: float) -> float:
    """Measure how many bytes per second the line carries by itself; sender and receiver share its cores."""

    def serve(client: socket.socket) -> None:
        data = bytes(1 << 20)
        try:
            while True:
                client.sendall(data)
        except OSError:
            client.close()

    total = 0
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.settimeout(5)
        with Line(f"http://127.0.0.1:{door.getsockname()[1]}", 0, 0) as line:
            clients, threads = [], []
            for _ in range(connections):
                clients.append(socket.create_connection(("127.0.0.1", line.port)))
                thread = threading.Thread(target=serve, args=(door.accept()[0],), daemon=True)
                thread.start()
                threads.append(thread)
            counts = [0] * connections
            end = time.monotonic() + seconds

            def read(number: int) -> None:
                view = memoryview(bytearray(1 << 20))
                while time.monotonic() < end:
                    counts[number] += clients[number].recv_into(view)

            readers = [threading.Thread(target=read, args=(n,)) for n in range(connections)]
            for reader in readers:
                reader.start()
            for reader in readers:
                reader.join()
            total = sum(counts)
            for client in clients:
                client.close()
    return total / seconds


if __name__ == "__main__":
    print(f"the line alone carries {carried(8, 3.0) / 1e6:,.0f} MB/s here")
