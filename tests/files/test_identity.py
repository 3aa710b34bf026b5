"""What a file system is to fsspec: its names, its options in other processes, and its place among the protocols."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import fsspec
import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.files import FileSystem, use_for
from tests.files.conftest import Home

SECRETS = {"key": "AKIDEXAMPLE", "secret": "wJalrXUtnFEMI+K7MDENG", "endpoint_url": "http://127.0.0.1:1"}


def test_a_secret_is_not_handed_to_other_processes() -> None:
    files = nbdata.filesystem("s3://bucket", **SECRETS)
    with pytest.raises(nbdata.BadOption, match="secret among its options") as caught:
        pickle.dumps(files)
    assert SECRETS["secret"] not in str(caught.value)
    for text in (files.to_json(), json.dumps(files.to_dict()), repr(files), str(files.open)):
        assert SECRETS["secret"] not in text
    chained = fsspec.filesystem("nbdata", target_protocol="s3", target_options=dict(SECRETS))
    with pytest.raises(nbdata.BadOption, match="secret"):
        pickle.dumps(chained)
    assert SECRETS["secret"] not in chained.to_json()
    by_place = FileSystem("s3", dict(SECRETS))
    with pytest.raises(nbdata.BadOption, match="secret"):
        pickle.dumps(by_place)
    assert SECRETS["secret"] not in by_place.to_json()
    assert chained.storage_options["target_options"]["secret"] == SECRETS["secret"]


def test_other_options_reach_other_processes(s3_home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    files = nbdata.filesystem(
        "s3://", verify="none", secret="env:AWS_SECRET_ACCESS_KEY", key="env:AWS_ACCESS_KEY_ID"
    )
    files.pipe_file(f"{s3_home.path}/a", b"1")
    text = files.to_json()
    pickled = pickle.dumps(files)
    FileSystem.clear_instance_cache()
    for other in (pickle.loads(pickled), fsspec.AbstractFileSystem.from_json(text)):
        assert other is not files
        assert other.cat_file(f"{s3_home.path}/a") == b"1"


def test_the_same_arguments_give_the_same_file_system() -> None:
    assert nbdata.filesystem("s3://a") is nbdata.filesystem("s3://b/c", verify="auto")
    assert nbdata.filesystem("s3://a") is not nbdata.filesystem("s3://a", anon=True)
    assert nbdata.filesystem("s3://a") == fsspec.filesystem("nbdata", target_protocol="s3")


def test_names_are_those_of_the_store() -> None:
    strip = FileSystem._strip_protocol
    assert strip(["s3://b/x/", "nbdata://b/x", "b/x", "nbdata://s3://b/x"]) == ["b/x"] * 4
    assert strip("https://h.example/a b/") == "https://h.example/a b"
    assert strip("/disk/x/") == "/disk/x"
    assert nbdata.filesystem("s3://").unstrip_protocol("b/x") == "nbdata://b/x"


def test_nbdata_stands_for_a_protocol_until_that_is_undone(s3_home: Home, s3: EmbeddedServer) -> None:
    s3_home.files.pipe_file(f"{s3_home.path}/a", b"1")
    before = fsspec.get_filesystem_class("s3")
    with use_for("s3", "gs") as used:
        with fsspec.open(f"s3://{s3_home.path}/a") as file:
            assert file.read() == b"1"
        assert isinstance(fsspec.filesystem("s3"), FileSystem)
        options = s3.storage_options()
        assert fsspec.filesystem("s3", **options).cat_file(f"s3://{s3_home.path}/a") == b"1"
        with use_for("s3"):
            pass
        assert isinstance(fsspec.filesystem("s3"), FileSystem)
        assert "s3, gs" in repr(used)
    assert fsspec.get_filesystem_class("s3") is before
    used.off()
    assert fsspec.get_filesystem_class("s3") is before


@pytest.mark.parametrize("protocol", ["sftp", "file", "memory", "nbdata", "s4"])
def test_a_protocol_that_nbdata_asks_fsspec_for_is_refused(protocol: str) -> None:
    with pytest.raises(nbdata.BadOption, match="no store of its own"):
        use_for("s3", protocol)
    assert not issubclass(fsspec.get_filesystem_class("s3"), FileSystem)


def test_a_file_system_without_a_store_says_what_to_write() -> None:
    with pytest.raises(nbdata.BadOption, match="needs a store"):
        fsspec.filesystem("nbdata")


def test_listings_are_remembered_only_when_asked_for(s3_home: Home) -> None:
    path = s3_home.path
    kept = nbdata.filesystem("s3://", use_listings_cache=True)
    for files in (s3_home.files, kept):
        files.pipe_file(f"{path}/a", b"1")
        assert files.ls(path, detail=False) == [f"{path}/a"]
    s3_home.files.pipe_file(f"{path}/b", b"1")
    assert s3_home.files.ls(path, detail=False) == [f"{path}/a", f"{path}/b"]
    assert kept.ls(path, detail=False) == [f"{path}/a"]
    assert kept.ls(path, detail=False, refresh=True) == [f"{path}/a", f"{path}/b"]
    kept.pipe_file(f"{path}/c", b"1")
    assert f"{path}/c" in kept.ls(path, detail=False)
    s3_home.files.rm_file(f"{path}/b")
    kept.invalidate_cache()
    assert kept.ls(path, detail=False) == [f"{path}/a", f"{path}/c"]


@pytest.mark.in_ci(2)
def test_a_listing_says_what_the_store_says(home: Home) -> None:
    home.files.pipe({f"{home.path}/a": b"12", f"{home.path}/d/b": b"", f"{home.path}/d/e/c": b"3"})
    listed = {entry["name"].rpartition("/")[2]: entry for entry in home.files.ls(home.path)}
    assert {name: (entry["type"], entry["size"]) for name, entry in listed.items()} == {
        "a": ("file", 2),
        "d": ("directory", 0),
    }
    if home.kind != "memory":
        assert home.files.modified(f"{home.path}/a").tzinfo is not None
    assert home.files.info(f"{home.path}/d")["type"] == "directory"
    assert home.files.du(home.path) == 3
    assert [name.rpartition("/")[2] for name in home.files.glob(f"{home.path}/**/*c")] == ["c"]
    walked = [(sorted(folders), sorted(names)) for _, folders, names in home.files.walk(home.path)]
    assert walked == [(["d"], ["a"]), (["e"], ["b"]), ([], ["c"])]
    with pytest.raises(FileNotFoundError):
        home.files.info(f"{home.path}/no")
    with pytest.raises(FileNotFoundError):
        home.files.ls(f"{home.path}/no")
    assert home.files.find(f"{home.path}/no") == []
    checksum = home.files.checksum(f"{home.path}/a")
    home.files.pipe_file(f"{home.path}/a", b"123")
    assert home.files.checksum(f"{home.path}/a") != checksum


@pytest.mark.parametrize("url", ["nbs3://bucket/x", "nbhttps://h.example/x"])
def test_a_name_for_fsspec_is_no_url_of_a_verb(url: str, tmp_path: Path) -> None:
    with pytest.raises(nbdata.BadOption, match=f"Write {url.partition(':')[0][2:]}://"):
        nbdata.pull(url, tmp_path, dry_run=True)
