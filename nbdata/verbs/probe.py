"""The internal verb probe: a job that moves no data, to test the agent (``nbdata agent probe``, tests)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nbdata.operation import Operation
from nbdata.option import option

__all__ = ["Probe"]


@dataclass(frozen=True)
class Probe(Operation):
    """The job makes numbered items, each after a pause, to test snapshots, items, leases and stops."""

    verb: ClassVar[str] = "probe"
    summary: ClassVar[str] = "Test the agent with a job that makes numbered items and moves no data."

    items: int = option(10, "Number of items.", kind="count", metavar="N")
    lease: bool = option(False, "Hand out the items, and wait until each is taken.", kind="flag")
    delay: int = option(0, "Milliseconds before each item.", kind="count", metavar="MS")
    tag: str = option("", "Any text; probes with different texts are different jobs.", metavar="TEXT")


# It has no function of its own, because it is no verb for users.
