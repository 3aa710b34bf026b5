"""Turn keys into file names: find keys that are not valid names, and encode those reversibly.

A key is any text. A name is a path whose components are not empty, not ``.`` or ``..``, and at most 255 bytes long. Its
folders must not be files. `encoded` changes only parts that are invalid, and parts that look encoded already:

====================  ===============================================================
in the key            in the name
====================  ===============================================================
an empty component    ``%_`` (so ``a//b`` is ``a/%_/b``)
``.``, ``..``         ``%2E``, ``%2E%2E``
``.nbdata``           ``%2Enbdata``, in any case: nbdata's own folder; ``.nbdata-1000``, too
NUL                   ``%00``
over 255 bytes        several components, all but the last ending in ``%+``
a file, and a folder  the folder ends in ``%.``
``%41`` and the like  ``%2541``: anything that `decoded` would change; also ``%_``, ``…%+``, ``…%.``
====================  ===============================================================
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Collection

from nbdata.paths import is_own_name

__all__ = ["LocalNames", "decoded", "encoded", "folds_case", "too_long", "unrepresentable"]

# The most bytes that file systems allow in a component.
_LONGEST = 255
# The most bytes of a path (PATH_MAX, which includes a NUL), and the most bytes of a character.
_PATH, _UTF8 = os.pathconf("/", "PC_PATH_MAX") - 1, 4
_LIKE_ESCAPES = re.compile(r"%(?=[0-7][0-9A-F])")
_ESCAPES = re.compile(r"%([0-7][0-9A-F])")
_EMPTY, _GOES_ON, _FOLDER = "%_", "%+", "%."
# Matches most paths, which are certainly valid names. Others are checked part by part.
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.=-]{0,254}(?:/[A-Za-z0-9_-][A-Za-z0-9_.=-]{0,254})*")


def unrepresentable(path: str) -> str | None:
    """Explain why a relative path cannot be a file below a target folder; None if it can.

    A component ``.nbdata`` is refused too, at every depth and in any case: a bucket could forge the records of partials
    in it.
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
        if is_own_name(part):
            return "lies below .nbdata, nbdata's own folder"
        if len(os.fsencode(part)) > _LONGEST:
            return "has a component of more than 255 bytes"
    return None


def too_long(base: str, path: str) -> str | None:
    """Explain why a relative path is too long below a given folder; None if it is not."""
    if len(base) + len(path) <= _PATH // _UTF8:
        return None
    size = len(os.fsencode(base + path))
    return f"its path would have {size:,} bytes, and the system takes {_PATH:,}" if size > _PATH else None


def encoded(key: str, *, files: Collection[str] = ()) -> str:
    """Encode any relative key as a valid path. `decoded` reverses it.

    Parameters
    ----------
    files : collection of str
        The keys above this one that are files themselves, so their folders need other names.
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
    if is_own_name(part):
        return "%2E" + part[1:]
    part = _LIKE_ESCAPES.sub("%25", part).replace("\0", "%00")
    if part == _EMPTY or part.endswith((_GOES_ON, _FOLDER)):
        return f"{part[:-2]}%25{part[-1]}"
    return part


def decoded(path: str) -> str:
    """Return the key that `encoded` made this path from. Other paths are returned unchanged."""
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
    """Whether the disk ignores case in names; False if nothing in the folder shows it.

    Parameters
    ----------
    folder : str
        An existing folder. Its own name and up to a hundred names in it are checked.
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
        return False  # a later write reports the reason
    return False


class LocalNames:
    """Gives names to the keys of a listing, one after the other, in key order.

    Parameters
    ----------
    encode : bool
        True gives every key a name. False reports why a key cannot be a name.
    blind : bool
        Whether the disk ignores case in names.
    """

    def __init__(self, *, encode: bool, blind: bool = False) -> None:
        self._encode = encode
        self._files: list[str] = []  # keys that are prefixes of the current one
        self._taken: set[str] | None = set() if blind else None

    def name(self, key: str) -> tuple[str, str | None]:
        """Return the name of a key, and the reason why it is not possible (None if it is)."""
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
        """The keys of folders above this key that are objects themselves.

        Listings come in key order, so only keys that are prefixes of the current one are kept.
        """
        files = self._files
        while files and not key.startswith(files[-1]):
            files.pop()
        above = [name for name in files if key.startswith(name + "/")] if files else []
        files.append(key)
        return above
