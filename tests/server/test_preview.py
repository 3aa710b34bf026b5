"""Previews of objects by the panel: bounded, as data and never as a document, and ended when the browser leaves."""

from __future__ import annotations

import base64
import gzip
import io
import json
import lzma
import socket
import tarfile
import tracemalloc
import urllib.error
import urllib.request
import wave
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nbdata.client.previewing import MOST_OF_PIECE, Previewing
from nbdata.demo.server import EmbeddedServer
from nbdata.formats.ffrecord import HeadWriter
from tests.client.test_previewing import png
from tests.faults.gate import Gate
from tests.lab import Answer, Lab
from tests.stores.servers import each, ok, serving
from tests.waiting import PATIENCE, wait_until

Put = Callable[[dict[str, bytes]], str]

_SCRIPT = b"<script>alert(document.cookie)</script>"


@pytest.fixture(scope="module")
def lab(seaweedfs: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab server that knows the store's credentials."""
    with Lab(tmp_path_factory.mktemp("lab"), environment=seaweedfs.environment()) as running:
        yield running


def asked(lab: Lab, place: str) -> Answer:
    return lab.ask("nbdata/api/stores/preview", "POST", body=json.dumps({"place": place}).encode())


def look(lab: Lab, place: str) -> dict[str, Any]:
    answer = asked(lab, place)
    assert answer.status == 200, answer
    return dict(answer.json())


def test_text_tables_json_and_pictures_are_shown(lab: Lab, put: Put) -> None:
    picture = png(30, 20)
    url = put(
        {
            "a.txt": b"one\r\ntwo\n",
            "a.csv": b"name,value\nx,=cmd|' /C calc'!A0\n",
            "a.json": b'{"a": [1]}',
            "a.md": b"# Title\n" + _SCRIPT,
            "a.png": picture,
            "empty": b"",
            "binary": bytes(range(256)) * 4,
        }
    )
    assert look(lab, f"{url}a.txt") == {
        "kind": "text",
        "size": 9,
        "text": "one\ntwo\n",
        "rows": [],
        "media": "",
        "data": "",
        "is_cut": False,
        "why": "",
    }
    table = look(lab, f"{url}a.csv")
    assert (table["kind"], table["rows"]) == ("table", [["name", "value"], ["x", "=cmd|' /C calc'!A0"]])
    assert look(lab, f"{url}a.json")["text"] == '{\n  "a": [\n    1\n  ]\n}'
    assert look(lab, f"{url}a.md")["text"] == f"# Title\n{_SCRIPT.decode()}"
    shown = look(lab, f"{url}a.png")
    assert (shown["kind"], shown["media"]) == ("picture", "image/png")
    assert base64.b64decode(shown["data"]) == picture
    assert look(lab, f"{url}empty")["why"] == "it is empty"
    assert look(lab, f"{url}binary")["kind"] == "nothing"


def test_what_would_run_is_text_and_the_reply_is_no_document(lab: Lab, put: Put) -> None:
    notebook = {
        "cells": [{"cell_type": "code", "source": "1", "outputs": [{"data": {"text/html": "<b>x</b>"}}]}]
    }
    url = put(
        {
            "page.html": b"<html>" + _SCRIPT,
            "a.svg": b'<svg xmlns="http://www.w3.org/2000/svg">' + _SCRIPT + b"</svg>",
            "picture.png": b"<svg>" + _SCRIPT + b"</svg>",
            "a.ipynb": json.dumps(notebook).encode(),
        }
    )
    for name in ("page.html", "a.svg", "picture.png"):
        shown = look(lab, f"{url}{name}")
        assert (shown["kind"], shown["media"], shown["data"]) == ("text", "", "")
        assert _SCRIPT.decode() in shown["text"]
    shown = look(lab, f"{url}a.ipynb")
    assert "(text/html)" in shown["text"]
    assert "<b>" not in shown["text"]
    request = urllib.request.Request(
        f"{lab.url}/nbdata/api/stores/preview",
        json.dumps({"place": f"{url}page.html"}).encode(),
        {"Authorization": f"token {lab.token}"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
        assert reply.headers["Content-Type"].startswith("application/json")
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert "sandbox" in reply.headers["Content-Security-Policy"] or (
            "default-src 'none'" in reply.headers["Content-Security-Policy"]
        )


def test_a_large_object_is_shown_in_its_first_part(lab: Lab, put: Put) -> None:
    line = b"0123456789abcde\n"
    url = put(
        {"large.txt": line * 300_000, "large.csv": b"a,b\n" * 300_000, "no.png": png(30, 20) + bytes(9 << 20)}
    )
    shown = look(lab, f"{url}large.txt")
    assert (shown["is_cut"], shown["size"], len(shown["text"])) == (True, 4_800_000, 256 << 10)
    shown = look(lab, f"{url}large.csv")
    assert (shown["is_cut"], len(shown["rows"])) == (True, 200)
    assert "over 8 MiB" in look(lab, f"{url}no.png")["why"]


def test_json_larger_than_the_first_part_is_parsed_up_to_a_limit(lab: Lab, put: Put) -> None:
    rows = json.dumps([{"number": number} for number in range(40_000)]).encode()
    url = put({"a.json": rows, "large.json": b" " * (3 << 20) + rows})
    assert look(lab, f"{url}a.json")["text"].startswith('[\n  {\n    "number": 0\n')
    assert look(lab, f"{url}large.json")["text"].strip() == ""


def test_bombs_stay_small(seaweedfs: EmbeddedServer, put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    zeros = gzip.compress(b"0" * (200 << 20), 1)
    nested = b"[" * 400 + b",".join(b"1" for _ in range(100_000)) + b"]" * 400
    url = put(
        {
            "a.txt.gz": zeros,
            "b.txt.gz": gzip.compress(zeros),
            "a.csv.xz": lzma.compress(b"1,2\n" * (4 << 20)),
            "a.json": nested,
            "a.png": png(60_000, 50_000),
        }
    )
    tracemalloc.start()
    try:
        shown = {name: Previewing(f"{url}{name}").preview() for name in ("a.txt.gz", "b.txt.gz", "a.csv.xz")}
        shown["a.json"] = Previewing(f"{url}a.json").preview()
        shown["a.png"] = Previewing(f"{url}a.png").preview()
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()
    assert (shown["a.txt.gz"].text, shown["a.txt.gz"].is_cut) == ("0" * (256 << 10), True)
    assert shown["b.txt.gz"].kind == "nothing"
    assert (shown["a.csv.xz"].kind, len(shown["a.csv.xz"].rows)) == ("table", 200)
    assert (shown["a.json"].is_cut, len(shown["a.json"].text)) == (True, 256 << 10)
    assert "60,000 × 50,000 pixels" in shown["a.png"].why


def test_without_pyarrow_parquet_is_named(lab: Lab, put: Put, tmp_path: Path) -> None:
    url = put({"a.parquet": b"PAR1" + bytes(100) + b"PAR1"})
    shown = look(lab, f"{url}a.parquet")
    assert (shown["kind"], "Parquet" in shown["why"]) == ("nothing", True)


def test_archives_and_shards_are_told_and_their_members_listed_by_a_job(lab: Lab, put: Put) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in ("a.jpg", "a.cls"):
            header = tarfile.TarInfo(name)
            header.size = 3
            tar.addfile(header, io.BytesIO(b"123"))
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("in/a.txt", "1")
    url = put(
        {
            "train-000000.tar": packed.getvalue(),
            "a.tar.gz": gzip.compress(packed.getvalue()),
            "a.zip": zipped.getvalue(),
        }
    )
    for name, members in (
        ("train-000000.tar", ["a.jpg", "a.cls"]),
        ("a.tar.gz", ["a.jpg", "a.cls"]),
        ("a.zip", ["in/a.txt"]),
    ):
        assert look(lab, f"{url}{name}")["kind"] == "archive"
        body = {"verb": "untar_volumes", "source": f"{url}{name}", "list": True}
        begun = lab.ask("nbdata/api/run", "POST", body=json.dumps(body).encode()).json()
        assert begun["line"] == f"%untar_volumes {url}{name} --list"
        reports: list[dict[str, Any]] = []

        def over(run_id: str = begun["id"], reports: list[dict[str, Any]] = reports) -> bool:
            reports.append(lab.ask(f"nbdata/api/jobs/{run_id}/report").json())
            return "rows" in reports[-1]

        wait_until(over)
        assert [row["path"] for row in reports[-1]["rows"]] == members


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"source": "/etc/a.tar", "list": True}, "no URL of a store"),
        ({"source": ["s3://b/a.tar"], "list": True}, "one source"),
        ({"list": True}, "no URL of a store"),
        ({"source": "s3://b/a.tar"}, "no TARGET"),
        ({"source": "s3://b/a.tar", "list": False}, "no TARGET"),
        ({"source": "s3://b/a.tar", "target": "/w", "list": True}, "cannot set target"),
    ],
)
def test_the_panel_lists_only_archives_of_stores(lab: Lab, body: dict[str, Any], why: str) -> None:
    answer = lab.ask("nbdata/api/run", "POST", body=json.dumps({"verb": "untar_volumes", **body}).encode())
    assert (answer.status, why in answer.body) == (400, True), answer


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("/etc/passwd", "no URL of a store"),
        ("file:///etc/passwd", "no URL of a store"),
        ("sftp://user:hunter22@127.0.0.1/a", "a password or a signature"),
        ("s3://bucket/folder/", "a folder has no preview"),
        ("s3://bucket", "a folder has no preview"),
        ("s3://", "a folder has no preview"),
    ],
)
def test_only_objects_of_stores_are_looked_at(lab: Lab, place: str, why: str) -> None:
    answer = asked(lab, place)
    assert (answer.status, why in answer.body) == (400, True), answer
    assert "hunter22" not in answer.body
    assert lab.ask("nbdata/api/stores/preview", "POST", body=b'{"place": 1}').status == 400


