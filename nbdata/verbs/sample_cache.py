"""What the agent is told of the cache of some samples (``nbdata.samples(…, cache="10GB")``)."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from nbdata.errors import BadOption
from nbdata.option import argument, option
from nbdata.verbs.options import Connecting, Verifying

__all__ = ["SampleCache"]


@dataclass(frozen=True)
class SampleCache(Verifying, Connecting):
    """Keeps objects of a store on the disk within a limit, for all processes that read samples of it."""

    verb: ClassVar[str] = "sample_cache"
    stopped: ClassVar[str] = "What is in it is found again"
    less: ClassVar[str] = "cache="
    summary: ClassVar[str] = "Keep objects of a store on the disk, within a limit."
    shared: ClassVar[bool] = True

    source: str = argument("URL of what the samples are read from.", metavar="SOURCE")
    cache_dir: str = option(".", "Folder on the disk to use.", kind="path", metavar="DIR")
    max_size: int = option(0, "Most that may be on the disk at any moment.", kind="size", metavar="SIZE")

    def check(self) -> None:
        super().check()
        if self.max_size < 1:
            raise BadOption(f"cache: {self.max_size} bytes hold nothing", expected='a size, such as "10GB"')

    def places(self) -> tuple[str, str]:
        return self.source, self.cache_dir

    def line(self, show: Callable[[str], str] = str) -> str:
        """No line says it: samples begin it."""
        del show
        return ""

    def local_target(self) -> str | None:
        return os.path.join(self.cache_dir, "")

    def locked_target(self) -> str | None:
        return None  # its folder has a lock of its own: others may work beside it


# No function of its own: samples begin it.
