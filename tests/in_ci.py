"""Leaves the costly parameters of a test to ``make test-all``: the mark ``in_ci`` names those that ``make test`` takes.

``@pytest.mark.in_ci("tar", "zip-*")`` takes the parameters whose ids match one of the patterns (`fnmatch`), and
``@pytest.mark.in_ci("!sftp-*")`` all whose ids do not. With a number, ``@pytest.mark.in_ci("zip-*", 3)``, it takes at
most so many of them, spread evenly over their order. The others get the mark ``long``, as a test that is long by itself
does. A pattern that matches nothing is an error, so that a renamed parameter is not left out in silence.

Of the notebooks, those in `LONG_NOTEBOOKS` are long; ``make docs`` runs all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import pytest

__all__ = ["LONG_NOTEBOOKS", "is_taken", "taken", "unmatched"]

#: They take half a minute each.
LONG_NOTEBOOKS = (
    "02-train-from-a-small-disk.ipynb",
    "03-train-from-loose-objects.ipynb",
    "04-pack-and-stream-shards.ipynb",
    "05-three-packings.ipynb",
)


def is_taken(name: str, patterns: Iterable[str]) -> bool:
    """Return whether the patterns take the parameter with this id."""
    patterns = tuple(patterns)
    if any(fnmatchcase(name, pattern[1:]) for pattern in patterns if pattern.startswith("!")):
        return False
    taken = [pattern for pattern in patterns if not pattern.startswith("!")]
    return not taken or any(fnmatchcase(name, pattern) for pattern in taken)


def taken(names: Sequence[str], marked: Iterable[str | int]) -> set[str]:
    """Return which of the ids a mark with these arguments takes."""
    marked = tuple(marked)
    found = [name for name in names if is_taken(name, (one for one in marked if isinstance(one, str)))]
    most = min([len(found), *(one for one in marked if isinstance(one, int))])
    return {found[number * len(found) // most] for number in range(most)}


def unmatched(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """Return the patterns that match none of the ids."""
    names = tuple(names)
    return [p for p in patterns if not any(fnmatchcase(name, p.removeprefix("!")) for name in names)]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what the marks leave out as long."""
    tests: dict[str, tuple[tuple[str | int, ...], list[pytest.Item]]] = {}
    for item in items:
        if item.path.name in LONG_NOTEBOOKS:
            item.add_marker("long")
        if (mark := item.get_closest_marker("in_ci")) is not None:
            tests.setdefault(item.nodeid.partition("[")[0], (mark.args, []))[1].append(item)
    picked = any(
        "::" in argument for argument in config.args
    )  # a test by its name: not all parameters are here
    for test, (marked, found) in tests.items():
        ids = [item.nodeid.partition("[")[2][:-1] for item in found]
        patterns = [one for one in marked if isinstance(one, str)]
        if not picked and (without := unmatched(ids, patterns)):
            raise pytest.UsageError(
                f"{test} has no parameter {', '.join(without)}, which its mark in_ci names"
            )
        left = taken(ids, marked)
        for item, name in zip(found, ids, strict=True):
            if name not in left:
                item.add_marker("long")
