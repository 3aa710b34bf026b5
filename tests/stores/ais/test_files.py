"""What opens files, lists buckets and takes up uploads works over ``ais://``, too."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest

import nbdata
from nbdata.client.browsing import Browsing
from nbdata.errors import StoreUnavailable
from nbdata.files import FileSystem, use_for
from nbdata.stores.ais.answers import bucket_names
from tests.servers.aistore.cluster import Cluster
from tests.stores.ais.conftest import opened
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.usefixtures("inline")

MIB = 1 << 20
#: Makes a bucket of a provider; returns its URL, without a slash at its end.
NewBucket = Callable[..., str]


@pytest.fixture
def new(environment: Cluster) -> Iterator[NewBucket]:
    """Makes buckets of the cluster to which the environment leads."""

    def make(provider: str = "ais") -> str:
        name = f"files-{secrets.token_hex(4)}"
        environment.create_bucket(name, provider)
        return f"ais://{name}" if provider == "ais" else f"ais://@{provider}/{name}"

    FileSystem.clear_instance_cache()
    yield make
    FileSystem.clear_instance_cache()


@pytest.mark.parametrize("provider", ["ais", "aws"])
def test_files_are_opened_listed_and_moved(new: NewBucket, provider: str) -> None:
    url = new(provider)
    bucket = url.removeprefix("ais://")
    with nbdata.open(f"{url}/a/text", "w") as file:
        file.write("written")
    with nbdata.open(f"{url}/a/text") as file:
        assert file.read() == "written"
    files = nbdata.filesystem(url)
    data = os.urandom(3 * MIB)
    files.pipe(f"{bucket}/a/b/data", data)
    assert files.cat_file(f"{bucket}/a/b/data", 1000, 2_000_000) == data[1000:2_000_000]
    assert files.find(bucket) == [f"{bucket}/a/b/data", f"{bucket}/a/text"]
    assert files.ls(f"{bucket}/a", detail=False) == [f"{bucket}/a/b", f"{bucket}/a/text"]
    assert files.info(f"{bucket}/a/b")["type"] == "directory"
    files.mv(f"{bucket}/a/b/data", f"{bucket}/moved")
    assert files.cat_file(f"{bucket}/moved") == data
    assert not files.exists(f"{bucket}/a/b/data")
    above = bucket.rpartition("/")[0]
    assert files.isdir(above)
    assert bucket in files.ls(above, detail=False)
    with fsspec.open(f"nb{url}/a/text", "rb") as file:
        assert file.read() == b"written"
    with use_for("ais"), fsspec.open(f"{url}/a/text", "rb") as file:
        assert file.read() == b"written"


@pytest.mark.parametrize("provider", ["ais", "aws"])
def test_pythons_own_functions_take_its_urls(new: NewBucket, provider: str, tmp_path: Path) -> None:
    url = new(provider)
    (tmp_path / "tree/below").mkdir(parents=True)
    (tmp_path / "tree/below/one").write_bytes(b"1")
    (tmp_path / "tree/two").write_bytes(b"22")
    with nbdata.shift():
        shutil.copytree(tmp_path / "tree", f"{url}/tree")
        assert sorted(os.listdir(f"{url}/tree")) == ["below", "two"]
        assert os.path.getsize(f"{url}/tree/two") == 2
        # ".." does not lead out of the bucket.
        with open(f"{url}/../../tree/below/../two", "rb") as file:
            assert file.read() == b"22"
        assert os.path.ismount(url)
        assert os.path.dirname(f"{url}/tree") == url
        os.rename(f"{url}/tree/two", f"{url}/tree/three")
        assert {name for _, _, names in os.walk(url) for name in names} == {"one", "three"}
        shutil.rmtree(f"{url}/tree")
        assert not os.path.exists(f"{url}/tree/three")


@pytest.mark.needs("mount")
@pytest.mark.long
def test_a_bucket_is_mounted(new: NewBucket, tmp_path: Path) -> None:
    url, data = new("aws"), os.urandom(2 * MIB)
    with nbdata.open(f"{url}/folder/data", "wb") as file:
        file.write(data)
    with nbdata.mount(f"{url}/folder", str(tmp_path / "mount")) as mount:
        done = subprocess.run(["cat", f"{mount.folder}/data"], capture_output=True, check=True)
    assert done.stdout == data


# -- buckets --------------------------------------------------------------------------------------


def test_buckets_are_listed_of_the_cluster_and_of_what_is_behind_it(new: NewBucket) -> None:
    own, behind = new(), new("aws")
    for account, there, not_there in (
        ("ais://", own, behind),
        ("ais://@aws", behind, own),
        ("ais://@s3/", behind, own),
    ):
        name, other = (f"{one.rpartition('/')[2]}/" for one in (there, not_there))
        report = nbdata.ls(account, quiet=True)
        names = [row.path for row in report.rows]
        assert name in names
        assert other not in names
        page = Browsing(account).page(name[:-4])
        assert [(page.url(entry.key), entry.size) for entry in page.entries] == [
            (f"{account.rstrip('/') if '@' in account else 'ais:/'}/{name}", -1)
        ]


def test_a_bucket_behind_the_cluster_is_moved_like_any_other(
    new: NewBucket, tree: Path, tmp_path: Path
) -> None:
    url = new("gcp")
    sent = nbdata.push(tree, f"{url}/d/", quiet=True)
    assert (sent.counts, sent.verified) == ({"sent": 5}, 5)
    assert nbdata.push(tree, f"{url}/d/", quiet=True).counts == {"unchanged": 5}
    by_option = f"ais://{url.rpartition('/')[2]}/d/"
    pulled = nbdata.pull(by_option, tmp_path / "out", quiet=True, storage_options={"provider": "gs"})
    assert pulled.counts == {"fetched": 5}
    assert nbdata.delete(f"{url}/d/", yes=True, quiet=True).counts == {"deleted": 5}


@pytest.mark.parametrize("data", [b"", b"<html>", b"{}", b'"x"'])
def test_what_is_no_list_of_buckets_is_no_empty_one(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened("ais://b/", endpoint_url="http://gateway")
    monkeypatch.setattr(store, "_send", lambda *_, **__: type("", (), {"read": lambda _: data})())
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        store._buckets()


def test_odd_buckets_are_left_out() -> None:
    told = [
        {"name": "own", "provider": "ais", "namespace": {"uuid": "", "name": ""}},
        {"name": "in-a-space", "provider": "ais", "namespace": {"uuid": "", "name": "space"}},
        *({"name": name, "provider": "ais"} for name in ("a/b", "..\n", "", 5, "é")),
        {"name": "behind", "provider": "aws"},
        7,
    ]
    assert bucket_names(told, "ais") == ["own"]
    assert bucket_names(None, "ais") == []


# -- uploads that a kill ended --------------------------------------------------------------------

PUSH = """
import os, signal, sys, nbdata
from nbdata.stores.ais.store import _AisUpload
part, sent = _AisUpload.part, []
def killed(self, number, *rest):
    if sent:
        os.kill(os.getpid(), signal.SIGKILL)
    sent.append(number)
    return part(self, number, *rest)