def test_what_is_not_there_and_an_error_page_are_text(lab: Lab, put: Put) -> None:
    answer = asked(lab, f"{put({'a': b'1'})}none.txt")
    assert (answer.status, set(answer.json())) == (404, {"message", "remedy"})
    page = b"<html>" + _SCRIPT
    head = (
        f"HTTP/1.1 403 Forbidden\r\nContent-Type: text/html\r\nContent-Length: {len(page)}\r\n\r\n".encode()
    )
    with serving(each(lambda _: head + page)) as port:
        answer = asked(lab, f"http://127.0.0.1:{port}/a.txt")
    assert answer.status == 409
    assert "<" not in answer.body


def test_a_web_server_without_ranges_sends_no_more_than_is_shown(lab: Lab) -> None:
    with serving(each(lambda _: ok(b"line\n" * 200_000))) as port:
        shown = look(lab, f"http://127.0.0.1:{port}/a.txt")
    assert (shown["is_cut"], len(shown["text"])) == (True, 256 << 10)


@pytest.mark.long
def test_the_reading_ends_when_the_browser_leaves(
    put: Put, gate: Gate, tmp_path: Path, seaweedfs: EmbeddedServer
) -> None:
    url = put({"a.txt": b"1" * 1_000_000})
    environment = {**seaweedfs.environment(), "AWS_ENDPOINT_URL": gate.url}
    with Lab(tmp_path, environment=environment) as behind:
        gate.close(after=20_000)
        leaving = [_begun(behind, f"{url}a.txt") for _ in range(4)]  # as many as there are threads
        wait_until(lambda: gate._waiting >= 1)
        for connection in leaving:
            connection.close()
        assert behind.ask("nbdata/api/stores/starts").status == 200  # it needs one of these threads
        gate.open()
        assert look(behind, f"{url}a.txt")["is_cut"]


