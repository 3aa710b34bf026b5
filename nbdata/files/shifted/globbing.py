"""What `glob` does with a URL: Python's own code looks for the names, over one listing where that takes fewer requests.

Python's code passes over a folder that it cannot read. Of a store that does not answer it would find nothing, in
silence; so what was passed over is raised.
"""

from __future__ import annotations

import glob
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nbdata.errors import NbdataError, NotFound
from nbdata.files.shifted import trees
from nbdata.files.shifted.places import target
from nbdata.stores.base import ObjectInfo

__all__ = ["iterated", "known", "passed_over"]


class _Search(threading.local):
    """The search that this thread is in: the tree that it listed at its start, and what could not be read."""

    url: str = ""
    tree: trees.Tree | None = None
    errors: list[NbdataError] | None = None


_search = _Search()


def passed_over(error: NbdataError) -> None:
    """Note an error of a listing; the search raises it, in case that Python's code passes over it."""
    if _search.errors is not None and not isinstance(error, NotFound):
        _search.errors.append(error)


def known(url: str) -> trees.Tree | ObjectInfo | None:
    """Return the folder or object at a URL, if the search of this thread has listed it; None if it has not.

    Raises
    ------
    NotFound
        If it is not in the listing.
    """
    tree = _search.tree
    if tree is None or not f"{url}/".startswith(f"{_search.url}/"):
        return None
    *above, name = [part for part in url[len(_search.url) :].split("/") if part] or [""]
    for part in above:
        tree = tree.folders.get(part)
        if tree is None:
            raise NotFound("no such file or folder", path=url)
    if not name:
        return tree
    there = tree.files.get(name) or tree.folders.get(name)
    if there is None:
        raise NotFound("no such file or folder", path=url)
    return there


def iterated(original: Any, pathname: Any, **options: Any) -> Iterator[str]:
    """Yield the paths that match a pattern, as `glob.iglob` does."""
    matches = iter(original(pathname, **options))
    url, tree = _listed(pathname, options)
    while True:
        with _searching(url, tree) as errors:
            match = next(matches, None)
        if errors:
            raise errors[0]
        if match is None:
            return
        yield match


@contextmanager
def _searching(url: str, tree: trees.Tree | None) -> Iterator[list[NbdataError]]:
    before = _search.url, _search.tree, _search.errors
    errors = list[NbdataError]()
    _search.url, _search.tree, _search.errors = url, tree, errors
    try:
        yield errors
    finally:
        _search.url, _search.tree, _search.errors = before


def _listed(pathname: Any, options: dict[str, Any]) -> tuple[str, trees.Tree | None]:
    """List all below the fixed part of a pattern, if the pattern leads into several folders."""
    pattern = os.fspath(pathname)
    if options.get("root_dir") is not None:
        pattern = os.path.join(options["root_dir"], pattern)
    parts = pattern.split("/")
    patterns = [number for number, part in enumerate(parts) if glob.has_magic(part)]
    several = patterns and (patterns[0] < len(parts) - 1 or (options.get("recursive") and "**" in parts))
    place = target("/".join(parts[: patterns[0]])) if several else None
    if place is None:
        return "", None
    try:
        return place.url, trees.tree_of(place)
    except NotFound:
        return place.url, trees.Tree()