_AisUpload.part = killed
nbdata.push(sys.argv[1], sys.argv[2], part_size="6MiB", concurrency=1, quiet=True)
"""


@pytest.mark.parametrize("cleaned", [False, pytest.param(True, marks=pytest.mark.long)])
def test_an_upload_that_a_kill_ended_is_given_up_by_the_next_push_or_by_a_cleanup(
    new: NewBucket, environment: Cluster, tmp_path: Path, cleaned: bool
) -> None:
    """AIStore tells nobody which parts it has, so the file is sent again."""
    url = new()
    (tmp_path / "big").write_bytes(os.urandom(18 * MIB))
    command = [sys.executable, "-c", PUSH, str(tmp_path / "big"), f"{url}/big"]
    assert subprocess.run(command, timeout=PATIENCE, check=False).returncode == -9
    assert len(unfinished(environment, url)) == 1
    if cleaned:
        report = nbdata.cleanup(f"{url}/big", quiet=True)
        assert report.counts == {"aborted": 1}
        assert unfinished(environment, url) == []
    report = nbdata.push(tmp_path / "big", f"{url}/big", part_size="6MiB", quiet=True)
    assert (report.counts, report.verified, report.present) == ({"sent": 1}, 1, 0)
    wait_until(lambda: unfinished(environment, url) == [])
    nbdata.pull(f"{url}/big", tmp_path / "back", quiet=True)
    assert (tmp_path / "back").read_bytes() == (tmp_path / "big").read_bytes()


def unfinished(running: Cluster, url: str) -> list[object]:
    """Return the unfinished uploads in a bucket."""
    asked = {"provider": "ais", "bucket": url.removeprefix("ais://")}
    return [one for node in running.nodes for one in node.control("uploads", asked)]
