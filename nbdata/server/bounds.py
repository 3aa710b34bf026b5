"""Which folders of the disk the panel may name in an Operation: those that the administrator allows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from traitlets import List, Unicode
from traitlets.config import Configurable

from nbdata.client.browsing import refuse_place
from nbdata.errors import BadOption
from nbdata.operation import Operation
from nbdata.option import options_of
from nbdata.paths import has_glob, is_url

__all__ = ["Bounds", "Nbdata"]

# Options whose folder is written to, or deleted from, by verb; of all verbs it is the target, too.
_CHANGED = {"cleanup": "source", "quota": "path"}


class Nbdata(Configurable):
    """The settings of nbdata in the configuration of the Jupyter server."""

    roots = List(
        Unicode(),
        help="""The folders of the disk that the panel may write to and delete from, with all below them. It reads
        these and the server's root folder. Empty (default): all folders of the user. Terminals, kernels and what they
        run are not bound.""",
    ).tag(config=True)


class Bounds:
    """The folders that the panel may read and write.

    Parameters
    ----------
    roots : iterable of str
        As in `Nbdata.roots`.
    root : str
        The server's root folder.
    """

    def __init__(self, roots: Iterable[str] = (), root: str = "") -> None:
        self._written = [_real(folder) for folder in roots]
        self._read = [*self._written, *([_real(root)] if root else [])]

    def refuse(self, operation: Operation) -> None:
        """Raise BadOption if an Operation names a folder outside, or a URL that the panel does not take."""
        for name, place in _places(operation):
            if is_url(place):
                refuse_place(place)
            elif self._written:
                is_changed = name in ("target", _CHANGED.get(operation.verb))
                self._refuse_outside(place, self._written if is_changed else self._read)

    def refuse_written(self, place: str) -> None:
        """Raise BadOption for a folder that the panel may not change."""
        if self._written:
            self._refuse_outside(place, self._written)

    def _refuse_outside(self, place: str, allowed: list[str]) -> None:
        real = os.path.realpath(place)
        inside = any(os.path.commonpath([folder, real]) == folder for folder in allowed)
        if not inside or (has_glob(place) and ".." in place):
            raise BadOption(
                "the administrator of this server does not allow this folder in the panel",
                path=place,
                expected=f"a folder below {', '.join(allowed)}",
            )


def _places(operation: Operation) -> Iterator[tuple[str, str]]:
    for name, (_, declared) in options_of(type(operation)).items():
        value = getattr(operation, name)
        if declared.is_path and value:
            yield from ((name, str(one)) for one in ([value] if isinstance(value, str) else value))


def _real(folder: str) -> str:
    return os.path.realpath(os.path.expanduser(folder))
