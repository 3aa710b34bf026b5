"""Connections: kept for this user alone, and used by name from every verb."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.connections import Connection, connected, forget, keep, kept
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import AccessDenied, BadOption, NbdataError, NotFound, UnsafeMember
from nbdata.runtime import state_folder
from tests.stores.servers import each, serving

Put = Callable[[dict[str, bytes]], str]

_ENDPOINT = "https://store.example:9000"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A state folder of the test's own."""
    monkeypatch.setenv("NBDATA_STATE_DIR", str(tmp_path / "state"))
    return state_folder()


def s3(name: str = "prod", /, place: str = "s3://bucket/", **options: str) -> Connection:
    given = {"endpoint_url": _ENDPOINT, "key": "AKIAABCDEFGHIJKLMNOP", "secret": "hunter2hunter2hunter2"}
    return Connection(name, "s3", place, {**given, **options})


def test_a_connection_is_kept_in_a_file_of_this_user_alone(state: str) -> None:
    assert kept(state) == []
    keep(state, s3())
    keep(state, s3("Another.1", region="eu-1"))
    keep(state, s3(region="us-2"))
    assert [(one.name, one.options.get("region")) for one in kept(state)] == [
        ("Another.1", "eu-1"),
        ("prod", "us-2"),
    ]
    assert stat.S_IMODE(os.stat(f"{state}/connections.json").st_mode) == 0o600
    assert os.listdir(state) == ["connections.json"]
    forget(state, "prod")
    assert [one.name for one in kept(state)] == ["Another.1"]
    with pytest.raises(NotFound, match="no connection 'prod'"):
        forget(state, "prod")
    assert "hunter2" not in repr(s3())


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_can_read_is_refused_and_not_replaced(state: str, mode: int) -> None:
    keep(state, s3())
    path = Path(state, "connections.json")
    path.chmod(mode)
    before = path.read_bytes()
    for act in (lambda: kept(state), lambda: keep(state, s3("b")), lambda: forget(state, "prod")):
        with pytest.raises(AccessDenied, match="others can read the file of connections"):
            act()
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", ["link", "folder", "pipe", "folder's link"])
def test_what_has_the_place_of_the_file_is_refused(state: str, tmp_path: Path, kind: str) -> None:
    keep(state, s3())
    path = Path(state, "connections.json")
    path.rename(tmp_path / "elsewhere")
    if kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        (tmp_path / "moved").mkdir()
        (tmp_path / "elsewhere").rename(tmp_path / "moved" / "connections.json")
        Path(state).rmdir()
        Path(state).symlink_to(tmp_path / "moved")
    with pytest.raises((UnsafeMember, nbdata.errors.NbdataError)):
        kept(state)
    with pytest.raises((UnsafeMember, nbdata.errors.NbdataError)):
        keep(state, s3("b"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"connections": 5}',
        '{"connections": [{}]}',
        '{"connections": [5]}',
        "[" * 100_000,
        '{"a"',
    ],
)
def test_a_spoilt_file_is_said_and_not_replaced(state: str, text: str) -> None:
    path = Path(state, "connections.json")
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(UnsafeMember, match="not as nbdata wrote it"):
        keep(state, s3())
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("name", "kind", "place", "options", "why"),
    [
        ("a b", "s3", "s3://b/", {}, "is no name"),
        ("../a", "s3", "s3://b/", {}, "is no name"),
        ("a", "ftp", "ftp://b/", {}, "no kind"),
        ("a", "s3", "gs://b/", {}, "no URL to begin with"),
        ("a", "s3", "/disk", {}, "no URL to begin with"),
        ("a", "s3", "s3://b/", {"endpoint_url": ""}, "has no endpoint"),
        ("a", "s3", "s3://b/", {"endpoint_url": "store:9000"}, "has no endpoint"),
        ("a", "s3", "s3://b/", {"endpoint_url": "https://me:hunter22@store"}, "holds no password"),
        ("a", "s3", "s3://b/", {"client_kwargs": "x"}, "has no client_kwargs"),
        ("a", "s3", "s3://b/", {"key": "env:KEY"}, "is no text"),
        ("a", "s3", "s3://b/", {"key": "k" * 9000}, "is no text"),
        ("a", "http", "https://me:hunter22@host/", {}, "a password or a signature"),
    ],
)
def test_what_makes_no_connection_is_refused(
    name: str, kind: str, place: str, options: dict[str, Any], why: str
) -> None:
    given = {"endpoint_url": _ENDPOINT, **options} if kind == "s3" else options
    with pytest.raises(BadOption, match=why) as refused:
        Connection(name, kind, place, given)
    assert "hunter22" not in str(refused.value)


