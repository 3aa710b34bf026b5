"""One command of the machine-loss check: how it is recorded, and the correct state after it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE

__all__ = ["Case", "crc_line", "crc_lines"]

_PROGRAM = Path(__file__).with_name("recording.py")


@dataclass
class Case:
    """A command and its correct result.

    Attributes
    ----------
    root : Path
        Watched folder with the target, ``state`` and perhaps a source.
    verb, options :
        The command.
    target : str
        Path of the target below `root`; '' if the command writes only state.
    right : dict of str to list of bytes
        Permitted contents for each path of the target: first the final content, then earlier ones.
    tags : dict of (path, tag) to bytes
        Content that the store identifies by this tag.
    gone : dict of str to bytes
        Files that exist in the target before the command and not after it.
    links : dict of str to str
        Symbolic links of the target.
    whole : bool
        Whether all of `right` exists at the end.
    reset : callable
        Restores the other side. It takes the keys of objects that were created or about to be, and the keys of objects
        that were deleted or about to be.
    deletes : set of str
        Keys that the command deletes at its source at the end, when the target must be complete.
    ended : callable
        Further checks after the repeated command.
    """

    root: Path
    verb: str
    options: dict[str, Any]
    target: str
    right: Mapping[str, list[bytes]]
    tags: Mapping[tuple[str, str], bytes] = field(default_factory=dict)
    gone: Mapping[str, bytes] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    whole: bool = True
    reset: Callable[[set[str], set[str]], None] = lambda made, deleted: None
    deletes: frozenset[str] = frozenset()
    ended: Callable[[], list[str]] = list

    def record(self, log: Path, environment: Mapping[str, str]) -> None:
        """Run the command in a separate process and record how it changes the disk."""
        done = subprocess.run(
            [sys.executable, str(_PROGRAM), str(log), str(self.root), json.dumps(self.asked)],
            env={**os.environ, **environment, "NBDATA_HOST": "inline", **self.environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

    @property
    def asked(self) -> dict[str, Any]:
        """Return the command as JSON-serializable data."""
        return {"verb": self.verb, "options": self.options}

    @property
    def environment(self) -> dict[str, str]:
        """Return the command's environment variables, without those for the store."""
        return {"NBDATA_STATE_DIR": str(self.root / "state")}


def crc_lines(data: bytes) -> tuple[list[list[Any]], bytes]:
    """Split a state file into its valid leading lines and the rest."""
    found, at = [], 0
    for line in data.splitlines(keepends=True):
        crc, _, body = line.partition(b" ")
        if not body.endswith(b"\n") or crc != b"%08x" % zlib.crc32(body[:-1]):
            break
        found.append(json.loads(body))
        at += len(line)
    return found, data[at:]


def crc_line(values: list[Any]) -> bytes:
    body = json.dumps(values, separators=(",", ":")).encode()
    return b"%08x %b\n" % (zlib.crc32(body), body)
