"""Finds where a local folder was pulled from, as far as the record of jobs knows."""

from __future__ import annotations

import os
import shlex
from typing import NamedTuple

from nbdata.history import Past
from nbdata.paths import has_glob, is_url

__all__ = ["Origin", "origin_of"]


class Origin(NamedTuple):
    """The source of a pull.

    Attributes
    ----------
    url : str
        Where the folder that was asked for lies there.
    options : list of str
        The storage options of the pull, as words of a command line.
    """

    url: str
    options: list[str]


def origin_of(path: str, jobs: list[Past]) -> Origin | None:
    """Return the store from which the last whole pull brought this folder; None if no job remembers one."""
    for past in reversed(jobs):
        pull = past.snapshot
        words = shlex.split(pull.command)
        options = words[3:]
        simple = len(words) >= 3 and set(options[::2]) <= {"--option"} and is_url(pull.source)
        below = os.path.relpath(path, pull.target) if pull.target else ".."
        if (
            pull.verb != "pull"
            or has_glob(pull.source)
            or pull.state != "DONE"
            or not simple
            or below.startswith("..")
        ):
            continue
        folder = pull.source.rstrip("/")
        same = below == "." or folder.endswith(f"/{below}")
        return Origin(pull.source if same else f"{folder}/{below}", options)
    return None
