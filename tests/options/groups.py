"""The shared groups of options and the verbs that have them, found in the classes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from nbdata.operation import Operation
from nbdata.option import options_of
from nbdata.verbs import VERBS, options

__all__ = ["GROUPS", "Cell", "cells"]

#: The groups in `nbdata.verbs.options`.
GROUPS: tuple[type[Operation], ...] = tuple(
    found
    for found in vars(options).values()
    if isinstance(found, type) and issubclass(found, Operation) and found.__module__ == options.__name__
)


class Cell(NamedTuple):
    """One shared option of one verb."""

    verb: str
    option: str
    group: str


def cells(
    verbs: Iterable[type[Operation]] = tuple(VERBS.values()), groups: Iterable[type[Operation]] = GROUPS
) -> Iterator[Cell]:
    """Yield each option of each group for each verb that has the group."""
    groups = [*groups]
    for verb in verbs:
        for group in groups:
            if issubclass(verb, group):
                inherited = {name for base in group.__bases__ for name in options_of(base)}
                for name in options_of(group):
                    if name not in inherited:
                        yield Cell(verb.verb, name, group.__name__)
