"""The verb cleanup: removes what nbdata left below a folder or URL."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

from nbdata.errors import BadOption
from nbdata.operation import function_of
from nbdata.option import argument, option
from nbdata.paths import is_inside, is_url
from nbdata.verbs.options import Storing

__all__ = ["Cleanup", "cleanup"]


@dataclass(frozen=True)
class Cleanup(Storing):
    """Cleanup deletes partial files and locks that no process holds. Below a URL it aborts unfinished
    uploads that nbdata began. It leaves the folders of running, queued and paused jobs alone.

    With ``--all`` it also deletes the files that nbdata wrote below PATH, each only if it is unchanged
    since, and the caches of ``samples --cache``.
    """

    verb: ClassVar[str] = "cleanup"
    summary: ClassVar[str] = "Remove what nbdata left below a folder or URL."
    examples: ClassVar[tuple[str, ...]] = (
        "cleanup data",
        "cleanup data --all --dry-run",
        "cleanup s3://bucket/results/",
    )

    source: str = argument("Local folder, or URL of a folder in a store.", metavar="PATH")
    all: bool = option(
        False,
        "Also delete files that nbdata wrote there, if they are unchanged since, and caches of samples.",
        kind="flag",
    )

    def check(self) -> None:
        super().check()
        if not self.all:
            return
        if is_url(self.source):
            raise BadOption(
                "cleanup: --all is for local folders", remedy="Name the objects to delete another way"
            )
        home = os.path.expanduser("~")
        for path in (self.source, os.path.realpath(self.source)):
            if is_inside(home, path) or is_inside(os.path.realpath(home), path):
                raise BadOption(f"--all refuses {path}", remedy="Name a folder of data below it")

    def claimed(self) -> list[str]:
        return []  # it must not find itself


cleanup = function_of(Cleanup)
