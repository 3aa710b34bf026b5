"""Rows of ``make bench`` under special conditions: without checks, over TLS, beside a busy cell, without an agent."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import BIN, COMMANDS, FEW, Bench, Side, agent_pid, same, slug

from nbdata.client.agents import stop_all

# A kernel whose cell does something else in plain Python while the transfer runs in the background.
_BESIDE = """
import threading
import nbdata

job = nbdata.Pull(sys.argv[2], sys.argv[3]).start()
ended = threading.Event()
threading.Thread(target=lambda: (job.wait(), ended.set())).start()
count = 0
while not ended.is_set():
    count += sys.argv[1] == "spin"
    if sys.argv[1] == "idle":
        ended.wait()
"""
# Import the installed nbdata, as the other rows do, not a source tree in the current folder.
_INSTALLED = "import sys; sys.path.remove(''); "
_FIRST = _INSTALLED + "import nbdata; nbdata.pull(sys.argv[1], sys.argv[2], quiet=True)"


def _pulled(bench: Bench, name: str, tool: str, command: Callable[[str, str], list[str]]) -> Side:
    """Return a side that pulls a source and compares the result with it."""
    source, place = bench.source(name), f"s3://bench/{slug(name)}"
    folder = f"{slug(tool)}-"

    def after(number: int) -> None:
        out = bench.work / f"{folder}{number}"
        assert same(source, out), f"{tool} pulled other bytes"
        shutil.rmtree(out)

    return Side(tool, lambda number: command(place, str(bench.work / f"{folder}{number}")), after)


def _not_verified(bench: Bench, name: str) -> list[Side]:
    """Return the sides of a pull without a check: nbdata, and s5cmd, which never checks."""
    ours = _pulled(bench, name, "nbdata", lambda *at: [*COMMANDS["nbdata"]["pull"](*at), "--verify", "none"])
    return [ours, _pulled(bench, name, "s5cmd", COMMANDS["s5cmd"]["pull"])]


def verified_or_not(bench: Bench, name: str) -> None:
    """Compare pulls without a check with s5cmd, which never checks.

    And pulls with a check with s5cmd plus ``md5sum -c``.

    nbdata reports success when the bytes are on the disk. So s5cmd runs a second time, followed by ``sync``.
    """
    count, size = bench.data(name)

    def synced(place: str, folder: str) -> list[str]:
        return ["bash", "-c", f"'{BIN}/s5cmd' cp '{place}/*' '{folder}/' && sync --data '{folder}'/*"]

    if bench.wants(row := f"pull {name}, not verified"):
        sides = [*_not_verified(bench, name), _pulled(bench, name, "s5cmd, then sync", synced)]
        bench.row(row, sides, count * size)
    if bench.wants(row := f"pull {name}, verified"):
        sums = bench.work / f"{slug(name)}.md5"
        with sums.open("w") as file:
            source = bench.source(name)
            subprocess.run(["md5sum", *sorted(os.listdir(source))], cwd=source, stdout=file, check=True)

        def checked(place: str, folder: str) -> list[str]:
            script = (
                f"'{BIN}/s5cmd' cp '{place}/*' '{folder}/' && cd '{folder}' && md5sum -c --quiet '{sums}'"
            )
            return ["bash", "-c", script]

        sides = [
            _pulled(bench, name, "nbdata", COMMANDS["nbdata"]["pull"]),
            _pulled(bench, name, "s5cmd, then md5sum -c", checked),
        ]
        bench.row(row, sides, count * size)
        sums.unlink()


def beside_a_cell(bench: Bench, name: str) -> None:
    """Compare a pull from an idle kernel with a pull from a kernel whose cell computes meanwhile."""
    count, size = bench.data(name)
    if bench.wants(row := f"pull {name}, from a kernel"):
        sides = [
            _pulled(
                bench,
                name,
                tool,
                lambda place, folder, how=how: [
                    sys.executable,
                    "-c",
                    _INSTALLED + _BESIDE,
                    how,
                    f"{place}/",
                    folder,
                ],  # type: ignore[misc]
            )
            for tool, how in (
                ("nbdata, beside a cell that spins", "spin"),
                ("nbdata, beside an idle one", "idle"),
            )
        ]
        bench.row(row, sides, count * size)


def first_pull(bench: Bench) -> None:
    """Measure a kernel's first pull, of one small object: with a running agent, and without an agent."""
    if not bench.wants(row := "pull one object"):
        return
    one = bench.work / "one"
    one.mkdir()
    (one / "object").write_bytes(bytes(1000))
    subprocess.run(
        COMMANDS["s5cmd"]["push"](str(one), "s3://bench/one"), check=True, stdout=subprocess.DEVNULL
    )

    def side(tool: str, before: Callable[[int], None]) -> Side:
        folder = f"{slug(tool)}-"

        def after(number: int) -> None:
            assert same(one, bench.work / f"{folder}{number}")
            shutil.rmtree(bench.work / f"{folder}{number}")

        def command(number: int) -> list[str]:
            return [sys.executable, "-c", _FIRST, "s3://bench/one/", str(bench.work / f"{folder}{number}")]

        return Side(tool, command, after, before, agent=False)

    no_agent = side("nbdata, no agent runs", lambda _: stop_all(now=True))
    bench.row(row, [no_agent, side("nbdata, an agent runs", lambda _: agent_pid())], 1000)
    shutil.rmtree(one)


