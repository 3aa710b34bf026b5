"""The objects of a cache that many consumers share, and the leases of those that they read.

An object is in one of these states:

========  ========================================================================  =============================
state     meaning                                                                   next
========  ========================================================================  =============================
absent    not on disk, and not being fetched                                        coming, when its turn comes
unproven  on disk under its name, but anybody may have put it there                 coming, or going
coming    its room is reserved, and it is being fetched or proven                   whole, or absent if that fails
whole     on disk under its name                                                    going, if room is needed
going     being deleted; its room is free when that is done                         absent
========  ========================================================================  =============================
"""

from __future__ import annotations

import enum
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nbdata.errors import NbdataError

__all__ = ["CachedObject", "Lease", "State", "Wanted"]


class Wanted(NamedTuple):
    """A requested object.

    Attributes
    ----------
    name : str
        The same for each request of this version of the object.
    room : int
        The most bytes of disk.
    of : object
        The data needed to fetch it.
    """

    name: str
    room: int
    of: Any


class State(enum.Enum):
    """The state of an object, as in the table above."""

    ABSENT = enum.auto()
    UNPROVEN = enum.auto()
    COMING = enum.auto()
    WHOLE = enum.auto()
    GOING = enum.auto()


@dataclass(slots=True, eq=False)
class CachedObject:
    """An object that is on disk, or that a consumer wants."""

    wanted: Wanted
    state: State = State.ABSENT
    leases: list[Lease] = field(default_factory=list)  # leases that have room for it
    announced: dict[Hashable, int] = field(default_factory=dict)  # by consumer, its place
    fresh: bool = False  # True until a lease gets it for the first time after it came

    @property
    def idle(self) -> bool:
        """Whether it may be deleted to make room."""
        return self.state in (State.WHOLE, State.UNPROVEN) and not self.leases

    @property
    def to_come(self) -> bool:
        """Whether it must still be fetched, or proven."""
        return self.state in (State.ABSENT, State.UNPROVEN)

    @property
    def forgotten(self) -> bool:
        """Whether its entry can be dropped."""
        return self.state is State.ABSENT and not self.leases and not self.announced


@dataclass(slots=True, eq=False)
class Lease:
    """The objects of one `acquire` call."""

    consumer: Hashable
    wanted: list[Wanted]
    missing: set[str] = field(default_factory=set)
    errors: dict[str, NbdataError] = field(default_factory=dict)
    admitted: bool = False
    fetched: list[str] = field(default_factory=list)
