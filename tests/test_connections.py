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
from nbdata.errors import AccessDenied, BadOption, NotFound, UnsafeMember
from nbdata.runtime import state_folder

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
    options, found = connected({"connection": "prod", "region": "us-2"}, ["s3://"], state)
    assert options == {**s3().options, "region": "us-2"}
    assert found is not None
    assert found.name == "prod"
    assert connected({"key": "k"}, ["s3://"], state) == ({"key": "k"}, None)


def test_a_connection_is_for_its_own_kind_of_store_and_server(state: str) -> None:
    keep(state, s3())
    keep(
        state,
        Connection("web", "http", "https://host.example/d/", {"username": "me", "password": "hunter22"}),
    )
    with pytest.raises(NotFound, match=r"no connection 'none'.*There are prod, web"):
        connected({"connection": "none"}, ["s3://"], state)
    with pytest.raises(NotFound):
        connected({"connection": 5}, ["s3://"], state)
    with pytest.raises(BadOption, match="is for s3://"):
        connected({"connection": "prod"}, ["gs://"], state)
    with pytest.raises(BadOption, match="an endpoint of its own"):
        connected({"connection": "prod", "endpoint_url": "https://evil.example"}, ["s3://"], state)
    assert connected({"connection": "web"}, ["https://host.example:443"], state)[0]["username"] == "me"
    for others in (["https://evil.example:443"], ["https://host.example:443", "https://evil.example:443"]):
        with pytest.raises(BadOption, match="for another server"):
            connected({"connection": "web"}, others, state)


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
