"""The verb cleanup: remove what nbdata left behind."""

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
    """Partials, dead locks and, below a URL, unfinished uploads that nbdata began. With ``--all`` also the
    files that nbdata staged below PATH, each only if it is unchanged since, and what ``samples --cache`` keeps there.
    """

    verb: ClassVar[str] = "cleanup"
    summary: ClassVar[str] = "Remove what nbdata left below a folder."
    examples: ClassVar[tuple[str, ...]] = (
        "cleanup data",
        "cleanup data --all --dry-run",
        "cleanup s3://bucket/results/",
    )

    source: str = argument("Local folder, or URL.", metavar="PATH")
    all: bool = option(
        False,
        "Also delete the files that nbdata wrote there, if unchanged since, and caches of samples.",
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


cleanup = function_of(Cleanup)
