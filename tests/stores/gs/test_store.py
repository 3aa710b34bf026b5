"""gs://: tokens, verification, detection of changes, and secrets that never appear."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

import nbdata
from nbdata.errors import (
    AccessDenied,
    BadOption,
    ChecksumMismatch,
    NbdataError,
    NotFound,
    SourceChanged,
    StoreUnavailable,
)
from nbdata.operation import Context
from nbdata.stores.base import Location, ObjectInfo
from nbdata.stores.http.object_store import _UNUSUAL
from nbdata.stores.resolve import open_place
from nbdata.transfer.worker_pool import FIRST
from tests.stores.emulators import google
from tests.stores.round_trip import there_and_back
from tests.stores.servers import each, ok, read_body, read_head, serving, status
from tests.waiting import AT_ONCE, PATIENCE


def at(url: str = "gs://bucket/x", *, env: dict[str, str] | None = None, **options: object) -> Location:
    return open_place(url, Context(cwd="/", env=env or {}, storage_options=options))


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with google(tmp_path_factory.mktemp("google")) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.in_ci("agent")
@pytest.mark.parametrize("host", ["inline", "agent"])
def test_a_folder_goes_there_and_back_and_is_verified(
    host: str, emulator: str, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulator)
    monkeypatch.setenv("NBDATA_HOST", host)
    there = f"gs://bucket/{host}/"
    pushed, pulled = there_and_back(tree, there, tmp_path / "out")
    for report in (pushed, pulled):  # the emulator sometimes closes a connection
        assert [note for note in report.notes if "the server closed the connection" not in note] == []
    # Without records, the bytes on the disk are compared instead of fetched again.
    monkeypatch.setenv("NBDATA_STATE_DIR", str(tmp_path / "state"))
    plan = nbdata.pull(there, tmp_path / "out", dry_run=True)
    assert set(plan.actions) == {"compare"}


@pytest.mark.parametrize("size", [5, 2 << 20], ids=["at once", "resumable"])
def test_an_object_that_arrives_wrong_is_not_made(size: int, emulator: str) -> None:
    store = at(env={"STORAGE_EMULATOR_HOST": emulator}).store
    key, right = f"sent-{size}", b"r" * size
    store.write(key, io.BytesIO(b"old"), 3)
    with pytest.raises(ChecksumMismatch, match="not what was sent"):
        store.write(key, io.BytesIO(b"w" * size), size, md5=hashlib.md5(right).hexdigest())
    assert store.read_bytes(key) == b"old"
    store.write(key, io.BytesIO(right), size, md5=hashlib.md5(right).hexdigest())
    assert store.read_bytes(key) == right


@pytest.mark.in_ci("http://h/no-query", "nowhere[?]a=b")
@pytest.mark.parametrize("where", ["http://[x/?a=b", "http://h/no-query", "nowhere?a=b", ""])
def test_an_upload_that_gets_no_place_says_so(where: str) -> None:
    with serving(each(lambda _: ok(b"{}", f"location: {where}"))) as port:
        store = at(endpoint_url=f"http://127.0.0.1:{port}", token="anon").store
        with pytest.raises(StoreUnavailable, match="gave the upload no place"):
            store.write("x", io.BytesIO(bytes(2 << 20)), 2 << 20)


def resource(data: bytes, **more: object) -> bytes:
    md5 = base64.b64encode(hashlib.md5(data).digest()).decode()
    item = {"name": "x", "size": str(len(data)), "generation": "5", "etag": "CAE=", "md5Hash": md5, **more}
    return json.dumps(item).encode()


def test_a_listing_of_many_pages_is_whole() -> None:  # the emulator returns everything in one page
    names = [f"{n:02}" for n in range(20)]

    def answer(head: str) -> bytes:
        after = re.search(r"[?&]startOffset=(\w+)", head)
        token = re.search(r"[?&]pageToken=p(\d+)", head)
        left = [name for name in names if after is None or name >= after[1]]
        start = int(token[1]) if token else 0
        page: dict[str, object] = {"items": [{"name": name, "size": "1"} for name in left[start : start + 7]]}
        if start + 7 < len(left):
            page["nextPageToken"] = f"p{start + 7}"
        return ok(json.dumps(page).encode())

    with serving(each(answer)) as port:
        store = at(endpoint_url=f"http://127.0.0.1:{port}", token="anon").store
        assert [info.key for info in store.list("")] == names
        assert [info.key for info in store.list("", after="12")] == names[13:]


@pytest.mark.parametrize("names", [True, False], ids=["as Google", "without generations"])
def test_small_objects_are_read_together_and_one_by_one_where_no_version_is_named(
    names: bool, tmp_path: Path, inline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, seen = 120, list[str]()
    items = [{**json.loads(resource(b"%03d" % n)), "name": f"d/{n:03}"} for n in range(count)]

    def answer(head: str) -> bytes:
        if "/o?" in head:
            return ok(json.dumps({"items": items}).encode())
        number = int(re.search(r"/o/d%2F(\d+)", head)[1])  # type: ignore[index]
        if "alt=media" not in head:
            return ok(json.dumps(items[number]).encode())
        return ok(b"%03d" % number, *["x-goog-generation: 5"] * names)

    with serving(each(answer, seen)) as port:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
        report = nbdata.pull("gs://bucket/d/", tmp_path, concurrency=FIRST, quiet=True)
    assert (report.counts, report.notes) == ({"fetched": count}, [])
    assert all((tmp_path / f"{n:03}").read_bytes() == b"%03d" % n for n in range(count))
    asked = sum("alt=media" in head for head in seen)
    assert all("generation=5" in head for head in seen if "alt=media" in head)
    if names:
        assert asked == count
        assert len({head for head in seen if "fields=" in head and "/o?" not in head}) == 0
    else:  # two requests per object only until nbdata has learnt better
        assert count < asked <= count + _UNUSUAL + FIRST


def test_bytes_that_are_not_what_google_vouches_for_are_refused(
    tmp_path: Path, inline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(head: str) -> bytes:
        if "alt=media" in head:
            return ok(b"wrong", "x-goog-generation: 5")
        return ok(b'{"items": []}') if "/o?" in head else ok(resource(b"right"))

    with serving(each(answer)) as port:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
        with pytest.raises(nbdata.TransferFailed, match="md5"):
            nbdata.pull("gs://bucket/x", tmp_path / "out", quiet=True)
    assert not (tmp_path / "out").exists()


def test_a_composite_object_is_verified_by_its_crc32c() -> None:
    crc = base64.b64encode(bytes.fromhex("e3069283")).decode()  # of "123456789"
    with serving(each(lambda head: ok(resource(b"123456789", md5Hash=None, crc32c=crc)))) as port:
        info = at(endpoint_url=f"http://127.0.0.1:{port}", token="anon").store.head("x")
    assert info.checksums == {"crc32c": "e3069283"}
    assert info.etag == "CAE="


def test_the_generation_that_was_listed_is_asked_for_and_another_is_a_change() -> None:
    seen: list[str] = []

    def answer(head: str) -> bytes:
        if "alt=media" not in head:
            return ok(resource(b"new", generation="6"))
        return status(404) if "generation=5" in head else ok(b"new", "x-goog-generation: 6")

    with serving(each(answer, seen)) as port:
        store = at(endpoint_url=f"http://127.0.0.1:{port}", token="anon").store
        for start in (0, 1):
            with pytest.raises(SourceChanged):
                store.read("x", start, match=ObjectInfo("x", 3, version="5"))
        assert "generation=5" in seen[0]
        body = store.read("x", match=ObjectInfo("x", 3, version="6"))
        assert body.length == 3
        body.close()


# -- tokens ---------------------------------------------------------------------------------------


class TokenServer:
    """Issues tokens T1, T2 …, and acts as a store that accepts only the newest."""

    def __init__(self) -> None:
        self.given = 0
        self.heads: list[str] = []

    def handle(self, connection: socket.socket) -> None:
        while head := read_head(connection):
            text = head.decode("latin-1")
            read_body(connection, head)
            if text.startswith("POST /token"):
                self.given += 1
                body = {"access_token": f"T{self.given}", "expires_in": 3600, "token_type": "Bearer"}
                connection.sendall(ok(json.dumps(body).encode(), "Content-Type: application/json"))
                continue
            self.heads.append(text)
            good = f"authorization: Bearer T{self.given}\r\n" in text
            connection.sendall(ok(resource(b"123")) if good else status(401))


@pytest.fixture(scope="module")
def rsa_key() -> str:
    """A key as service accounts have it; generating one takes a while."""
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return made.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def account(port: int, key: str) -> dict[str, str]:
    return {
        "type": "service_account",
        "client_email": "me@project.example",
        "private_key": key,
        "private_key_id": "1",
        "token_uri": f"http://127.0.0.1:{port}/token",
    }


@pytest.mark.in_ci("file")
@pytest.mark.parametrize("way", ["environment", "file", "dict"])
def test_a_service_account_gets_a_token_and_another_when_it_has_ended(
    way: str, rsa_key: str, tmp_path: Path
) -> None:
    server = TokenServer()
    with serving(server.handle) as port:
        made = account(port, rsa_key)
        file = tmp_path / "account.json"
        file.write_text(json.dumps(made))
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        options: dict[str, object] = {"endpoint_url": f"http://127.0.0.1:{port}"}
        if way == "environment":
            env["GOOGLE_APPLICATION_CREDENTIALS"] = str(file)
        else:
            options["token"] = str(file) if way == "file" else made
        store = at(env=env, **options).store
        assert store.head("x").size == 3
        assert store.head("x").size == 3
        assert server.given == 1
        server.given += 1  # simulates an expired token
        assert store.head("x").size == 3
        assert server.given == 3
        assert rsa_key[50:90] not in f"{store.__dict__!r}"


def test_a_token_may_be_given_and_is_not_shown() -> None:
    seen: list[str] = []
    with serving(each(lambda head: ok(resource(b"123")), seen)) as port:
        place = at(endpoint_url=f"http://127.0.0.1:{port}", token="ya29.SECRET")
        place.store.head("x")
    assert "authorization: Bearer ya29.SECRET" in seen[0]
    assert "SECRET" not in f"{place!r} {vars(place.store)['_config']!r}"


@pytest.mark.parametrize(
    "options",
    [{"token": "browser"}, {"token": "no/such.json"}, {"tokn": "SECRET"}, {"endpoint_url": "http://"},
     {"token": "anon", "requester_pays": True}],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(BadOption) as caught:
        at(**options)
    assert "SECRET" not in str(caught.value)


def test_no_credentials_say_what_would_do(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NO_GCE_CHECK": "true"}
    with pytest.raises(AccessDenied, match="GOOGLE_APPLICATION_CREDENTIALS"):
        at(env=env, endpoint_url="http://127.0.0.1:9").store.head("x")


def test_the_requester_pays_if_requested() -> None:
    seen: list[str] = []
    with serving(each(lambda head: ok(resource(b"123")), seen)) as port:
        options = {"endpoint_url": f"http://127.0.0.1:{port}", "token": "anon", "project": "mine"}
        at(**options, requester_pays=True).store.head("x")
        at(**options).store.head("x")
    assert ["userProject=mine" in head for head in seen] == [True, False]


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "body", "kind"),
    [
        (403, b'{"error": {"message": "no"}}', AccessDenied),
        (404, b'{"error": {"message": "No such object: bucket/x"}}', NotFound),
        (404, b'{"error": {"message": "The specified bucket does not exist."}}', NotFound),
        (429, b"", StoreUnavailable),
        (503, b"busy", StoreUnavailable),
        (200, b"<html>", StoreUnavailable),
        (400, b'{"error": "odd"}', NbdataError),
    ],
)
def test_each_response_gives_its_error(number: int, body: bytes, kind: type[NbdataError]) -> None:
    answer = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (number, len(body), body)
    with serving(each(lambda head: answer)) as port:
        store = at(endpoint_url=f"http://127.0.0.1:{port}", token="anon").store
        with pytest.raises(kind) as caught:
            store.head("x")
    assert bool(caught.value.details.get("retry")) is (kind is StoreUnavailable)
    assert bool(caught.value.details.get("bucket")) is (b"bucket does" in body)


def test_a_listing_that_repeats_itself_ends() -> None:
    page = ok(b'{"nextPageToken": "again", "items": []}')
    with serving(each(lambda head: page)) as port, pytest.raises(StoreUnavailable):
        list(at(endpoint_url=f"http://127.0.0.1:{port}", token="anon").store.list(""))


def test_a_page_of_something_else_ends_no_listing() -> None:
    first = ok(b'{"nextPageToken": "p", "items": [{"name": "a", "size": "1"}]}')
    page = ok(b"<html>log in</html>", "Content-Type: text/html")
    with (
        serving(each(lambda head: page if "pageToken" in head else first)) as port,
        pytest.raises(StoreUnavailable, match="cannot be read") as caught,
    ):
        list(at(endpoint_url=f"http://127.0.0.1:{port}", token="anon").store.list(""))
    assert caught.value.details["retry"] is True


def test_a_stop_ends_an_upload_that_is_not_answered_at_once() -> None:
    from tests.stores.http.test_client import Stop

    ended = threading.Event()

    def handle(connection: socket.socket) -> None:
        read_body(connection, read_head(connection))
        ended.wait(PATIENCE)

    with serving(handle) as port:
        stop = Stop()
        context = Context(
            cwd="/", storage_options={"endpoint_url": f"http://127.0.0.1:{port}", "token": "anon"}
        )
        store = open_place("gs://bucket/x", context, stop=stop).store
        threading.Timer(0.2, stop.stop).start()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            store.write("x", io.BytesIO(b"123"), 3)
        assert time.monotonic() - began < AT_ONCE
        ended.set()
