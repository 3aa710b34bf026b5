"""The verb quota: shows the free space and the limits of a folder, and sets a limit."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import ClassVar

from nbdata.errors import BadOption
from nbdata.operation import Operation, function_of
from nbdata.option import argument, option
from nbdata.paths import is_url, last_component
from nbdata.sizes import parse_size

__all__ = ["Quota", "quota"]

# A number without a unit below this many bytes is a mistake.
_LEAST = 1_000_000
# What is rather a size than the name of a folder.
_SIZE = re.compile(r"\d+(?:\.\d+)?([kmgtp]?i?b|[kmgtp])|none", re.IGNORECASE)


@dataclass(frozen=True)
class Quota(Operation):
    """Quota shows the limit of a folder and where the limit comes from. It also shows the space that is
    used, reserved and free on its disk, and the caches that ``samples --cache`` keeps there. For the home
    folder it shows every other writable disk and all caches, too.

    ``--limit`` sets a limit for everything below PATH. The limit stays until you remove it, also in
    later sessions. The environment variable ``NBDATA_QUOTA=SIZE:PATH`` sets a limit too; without
    ``:PATH`` it is for the home folder. If a folder has two limits, the smaller one counts.
    """

    verb: ClassVar[str] = "quota"
    summary: ClassVar[str] = "Show or set how much of the disk may be used."
    examples: ClassVar[tuple[str, ...]] = ("quota", "quota data --limit 5GB", "quota data --limit none")
    query: ClassVar[bool] = True

    path: str = argument("Folder. Default: the home folder.", default="~", metavar="PATH")
    limit: str | None = option(
        None, "Set the limit for everything below PATH; none removes it.", metavar="SIZE|none"
    )

    def check(self) -> None:
        if is_url(self.path):
            raise BadOption(f"quota: {self.path} is a URL", expected="a local folder")
        name = last_component(self.path)
        if self.limit is None and _SIZE.fullmatch(name) and not os.path.lexists(self.path):
            raise BadOption(f"quota: there is no folder {name}", remedy=f"Did you mean --limit {name}?")
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
