"""What the panel sees of stores: a folder by pages, errors as text, and no secret."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.client.browsing import Browsing
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import BadOption
from nbdata.server.starts import configured, recent
from tests.faults.gate import Gate
from tests.lab import Answer, Lab
from tests.stores.servers import each, ok, serving
from tests.waiting import PATIENCE, wait_until

Put = Callable[[dict[str, bytes]], str]


@pytest.fixture(scope="module")
def lab(seaweedfs: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab server that knows the store's credentials."""
    with Lab(tmp_path_factory.mktemp("lab"), environment=seaweedfs.environment()) as running:
        yield running


def listed(lab: Lab, place: str, /, **more: str) -> Answer:
    body = json.dumps({"place": place, **more}).encode()
    return lab.ask("nbdata/api/stores/list", "POST", body=body)


def page(lab: Lab, place: str, /, **more: str) -> dict[str, Any]:
    answer = listed(lab, place, **more)
    assert answer.status == 200, answer
    return dict(answer.json())


def test_a_folder_is_listed_with_sizes_and_times_and_no_deeper(lab: Lab, put: Put) -> None:
    url = put({"a/": b"", "a/b.bin": b"12345", "a/c d/e": b"", "f": b"", "a/ü#.txt": b"1"})
    found = page(lab, f"{url}a/")
    assert (found["base"], found["token"]) == (f"{url}a/", "")
    assert [(one["name"], one["size"]) for one in found["entries"]] == [
        ("b.bin", 5),
        ("c d/", None),
        ("ü#.txt", 1),
    ]
    assert found["entries"][0]["modified"] > 1.7e9
    assert found["entries"][1]["modified"] is None
    assert [one["name"] for one in page(lab, f"{url}a", begin="c")["entries"]] == ["c d/"]
    assert page(lab, f"{url}none/")["entries"] == []
    assert [one["name"] for one in page(lab, url[:-1])["entries"]] == ["a/", "f"]


def test_a_large_folder_comes_by_pages(lab: Lab, put: Put) -> None:
    url = put({f"many/{number:04}": b"" for number in range(1005)})
    first = page(lab, f"{url}many/")
    assert len(first["entries"]) == 1000
    second = page(lab, f"{url}many/", token=first["token"])
    names = [one["name"] for one in (*first["entries"], *second["entries"])]
    assert (names, second["token"]) == ([f"{number:04}" for number in range(1005)], "")


def test_the_buckets_of_the_account_are_listed(lab: Lab, put: Put) -> None:
    url = put({"a": b""})
    found = page(lab, "s3://")
    assert found["base"] == "s3://"
    assert url.removeprefix("s3://") in [one["name"] for one in found["entries"]]


def test_names_on_a_web_server_come_with_their_urls(lab: Lab) -> None:
    index = b'<html><title>Index of /d/</title><a href="a%20b.txt">a b.txt</a><a href="in/">in/</a></html>'

    def answer(head: str) -> bytes:
        path = head.split()[1]
        return ok(b"12345") if path.endswith(".txt") else _html(index)

    with serving(each(answer)) as port:
        found = page(lab, f"http://127.0.0.1:{port}/d/")
    assert [(one["name"], one.get("url")) for one in found["entries"]] == [
        ("a b.txt", f"http://127.0.0.1:{port}/d/a%20b.txt"),
        ("in/", None),
    ]


def _html(body: bytes, said: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {said}\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def test_a_user_in_a_url_of_ssh_is_no_secret() -> None:
    Browsing("sftp://me@127.0.0.1/a/")
    for secret in ("sftp://me:hunter22@127.0.0.1/a/", "http://me@127.0.0.1/a/", "s3://me@bucket/"):
        with pytest.raises(BadOption, match="a password or a signature"):
            Browsing(secret)


# -- what is refused, and errors -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("/etc", "no URL of a store"),
        ("data", "no URL of a store"),
        ("file:///etc/", "no URL of a store"),
        ("local:///etc/", "no URL of a store"),
        ("memory://a/", "no URL of a store"),
        ("zip://*::file:///etc/a.zip", "no URL of a store"),
        ("dir://a::file:///etc", "no URL of a store"),
        ("nbs3://bucket/", "no URL of a store"),
        ("s3//bucket/", "Did you mean"),
        ("s3://", ""),
        ("gs://", "names no bucket"),
        ("gs:////", "names no bucket"),
        ("s3:///", "names no bucket"),
        ("sftp://user:hunter22@127.0.0.1/", "a password or a signature"),
        ("http://127.0.0.1:9/a?X-Amz-Signature=5ec2e75ec2e7", "a password or a signature"),
        ("", "is not a path"),
    ],
)
def test_only_urls_of_stores_without_secrets_are_taken(lab: Lab, place: str, why: str) -> None:
    answer = listed(lab, place)
    assert answer.status == (400 if why else 200), answer
    assert why in answer.body
    assert [secret for secret in ("hunter22", "5ec2e75ec2e7") if secret in answer.body] == []


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{}",
        b'{"place": 5}',
        b'{"place": "s3://b/", "token": 1}',
        b'{"place": "s3://%s/"}' % (b"b" * 9000),
    ],
)
def test_what_is_no_question_is_refused(lab: Lab, body: bytes) -> None:
    answer = lab.ask("nbdata/api/stores/list", "POST", body=body)
    assert (answer.status, "no folder to list" in answer.body) == (400, True), answer


