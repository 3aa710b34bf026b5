"""What replaces a file or a folder that its owner has closed lets nobody do more with it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.transfer import target_folder

pytestmark = pytest.mark.usefixtures("inline")


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_a_target_that_is_exchanged_for_a_moment_does_not_open_what_is_replaced_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exchange the target for an empty folder while the replaced file is looked at, and back again."""
    source, target = tmp_path / "source", tmp_path / "target"
    for folder, text in ((source, "new"), (target, "old"), (tmp_path / "empty", "")):
        folder.mkdir()
        if text:
            (folder / "a").write_text(text)
    (target / "a").chmod(0o600)
    real = target_folder.acls.replaced_file

    def looked(*args: Any, **more: Any) -> object:
        target.rename(tmp_path / "aside")
        (tmp_path / "empty").rename(target)
        try:
            return real(*args, **more)
        finally:
            target.rename(tmp_path / "empty")
            (tmp_path / "aside").rename(target)

    monkeypatch.setattr(target_folder.acls, "replaced_file", looked)
    nbdata.pull(f"{source}/", target, overwrite="always", quiet=True)
    assert (target / "a").read_text() == "new"
    assert (target / "a").stat().st_mode & 0o777 == 0o600
