"""pull below a limit: it writes only what it has reserved, and counts as written only what it wrote."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.paths import canonical
from nbdata.seals import Seals
from nbdata.space import ledger
from nbdata.space.ledger import Ledger, Reservation
from nbdata.stores.local import LocalStore
from nbdata.transfer.part_records import PART
from nbdata.transfer.partials import Partial
from nbdata.transfer.staging import Staging
from tests.engine.pull.conftest import SMALL_PART
from tests.faults.gate import Gate
from tests.stores.servers import read_head, serving
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.usefixtures("inline")
MB = 10**6


def test_a_file_that_turns_out_to_differ_is_fetched_only_where_there_is_room(
    put: Callable[[dict[str, bytes]], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, out = put({"a": b"a" * 3 * MB}), tmp_path / "out"
    out.mkdir()
    (out / "a").write_bytes(b"b" * 3 * MB)
    monkeypatch.setenv("NBDATA_QUOTA", f"4MB:{out}")
    with pytest.raises(nbdata.NotEnoughSpace):
        nbdata.pull(url, out, quiet=True)
    assert (out / "a").read_bytes() == b"b" * 3 * MB
    monkeypatch.setenv("NBDATA_QUOTA", f"7MB:{out}")
    assert nbdata.pull(url, out, quiet=True).counts == {"fetched": 1}


def test_an_object_of_unknown_size_is_fetched_only_as_far_as_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = 0

    def handle(connection: socket.socket) -> None:
        nonlocal sent
        while head := read_head(connection):
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            if head.startswith(b"GET"):
                for _ in range(64):
                    connection.sendall(b"%x\r\n%b\r\n" % (1 << 20, b"x" * (1 << 20)))
                    sent += 1 << 20
                connection.sendall(b"0\r\n\r\n")

    out = tmp_path / "out"
    out.mkdir()
    monkeypatch.setenv("NBDATA_QUOTA", f"10MB:{out}")
    written = []
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda *a: written.append(real(*a)) or written[-1])
    with serving(handle) as port, pytest.raises(nbdata.NotEnoughSpace):
        nbdata.pull(f"http://127.0.0.1:{port}/x", f"{out}/", quiet=True)
    assert sum(written) <= 10 * MB
    assert os.listdir(out) == []


def test_no_more_is_noted_as_landed_than_was_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = tmp_path / "big", tmp_path / "out"
    source.write_bytes(bytes(3 * PART))
    (out / ".nbdata").mkdir(parents=True)
    info = LocalStore().head(str(source)[1:])
    parts = Partial(
        Staging(f"{out}/.nbdata"),
        "big",
        f"\n{canonical(source)}",
        info,
        Seals(os.environ["NBDATA_STATE_DIR"]),
    )
    parts.mark(0)
    parts.close()
    reserved, landed = [], []
    real, real_note = Ledger.reserve, Reservation.note_written

    def reserve(self, path, needed, *rest, **options):  # type: ignore[no-untyped-def]
        reserved.append(needed)
        return real(self, path, needed, *rest, **options)

    def note(self, size, files=0, **more):  # type: ignore[no-untyped-def]
        landed.append(size)
        real_note(self, size, files, **more)

    monkeypatch.setattr(Ledger, "reserve", reserve)
    monkeypatch.setattr(Reservation, "note_written", note)
    nbdata.pull(source, f"{out}/", quiet=True)
    assert (out / "big").read_bytes() == source.read_bytes()
    assert (reserved, landed) == ([2 * PART], [PART, PART, 0])


@pytest.mark.usefixtures("small_parts")
def test_parts_of_a_big_object_are_not_counted_both_as_used_and_as_reserved(
    put: Callable[[dict[str, bytes]], str],
    s3: EmbeddedServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A long download of a large object must not make the limit look twice as full as it is."""
    monkeypatch.setattr(ledger, "_NOTE_EVERY", 0.0)
    part, some = SMALL_PART, SMALL_PART // 16  # some: for what is not content
    url, out = put({"big": os.urandom(6 * part)}), tmp_path / "out"
    out.mkdir()
    limited = {str(out): (10 * part, "%quota --limit")}
    with Gate(s3.url, limit=4 * part + part // 2) as gate:
        monkeypatch.setenv("AWS_ENDPOINT_URL", gate.url)
        job = nbdata.Pull(url, out, concurrency=1).start()
        gate.wait_until_it_holds()
        wait_until(lambda: Ledger().room(str(out), limited)[0].reserved <= 3 * part)
        room = Ledger().room(str(out), limited, fresh=True)[0]
        assert 4 * part <= room.used <= 5 * part + some
        assert 6 * part <= room.used + room.reserved <= 7 * part + some
        gate.open()
        assert job.wait(PATIENCE).state == "DONE"
    assert Ledger().room(str(out), limited)[0].reserved == 0