def test_a_name_becomes_options_and_those_beside_it_go_first(state: str) -> None:
    keep(state, s3(region="eu-1"))
    options, found = connected({"connection": "prod", "region": "us-2"}, ["s3://bucket/"], state)
    assert options == {**s3().options, "region": "us-2"}
    assert found is not None
    assert found.name == "prod"
    assert connected({"key": "k"}, ["s3://bucket/"], state) == ({"key": "k"}, None)


_WEB = Connection("web", "http", "https://host.example/d/", {"username": "me", "password": "hunter22"})
_AZ = Connection("work", "az", "az://container/", {"account_name": "ours", "sas_token": "sv=1&sig=hunter22"})
_CHINA = Connection(
    "china", "az", "abfss://c@ours.dfs.core.chinacloudapi.cn/", {"account_key": "aHVudGVyMjI="}
)
_GS = Connection("google", "gs", "gs://bucket/", {"token": "ya29.hunter22"})
_SSH = Connection("lab", "sftp", "sftp://host.example/d/", {"username": "me", "password": "hunter22"})
_PROFILE = Connection("team", "s3", "s3://bucket/", {"endpoint_url": _ENDPOINT, "profile": "research"})


@pytest.mark.parametrize(
    ("name", "url", "expected"),
    [
        ("prod", "s3a://other/", {"endpoint_url": _ENDPOINT}),
        ("web", "https://host.example:443/other", {"username": "me"}),
        ("work", "az://other/", {"endpoint_url": "https://ours.blob.core.windows.net"}),
        ("work", "abfss://c@OURS.dfs.core.windows.net/", {"account_name": "ours"}),
        ("china", "az://c/d", {"endpoint_url": "https://ours.blob.core.chinacloudapi.cn"}),
        ("google", "gcs://other/", {"endpoint_url": "https://storage.googleapis.com"}),
        ("lab", "ssh://other@HOST.example:22/x", {"username": "me"}),
        ("team", "s3://other/", {"endpoint_url": _ENDPOINT, "profile": "research"}),
    ],
)
def test_a_connection_names_its_server_whatever_else_would(
    state: str, name: str, url: str, expected: dict[str, str]
) -> None:
    for one in (s3(), _WEB, _AZ, _CHINA, _GS, _SSH, _PROFILE):
        keep(state, one)
    given = connected({"connection": name}, [url], state)[0]
    assert {**given, **expected} == given
    assert name != "team" or "anon" not in given


@pytest.mark.parametrize(
    ("name", "urls", "why"),
    [
        ("prod", [], "is for s3://"),
        ("prod", ["gs://bucket/"], "is for s3://"),
        ("prod", ["s3://bucket/", "https://evil.example/"], "is for s3://"),
        ("google", ["http://evil.example/a.tar", "gs://bucket/"], "is for gs://"),
        ("google", ["simplecache::gs://bucket/"], "is for gs://"),
        ("web", ["https://evil.example/"], "for another server"),
        ("web", ["https://host.example/", "https://host.example:8443/"], "for another server"),
        ("work", ["abfss://c@evil.example/"], "for another server"),
        ("work", ["abfss://c@ours.dfs.core.chinacloudapi.cn/"], "for another server"),
        ("china", ["az://c/", "abfs://c@ours.dfs.core.windows.net/"], "for another server"),
        ("lab", ["sftp://evil.example/d/"], "for another server"),
        ("lab", ["sftp://host.example:2222/d/"], "for another server"),
        ("lab", ["https://host.example/d/"], "is for sftp://"),
    ],
)
def test_keys_of_a_connection_go_to_no_other_store(state: str, name: str, urls: list[str], why: str) -> None:
    for one in (s3(), _WEB, _AZ, _CHINA, _GS, _SSH):
        keep(state, one)
    with pytest.raises(BadOption, match=why):
        connected({"connection": name}, urls, state)


@pytest.mark.parametrize(
    "where", ["endpoint_url", "account_host", "account_name", "connection_string", "host", "port", "sock"]
)
@pytest.mark.parametrize("name", ["prod", "work", "google", "lab"])
def test_nothing_beside_a_connection_says_where_its_keys_go(state: str, name: str, where: str) -> None:
    for one in (s3(), _AZ, _GS, _SSH):
        keep(state, one)
    url = {"prod": "s3://b/", "work": "az://c/", "google": "gs://b/", "lab": "sftp://host.example/"}[name]
    with pytest.raises(BadOption, match="a server of its own"):
        connected({"connection": name, where: "evil.example"}, [url], state)


