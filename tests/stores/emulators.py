"""Emulators of Google's and Azure's stores, as processes on their own ports."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.ports import free_port
from tests.waiting import PATIENCE, wait_until


@contextlib.contextmanager
def running(command: Callable[[int], list[str]], path: str, log: Path) -> Iterator[int]:
    """Start a program that serves HTTP on a given port, and yield the port once it answers."""
    port = free_port()
    with open(log, "wb") as out:
        process = subprocess.Popen(
            command(port), stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=log.parent, env=os.environ
        )
    try:
        wait_until(lambda: process.poll() is not None or _answers(port, path), why=log.read_text)
        assert process.poll() is None, log.read_text()[-2000:]
        yield port
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True


# By default, the emulator answers one request after the other.
_MANY_AT_ONCE = """
import http.server
http.server.HTTPServer = http.server.ThreadingHTTPServer
from gcp_storage_emulator.__main__ import main
main()
"""


def google(folder: Path) -> contextlib.AbstractContextManager[int]:
    """gcp-storage-emulator, with a bucket named ``bucket``."""
    options = ["start", "--host=127.0.0.1", "--in-memory", "--default-bucket=bucket", "--quiet"]
    return running(
        lambda port: [sys.executable, "-c", _MANY_AT_ONCE, *options, f"--port={port}"],
        "/",
        folder / "gcp-storage-emulator.log",
    )


def azurite() -> str:
    """Return the path of Azurite's blob service, or '' if it is not installed."""
    return str(Path(sys.prefix, "lib/node_modules/azurite/dist/src/blob/main.js"))


def node() -> str | None:
    """Return the path of node."""
    return shutil.which("node", path=f"{sys.prefix}/bin:{os.environ['PATH']}")


def azure(folder: Path) -> contextlib.AbstractContextManager[int]:
    """Azurite with its default account, which all emulators share."""
    options = ["--blobHost", "127.0.0.1", "--location", str(folder), "--silent", "--skipApiVersionCheck"]
    return running(
        lambda port: [str(node()), azurite(), *options, "--blobPort", str(port)], "/", folder / "azurite.log"
    )
