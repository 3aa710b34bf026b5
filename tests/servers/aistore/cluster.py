"""Start a cluster, and do to it what happens to clusters: drained and killed nodes, objects that move, faults."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.waiting import PATIENCE

__all__ = ["Cluster", "Process", "cluster"]


class Process:
    """The gateway or a node.

    Attributes
    ----------
    id, url : str
        Its id in the cluster map, and its address.
    """

    def __init__(self, module: str, settings: dict[str, Any]) -> None:
        self.id: str = settings["id"]
        self._module, self._settings = module, settings
        self._process = self._begun()
        self.url = ""

    def _begun(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", f"tests.servers.aistore.{self._module}", json.dumps(self._settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[3],
            env=dict(os.environ),
        )

    def wait(self) -> None:
        """Wait until it serves; its address is kept."""
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().decode().strip()
        assert self.url, "the process did not start"
        self._settings["port"] = urlsplit(self.url).port

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def folder(self) -> Path:
        """The folder of a node's objects."""
        return Path(self._settings["folder"])

    def control(self, what: str, asked: dict[str, Any] | None = None) -> Any:
        """Have the process do something for a test; return what it tells."""
        at = urlsplit(self.url)
        assert at.hostname is not None
        connection: http.client.HTTPConnection
        if at.scheme == "https":
            context = ssl._create_unverified_context()
            if certificate := self._settings.get("client"):
                context.load_cert_chain(*certificate)
            connection = http.client.HTTPSConnection(at.hostname, at.port, timeout=PATIENCE, context=context)
        else:
            connection = http.client.HTTPConnection(at.hostname, at.port, timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.request("POST", f"/_control/{what}", json.dumps(asked or {}))
            answer = connection.getresponse()
            data = answer.read()
            assert answer.status == 200, data
            return json.loads(data)

    def faults(self, **faults: Any) -> None:
        """Misbehave from now on; without faults, no more."""
        self.control("faults", faults)

    def seen(self) -> list[dict[str, Any]]:
        """Return the requests since the last call: method, path, headers, status, and bytes of the body."""
        found: list[dict[str, Any]] = self.control("seen")
        return found

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait(PATIENCE)
        self._close()

    def restart(self) -> None:
        """Start it again, at the same address and with its objects."""
        self._process = self._begun()
        self.wait()

    def stop(self) -> None:
        """End the process."""
        if self._process.poll() is None:
            self.kill()
        self._close()

    def _close(self) -> None:
        for end in (self._process.stdin, self._process.stdout):
            if end is not None:
                end.close()


class Cluster:
    """A running cluster.

    Attributes
    ----------
    gateway : Process
    nodes : list of Process
    """

    def __init__(self, gateway: Process, nodes: list[Process]) -> None:
        self.gateway, self.nodes = gateway, nodes

    @property
    def url(self) -> str:
        """The address of the gateway."""
        return self.gateway.url

    def create_bucket(self, name: str, provider: str = "ais", **properties: Any) -> None:
        """Make a bucket; see `tests.servers.aistore.kept.Bucket` for its properties."""
        self.gateway.control("bucket", {"provider": provider, "name": name, **properties})

    def node_of(self, bucket: str, name: str, provider: str = "ais") -> Process:
        """Return the node that has an object, or would have it."""
        url = self.gateway.control("where", {"provider": provider, "bucket": bucket, "name": name})
        return next(node for node in self.nodes if node.url == url)

    def move(self, bucket: str, name: str, to: Process, *, copy: bool = False) -> None:
        """Move an object to another node, or only copy it there; the gateway redirects there from now on."""
        asked = {"provider": "ais", "bucket": bucket, "names": [name], "to": to.url, "move": not copy}
        self.node_of(bucket, name).control("give", asked)
        self.pin(bucket, name, to)

    def copy(self, bucket: str, name: str, to: Process) -> None:
        """Have another node hold a copy of an object; the gateway does not redirect there yet."""
        asked = {"provider": "ais", "bucket": bucket, "names": [name], "to": to.url, "move": False}
        self.node_of(bucket, name).control("give", asked)

    def pin(self, bucket: str, name: str, to: Process) -> None:
        """Have the gateway redirect to another node."""
        self.gateway.control("pin", {"provider": "ais", "bucket": bucket, "name": name, "node": to.id})

    def damage(self, bucket: str) -> None:
        """Change a bit of each object of a bucket, on the disks of the nodes."""
        for node in self.nodes:
            for file in node.folder.glob("*.json"):
                told = json.loads(file.read_text())
                if told["bucket"] == f"ais://{bucket}":
                    data = bytearray((node.folder / told["file"]).read_bytes())
                    data[len(data) // 2] ^= 1
                    (node.folder / told["file"]).write_bytes(data)

    def drain(self, node: Process, *buckets: str) -> None:
        """Put a node into maintenance: others get its objects."""
        self.gateway.control("maintenance", {"id": node.id})
        for bucket in buckets:
            asked = {"provider": "ais", "bucket": bucket, "prefix": "", "after": "", "limit": 100_000}
            for one in node.control("list", asked):
                to = self.node_of(bucket, one["name"])
                give = {"provider": "ais", "bucket": bucket, "names": [one["name"]], "to": to.url}
                node.control("give", give | {"move": True})

    def faults(self, **faults: Any) -> None:
        """Have all nodes misbehave."""
        for node in self.nodes:
            node.faults(**faults)

    def seen(self) -> dict[str, list[dict[str, Any]]]:
        """Return the requests of each process since the last call, by id."""
        return {one.id: one.seen() for one in (self.gateway, *self.nodes)}


@contextlib.contextmanager
def cluster(folder: Path, *, nodes: int = 3, **settings: Any) -> Iterator[Cluster]:
    """Run a gateway and nodes in front of a folder.

    Parameters
    ----------
    settings
        ``token``: what each request must bring. ``signs``: the key that redirects are signed with. ``certificate``,
        ``key``: serve HTTPS. ``clients``: the authority of the certificates that clients must have.
    """
    gateway = Process("gateway", {"id": "p0", **settings})
    made = [
        Process("node", {"id": f"t{number}", "folder": str(folder / f"t{number}"), **settings})
        for number in range(1, nodes + 1)
    ]
    try:
        for one in (gateway, *made):
            one.wait()
        for node in made:
            gateway.control("node", {"id": node.id, "url": node.url})
        yield Cluster(gateway, made)
    finally:
        for one in (gateway, *made):
            one.stop()
