"""An index leads only where it lies, and credentials go only to the origins that the user named."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.client.context import capture
from nbdata.errors import AccessDenied, BadOption, NbdataError
from nbdata.stores.az.config import az_config
from nbdata.stores.resolve import open_place
from nbdata.verbs.samples import SampleSource
from tests.formats.test_shards import FILE, shard
from tests.hostile.web import Site, served

CANARY = b"what only this machine may read"
TOKEN = "tok-1f3b8f0c9a7d"
SAS = "sv=2024&sig=c2FzLXNpZ25hdHVyZS0xMjM0NQ"
OPTIONS: dict[str, Any] = {"token": TOKEN, "headers": {"x-tenant": "of the user"}}
SECRETS = (TOKEN, "of the user", "sas-signature", "c2FzLXNpZ25hdHVyZS0xMjM0NQ", "AKIAHOSTILE", "Signature=")


@pytest.fixture
def home() -> Iterator[Site]:
    """The origin that the user names."""
    with served() as site:
        yield site


@pytest.fixture
def other() -> Iterator[Site]:
    """An origin that only the index names."""
    with served() as site:
        for path in ("/x.tar", "/data/x.tar", "/private/x.tar"):
            site.files[path] = packed(b"from elsewhere")
        yield site


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch, inline: None, tmp_path: Path) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIAHOSTILE",
        "AWS_SECRET_ACCESS_KEY": "secret-of-the-user",
        "AZURE_STORAGE_ACCOUNT": "mine",
        "AZURE_STORAGE_SAS_TOKEN": SAS,
        "NBDATA_STATE_DIR": str(tmp_path / "state"),
    }.items():
        monkeypatch.setenv(name, value)


def packed(data: bytes) -> bytes:
    return shard([("a/1.txt", FILE, data)])


def index(*urls: str, **more: Any) -> bytes:
    return json.dumps(
        {
            "__kind__": "wids-shard-index-v1",
            "wids_version": 1,
            "shardlist": [{"url": url} for url in urls],
            **more,
        }
    ).encode()


def streamed(place: str, tmp_path: Path, **options: Any) -> Any:
    with nbdata.samples(place, quiet=True, storage_options=OPTIONS, **options) as samples:
        return [sample["txt"] for sample in samples.stream()]


def by_number(place: str, tmp_path: Path, **options: Any) -> Any:
    with nbdata.samples(place, quiet=True, storage_options=OPTIONS, **options) as samples:
        return [samples[0]["txt"]]


def cached(place: str, tmp_path: Path, **options: Any) -> Any:
    return streamed(place, tmp_path, cache="5MB", cache_dir=str(tmp_path / "cache"), **options)


def looked_through(place: str, tmp_path: Path, **options: Any) -> Any:
    return nbdata.shards("verify", place, quiet=True, storage_options=OPTIONS, **options).ok


def packed_anew(place: str, tmp_path: Path, **options: Any) -> Any:
    return nbdata.pack(place, str(tmp_path / "new-%d.tar"), quiet=True, storage_options=OPTIONS, **options).ok


READERS = [streamed, by_number, cached, looked_through, packed_anew]
Reader = Callable[..., Any]

# What an index at HOME/data/index.json says, with the places of HOME, OTHER and a FOLDER of this machine.
HOSTILE = {
    "base on the disk": lambda home, other, folder: index("x.tar", base=f"{folder}/"),
    "base of a data set on the disk": lambda home, other, folder: index(
        datasets=[{"base": f"{folder}/", "shardlist": [{"url": "x.tar"}]}]
    ),
    "path": lambda home, other, folder: index(f"{folder}/x.tar"),
    "file URL": lambda home, other, folder: index(f"file://{folder}/x.tar"),
    "local URL": lambda home, other, folder: index(f"local://{folder}/x.tar"),
    "base with a file URL": lambda home, other, folder: index("x.tar", base=f"FILE://{folder}/"),
    "home folder": lambda home, other, folder: index("~/x.tar", base="~/"),
    "chain": lambda home, other, folder: index(f"simplecache::file://{folder}/x.tar"),
    "chain of a base": lambda home, other, folder: index("x.tar", base=f"filecache::file://{folder}/"),
    "memory": lambda home, other, folder: index("memory://x.tar"),
    "dots": lambda home, other, folder: index("../private/x.tar"),
    "dots in the middle": lambda home, other, folder: index("deep/../../private/x.tar"),
    "escaped dots": lambda home, other, folder: index("%2e%2e/private/x.tar"),
    "twice escaped dots": lambda home, other, folder: index("%252e%252E/private/x.tar"),
    "dots with a parameter": lambda home, other, folder: index("..;v=1/private/x.tar"),
    "dots with an escaped parameter": lambda home, other, folder: index("..%3Bv=1/private/x.tar"),
    "escaped slash": lambda home, other, folder: index("..%2fprivate%2Fx.tar"),
    "backslash": lambda home, other, folder: index("..\\private\\x.tar"),
    "dots in JSON's escapes": lambda home, other, folder: index("../private/x.tar").replace(b"..", rb"\u002e\u002e"),
    "folder of the same beginning": lambda home, other, folder: index(f"{home}/data-private/x.tar"),
    "another host": lambda home, other, folder: index(f"{other}/x.tar"),
    "base at another host": lambda home, other, folder: index("x.tar", base=f"{other}/data/"),
    "another host without scheme": lambda home, other, folder: index(f"//{other.partition('//')[2]}/x.tar"),
    "another host behind a user": lambda home, other, folder: index(f"{home}@{other.partition('//')[2]}/x.tar"),
    "another host behind a fragment": lambda home, other, folder: index(f"{other}/x.tar#{home}/data/"),
    "bucket": lambda home, other, folder: index("s3://private/x.tar"),
    "container": lambda home, other, folder: index("abfss://c@mine.dfs.core.windows.net/x.tar"),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of this machine that no index may lead to."""
    found = tmp_path / "private"
    found.mkdir()
    (found / "x.tar").write_bytes(packed(CANARY))
    monkeypatch.setenv("HOME", str(found))
    return found


