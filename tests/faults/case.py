"""A line whose machine is to be lost, what is right after it, and how it is recorded."""

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
    """A line, and what is right.

    Attributes
    ----------
    root : Path
        Holds the target, ``state`` and perhaps a source; all of it is watched.
    verb, options :
        The line.
    target : str
        Below `root`; '' if nothing is written but the state.
    right : dict of str to list of bytes
        What may stand under each path of the target: what is right in the end, then what was before.
    tags : dict of (path, tag) to bytes
        What the store calls so.
    gone : dict of str to bytes
        What stood in the target, and does not in the end.
    links : dict of str to str
        Symbolic links of the target.
    whole : bool
        Whether all of `right` is there in the end.
    reset : callable
        Brings the other side to what it was, given the keys of objects that were being made there or were made, and
        those of what was being deleted or was.
    deletes : set of str
        Keys of what the line deletes at its source in the end: nothing is missing in the target by then.
    ended : callable
        More that must hold when the line was said again.
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
        """Say the line in a process of its own, and write down what it does."""
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
        """The line as JSON-able data."""
        return {"verb": self.verb, "options": self.options}

    @property
    def environment(self) -> dict[str, str]:
        """What the line needs to be told beside the store."""
        return {"NBDATA_STATE_DIR": str(self.root / "state")}


def crc_lines(data: bytes) -> tuple[list[list[Any]], bytes]:
    """The sound lines that a file of the state begins with, and the rest of it."""
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
