"""Whose temporaries are in a staging folder: each job marks its own, and the next removes those of a killed one.

A mark is the file ``TOKEN0``, with TOKEN of twelve hexadecimal digits; all temporaries of that job begin with TOKEN.
It holds the process, as `space.ledger.is_alive` knows it, and where that can be known: one machine and runtime folder.
What others left, on a shared disk, only ``cleanup`` removes.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re

from nbdata.runtime import runtime_folder
from nbdata.space.ledger import is_alive, this_process

__all__ = ["mark", "remove_dead"]

_MARK = re.compile("[0-9a-f]{12}0")


def mark(folder: str, token: str) -> None:
    """Say that temporaries with this token are of this process.

    Raises
    ------
    FileNotFoundError
        If the folder was removed just now.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(f"{folder}/{token}0", flags, 0o600)
    try:
        os.write(fd, json.dumps([*_here(), this_process()]).encode())
    finally:
        os.close(fd)


def remove_dead(folder: str) -> None:
    """Remove the temporaries of processes that are gone."""
    names = os.listdir(folder)
    for name in filter(_MARK.fullmatch, names):
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError, ValueError):
            with open(path, encoding="ascii") as file:
                *where, process = json.load(file)
            if where != _here() or is_alive(process):
                continue
            # The mark last, so that a kill amid this leaves it to the next.
            for each in sorted((n for n in names if n.startswith(name[:-1])), key=lambda n: n == name):
                os.unlink(os.path.join(folder, each))


def _here() -> list[object]:
    """Where the name of a process means something."""
    found = os.stat(runtime_folder())
    return [platform.node(), found.st_dev, found.st_ino]
