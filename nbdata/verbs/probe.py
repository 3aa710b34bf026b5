"""The verb probe: a job that moves nothing, to try the agent with (``nbdata agent probe``, tests)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nbdata.operation import Operation
from nbdata.option import option

__all__ = ["Probe"]


@dataclass(frozen=True)
class Probe(Operation):
    """Makes numbered items, each after a pause; shows that snapshots, items, leases and stops work."""

    verb: ClassVar[str] = "probe"
    summary: ClassVar[str] = "Try the agent: a job that makes numbered items and moves nothing."

    items: int = option(10, "Number of items.", kind="count", metavar="N")
    lease: bool = option(False, "Hand the items out, and wait until each is taken.", kind="flag")
    delay: int = option(0, "Milliseconds before each item.", kind="count", metavar="MS")
    tag: str = option("", "Any text; probes with different texts are different jobs.", metavar="TEXT")


# No function of its own: it is no verb of the package's users.
