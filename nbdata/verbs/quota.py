"""The verb quota: how much room there is, who says so, and how to limit it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nbdata.errors import BadOption
from nbdata.operation import Operation, function_of
from nbdata.option import argument, option
from nbdata.paths import is_url
from nbdata.sizes import parse_size

__all__ = ["Quota", "quota"]

# A number without a unit below this many bytes is a mistake.
_LEAST = 1_000_000


@dataclass(frozen=True)
class Quota(Operation):
    """Shows the limit and its source, what is used, reserved and free, the disk, and the caches that
    ``samples --cache`` keeps there; of the home folder also every other writable disk, and all caches. A limit set with
    ``--limit`` holds for all that lies below PATH and is kept between sessions. The environment variable
    ``NBDATA_QUOTA=SIZE:PATH`` sets one from outside, without ``:PATH`` for the home folder; of two limits on a folder
    the smaller one holds.
    """

    verb: ClassVar[str] = "quota"
    summary: ClassVar[str] = "Show or set how much of the disk may be used."
    examples: ClassVar[tuple[str, ...]] = ("quota", "quota data --limit 5GB", "quota data --limit none")
    query: ClassVar[bool] = True

    path: str = argument("Folder. Default: the home folder.", default="~", metavar="PATH")
    limit: str | None = option(None, "Limit for all below PATH; 'none' removes it.", metavar="SIZE|none")

    def check(self) -> None:
        if is_url(self.path):
            raise BadOption(f"quota: {self.path} is a URL", expected="a local folder")
        if self.limit is not None and self.limit.lower() != "none":
            size = parse_size(self.limit, option="--limit")
            if self.limit.strip().isdigit() and size < _LEAST:
                raise BadOption(
                    f"--limit {self.limit} would be {size:,} bytes",
                    remedy=f"Write the unit, such as {self.limit}GB, or {self.limit}B if you mean bytes",
                )

    def places(self) -> tuple[str, str]:
        return self.path, ""


quota = function_of(Quota)