def no_secret_went_to(site: Site) -> bool:
    return not any(secret in f"{one.path} {one.headers}" for one in site.asked for secret in SECRETS)


@pytest.mark.in_ci("*-streamed", "another host-*", "path-*", "escaped dots-*")
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
@pytest.mark.parametrize("kind", HOSTILE)
def test_an_index_leads_nowhere_but_below_its_own_folder(
    kind: str,
    reader: Reader,
    home: Site,
    other: Site,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", other.url)
    home.files["/data/index.json"] = HOSTILE[kind](home.url, other.url, str(folder))
    for path in ("/private/x.tar", "/data-private/x.tar"):
        home.files[path] = packed(CANARY)
    with pytest.raises(NbdataError) as caught:
        reader(f"{home.url}/data/index.json", tmp_path)
    assert "index" in str(caught.value)
    assert not other.asked
    assert {one.path for one in home.asked} == {"/data/index.json"}
    assert not any(CANARY in path.read_bytes() for path in tmp_path.rglob("new-*"))


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_an_index_leads_below_its_own_folder(reader: Reader, home: Site, tmp_path: Path) -> None:
    home.files["/data/index.json"] = index("x.tar", f"{home.url}/data/deep/y.tar")
    home.files["/data/x.tar"], home.files["/data/deep/y.tar"] = packed(b"one"), packed(b"two")
    assert reader(f"{home.url}/data/index.json", tmp_path) in ([b"one", b"two"], [b"one"], True)
    assert all(one.headers["authorization"] == f"Bearer {TOKEN}" for one in home.asked)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_a_trusted_index_leads_elsewhere_and_takes_no_credentials_along(
    reader: Reader, home: Site, other: Site, tmp_path: Path
) -> None:
    home.files["/data/index.json"] = index("x.tar", f"{other.url}/x.tar")
    home.files["/data/x.tar"] = packed(b"one")
    found = reader(f"{home.url}/data/index.json", tmp_path, trust_index=True)
    assert found in ([b"one", b"from elsewhere"], [b"one"], True)
    assert other.asked
    assert no_secret_went_to(other)
    assert not any({"authorization", "x-tenant"} & set(one.headers) for one in other.asked)
    assert all(one.headers["authorization"] == f"Bearer {TOKEN}" for one in home.asked)


def test_a_trusted_index_leads_to_a_bucket_as_anybody(
    home: Site, other: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", other.url)
    home.files["/index.json"] = index("s3://private/x.tar")
    assert streamed(f"{home.url}/index.json", tmp_path, trust_index=True) == [b"from elsewhere"]
    assert other.asked
    assert no_secret_went_to(other)
    assert not any("authorization" in one.headers for one in other.asked)


@pytest.mark.parametrize("kind", ["base on the disk", "file URL", "home folder", "chain", "memory"])
def test_a_trusted_index_in_a_store_leads_to_no_file_of_this_machine(
    kind: str, home: Site, folder: Path, tmp_path: Path
) -> None:
    home.files["/data/index.json"] = HOSTILE[kind](home.url, "", str(folder))
    with pytest.raises(BadOption, match="index leads"):
        streamed(f"{home.url}/data/index.json", tmp_path, trust_index=True)


def test_a_list_on_this_disk_leads_anywhere_and_gives_hosts_no_credentials(
    other: Site, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "list.json").write_bytes(index(f"{folder}/x.tar", f"{other.url}/x.tar"))
    assert streamed(str(tmp_path / "list.json"), tmp_path) == [CANARY, b"from elsewhere"]
    assert no_secret_went_to(other)


def test_a_list_on_this_disk_leads_to_the_users_own_buckets(
    other: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", other.url)
    (tmp_path / "list.json").write_bytes(index("s3://private/x.tar"))
    with nbdata.samples(str(tmp_path / "list.json"), quiet=True) as samples:
        assert [sample["txt"] for sample in samples.stream()] == [b"from elsewhere"]
    assert all("AKIAHOSTILE" in one.headers["authorization"] for one in other.asked)


def test_who_is_refused_where_only_an_index_leads_learns_why(home: Site, other: Site, tmp_path: Path) -> None:
    home.files["/index.json"], other.files["/x.tar"] = index(f"{other.url}/x.tar"), 403
    with pytest.raises(AccessDenied, match="gets no credentials: name the shards"):
        streamed(f"{home.url}/index.json", tmp_path, trust_index=True)


def test_a_redirect_takes_no_credentials_to_another_origin(home: Site, other: Site, tmp_path: Path) -> None:
    home.files["/index.json"] = index("x.tar")
    home.files["/x.tar"] = f"{other.url}/x.tar"
    assert streamed(f"{home.url}/index.json", tmp_path) == [b"from elsewhere"]
    assert other.asked
    assert no_secret_went_to(other)


@pytest.mark.parametrize(
    ("source", "led", "known"),
    [
        ("https://host/index.json", "https://host:443/x.tar", True),
        ("https://host/index.json", "http://host/x.tar", False),
        ("https://host/index.json", "https://host:8443/x.tar", False),
        ("https://host/index.json", "https://host.evil/x.tar", False),
        ("s3://mine/index.json", "s3://other/x.tar", True),
        ("s3://mine/index.json", "obs://other/x.tar", False),
        ("s3://mine/index.json", "abfss://c@mine.dfs.core.windows.net/x.tar", False),
        ("abfss://c@mine.dfs.core.windows.net/i.json", "az://d@mine.blob.core.windows.net/x.tar", True),
        ("abfss://c@mine.dfs.core.windows.net/i.json", "abfss://c@evil.example/x.tar", False),
        ("az://c/i.json", "abfss://c@evil.example/x.tar", False),
        ("/home/list.json", "az://c/x.tar", True),
        ("/home/list.json", "https://host/x.tar", False),
        ("sftp://user@host/i.json", "sftp://user@other/x.tar", False),
    ],
)
def test_credentials_belong_to_the_origin_that_was_named(source: str, led: str, known: bool) -> None:
    context = capture(SampleSource(source))
    assert context.knows(led) is known
    assert type(context).from_dict(json.loads(json.dumps(dict(context.to_dict())))).knows(led) is known


def test_an_account_that_only_an_index_names_gets_no_shared_signature() -> None:
    place = "abfss://c@mine.example/x.tar"  # of the account in the environment, at another host
    named = az_config("mine.example", capture(SampleSource(place)))
    assert named.sas == SAS
    store = open_place(place, capture(SampleSource("https://host/index.json"))).store
    config: Any = store._config  # type: ignore[attr-defined]
    assert (config.sas, config.key, config.tokens.header()) == ("", "", "")


def test_a_file_system_that_was_given_opens_no_other_origin() -> None:
    import fsspec

    context = capture(replace(SampleSource("http://host/index.json"), fs=fsspec.filesystem("http")))
    with pytest.raises(BadOption, match="gets none of the credentials"):
        open_place("http://other/x.tar", context)


@pytest.mark.parametrize(
    ("place", "through"),
    [
        ("reference://", {"fo": "{index}"}),
        (
            "reference://",
            {"fo": "{index}", "remote_protocol": "http", "remote_options": {"headers": OPTIONS}},
        ),
        ("simplecache://x.txt", {"target_protocol": "reference", "target_options": {"fo": "{index}"}}),
        ("zip://x.txt", {"fo": "reference://x.zip", "target_options": {"fo": "{index}"}}),
        ("zip://x.txt", {"fo": "simplecache::reference://x.zip", "reference": {"fo": "{index}"}}),
    ],
)
def test_an_index_of_references_is_not_opened(
    place: str, through: dict[str, Any], home: Site, other: Site, tmp_path: Path
) -> None:
    """fsspec opens whatever it names, also on this disk, and gives the options to every host."""
    (tmp_path / "secret").write_bytes(CANARY)
    refs = {"x.txt": [f"{other.url}/x.tar"], "secret": [f"file://{tmp_path}/secret"]}
    home.files["/refs.json"] = json.dumps({"version": 1, "refs": refs}).encode()
    options = json.loads(json.dumps(through).replace("{index}", f"{home.url}/refs.json"))
    with pytest.raises(BadOption, match="an index of references may lead to files of this machine"):
        nbdata.pull(place, tmp_path / "data", storage_options=options, verify="none", quiet=True)
    assert not home.asked
    assert not other.asked


@pytest.fixture
def linked(tmp_path: Path, folder: Path) -> Path:
    """A data set on the disk, whose folder `sub` is a link to files that it may not lead to."""
    found = tmp_path / "data"
    (found / "real").mkdir(parents=True)
    (found / "real/x.tar").write_bytes(packed(b"of the data set"))
    (found / "sub").symlink_to(folder)
    (found / "within").symlink_to("real")
    for name in ("sub", "within"):
        (found / f"{name}.json").write_bytes(index(f"{name}/x.tar"))
        (found / f"{name}.lst").write_text(f"{name}/x.tar\n")
    return found


@pytest.mark.parametrize("reader", [streamed, by_number, looked_through, packed_anew])
def test_an_index_on_the_disk_leads_through_no_link_out_of_its_folder(
    linked: Path, tmp_path: Path, reader: Reader
) -> None:
    with pytest.raises(BadOption, match="a link leads a shard of this index out of its folder"):
        reader(str(linked / "sub.json"), tmp_path)
    assert reader(str(linked / "within.json"), tmp_path)


def test_a_list_of_volumes_leads_through_no_link_out_of_its_folder(linked: Path, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="a link leads out of the folder of the list"):
        nbdata.untar_volumes(str(linked / "sub.lst"), tmp_path / "out", quiet=True)
    nbdata.untar_volumes(str(linked / "within.lst"), tmp_path / "out", quiet=True)
    assert (tmp_path / "out/a/1.txt").read_bytes() == b"of the data set"
