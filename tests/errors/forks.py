"""Runs the command ``nbdata`` in forks of a process that has imported it: hundreds of lines need no import each."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from types import TracebackType

__all__ = ["Commands"]

_SERVE = """
import json, os, sys
from nbdata.cli import main

for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if not child:
        os.chdir(asked["folder"])
        os.environ.clear()
        os.environ.update(asked["env"])
        for number, name in enumerate((os.devnull, asked["out"], asked["err"])):
            os.dup2(os.open(name, os.O_RDWR), number)
        sys.argv = ["nbdata", *asked["words"]]
        sys.exit(main())
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Commands:
    """The process, as a context manager."""

    def __enter__(self) -> Commands:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._process:
            pass

    def run(self, words: list[str], folder: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Run ``nbdata`` with these words in a folder, and wait for its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
            asked = {"words": words, "folder": folder, "env": env, "out": out.name, "err": err.name}
            print(json.dumps(asked), file=self._process.stdin, flush=True)
            status = int(self._process.stdout.readline())
            return subprocess.CompletedProcess(words, status, out.read(), err.read())
