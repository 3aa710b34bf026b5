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
    uploads that nbdata began. It leaves the folders of running, queued and paused jobs alone. Mounts whose
    process was killed are released.

    With ``--all`` it also deletes the files that nbdata wrote below PATH, each only if it is unchanged
    since, and the caches of ``samples --cache`` and ``mount --cache``.

    To free space, look at ``--stored --dry-run`` first: it says how much is freed, how much of that can be
    fetched again, and how much is only here. A file can be fetched again if it is unchanged since nbdata
    pulled or pushed it, and the store, which is asked, has it in that version still. What is only here stays
    unless ``--only-here`` says otherwise. Each file is looked at again just before it is deleted, links are
    not followed, and other file systems are not entered. The stores are those of the jobs that ``transfers
    --all`` lists; jobs without an agent are not among them.
    """

    verb: ClassVar[str] = "cleanup"
    summary: ClassVar[str] = "Remove what nbdata left below a folder or URL."
    examples: ClassVar[tuple[str, ...]] = (
        "cleanup data",
        "cleanup data --all --dry-run",
        "cleanup data --stored --dry-run",
        "cleanup s3://bucket/results/",
    )

    source: str = argument("Local folder, or URL of a folder in a store.", metavar="PATH")
    all: bool = option(
        False,
        "Also delete files that nbdata wrote there, if they are unchanged since, and caches that no process uses.",
        kind="flag",
    )

    caches: bool = option(
        False, "Also delete caches of samples and of mounts that no process uses.", kind="flag"
    )
    stored: bool = option(
        False,
        "Also delete files that can be fetched again: unchanged since they were pulled or pushed, and the store has "
        "that version still.",
        kind="flag",
    )
    only_here: bool = option(
        False,
        "With --stored: also delete all other files below PATH, which are nowhere else and are lost.",
        kind="flag",
    )

    def check(self) -> None:
        super().check()
        given = [name for name in ("all", "caches", "stored", "only_here") if getattr(self, name)]
        flags = [f"--{name.replace('_', '-')}" for name in given]
        if flags and is_url(self.source):
            raise BadOption(
                f"cleanup: {flags[0]} is for local folders", remedy="Name the objects to delete another way"
            )
        if self.all and self.stored:
            raise BadOption("--all and --stored exclude each other", remedy="Write --stored --caches")
        if self.only_here and not self.stored:
            raise BadOption("--only-here needs --stored", remedy="Look at --stored --dry-run first")
        if not self.all and not self.only_here:
            return
        home = os.path.expanduser("~")
        for path in (self.source, os.path.realpath(self.source)):
            if is_inside(home, path) or is_inside(os.path.realpath(home), path):
                raise BadOption(f"{flags[-1]} refuses {path}", remedy="Name a folder of data below it")

    def claimed(self) -> list[str]:
        return []  # it must not find itself


cleanup = function_of(Cleanup)
