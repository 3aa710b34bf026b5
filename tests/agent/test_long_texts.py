"""Texts of megabytes, as an odd server or a slip of the keyboard makes them, end no session and harm no other job."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import nbdata
from nbdata import wire
from nbdata.agent.sessions import Session
from nbdata.client.remote import AgentHost
from nbdata.errors import BadOption, NbdataError, NotFound, error_from_dict
from nbdata.redaction import TEXT, shortened
from nbdata.report import Snapshot
from nbdata.verbs.probe import Probe
from tests.agent.rig import Rig, rigged
from tests.stores.servers import read_head, serving
from tests.waiting import PATIENCE

HOST = AgentHost()
LONG = "x" * 3_000_000


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """An agent with a running job, which must be running at the end."""
    with rigged(monkeypatch) as rig:
        job = HOST.submit(Probe(items=2000, delay=100, tag="bystander"), background=True)
        pid = rig.pid
        yield rig
        assert rig.pid == pid
        assert not job.snapshot().finished
        job.cancel()


@pytest.mark.in_ci("bucket")
@pytest.mark.parametrize(
    "place", [f"s3://bucket/{LONG}", f"/{LONG}", f"s3://{LONG}"], ids=["key", "path", "bucket"]
)
def test_a_place_of_megabytes_is_refused_by_name(agent: Rig, place: str, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match=r"too long for the agent: source has 3,\d{3},\d{3} bytes") as caught:
        nbdata.pull(place, tmp_path / "out", quiet=True)
    assert "at most 1,048,576 bytes" in str(caught.value)
    with pytest.raises(BadOption, match="source has"):
        nbdata.pull(place, tmp_path / "out", dry_run=True)


@pytest.mark.long
def test_a_storage_option_of_megabytes_is_named_and_not_shown(agent: Rig, tmp_path: Path) -> None:
    secret = "5ecret" * 500_000
    with pytest.raises(BadOption, match=r"storage_options\.secret has 3,\d{3},\d{3} bytes") as caught:
        nbdata.pull("s3://bucket/x", tmp_path, storage_options={"key": "me", "secret": secret}, quiet=True)
    assert "5ecret" not in str(caught.value)


def test_an_error_of_a_long_path_is_short_and_tells_the_length(agent: Rig, tmp_path: Path) -> None:
    place = f"/{LONG[:900_000]}/"
    with pytest.raises(NbdataError) as caught:
        nbdata.pull(place, tmp_path / "out", quiet=True)
    assert "[… 900,00" in str(caught.value)
    assert len(str(caught.value)) < 3 * TEXT
    (failed,) = [job for job in HOST.jobs() if job.verb == "pull"]
    assert len(failed.source) <= TEXT
    assert failed.command == "", "a shortened command would be another one"


def test_an_error_with_a_text_of_megabytes_keeps_both_ends() -> None:
    error = NotFound(f"no such thing as {LONG}", path=f"/begin{LONG}end", got=LONG, remedy=LONG)
    for text in (
        error.message,
        error.path,
        error.got,
        error.remedy,
        str(error_from_dict(error.to_dict()).path),
    ):
        assert text is not None
        assert len(text) <= TEXT
        assert "characters …]" in text
    assert str(error.path).startswith("/begin")
    assert str(error.path).endswith("end")
    assert "[… 3,000,009 characters …]" in str(error.path)


def test_a_text_that_is_not_too_long_stays_as_it_is() -> None:
    assert shortened("x" * TEXT) == "x" * TEXT
    assert len(shortened("x" * (TEXT + 1))) <= TEXT


def lists_a_long_key(connection: socket.socket) -> None:
    """Answer every request of S3 with a listing that has a key of 3 MB."""
    while read_head(connection):
        body = (
            "<ListBucketResult><IsTruncated>false</IsTruncated><Contents>"
            f"<Key>{LONG}</Key><LastModified>2026-01-01T00:00:00Z</LastModified><ETag>x</ETag><Size>1</Size>"
            "</Contents></ListBucketResult>"
        ).encode()
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def test_a_listing_with_a_key_of_megabytes_ends_no_session(agent: Rig, tmp_path: Path) -> None:
    with serving(lists_a_long_key) as port:
        options = {"key": "k", "secret": "s", "endpoint_url": f"http://127.0.0.1:{port}"}
        for ask in (
            lambda: nbdata.ls("s3://bucket/", recursive=True, storage_options=options, quiet=True),
            lambda: nbdata.pull("s3://bucket/", tmp_path, storage_options=options, dry_run=True),
        ):
            with pytest.raises(BadOption, match=r"3,000,000 characters, and nbdata takes 8,192") as caught:
                ask()
            assert len(str(caught.value)) <= 2 * TEXT


def sent(message: dict[str, Any]) -> Any:
    one, other = socket.socketpair()
    with one, other:
        one.settimeout(PATIENCE)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        wire.send_shown(other, message)
        return wire.receive(one)


def test_a_page_of_rows_with_keys_of_megabytes_is_sent_shortened() -> None:
    rows = [[f"{number}{LONG}", "listed", number, {"key": LONG}] for number in range(3)]
    got = sent({"rows": rows, "next": None})
    assert [row[2] for row in got["rows"]] == [0, 1, 2]
    assert all("3,000,001 characters" in row[0] for row in got["rows"])
    got = sent({"rows": [[LONG[:200_000], "listed", 0, {}] for _ in range(300)], "next": 5})
    assert (len(got["rows"]), got["next"]) == (300, 5)


def test_what_stays_too_long_is_named() -> None:
    one, other = socket.socketpair()
    with one, other, pytest.raises(wire.MessageTooLong, match=r"report\.numbers has \d+ bytes") as caught:
        wire.send_shown(one, {"report": {"numbers": [*range(1_000_000)], "line": "short"}})
    assert isinstance(caught.value, wire.FrameError)


@pytest.mark.long
def test_an_answer_that_cannot_be_sent_is_answered_by_an_error() -> None:
    one, other = socket.socketpair()
    with one, other:
        one.settimeout(PATIENCE)
        session = Session.__new__(Session)
        session._sock, session._sending = other, threading.Lock()
        session._send({"ok": True, "numbers": [*range(1_000_000)]})
        answer = wire.receive(one)
    assert answer is not None
    assert "numbers has" in answer["error"]["message"]


def test_jobs_with_long_texts_hide_no_others_from_the_list() -> None:
    snapshots = [
        Snapshot("1", "pull", state="RUNNING", reason=LONG, created=1.0),
        Snapshot("2", "pull", created=2.0),
    ]
    session = Session.__new__(Session)
    session._agent = SimpleNamespace(jobs=SimpleNamespace(snapshots=lambda: snapshots))  # type: ignore[assignment]
    assert [job["id"] for job in session.list({})["jobs"]] == ["2"]


def test_an_answer_with_texts_of_megabytes_is_sent_shortened() -> None:
    one, other = socket.socketpair()
    with one, other:
        one.settimeout(PATIENCE)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        session = Session.__new__(Session)
        session._sock, session._sending = other, threading.Lock()
        session._send({"rows": [[LONG, "listed", 1, {}]]})
        answer = wire.receive(one)
    assert answer is not None
    assert "3,000,000 characters" in answer["rows"][0][0]
