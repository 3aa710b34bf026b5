"""The options of a file system go to the server that it was made for, and to no other one."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fsspec
import pytest
from fsspec.config import conf
from fsspec.core import url_to_fs
from fsspec.implementations.reference import ReferenceFileSystem

import nbdata
from nbdata.errors import AccessDenied, BadOption, NbdataError
from nbdata.files import FileSystem, use_for
from nbdata.files.connections import named_server
from tests.hostile.web import Site, served

TOKEN = "tok-8e5d1f4c7a90"
# A header whose name does not say that it is a secret, so such a file system may be pickled.
OPTIONS: dict[str, Any] = {"headers": {"x-tenant": "tenant-of-the-user"}}
WITH_TOKEN: dict[str, Any] = {**OPTIONS, "token": TOKEN}
LARGE = bytes(range(256)) * 4096


@pytest.fixture
def home() -> Iterator[Site]:
    """The server that the user names."""
    with served() as site:
        site.files["/a"] = b"from home"
        yield site


@pytest.fixture
def other() -> Iterator[Site]:
    """A server that a library asks for."""
    with served() as site:
        site.files.update({"/b": b"from elsewhere", "/large": LARGE})
        yield site


@pytest.fixture(autouse=True)
def _no_others() -> Iterator[None]:
    FileSystem.clear_instance_cache()
    yield
    FileSystem.clear_instance_cache()


def all_went_to(site: Site, *, token: bool) -> bool:
    wanted = {"x-tenant": "tenant-of-the-user"} | ({"authorization": f"Bearer {TOKEN}"} if token else {})
    return bool(site.asked) and all(wanted.items() <= one.headers.items() for one in site.asked)


def none_went_to(site: Site) -> bool:
    said = [f"{one.path} {one.headers}" for one in site.asked]
    return bool(said) and not any("authorization" in one or TOKEN in one or "tenant" in one for one in said)


def _pickled(url: str) -> FileSystem:
    return pickle.loads(pickle.dumps(nbdata.filesystem(url, **OPTIONS)))  # type: ignore[no-any-return]


def _described(url: str) -> FileSystem:
    text = nbdata.filesystem(url, **OPTIONS).to_json()
    FileSystem.clear_instance_cache()
    return fsspec.AbstractFileSystem.from_json(text)  # type: ignore[no-any-return]


def _for_http(url: str) -> FileSystem:
    with use_for("http"):
        return url_to_fs(url, **OPTIONS)[0]  # type: ignore[no-any-return]


WAYS: dict[str, Callable[[str], FileSystem]] = {
    "filesystem": lambda url: nbdata.filesystem(url, **OPTIONS),
    "name for fsspec": lambda url: nbdata.filesystem(f"nb{url}", **OPTIONS),
    "fsspec.open": lambda url: fsspec.open(f"nb{url}", **OPTIONS).fs,
    "open_files": lambda url: fsspec.open_files([f"nb{url}"], **OPTIONS).fs,
    "url_to_fs": lambda url: url_to_fs(f"nb{url}", **OPTIONS)[0],
    "protocol": lambda url: url_to_fs(url, protocol="nbhttp", **OPTIONS)[0],
    "use_for": _for_http,
    "chained": lambda url: FileSystem("http", dict(OPTIONS), url),
    "pickled": _pickled,
    "described": _described,
    "named": lambda url: FileSystem("http", origin=url, **OPTIONS),
    "named for fsspec": lambda url: fsspec.filesystem("nbhttp", origin=url, **OPTIONS),
}


@pytest.mark.parametrize("way", WAYS)
def test_options_go_to_the_server_that_was_named_and_public_files_of_others_are_read(
    home: Site, other: Site, way: str
) -> None:
    files = WAYS[way](f"{home.url}/a")
    assert isinstance(files, FileSystem)
    other.files["/to-home"] = f"{home.url}/a"
    home.files["/to-other"] = f"{other.url}/b"
    assert files.cat_file(f"{home.url}/a") == b"from home"
    with files.open(f"nb{home.url}/a") as file:
        assert file.read() == b"from home"
    assert all_went_to(home, token=False)
    with files.open(f"{other.url}/b") as file:
        assert file.read() == b"from elsewhere"
    assert files.cat([f"{other.url}/b", f"{other.url}/large"])[f"{other.url}/large"] == LARGE
    assert files.cat_ranges([f"nb{other.url}/large"], 5, 600_000) == [LARGE[5:600_000]]
    assert files.info(f"nb{other.url}/b")["size"] == 14
    assert not files.exists(f"{other.url}/no")
    assert files.cat_file(f"{home.url}/to-other") == b"from elsewhere"
    assert none_went_to(other)
    home.asked.clear()
    assert files.cat_file(f"{other.url}/to-home") == b"from home"
    assert none_went_to(home)  # who leads there must not have it asked as the user


def test_a_token_and_a_password_are_for_one_server_too(home: Site, other: Site) -> None:
    files = nbdata.filesystem(home.url, **WITH_TOKEN)
    assert files.cat_file(f"{home.url}/a") == b"from home"
    assert all_went_to(home, token=True)
    assert files.cat_file(f"{other.url}/b") == b"from elsewhere"
    files = nbdata.filesystem(home.url, username="me", password=TOKEN)
    assert files.cat_file(f"{other.url}/b") == b"from elsewhere"
    assert none_went_to(other)
    assert files.cat_file(f"{home.url}/a") == b"from home"
    assert home.asked[-1].headers["authorization"].startswith("Basic ")


def test_another_port_and_another_scheme_are_another_server(home: Site) -> None:
    files = nbdata.filesystem(home.url, **OPTIONS)
    knows = files._connections.opened(f"{home.url}/a").context.knows
    port = urlsplit(home.url).port
    assert knows(f"http://user:password@127.0.0.1:{port}/b?c")
    for url in (
        f"https://127.0.0.1:{port}/a",
        "http://127.0.0.1/a",
        f"http://localhost:{port}/a",
        f"http://127.0.0.1:{port}@evil.example/a",
        f"{home.url}.evil.example/a",
    ):
        assert not knows(url)


def test_references_lead_to_other_servers_without_the_options(home: Site, other: Site) -> None:
    found = {"mine": [f"{home.url}/a"], "theirs": [f"{other.url}/b"]}
    references = ReferenceFileSystem(found, fs=nbdata.filesystem(home.url, **WITH_TOKEN))
    references.fss["http"] = references.fss.pop("nbdata", None) or references.fss[None]
    assert references.cat_file("mine") == b"from home"
    assert references.cat_file("theirs") == b"from elsewhere"
    assert all_went_to(home, token=True)
    assert none_went_to(other)


def test_of_a_list_the_first_url_names_the_server(home: Site, other: Site) -> None:
    opened = fsspec.open_files([f"nb{home.url}/a", f"nb{other.url}/b"], **WITH_TOKEN)
    with opened as files:
        assert [file.read() for file in files] == [b"from home", b"from elsewhere"]
    assert all_went_to(home, token=True)
    assert none_went_to(other)


def test_a_chain_names_the_server_in_its_last_url(home: Site, other: Site, tmp_path: Path) -> None:
    own = {"cache_storage": str(tmp_path)}
    chain = f"simplecache::nb{home.url}/a"
    with fsspec.open(chain, nbhttp=dict(WITH_TOKEN), simplecache=dict(own)) as file:
        assert file.read() == b"from home"
    files, _ = url_to_fs(chain, nbhttp=dict(WITH_TOKEN), simplecache=dict(own))
    assert files.cat_file(f"{other.url}/b") == b"from elsewhere"
    assert all_went_to(home, token=True)
    assert none_went_to(other)


@pytest.mark.usefixtures("inline")
def test_a_cache_sends_no_options_to_another_server(home: Site, other: Site, tmp_path: Path) -> None:
    home.files["/large"] = LARGE
    files = nbdata.filesystem(home.url, cache="50MB", cache_dir=str(tmp_path), **WITH_TOKEN)
    for site in (home, other):
        with files.open(f"{site.url}/large") as file:
            assert file.read() == LARGE
    assert all_went_to(home, token=True)
    assert none_went_to(other)


MANY = [
    {"token": TOKEN},
    {"headers": {"accept": "text/plain"}},
    {"username": "me", "password": "env:NO_SUCH"},
    {"client_kwargs": {"headers": {"x": "y"}}},
    {"target_options": {"headers": {"x": "y"}}},
    {"target_options": {"verify": False}},
]


@pytest.mark.parametrize("options", MANY)
@pytest.mark.parametrize("protocol", ["nbhttps", "nbhttp", "nbdata"])
def test_options_for_all_servers_are_refused(options: dict[str, Any], protocol: str) -> None:
    target = {"target_protocol": "https"} if protocol == "nbdata" else {}
    with pytest.raises(BadOption, match=r'among its options[^"]*"https://server"') as caught:
        fsspec.filesystem(protocol, **target, **options)
    assert TOKEN not in str(caught.value)


def test_a_file_system_for_all_servers_reads_public_files(
    other: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = fsspec.filesystem("nbhttp", client_kwargs={"trust_env": True}, headers={}, block_size=5)
    assert files.cat_file(f"{other.url}/b") == b"from elsewhere"
    monkeypatch.setitem(conf, "http", WITH_TOKEN)  # configured after it was made
    assert files.cat_file(f"{other.url}/large") == LARGE
    assert none_went_to(other)
    with pytest.raises(BadOption, match="token and headers"):
        fsspec.filesystem("nbdata", target_protocol="http")


def test_what_is_configured_goes_to_the_server_that_was_named(
    home: Site, other: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(conf, "http", WITH_TOKEN)
    files = nbdata.filesystem(home.url)
    assert files.cat_file(f"{home.url}/a") == b"from home"
    assert files.cat_file(f"{other.url}/b") == b"from elsewhere"
    assert all_went_to(home, token=True)
    assert none_went_to(other)


def test_who_is_refused_elsewhere_learns_why(home: Site, other: Site) -> None:
    other.files["/b"] = 403
    files = nbdata.filesystem(home.url, **WITH_TOKEN)
    for ask in (files.cat_file, files.info, files.open):
        with pytest.raises(AccessDenied, match="make one with this URL"):
            ask(f"{other.url}/b")
    home.files["/a"] = 403
    with pytest.raises(AccessDenied) as caught:
        files.cat_file(f"{home.url}/a")
    assert "make one" not in str(caught.value)


@pytest.mark.parametrize("origin", ["server", "ftp://server", "https://", 5])
def test_what_names_no_server_is_refused(origin: object) -> None:
    with pytest.raises(BadOption, match="no address of a server"):
        FileSystem("https", origin=origin)


def test_a_store_whose_server_is_configured_takes_no_server() -> None:
    with pytest.raises(BadOption, match="endpoint_url"):
        FileSystem("s3", origin="https://server")


def test_a_web_server_has_no_files_on_the_disk(home: Site, tmp_path: Path) -> None:
    (tmp_path / "private").write_bytes(b"what only this machine may read")
    files = nbdata.filesystem(home.url)
    for path in (f"{tmp_path}/private", f"file://{tmp_path}/private", "s3://bucket/x"):
        with pytest.raises(BadOption, match="named by its URL"):
            files.cat_file(path)


def test_a_login_is_for_one_host() -> None:
    files = nbdata.filesystem("sftp://me@127.0.0.1:1/", password=TOKEN)
    with pytest.raises(BadOption, match="for another server"):
        files.cat_file("sftp://me@localhost:1/x")
    with pytest.raises(NbdataError) as caught:
        files.cat_file("sftp://me@127.0.0.1:1/x")
    assert not isinstance(caught.value, BadOption)


@pytest.mark.parametrize(
    ("made", "options", "env", "known"),
    [
        ("az://c@mine.dfs.core.windows.net/x", {}, {}, "c@mine.blob.core.windows.net/y"),
        ("az://c", {"account_name": "mine"}, {}, "c@mine.dfs.core.windows.net/y"),
        ("az://c", {}, {"AZURE_STORAGE_ACCOUNT": "mine"}, "c@mine.dfs.core.windows.net/y"),
        ("az://c", {"connection_string": "AccountName=mine;AccountKey=eA=="}, {}, "c@mine.dfs.core.windows.net/y"),
        ("az://c", {"account_name": "m", "account_host": "mine.example"}, {}, "c@mine.example/y"),
        ("az://c", {"account_name": "mine"}, {}, "c/y"),
    ],
)  # fmt: skip
def test_keys_of_an_account_go_to_no_other_one(
    made: str, options: dict[str, Any], env: dict[str, str], known: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sas = "sv=2024&sig=c2FzLXNpZ25hdHVyZS0xMjM0NQ"
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    files = nbdata.filesystem(made, sas_token=sas, **options)
    theirs: Any = files._at("c@theirs.blob.core.windows.net/y").store
    assert (theirs._config.sas, theirs._config.key, theirs._config.tokens.header()) == ("", "", "")
    mine: Any = files._at(known).store
    assert mine._config.sas == sas
    assert nbdata.filesystem(made, sas_token=sas, **options) is files


def test_an_endpoint_gets_the_requests_of_all_accounts() -> None:
    files = nbdata.filesystem("az://c", sas_token="sig=1", endpoint_url="http://127.0.0.1:1/account")
    store: Any = files._at("c@theirs.blob.core.windows.net/y").store
    assert (store._config.sas, store._config.endpoint) == ("sig=1", "http://127.0.0.1:1/account")


@pytest.mark.parametrize(
    "url", ["s3://bucket/x", "nbgs://bucket/x", "/disk/x", "memory://x", "az://c/x", "c/x"]
)
def test_such_a_url_names_no_server(url: str) -> None:
    assert named_server(url) == ""