def test_a_connection_that_is_not_there_is_said(state: str) -> None:
    keep(state, s3())
    keep(state, _WEB)
    with pytest.raises(NotFound, match=r"no connection 'none'.*There are prod, web"):
        connected({"connection": "none"}, ["s3://b/"], state)
    with pytest.raises(NotFound):
        connected({"connection": 5}, ["s3://b/"], state)


def test_a_connection_without_keys_uses_none_of_the_environment(state: str) -> None:
    bare = Connection("bare", "s3", "s3://bucket/", {"endpoint_url": _ENDPOINT})
    assert bare.given == {"endpoint_url": _ENDPOINT, "anon": "true"}
    guest = Connection("guest", "az", "abfss://c@host.example/", {})
    assert guest.given == {"endpoint_url": "https://host.example", "anon": "true"}
    lost = Connection("lost", "az", "az://container/", {"account_key": "aHVudGVyMjI="})
    with pytest.raises(BadOption, match="the connection lost has no account"):
        _ = lost.given


@pytest.mark.parametrize(
    ("act", "option"),
    [
        (
            lambda web, options: nbdata.untar_volumes(f"{web}a.tar", "gs://bucket/x/", **options),
            "storage_options",
        ),
        (lambda web, options: nbdata.copy(web, "gs://bucket/x/", **options), "storage_options"),
        (lambda web, options: nbdata.copy("gs://bucket/x/", web, **options), "target_options"),
    ],
)
def test_the_other_store_of_a_command_gets_no_key(
    state: str, act: Callable[[str, dict[str, Any]], object], option: str
) -> None:
    keep(state, _GS)
    seen: list[str] = []
    with (
        serving(each(lambda head: b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", seen)) as port,
        pytest.raises(NbdataError, match=r"is for gs://|write"),
    ):
        act(f"http://127.0.0.1:{port}/", {option: {"connection": "google"}, "quiet": True})
    assert seen == []


def test_a_connection_has_the_keys_of_a_profile_and_its_own_endpoint(
    seaweedfs: EmbeddedServer, put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = put({"a.txt": b"12345"})
    known = seaweedfs.environment()
    profile = tmp_path / "credentials"
    profile.write_text(
        "[research]\nendpoint_url = http://127.0.0.1:9\n"
        f"aws_access_key_id = {known['AWS_ACCESS_KEY_ID']}\n"
        f"aws_secret_access_key = {known['AWS_SECRET_ACCESS_KEY']}\n"
    )
    for name in known:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profile))
    options = {"endpoint_url": known["AWS_ENDPOINT_URL"], "profile": "research"}
    keep(state_folder(), Connection("team", "s3", url, options))
    report = nbdata.ls(url, storage_options={"connection": "team"}, quiet=True)
    assert [row.path for row in report.rows] == ["a.txt"]
    forget(state_folder(), "team")


def test_every_way_in_takes_a_connection_by_its_name(
    seaweedfs: EmbeddedServer, put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = put({"d/a.txt": b"12345"})
    known = seaweedfs.environment()
    options = {
        "endpoint_url": known["AWS_ENDPOINT_URL"],
        "key": known["AWS_ACCESS_KEY_ID"],
        "secret": known["AWS_SECRET_ACCESS_KEY"],
    }
    keep(state_folder(), Connection("ours", "s3", url, options))
    for name in known:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nothing goes there
    by_name = {"connection": "ours"}
    job = nbdata.Pull(f"{url}d/", str(tmp_path / "out"), storage_options=by_name).start()
    assert job.wait().counts["fetched"] == 1
    command = job.snapshot().command
    assert command.endswith("--option connection=ours")
    assert not any(secret in command for secret in (options["secret"], options["endpoint_url"]))
    assert [row.path for row in nbdata.ls(f"{url}d/", storage_options=by_name, quiet=True).rows] == ["a.txt"]
    nbdata.push(str(tmp_path / "out"), f"{url}e/", storage_options=by_name, quiet=True)
    nbdata.copy(f"{url}d/", f"{url}f/", storage_options=by_name, target_options=by_name, quiet=True)
    with nbdata.open(f"{url}f/a.txt", "rb", storage_options=by_name) as file:
        assert file.read() == b"12345"
    assert len(nbdata.samples(f"{url}d/", storage_options=by_name)) == 1
    with pytest.raises(NotFound, match="no connection 'nobody'"):
        nbdata.ls(url, storage_options={"connection": "nobody"}, quiet=True)
    forget(state_folder(), "ours")
