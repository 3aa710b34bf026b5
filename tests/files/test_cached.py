"""Files that are read through a cache on the disk."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import nbdata
from tests.faults.proxy import Exchange, FaultProxy

Put = Callable[[dict[str, bytes]], str]

DATA = random.Random(4).randbytes(3 << 20)


@pytest.fixture
def asked(proxy: FaultProxy) -> list[Exchange]:
    """The requests for bytes of objects."""
    asked = list[Exchange]()
    proxy.begin(lambda request, before: asked.append(request) if request.download else None)
    return asked


def test_a_file_comes_once_and_is_read_in_any_order(asked: list[Exchange], put: Put, tmp_path: Path) -> None:
    url = put({"a": DATA, "b": DATA[:10]})
    files = nbdata.filesystem(url, cache="50MB", cache_dir=str(tmp_path))
    for _ in range(2):
        with files.open(url + "a") as file:
            assert file.read(100) == DATA[:100]
            file.seek(-5, 2)
            assert file.read() == DATA[-5:]
            file.seek(0)
            assert file.read() == DATA
        with files.open(url + "b") as file:
            assert file.read() == DATA[:10]
    assert sorted(request.key for request in asked) == sorted({request.key for request in asked})
    assert len(asked) == 2


def test_a_new_version_is_another_file(asked: list[Exchange], put: Put, tmp_path: Path) -> None:
    url = put({"a": DATA})
    files = nbdata.filesystem(url, cache="50MB", cache_dir=str(tmp_path))
    with files.open(url + "a") as file:
        assert file.read() == DATA
    put({"a": DATA[::-1]})
    with files.open(url + "a") as file:
        assert file.read() == DATA[::-1]


def test_a_child_of_a_fork_reads_through_the_same_cache(
    asked: list[Exchange], put: Put, tmp_path: Path
) -> None:
    url = put({"a": DATA})
    files = nbdata.filesystem(url, cache="50MB", cache_dir=str(tmp_path))
    with files.open(url + "a") as file:
        assert file.read(10) == DATA[:10]
        child = os.fork()
        if not child:
            with files.open(url + "a") as own:
                os._exit(0 if file.read() + own.read() == DATA[10:] + DATA else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert file.read() == DATA[10:]
    assert len(asked) == 1


def test_a_file_that_is_large_for_the_cache_is_read_without_it(put: Put, tmp_path: Path) -> None:
    url = put({"a": DATA})
    files = nbdata.filesystem(url, cache="4MB", cache_dir=str(tmp_path))
    with files.open(url + "a") as file:
        assert file.read() == DATA
    assert not (tmp_path / ".nbdata").exists()


@pytest.mark.parametrize("size", [0, "0", "many"])
def test_a_cache_of_no_size_is_refused(size: object, tmp_path: Path) -> None:
    with pytest.raises(nbdata.BadOption):
        nbdata.filesystem("s3://bucket", cache=size, cache_dir=str(tmp_path))  # type: ignore[arg-type]
