"""The options of `nbdata.open` and of `nbdata.files.FileSystem`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nbdata.option import argument
from nbdata.paths import is_url
from nbdata.verbs.options import Connecting, Fetching, Verifying

__all__ = ["FileAccess"]


@dataclass(frozen=True)
class FileAccess(Verifying, Fetching, Connecting):
    """The place of files that a program opens, and how its store is reached."""

    verb: ClassVar[str] = "open"
    query: ClassVar[bool] = True

    source: str = argument("URL or path of a file or folder.", metavar="SOURCE")

    def local_target(self) -> str | None:
        return None if is_url(self.source) else self.source