def test_a_bucket_that_is_not_there_is_said_with_what_to_do(lab: Lab) -> None:
    answer = listed(lab, "s3://there-is-no-such-bucket-here/a/")
    assert answer.status == 404
    assert "no such bucket" in answer.json()["message"]
    assert answer.json()["remedy"]


@pytest.mark.long
def test_an_error_page_is_text_and_no_key_is_in_it(tmp_path: Path) -> None:
    secret = "hunter2hunter2hunter2"
    page = f"<html><script>alert('{secret}')</script><h1>Forbidden for {secret}</h1></html>".encode()
    seen: list[str] = []
    with serving(each(lambda head: _html(page, "403 Forbidden"), seen)) as port:
        environment = {
            "AWS_ACCESS_KEY_ID": "AKIAABCDEFGHIJKLMNOP",
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        }
        with Lab(tmp_path, environment=environment) as lab:
            answer = listed(lab, "s3://bucket/")
            starts = lab.ask("nbdata/api/stores/starts")
    assert seen
    assert answer.status == 409
    assert set(answer.json()) == {"message", "remedy"}
    assert "<" not in answer.body
    assert "AWS_ACCESS_KEY_ID" in starts.json()["configured"]
    for body in (answer.body, starts.body):
        assert [word for word in (secret, "AKIAABCDEFGHIJKLMNOP") if word in body] == []


@pytest.mark.long
def test_a_listing_ends_when_the_browser_leaves_and_others_are_answered_meanwhile(
    lab: Lab, put: Put, gate: Gate, tmp_path: Path, seaweedfs: EmbeddedServer
) -> None:
    url = put({"a": b"1"})
    environment = {**seaweedfs.environment(), "AWS_ENDPOINT_URL": gate.url}
    with Lab(tmp_path, environment=environment) as behind:
        gate.close()
        leaving = [_begun(behind, url) for _ in range(4)]  # as many as there are threads
        wait_until(lambda: gate._waiting == len(leaving))
        assert behind.ask("nbdata/api/disks").status == 200
        left = time.monotonic()
        for connection in leaving:
            connection.close()
        assert behind.ask("nbdata/api/stores/starts").status == 200  # it needs one of these threads
        assert time.monotonic() - left < 45  # after 60 s a listing is given up anyway
        gate.open()
        assert [one["name"] for one in page(behind, url)["entries"]] == ["a"]


def _begun(lab: Lab, place: str) -> socket.socket:
    """Send the question for a listing, and return the connection without reading from it."""
    body = json.dumps({"place": place}).encode()
    connection = socket.create_connection(("127.0.0.1", lab.port), PATIENCE)
    connection.sendall(
        f"POST /nbdata/api/stores/list HTTP/1.1\r\nHost: 127.0.0.1:{lab.port}\r\n"
        f"Authorization: token {lab.token}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    return connection


# -- where to begin ------------------------------------------------------------------------------


def test_the_folders_of_recent_jobs_are_where_to_begin(lab: Lab, put: Put) -> None:
    url = put({"day/1.bin": b"1"})
    nbdata.Pull(f"{url}day/*.bin", str(lab.root / "recent")).run(quiet=True)

    def known() -> bool:
        lab.jobs()
        return f"{url}day/" in lab.ask("nbdata/api/stores/starts").json()["recent"]

    wait_until(known)


def test_what_cannot_be_browsed_is_no_place_to_begin() -> None:
    def job(source: str, created: float = 1.0, target: str = "/w") -> dict[str, Any]:
        return {"source": source, "target": target, "created": created}

    assert recent(
        [
            job("s3://old/a/b.bin"),
            job("s3://new/", 2.0, "gs://to/x"),
            job("s3://new/", 1.5),
            job("s3://bucket", 1.4),
            job("http://host/a?…"),
            job("/disk/a"),
            job("zip://a::file:///b"),
        ]
    ) == ["s3://new/", "gs://to/", "s3://bucket/", "s3://old/a/"]
    assert len(recent(job(f"s3://b/{n}/") for n in range(100))) == 20


def test_only_names_of_what_is_configured_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, keys = tmp_path / "config", tmp_path / "credentials"
    config.write_text("[default]\nregion = x\n[profile work]\nrole_arn = hunter2\n[sso-session me]\na = b\n")
    keys.write_text("[work]\naws_secret_access_key = hunter2\n[old\x1b]\naws_secret_access_key = hunter2\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(keys))
    for name in [name for name in os.environ if name.startswith("AWS_") and not name.endswith("_FILE")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    assert configured() == ["AWS profile default", "AWS profile work", "AWS profile old\\x1b"]
    for broken in (b"\xff[", b"key = value", b"[a]" * (1 << 20)):
        config.write_bytes(broken)
        assert "AWS profile work" in configured()
