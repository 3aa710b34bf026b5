"""Runs commands as other users. They may read everything, since Python itself may lie in a home folder of root."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.waiting import PATIENCE

__all__ = ["ANNA", "BERT", "User", "anna", "bert", "can_run_as", "reachable"]

#: The ids of two users.
ANNA, BERT = 54_321, 54_322

_NBDATA = str(Path(sys.executable).with_name("nbdata"))


def _prefix(uid: int) -> list[str]:
    read = "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *read]


def can_run_as(uid: int) -> bool:
    """True if this process may run commands as another user."""
    try:
        return subprocess.run([*_prefix(uid), "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@dataclass(frozen=True)
class User:
    """A user with folders of their own, below `root`."""

    uid: int
    root: Path

    def make(self) -> User:
        """Make the user's folders."""
        for name in ("home", "run", "state"):
            (self.root / name).mkdir(parents=True, mode=0o700)
            os.chown(self.root / name, self.uid, self.uid)
        os.chown(self.root, self.uid, self.uid)
        return self

    def environment(self) -> dict[str, str]:
        """Return the environment of the user's commands."""
        return {
            **os.environ,
            "HOME": str(self.root / "home"),
            "NBDATA_HOST": "inline",
            "NBDATA_RUNTIME_DIR": str(self.root / "run"),
            "NBDATA_STATE_DIR": str(self.root / "state"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def nbdata(self, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run ``nbdata …``, and return its output; standard error comes with it."""
        return self.run([_NBDATA, *map(str, words)], **environment)

    def python(self, text: str, *words: object) -> str:
        """Run a Python program, which must succeed, and return its output."""
        done = self.run([sys.executable, "-c", text, *map(str, words)])
        assert done.returncode == 0, done.stdout
        return done.stdout

    def start(self, text: str, *words: object) -> subprocess.Popen[str]:
        """Start a Python program that reads its standard input."""
        return subprocess.Popen(
            [*_prefix(self.uid), sys.executable, "-c", text, *map(str, words)],
            cwd=self.root, env=self.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command, and return its output; standard error comes with it."""
        return subprocess.run(
            [*_prefix(self.uid), *command],
            cwd=self.root, env={**self.environment(), **environment}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE,
        )  # fmt: skip


@pytest.fixture(autouse=True)
def reachable(tmp_path: Path) -> None:
    """Let other users reach the folder of the test: access(2) asks for the rights of users without capabilities."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.name.startswith(("pytest-", "popen-", "test_", "nbt-", "tmp")) and folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode & 0o777 | 0o011)


@pytest.fixture
def anna(tmp_path: Path) -> User:
    """One of two users."""
    return User(ANNA, tmp_path / "anna").make()


@pytest.fixture
def bert(tmp_path: Path) -> User:
    """The other one."""
    return User(BERT, tmp_path / "bert").make()
