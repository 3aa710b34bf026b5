"""Keys as names on a disk: which cannot be, and a reversible way to write those.

A key is any text; a name is a path whose components are not empty, not ``.`` or ``..``, at most 255 bytes, and
whose folders are no files. `encoded` changes only what cannot be, and what looks as if it had been changed:

====================  ===============================================================
in the key            in the name
====================  ===============================================================
an empty component    ``%_`` (so ``a//b`` is ``a/%_/b``)
``.``, ``..``         ``%2E``, ``%2E%2E``
``.nbdata``           ``%2Enbdata``, in any case: nbdata's own folder
NUL                   ``%00``
over 255 bytes        several components, all but the last ending in ``%+``
a file, and a folder  the folder ends in ``%.``
``%41`` and the like  ``%2541``: what `decoded` would change; also ``%_``, ``…%+``, ``…%.``
====================  ===============================================================
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Collection

from nbdata.paths import OWN_FOLDER

__all__ = ["LocalNames", "decoded", "encoded", "folds_case", "too_long", "unrepresentable"]

# Bytes that file systems allow in a component.
_LONGEST = 255
# Bytes that the system takes in a path (PATH_MAX, which counts the NUL at its end), and the most that a character has.
_PATH, _UTF8 = os.pathconf("/", "PC_PATH_MAX") - 1, 4
_LIKE_ESCAPES = re.compile(r"%(?=[0-7][0-9A-F])")
_ESCAPES = re.compile(r"%([0-7][0-9A-F])")
_EMPTY, _GOES_ON, _FOLDER = "%_", "%+", "%."
# Most paths, which are surely names; the others are looked at part by part.
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.=-]{0,254}(?:/[A-Za-z0-9_-][A-Za-z0-9_.=-]{0,254})*")


def unrepresentable(path: str) -> str | None:
    """Why a relative path cannot be a file below a target folder, or None if it can.

    Beside what a POSIX disk cannot hold, a component ``.nbdata`` is refused at every depth and in any case:
    a bucket could forge the records of partials there.
    """
    if _PLAIN.fullmatch(path):
        return None
    if "\0" in path:
        return "holds a NUL"
    for part in path.split("/"):
        if part == "":
            return "has an empty component ('//', or a slash at an end)"
        if part in (".", ".."):
            return f"has a component {part!r}"
        if part.lower() == OWN_FOLDER:
            return "lies below .nbdata, which is nbdata's own"
        if len(os.fsencode(part)) > _LONGEST:
            return "has a component of more than 255 bytes"
    return None


def too_long(base: str, path: str) -> str | None:
    """Why there can be no file at a relative path below a folder whose path is long, or None if there can."""
    if len(base) + len(path) <= _PATH // _UTF8:
        return None
    size = len(os.fsencode(base + path))
    return f"its path would have {size:,} bytes, and the system takes {_PATH:,}" if size > _PATH else None


def encoded(key: str, *, files: Collection[str] = ()) -> str:
    """A path that can be, for any relative key; `decoded` gives the key again.

    Parameters
    ----------
    files : collection of str
        Keys above this one that are files, so that as folders they need other names.
    """
    parts, out, end = key.split("/"), [], 0
    for part in parts:
        end += len(part)
        out.append(_component(part, _FOLDER if key[:end] in files and end < len(key) else ""))
        end += 1
    return "/".join(out)


def _component(part: str, mark: str) -> str:
    out = []
    while len(os.fsencode(_escaped(part) + mark)) > _LONGEST:
        length = min(len(part) - 1, _LONGEST - len(_GOES_ON))
        while len(os.fsencode(_escaped(part[:length]) + _GOES_ON)) > _LONGEST:
            length -= 1
        out.append(_escaped(part[:length]) + _GOES_ON)
        part = part[length:]
    return "/".join([*out, _escaped(part) + mark])


def _escaped(part: str) -> str:
    if part == "":
        return _EMPTY
    if part in (".", ".."):
        return part.replace(".", "%2E")
    if part.lower() == OWN_FOLDER:
        return "%2E" + part[1:]
    part = _LIKE_ESCAPES.sub("%25", part).replace("\0", "%00")
    if part == _EMPTY or part.endswith((_GOES_ON, _FOLDER)):
        return f"{part[:-2]}%25{part[-1]}"
    return part


def decoded(path: str) -> str:
    """The key that `encoded` made this path of; a path that it did not make comes as it is."""
    out, begun = [], ""
    for part in path.split("/"):
        if part.endswith(_GOES_ON):
            begun += _plain(part.removesuffix(_GOES_ON))
            continue
        part = part.removesuffix(_FOLDER)
        out.append(begun + ("" if part == _EMPTY else _plain(part)))
        begun = ""
    return "/".join(out) + begun


def _plain(part: str) -> str:
    return _ESCAPES.sub(lambda match: chr(int(match[1], 16)), part)


def folds_case(folder: str) -> bool:
    """Whether the disk takes names that differ only in case for one; False if nothing there tells.

    Parameters
    ----------
    folder : str
        An existing folder. Looked at are its own name and up to a hundred in it.
    """
    try:
        with os.scandir(folder) as entries:
            found = [entry.path for entry in itertools.islice(entries, 100)]
        if os.stat(folder).st_dev == os.stat(os.path.dirname(folder)).st_dev:
            found.append(folder)
        for path in found:
            above, name = os.path.split(path)
            if name.swapcase() != name:
                other = os.path.join(above, name.swapcase())
                return os.path.lexists(other) and os.path.samestat(os.lstat(path), os.lstat(other))
    except OSError:
        return False  # who writes there will say why
    return False


class LocalNames:
    """Names for the keys of a listing, one after the other, in key order.

    Parameters
    ----------
    encode : bool
        Give every key a name; else say why it can have none.
    blind : bool
        The disk takes names that differ only in case for one.
    """

    def __init__(self, *, encode: bool, blind: bool = False) -> None:
        self._encode = encode
        self._files: list[str] = []  # keys that begin the current one, as text
        self._taken: set[str] | None = set() if blind else None

    def name(self, key: str) -> tuple[str, str | None]:
        """The name of a key, and why it cannot be (None: it can)."""
        above = self._files_above(key)
        if self._encode:
            name, reason = encoded(key, files=above), None
        else:
            name = key
            reason = unrepresentable(key) or ("lies below a name that is an object itself" if above else None)
        if reason is None and self._taken is not None:
            folded = name.casefold()
            if folded in self._taken:
                reason = "differs only in case from another, and this disk takes both for one"
            self._taken.add(folded)
        return name, reason

    def _files_above(self, key: str) -> list[str]:
        """The keys above this one that are objects themselves.

        Listings come in key order, so only keys that begin the current one need be kept.
        """
        files = self._files
        while files and not key.startswith(files[-1]):
            files.pop()
        above = [name for name in files if key.startswith(name + "/")] if files else []
        files.append(key)
        return above
