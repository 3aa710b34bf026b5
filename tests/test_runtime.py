"""The runtime folder, in which the processes of nbdata find each other."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from nbdata import runtime


@pytest.mark.parametrize(
    ("systemd", "lingers", "used"), [(False, False, True), (True, False, False), (True, True, True)]
)
def test_a_folder_that_is_removed_at_logout_is_not_used_as_runtime_folder(
    systemd: bool, lingers: bool, used: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "user" / str(os.getuid())
    own.mkdir(parents=True)
    if systemd:
        (tmp_path / "systemd/system").mkdir(parents=True)
    if lingers:
        (tmp_path / "linger").mkdir()
        (tmp_path / "linger" / pwd.getpwuid(os.getuid()).pw_name).touch()
    monkeypatch.setattr(runtime, "_RUN", str(tmp_path))
    monkeypatch.setattr(runtime, "_LINGERING", str(tmp_path / "linger"))
    monkeypatch.delenv("NBDATA_RUNTIME_DIR", raising=False)
    assert (runtime.runtime_folder() == f"{own}/nbdata") == used
