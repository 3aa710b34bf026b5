"""The request for a cache of samples, which goes to the agent (``nbdata.samples(…, cache="10GB")``)."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from nbdata.errors import BadOption
from nbdata.option import argument, option
from nbdata.verbs.options import Connecting, Fetching, Verifying

__all__ = ["SampleCache"]


@dataclass(frozen=True)
class SampleCache(Verifying, Fetching, Connecting):
    """Objects of a store are kept on the disk within a limit, for all processes that read samples of it."""

    verb: ClassVar[str] = "sample_cache"
    stopped: ClassVar[str] = "What is in it is found again"
    less: ClassVar[str] = "cache="
    summary: ClassVar[str] = "Cache objects of a store on the disk, within a limit."
    shared: ClassVar[bool] = True

    source: str = argument("URL of the samples.", metavar="SOURCE")
    cache_dir: str = option(".", "Local folder for the cache.", kind="path", metavar="DIR")
    max_size: int = option(0, "Maximum size of the cache on the disk.", kind="size", metavar="SIZE")
    led: bool = option(False, "Only an index named SOURCE, so no credentials are sent there.", kind="flag")

    def check(self) -> None:
        super().check()
        if self.max_size < 1:
            raise BadOption(f"cache: {self.max_size} bytes hold nothing", expected='a size, such as "10GB"')

    def places(self) -> tuple[str, str]:
        return self.source, self.cache_dir

    def origins(self) -> set[str]:
        return set() if self.led else super().origins()

    def named(self) -> tuple[str, ...]:
        return () if self.led else super().named()

    def line(self, show: Callable[[str], str] = str) -> str:
        """Return an empty text: no command starts a cache, samples do."""
        del show
        return ""

    def local_target(self) -> str | None:
        return os.path.join(self.cache_dir, "")

    def locked_target(self) -> str | None:
        return None  # its folder has a lock of its own: others may work beside it


# It has no function of its own: samples start it.