def over_tls(bench: Bench, names: list[str]) -> None:
    """Pull through a gateway of the same server that speaks TLS."""
    rows = {name: f"pull {name}, over TLS" for name in names}
    if not any(bench.wants(f"{row}, not verified") for row in rows.values()):
        return
    for name in names:
        bench.source(name)
    with _gateway(bench) as pid:
        for name, row in rows.items():
            count, size = bench.data(name)
            sides = [_pulled(bench, name, tool, COMMANDS[tool]["pull"]) for tool in ("nbdata", "s5cmd")]
            if bench.wants(row):
                bench.row(row, sides, count * size, servers=[pid])
            if name != FEW and bench.wants(row := f"{row}, not verified"):
                bench.row(row, _not_verified(bench, name), count * size, servers=[pid])
            if name == FEW:
                bench.drop(name)


@contextmanager
def _gateway(bench: Bench) -> Iterator[int]:
    """Start a TLS gateway to the server, route all traffic through it, and yield its process id."""
    from nbdata.demo.programs import weed_program

    state = json.loads(next(bench.server.folder.rglob("server.json")).read_text())
    certificate = _certificate(bench.work / "certificate.pem")
    plain, grpc, port = (_free() for _ in range(3))
    flags = [
        f"-filer=127.0.0.1:{state['ports']['filer']}.{state['ports']['filer.grpc']}",
        "-ip.bind=127.0.0.1",
    ]
    flags += [
        f"-port={plain}",
        f"-port.grpc={grpc}",
        f"-port.https={port}",
        "-port.iceberg=0",
        "-port.lance=0",
    ]
    flags += [f"-cert.file={certificate}", f"-key.file={certificate}"]
    url = f"https://127.0.0.1:{port}"
    with (bench.work / "gateway.log").open("w") as log:
        gateway = subprocess.Popen(
            [str(weed_program()), "s3", *flags], cwd=bench.work, stdout=log, stderr=subprocess.STDOUT
        )
    kept = dict(os.environ)
    try:
        os.environ.update(AWS_ENDPOINT_URL=url, S3_ENDPOINT_URL=url, AWS_CA_BUNDLE=str(certificate))
        _wait_for(port)
        yield gateway.pid
    finally:
        os.environ.clear()
        os.environ.update(kept)
        gateway.terminate()
        gateway.wait()


def _free() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _wait_for(port: int) -> None:
    end = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def _certificate(file: Path) -> Path:
    """Create a self-signed certificate for 127.0.0.1, with its key in the same file."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "nbdata benchmark")])
    now = dt.datetime.now(dt.timezone.utc)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + dt.timedelta(days=1))
    made = made.add_extension(address, critical=False)
    signed = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(
        key, hashes.SHA256()
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(signed.public_bytes(serialization.Encoding.PEM) + private)
    return file
