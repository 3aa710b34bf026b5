"""What the functions of `os.path` do with a URL, which is an absolute path there.

`exists` and its like tell a store that does not answer from a file that is not there: they raise its error, where
Python's functions, which know disks, would say False.
"""

from __future__ import annotations

import os
import posixpath
import stat as modes
from typing import Any

from nbdata.errors import NotFound
from nbdata.files.names import parts_of
from nbdata.files.shifted.os_calls import stat
from nbdata.files.shifted.places import as_written, may_lead, url_in

__all__ = [
    "absolute",
    "commonpath",
    "dirname",
    "exists",
    "isabs",
    "isdir",
    "isfile",
    "ismount",
    "join",
    "normpath",
    "relpath",
    "split",
]


def _parts(path: Any) -> tuple[str, str, str]:
    """Return the scheme with what follows it, the bucket or server, and the rest from its slash on."""
    place = as_written(path)
    url = os.fspath(path) if place is None else place.url
    return parts_of(url)


def _slash(path: Any) -> str:
    return "/" if os.fspath(path).endswith("/") else ""


def join(original: Any, path: Any, *paths: Any) -> str:
    """Join parts; a URL among the later ones is the beginning, as an absolute path would be."""
    parts = [path, *paths]
    start = max((number for number, part in enumerate(parts) if may_lead(part) and url_in(part)), default=0)
    first = os.fspath(parts[start])
    joined: str = original(first, *parts[start + 1 :])
    return joined


def exists(path: Any) -> bool:
    """Return whether there is such a file or folder."""
    try:
        stat(path)
    except (NotFound, NotADirectoryError):
        return False
    return True


def isfile(path: Any) -> bool:
    """Return whether there is such a file."""
    try:
        return modes.S_ISREG(stat(path).st_mode)
    except (NotFound, NotADirectoryError):
        return False


def isdir(path: Any) -> bool:
    """Return whether there is such a folder."""
    try:
        return modes.S_ISDIR(stat(path).st_mode)
    except (NotFound, NotADirectoryError):
        return False


def ismount(path: Any) -> bool:
    """Return whether it is a bucket or a server."""
    return _parts(path)[2] in ("", "/")


def isabs(path: Any) -> bool:
    """Return True: a URL does not depend on the working folder."""
    return True


def split(path: Any) -> tuple[str, str]:
    """Split into the folder and the last part; a bucket is not split."""
    scheme, root, below = _parts(path)
    if _slash(path):
        return f"{scheme}{root}{below}", ""
    head, _, tail = below.rpartition("/")
    return f"{scheme}{root}{head}", tail


def dirname(path: Any) -> str:
    """Return the folder."""
    return split(path)[0]


def normpath(path: Any) -> str:
    """Resolve ``.`` and ``..`` and double slashes below the bucket."""
    scheme, root, below = _parts(path)
    below = posixpath.normpath(below) if below else ""
    return f"{scheme}{root}{below if below != '/' else ''}"


def absolute(path: Any, **strict: Any) -> str:
    """Return the URL with ``.`` and ``..`` resolved; stores have no links."""
    if strict.get("strict"):
        stat(path)
    return normpath(path)


def relpath(original: Any, path: Any, start: Any = None) -> str:
    """Return the way from one folder to a path of the same bucket or server."""
    if not (url_in(path) and url_in(start)):
        raise ValueError(f"no path leads from {start or os.curdir!r} to {path!r}: one is in a store")
    (scheme, root, below), (other, base, from_) = _parts(normpath(path)), _parts(normpath(start))
    if (scheme, root) != (other, base):
        raise ValueError(f"no path leads from {start!r} to {path!r}: they are in different stores")
    found: str = original(below or "/", from_ or "/")
    return found


def commonpath(original: Any, paths: Any) -> str:
    """Return the longest URL that all paths begin with, part by part."""
    paths = list(paths)
    if not any(map(url_in, paths)):
        found: str = original(paths)
        return found
    if not all(map(url_in, paths)):
        raise ValueError("Can't mix URLs and paths of the disk")
    parted = [_parts(path) for path in paths]
    if len({(scheme, root) for scheme, root, _ in parted}) > 1:
        raise ValueError("Paths are in different stores")
    scheme, root, _ = parted[0]
    common: str = original([below or "/" for _, _, below in parted])
    return f"{scheme}{root}{common.rstrip('/')}"