def _begun(lab: Lab, place: str) -> socket.socket:
    body = json.dumps({"place": place}).encode()
    connection = socket.create_connection(("127.0.0.1", lab.port), PATIENCE)
    connection.sendall(
        f"POST /nbdata/api/stores/preview HTTP/1.1\r\nHost: 127.0.0.1:{lab.port}\r\n"
        f"Authorization: token {lab.token}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    return connection


def wav(seconds: float) -> bytes:
    """Return silence of 8 kHz, a byte a sample."""
    file = io.BytesIO()
    with wave.open(file, "wb") as made:
        made.setparams((1, 1, 8000, 0, "NONE", ""))
        made.writeframes(b"\x80" * int(8000 * seconds))
    return file.getvalue()


def piece(lab: Lab, ticket: str, said: str | None, headers: dict[str, str] | None = None) -> Any:
    """Ask for a piece as a player does; returns the open response."""
    asking = {"Authorization": f"token {lab.token}", **({"Range": said} if said else {}), **(headers or {})}
    request = urllib.request.Request(f"{lab.url}/nbdata/api/stores/media/{ticket}", headers=asking)
    try:
        return urllib.request.urlopen(request, timeout=PATIENCE)
    except urllib.error.HTTPError as refused:
        return refused


def test_audio_is_played_in_bounded_pieces_that_are_no_document(lab: Lab, put: Put) -> None:
    data = wav(800)  # 6.4 MB
    url = put({"a.wav": data, "odd.wav": b"<html>" + _SCRIPT, "a.txt": data})
    shown = look(lab, f"{url}a.wav")
    assert (shown["kind"], shown["media"], shown["size"]) == ("media", "audio/wav", len(data))
    for said, start, end in (
        ("bytes=0-", 0, MOST_OF_PIECE),
        ("bytes=0-1", 0, 2),
        ("bytes=3000000-3000099", 3_000_000, 3_000_100),
        ("bytes=6400000-99999999", 6_400_000, len(data)),
        ("bytes=-10", len(data) - 10, len(data)),
    ):
        with piece(lab, shown["ticket"], said) as reply:
            told = reply.headers
            assert (reply.status, told["Content-Type"]) == (206, "audio/wav")
            assert told["Content-Range"] == f"bytes {start}-{end - 1}/{len(data)}"
            assert reply.read() == data[start:end]
    assert told["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in told["Content-Security-Policy"]
    assert "sandbox" in told["Content-Security-Policy"]
    assert (told["Cache-Control"], told["Content-Disposition"]) == ("no-store", "attachment")
    for said in (None, "bytes=-", "bytes=9-3", "bytes=6400044-", "bytes=0-1,4-5", "bytes=a-", "lines=0-1"):
        with piece(lab, shown["ticket"], said) as reply:
            assert (reply.status, reply.headers["Content-Range"]) == (416, f"bytes */{len(data)}"), said
    assert look(lab, f"{url}odd.wav")["kind"] == "text"
    assert look(lab, f"{url}a.txt")["kind"] == "nothing"


def test_only_who_opened_the_preview_gets_pieces_and_of_that_version_alone(lab: Lab, put: Put) -> None:
    url = put({"a.wav": wav(1)})
    ticket = look(lab, f"{url}a.wav")["ticket"]
    with piece(lab, "0" * 32, "bytes=0-") as reply:
        assert (reply.status, set(json.loads(reply.read()))) == (404, {"message", "remedy"})
    with piece(lab, ticket, "bytes=0-", {"Authorization": ""}) as reply:
        assert reply.status == 403
    put({"a.wav": wav(2)})
    with piece(lab, ticket, "bytes=0-") as reply:
        assert (reply.status, "RIFF" in reply.read().decode("latin-1")) == (409, False)


def records(samples: list[bytes], *, wrong: bool = False) -> bytes:
    """Return an FFRecord file; `wrong` changes the last byte."""
    head = HeadWriter()
    for sample in samples:
        head.add(len(sample), zlib.crc32(sample))
    made = b"".join([*head.pieces(), *samples])
    return made[:-1] + bytes([made[-1] ^ 1]) if wrong else made


def test_the_first_samples_of_ffrecord_are_shown_within_bounds(lab: Lab, put: Put) -> None:
    picture, large = png(30, 20), png(20, 30) + bytes(9 << 20)
    many = [picture, b"label 7", b"\x80\x04\x95\0\xff", large, *[bytes(200_000)] * 60]
    url = put(
        {
            "many.ffr": records(many),
            "wrong.ffr": records([b"one", b"two"], wrong=True),
            "short.ffr": b"12",
            "hole.ffr": bytes(8) + b"\0\0\0\x7f" + bytes(100),
            "none.ffr": records([]),
            "huge.ffr": records([png(60_000, 50_000)]),
        }
    )
    shown = look(lab, f"{url}many.ffr")
    assert (shown["kind"], shown["count"], shown["is_cut"]) == ("samples", 64, True)
    assert len(shown["samples"]) == 24
    first, second, third, fourth = shown["samples"][:4]
    assert (first["media"], base64.b64decode(first["data"])) == ("image/png", picture)
    assert (second["text"], second["size"], third["text"], third["size"]) == ("label 7", 7, "", 5)
    assert (fourth["size"], fourth["media"], fourth["data"]) == (len(large), "", "")
    wrong = look(lab, f"{url}wrong.ffr")["samples"]
    assert (wrong[0]["text"], wrong[1]["text"]) == ("one", "")
    assert "checksum" in wrong[1]["problem"]
    assert "too short" in look(lab, f"{url}short.ffr")["why"]
    assert "damaged" in look(lab, f"{url}hole.ffr")["why"]
    assert (look(lab, f"{url}none.ffr")["samples"], look(lab, f"{url}none.ffr")["count"]) == ([], 0)
    assert look(lab, f"{url}huge.ffr")["samples"][0]["data"] == ""
