"""Which files at the target this command has made: others are refused, not replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nbdata.errors import BadOption
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.index import Index, Record
from nbdata.verbs.pack import Pack

__all__ = ["OwnFiles", "begin", "end", "has_begun", "making", "others_are_there", "shown"]

# Record of a run that has begun and not ended: a killed run may have begun uploads that it could not note. No file can
# have this name.
_OPEN = "\0open"


def has_begun(index: Index) -> bool:
    """True if a run has begun, and no later one has ended well."""
    return index.get(_OPEN) is not None


def begin(index: Index) -> None:
    """Record that a run begins, before its first upload."""
    making(index, [_OPEN])


def end(index: Index) -> None:
    """Record that a run has ended well, so that none of its uploads is left."""
    index.put({_OPEN: None})


def making(index: Index, names: Iterable[str]) -> None:
    """Record the names that files are about to get: a killed run may have given them and recorded nothing else."""
    index.put({name: Record("", 0, -1, 0, 0) for name in names})
    index.sync()  # else the files would look like another's after a crash


def shown(names: list[str]) -> str:
    """Name the first and last of some files."""
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"


def others_are_there(op: Pack, names: str) -> BadOption:
    """Make the error about files that would be replaced."""
    return BadOption(
        f"{names} is there, and this command has not made it",
        path=op.target,
        remedy="Choose another name, or say --overwrite always to replace it",
    )


class OwnFiles:
    """Tells the files of this command from those of others, and refuses to replace the others.

    A file that a killed run was making when it ended counts as the command's own, see `making`.

    Parameters
    ----------
    op : Pack
    index : Index
        The records of the command.
    listed : callable
        Given a name and the existing file, whether an index beside it says that a pack has made it.
    """

    def __init__(self, op: Pack, index: Index, listed: Callable[[str, ObjectInfo], bool]) -> None:
        self._op, self._index, self._listed = op, index, listed
        self._all = op.overwrite != "changed"
        self._first, self._last = "", ""

    def look(self, name: str, existing: ObjectInfo | None) -> None:
        """Look at what exists under a name that is to be made."""
        if existing is None or self._all or self._index.get(name) is not None or self._listed(name, existing):
            return
        self._first, self._last = self._first or name, name

    def refuse_others(self) -> None:
        """Raise BadOption if one of the files is not the command's own."""
        if self._first:
            names = [self._first, self._last] if self._first != self._last else [self._first]
            raise others_are_there(self._op, shown(names))
