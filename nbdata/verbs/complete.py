"""The internal verb complete: lists the places that complete a URL; Tab completion uses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nbdata.option import argument
from nbdata.verbs.options import Storing

__all__ = ["Complete"]


@dataclass(frozen=True)
class Complete(Storing):
    """The store is listed once, up to the next slash; the agent caches the answer for a while."""

    verb: ClassVar[str] = "complete"
    summary: ClassVar[str] = "List places that begin with a URL."
    query: ClassVar[bool] = True

    prefix: str = argument("The start of a URL, as typed so far.", kind="text", metavar="PREFIX")

    def named(self) -> tuple[str, ...]:
        return (self.prefix,)
