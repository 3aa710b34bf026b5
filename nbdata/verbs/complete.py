"""The verb complete: which places begin with what somebody has typed so far; asked by Tab, offered to nobody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nbdata.option import argument
from nbdata.verbs.options import Storing

__all__ = ["Complete"]


@dataclass(frozen=True)
class Complete(Storing):
    """Looks into the store once, no deeper than the next slash; the agent remembers the answer for a while."""

    verb: ClassVar[str] = "complete"
    summary: ClassVar[str] = "List places that begin with a URL."
    query: ClassVar[bool] = True

    prefix: str = argument("What was typed so far: a URL.", kind="text", metavar="PREFIX")
