"""S3 identities: roles and logins through botocore, renewal during a job, addressing styles, and requester pays."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import AccessDenied
from nbdata.operation import Context
from nbdata.stores.base import Store
from nbdata.stores.resolve import open_place
from tests.stores.servers import ok, read_body, read_head, serving, status


def when(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


class Cloud:
    """Provides credentials for containers, machines and logins, and an S3 that accepts only the latest ones.

    Attributes
    ----------
    number : int
        Number of the current credentials: AKIA1, AKIA2 …
    lasts : float
        Announced lifetime of the credentials in seconds.
    heads : list of str
        The requests that S3 received.
    """

    def __init__(self) -> None:
        self.number, self.lasts = 1, 3600.0
        self.heads: list[str] = []
        self.bodies: list[bytes] = []

    def keys(self, **names: str) -> bytes:
        found = {
            "AccessKeyId": f"AKIA{self.number}", "SecretAccessKey": "SECRET", "Token": f"TOKEN{self.number}",
            "Expiration": when(self.lasts), "Code": "Success",
        }  # fmt: skip
        return json.dumps({names.get(name, name): value for name, value in found.items()}).encode()

    def answer(self, head: str) -> bytes:
        path = head.split()[1]
        if path == "/container":
            return ok(self.keys()) if "authorization: bearer right" in head.lower() else status(403)
        if path == "/latest/api/token":
            return ok(b"session", "X-aws-ec2-metadata-token-ttl-seconds: 100")
        if path.startswith("/latest/"):
            return ok(self.keys() if path.endswith("/role") else b"role")
        if path.startswith("/federation/credentials"):
            assert "x-amz-sso_bearer_token: LOGIN" in head.replace("X-Amz", "x-amz").replace(
                "Sso", "sso"
            ).replace("Bearer_", "bearer_").replace("Token: ", "token: ")
            role = {
                "accessKeyId": f"AKIA{self.number}", "secretAccessKey": "SECRET", "sessionToken": f"TOKEN{self.number}",
                "expiration": int((time.time() + self.lasts) * 1000),
            }  # fmt: skip
            return ok(json.dumps({"roleCredentials": role}).encode())
        self.heads.append(head)
        if (
            f"Credential=AKIA{self.number}/" in head
            and f"x-amz-security-token: TOKEN{self.number}\r\n" in head
        ):
            return ok(b"content", 'ETag: "e"')
        body = b"<Error><Code>ExpiredToken</Code></Error>"
        return b"HTTP/1.1 400 X\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    def handle(self, connection: socket.socket) -> None:
        while head := read_head(connection):
            self.bodies.append(read_body(connection, head))
            connection.sendall(self.answer(head.decode("latin-1")))


@pytest.fixture
def cloud() -> Iterator[tuple[Cloud, str]]:
    made = Cloud()
    with serving(made.handle) as port:
        yield made, f"http://127.0.0.1:{port}"


def store(url: str, home: Path, **env: str) -> Store:
    (home / ".aws").mkdir(exist_ok=True)
    known = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    known |= {"AWS_ENDPOINT_URL_S3": url, **env}
    return open_place("s3://bucket/x", Context(cwd="/", env=known)).store


def container(url: str) -> dict[str, str]:
    return {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{url}/container",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN": "Bearer right",
    }


def test_a_container_has_the_keys_of_its_role(cloud: tuple[Cloud, str], tmp_path: Path) -> None:
    made, url = cloud
    assert store(url, tmp_path, **container(url)).read_bytes("x") == b"content"
    assert "Credential=AKIA1/" in made.heads[0]


def test_a_machine_has_the_keys_of_its_role(cloud: tuple[Cloud, str], tmp_path: Path) -> None:
    _, url = cloud
    env = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{url}/", "AWS_EC2_METADATA_DISABLED": "false"}
    assert store(url, tmp_path, **env).read_bytes("x") == b"content"


def test_a_login_by_sso_is_used(cloud: tuple[Cloud, str], tmp_path: Path) -> None:
    _, url = cloud
    start = "https://login.example/start"
    cache = tmp_path / ".aws/sso/cache"
    cache.mkdir(parents=True)
    login = {"startUrl": start, "region": "us-east-1", "accessToken": "LOGIN", "expiresAt": when(3600)}
    (cache / f"{hashlib.sha1(start.encode()).hexdigest()}.json").write_text(json.dumps(login))
    (tmp_path / ".aws/config").write_text(
        f"[profile work]\nsso_start_url = {start}\nsso_region = us-east-1\nsso_account_id = 1\nsso_role_name = r\n"
    )
    env = {"AWS_PROFILE": "work", "AWS_ENDPOINT_URL_SSO": url}
    assert store(url, tmp_path, **env).read_bytes("x") == b"content"


def test_a_role_is_assumed(moto: EmbeddedServer, cloud: tuple[Cloud, str], tmp_path: Path) -> None:
    made, url = cloud
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_text(
        "[profile base]\naws_access_key_id = AKIABASE\naws_secret_access_key = SECRET\n"
        "[profile role]\nrole_arn = arn:aws:iam::123456789012:role/reader\nsource_profile = base\n"
    )
    with pytest.raises(
        AccessDenied, match="expired"
    ):  # the cloud's message for all keys that it did not issue
        store(url, tmp_path, AWS_PROFILE="role", AWS_ENDPOINT_URL_STS=moto.url).read_bytes("x")
    assert re.search("Credential=ASIA", made.heads[0])
    assert "x-amz-security-token: " in made.heads[0]


def test_keys_that_are_about_to_expire_are_renewed_between_two_requests(
    cloud: tuple[Cloud, str], tmp_path: Path
) -> None:
    made, url = cloud
    made.lasts = 200
    there = store(url, tmp_path, **container(url))
    assert there.read_bytes("x") == b"content"
    made.number, made.lasts = 2, 3600
    there._client._asked = 0.0  # simulates that half a minute has passed
    assert there.read_bytes("x") == b"content"
    assert ["AKIA2/" in head for head in made.heads] == [False, True]


@pytest.mark.long
def test_keys_are_used_to_their_end_when_nobody_gives_new_ones(
    cloud: tuple[Cloud, str], tmp_path: Path
) -> None:
    made, url = cloud
    made.lasts = 200
    answer = tmp_path / "answer.json"
    answer.write_bytes(made.keys(Token="SessionToken").replace(b"{", b'{"Version": 1, ', 1))
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_text(f"[profile made]\ncredential_process = /bin/cat {answer}\n")
    there = store(url, tmp_path, AWS_PROFILE="made")
    answer.unlink()
    assert there.read_bytes("x") == b"content"


@pytest.mark.long
@pytest.mark.parametrize("body", [None, b"12345"])
def test_keys_that_expire_too_early_are_renewed_when_they_are_refused(
    body: bytes | None, cloud: tuple[Cloud, str], tmp_path: Path
) -> None:
    made, url = cloud
    there = store(url, tmp_path, **container(url))
    assert there.read_bytes("x") == b"content"
    made.number = 2
    if body is None:
        assert there.read_bytes("x") == b"content"
    else:
        with pytest.raises(
            nbdata.errors.StoreUnavailable
        ) as caught:  # the body is consumed; the engine repeats the upload
            there.write("x", io.BytesIO(body), len(body))
        assert caught.value.details["retry"] is True
        assert there.write("x", io.BytesIO(body), len(body)).etag == '"e"'
    assert ["AKIA2/" in head for head in made.heads] == [False, False, True]


@pytest.mark.long
def test_keys_that_expire_are_renewed_when_a_response_has_no_body_that_says_so(
    cloud: tuple[Cloud, str], tmp_path: Path
) -> None:
    made, url = cloud
    answer = made.answer
    there = store(url, tmp_path, **container(url))
    made.answer = lambda head: (  # type: ignore[method-assign]
        answer(head).partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if head.startswith("HEAD") else answer(head)
    )
    assert there.head("x").etag == '"e"'
    made.number = 2
    assert there.head("x").etag == '"e"'
    made.number = 3
    with pytest.raises(
        nbdata.errors.NbdataError
    ):  # asked again only after a while: most refusals are lasting
        there.head("x")
    assert ["AKIA2/" in head for head in made.heads] == [
        *(False, False, True, True),
        True,  # the same without what the store may not know
    ]


def test_a_job_goes_on_when_its_keys_expire(
    cloud: tuple[Cloud, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inline: None
) -> None:
    made, url = cloud
    for name, value in {**container(url), "AWS_ENDPOINT_URL_S3": url, "AWS_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    listing = "".join(f"<Contents><Key>{n}</Key><Size>7</Size></Contents>" for n in range(20))
    answer, gets = made.answer, 0

    def answering(head: str) -> bytes:
        nonlocal gets
        if "list-type=2" in head:
            return ok(f"<R><IsTruncated>false</IsTruncated>{listing}</R>".encode())
        gets += head.startswith("GET /bucket/")
        if gets == 10:
            made.number = 2
        return answer(head)

    made.answer = answering  # type: ignore[method-assign]
    report = nbdata.pull("s3://bucket/", tmp_path / "out", quiet=True)
    assert report.counts == {"fetched": 20}
    assert {path.read_bytes() for path in (tmp_path / "out").iterdir()} == {b"content"}


def test_keys_that_were_given_are_not_renewed_and_the_refusal_says_so(
    cloud: tuple[Cloud, str], tmp_path: Path
) -> None:
    _, url = cloud
    env = {"AWS_ACCESS_KEY_ID": "AKIAOLD", "AWS_SECRET_ACCESS_KEY": "SECRET", "AWS_SESSION_TOKEN": "TOKENOLD"}
    with pytest.raises(AccessDenied, match="expired") as caught:
        store(url, tmp_path, **env).read_bytes("x")
    assert not any(
        secret in f"{caught.value} {caught.value.to_dict()}" for secret in ("AKIAOLD", "SECRET", "TOKENOLD")
    )


@pytest.mark.parametrize(
    ("options", "line", "header"),
    [
        (
            {"addressing_style": "virtual"},
            "GET http://bucket.s3.example/a%20b HTTP/1.1",
            "host: bucket.s3.example\r\n",
        ),
        ({"addressing_style": "path"}, "GET http://s3.example/bucket/a%20b HTTP/1.1", "host: s3.example\r\n"),
        (
            {"requester_pays": "true"},
            "GET http://s3.example/bucket/a%20b HTTP/1.1",
            "x-amz-request-payer: requester\r\n",
        ),
        (
            {"token": "SESSION"},
            "GET http://s3.example/bucket/a%20b HTTP/1.1",
            "x-amz-security-token: SESSION\r\n",
        ),
    ],
)
def test_options_decide_what_is_sent(options: dict[str, Any], line: str, header: str) -> None:
    seen: list[str] = []

    def handle(connection: socket.socket) -> None:
        while head := read_head(connection):
            seen.append(head.decode())
            connection.sendall(ok(b"content", 'ETag: "e"'))

    with serving(handle) as port:
        known = {
            "endpoint_url": "http://s3.example",
            "key": "k",
            "secret": "s",
            "region": "us-east-1",
            **options,
        }
        context = Context(
            cwd="/",
            env={"http_proxy": f"http://127.0.0.1:{port}", "HOME": "/nonexistent"},
            storage_options=known,
        )
        place = open_place("s3://bucket/a b", context)
        assert place.store.read_bytes(place.key) == b"content"
        anonymous = Context(
            cwd="/", env=context.env, storage_options={"endpoint_url": "http://s3.example", "anon": "true"}
        )
        open_place("s3://bucket/x", anonymous).store.read_bytes("x")
    assert seen[0].startswith(line)
    assert header in seen[0]
    signed = seen[0].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    assert header.partition(":")[0] in signed
    assert "authorization" not in seen[1].lower()
