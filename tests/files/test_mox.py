"""Scripts that were written for moxing run with another import line."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nbdata.errors import BadOption
from nbdata.files import FileSystem, mox
from nbdata.files.shifted import active


@pytest.fixture
def url(bucket: str) -> Iterator[str]:
    """An empty folder in a bucket of SeaweedFS."""
    yield f"s3://{bucket}/{secrets.token_hex(4)}"
    mox.file.shift("mox", "os")
    assert not active
    FileSystem.clear_instance_cache()


def test_its_functions_do_what_moxings_do(url: str, tmp_path: Path) -> None:
    mox.file.make_dirs(f"{url}/a/b")
    mox.file.write(f"{url}/a/one.txt", "eins")
    mox.file.write(f"{url}/a/b/two.bin", b"zwei", binary=True)
    mox.file.append(f"{url}/a/one.txt", "!")
    mox.file.append_remote(f"{url}/a/b/two.bin", f"{url}/a/one.txt")
    assert mox.file.read(f"{url}/a/one.txt") == "eins!zwei"
    assert mox.file.read(f"{url}/a/b/two.bin", binary=True) == b"zwei"
    assert mox.file.exists(f"{url}/a")
    assert not mox.file.exists(f"{url}/none")
    assert mox.file.is_directory(f"{url}/a")
    assert mox.file.get_size(f"{url}/a/one.txt") == 9
    assert mox.file.get_size(f"{url}/a") == 0
    assert mox.file.get_size(f"{url}/a", recursive=True) == 13
    assert mox.file.list_directory(f"{url}/a") == ["b", "one.txt"]
    assert mox.file.list_directory(f"{url}/a", recursive=True) == ["b", "b/two.bin", "one.txt"]
    assert mox.file.list_directory(f"{url}/a", recursive=True, skip_dir=True) == ["b/two.bin", "one.txt"]
    assert mox.file.list_directory(f"{url}/a", remove_sep=False, skip_file=True) == ["b/"]
    assert mox.file.glob(f"{url}/a/*.txt") == [f"{url}/a/one.txt"]
    found = mox.file.stat(f"{url}/a/one.txt")
    assert (found.length, found.is_directory) == (9, False)
    assert found.mtime_nsec > 1.7e18
    assert [entry.name for entry in mox.file.scan_dir(f"{url}/a")] == ["b", "one.txt"]
    assert [top for top, _, _ in mox.file.walk(url)] == [url, f"{url}/a", f"{url}/a/b"]
    mox.file.copy_parallel(f"{url}/a", str(tmp_path / "out"))
    assert (tmp_path / "out/b/two.bin").read_bytes() == b"zwei"
    mox.file.copy_parallel(str(tmp_path / "out"), f"{url}/some", file_list=["b/two.bin"])
    assert mox.file.list_directory(f"{url}/some", recursive=True, skip_dir=True) == ["b/two.bin"]
    mox.file.copy(f"{url}/a/one.txt", str(tmp_path / "one"))
    mox.file.copy_parallel(f"{url}/a/one.txt", str(tmp_path / "two"))
    assert (tmp_path / "one").read_text() == (tmp_path / "two").read_text() == "eins!zwei"
    mox.file.rename(f"{url}/a/one.txt", f"{url}/a/uno.txt")
    with mox.file.File(f"{url}/a/uno.txt") as file:
        assert file.readline() == "eins!zwei"
    with pytest.raises(IsADirectoryError):
        mox.file.remove(f"{url}/a")
    mox.file.remove(f"{url}/a", recursive=True)
    assert mox.file.list_directory(url, recursive=True, skip_dir=True) == ["some/b/two.bin"]
    with pytest.raises(FileNotFoundError):
        mox.file.list_directory(f"{url}/none")


def test_shift_goes_on_and_off(url: str) -> None:
    mox.file.shift("os", "mox")
    mox.file.shift("os", "mox")
    os.makedirs(url)
    with open(f"{url}/f", "w") as file:
        file.write("x")
    assert os.listdir(url) == ["f"]
    mox.file.shift("mox", "os")
    assert not os.path.exists(url)
    assert mox.file.exists(url)
    with pytest.raises(BadOption, match="os"):
        mox.file.shift("os", "torch")


def test_set_auth_is_used_from_then_on(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key, secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
    server = os.environ["AWS_ENDPOINT_URL"]
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    monkeypatch.setattr(mox.file, "_options", {})
    mox.file.set_auth(
        ak=key, sk=secret, server=server.partition("://")[2], is_secure=server.startswith("https")
    )
    mox.file.write(f"{url}/f", "x")
    assert mox.file.read(f"{url}/f") == "x"


def test_a_call_changes_nothing_in_other_threads(url: str) -> None:
    mox.file.write(f"{url}/f", "x")
    walking = mox.file.walk(url)
    assert next(walking) == (url, [], ["f"])
    with ThreadPoolExecutor(1) as pool:
        assert not pool.submit(os.path.exists, f"{url}/f").result()
    walking.close()
