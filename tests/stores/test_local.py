"""What only the local disk as a store has to promise."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from nbdata.errors import NotFound
from nbdata.stores.local import LocalStore


def test_a_named_pipe_is_no_object_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    key = str(tmp_path).lstrip("/")
    with pytest.raises(NotFound):
        LocalStore().read(f"{key}/pipe")
    with pytest.raises(NotFound):
        LocalStore().head(f"{key}/pipe")
    assert list(LocalStore().list(key + "/")) == []


def test_a_name_may_be_as_long_as_the_disk_allows(tmp_path: Path) -> None:
    key = f"{tmp_path}/{'x' * 255}".lstrip("/")
    LocalStore().write(key, io.BytesIO(b"1"), 1)
    assert LocalStore().read_bytes(key) == b"1"


def test_what_lies_in_our_own_folder_is_not_listed(tmp_path: Path) -> None:
    for name in (".nbdata", "deep/.NBData"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "x").write_bytes(b"x")
    (tmp_path / "deep/.0123.nbdata-partial").write_bytes(b"x")
    assert list(LocalStore().list(str(tmp_path).lstrip("/") + "/")) == []
