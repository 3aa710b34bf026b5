"""Guards nbdata's own folders: what lies in a user's ``.nbdata/`` may have come from anybody."""

from __future__ import annotations

import os
import stat

from nbdata.errors import UnsafeMember
from nbdata.paths import OWN_FOLDER

__all__ = ["own_folder", "without_waiting"]


def own_folder(folder: str, *names: str) -> str:
    """Return the path of nbdata's own folder in `folder`, or of what lies below it; refuses links on the way.

    Parameters
    ----------
    folder : str
        The user's folder, which may itself be a link.
    *names : str
        The folders below ``.nbdata``, outermost first.

    Raises
    ------
    UnsafeMember
        If ``.nbdata`` or one of `names` is there and is not a folder. A link would lead out of the user's folder.
    """
    path = folder
    for name in (OWN_FOLDER, *names):
        path = os.path.join(path, name)
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            return os.path.join(folder, OWN_FOLDER, *names)
        if not stat.S_ISDIR(mode):
            kind = "link" if stat.S_ISLNK(mode) else "file"
            raise UnsafeMember(
                f"a {kind} has the place of a folder of nbdata",
                path=path,
                expected="a folder that nbdata made",
                remedy="Look where it came from, and remove it",
            )
    return path


def without_waiting(path: str, flags: int) -> int:
    """Open a file of nbdata for ``open(opener=…)``; a named pipe in its place is empty, and opens without a writer."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
