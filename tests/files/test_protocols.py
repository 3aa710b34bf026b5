"""The URLs by which fsspec gets to nbdata: ``nbs3://bucket/file`` and its like."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable

import fsspec
import pytest
from fsspec.config import conf
from fsspec.core import url_to_fs
from fsspec.registry import available_protocols

import nbdata
from nbdata.errors import BadOption
from nbdata.files import FileSystem, use_for
from nbdata.files.names import STORES
from tests.waiting import PATIENCE

Put = Callable[[dict[str, bytes]], str]

ALONE = """
import sys
for name in ("s3fs", "gcsfs", "adlfs", "aiohttp"):
    sys.modules[name] = None  # as if it were not installed
import fsspec
with fsspec.open(sys.argv[1]) as file:
    print(file.read().decode())
"""


def test_such_a_url_needs_no_other_library_for_the_store(put: Put) -> None:
    url = f"nb{put({'folder/file': b'found'})}folder/file"
    done = subprocess.run(
        [sys.executable, "-c", ALONE, url], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.stdout == "found\n", done.stderr


def test_an_fsspec_that_does_not_mark_file_systems_for_chains_serves_too(put: Put) -> None:
    code = (
        "import sys; sys.modules['fsspec.implementations.chained'] = None\n"
        "import nbdata; print(nbdata.open(sys.argv[1]).read())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, f"{put({'file': b'found'})}file"],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.stdout == "found\n", done.stderr


@pytest.mark.parametrize("store", STORES)
def test_each_store_has_such_a_protocol(store: str) -> None:
    assert f"nb{store}" in available_protocols()
    files, path = url_to_fs(f"nb{store}://place/folder/file")
    assert isinstance(files, FileSystem)
    assert files.target == store
    assert path == (f"{store}://" if store.startswith("http") else "") + "place/folder/file"
    assert files.unstrip_protocol(path) == f"nb{store}://place/folder/file"
    assert pickle.loads(pickle.dumps(files)) is files
    assert fsspec.AbstractFileSystem.from_json(files.to_json()) is files


def test_a_path_may_be_the_whole_url_that_led_to_the_file_system(put: Put) -> None:
    url = f"{put({'folder/file': b'found'})}folder/file"
    files = nbdata.filesystem(url)
    for name in (url, f"nb{url}", f"nbdata::{url}", url.replace("s3://", "nbdata://")):
        assert files.cat_file(name) == b"found"
        assert files.find(name) == [url.removeprefix("s3://")]


def test_the_name_for_libraries_means_the_store_in_nbdata_itself(put: Put) -> None:
    url = f"nb{put({'file': b'found'})}file"
    with nbdata.open(url, "rb") as file:
        assert file.read() == b"found"
    assert nbdata.filesystem(url) is nbdata.filesystem("s3://")


def test_secrets_of_the_configuration_stay_here_and_are_found_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(conf, "s3", {"key": "k", "secret": "hidden"})
    with use_for("s3"):
        files = fsspec.filesystem("s3", anon=False)
        assert files.storage_options == {"key": "k", "secret": "hidden", "anon": False}
        assert b"hidden" not in pickle.dumps(files)
        assert pickle.loads(pickle.dumps(files)) is files
        with pytest.raises(BadOption, match="secret"):
            pickle.dumps(fsspec.filesystem("s3", secret="another"))


def test_a_file_system_that_stands_for_a_protocol_is_pickled() -> None:
    with use_for("s3"):
        files = fsspec.filesystem("s3")
        assert isinstance(files, FileSystem)
        assert pickle.loads(pickle.dumps(files)) is files
        assert files.unstrip_protocol("bucket/file") == "s3://bucket/file"
