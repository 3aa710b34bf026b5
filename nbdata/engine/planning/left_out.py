"""Entries of a local source that are not files: which ones matter, and how plan and report mention them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nbdata.errors import NbdataError
from nbdata.report import Row
from nbdata.stores.local import MAY_HOLD
from nbdata.transfer.selection import Filters, read_paths
from nbdata.verbs.options import Selecting

__all__ = ["LeftOut"]

# By kind (see nbdata.stores.local.Noticed): the plural, and why they are left out.
_WHY = {
    "link to a folder": ("links to folders", "not followed; name it as SOURCE to take its target"),
    "broken link": ("broken links", "its target does not exist"),
    "loop of links": ("loops of links", "it leads to itself"),
    "named pipe": ("named pipes", "not a file; a read would wait for a writer"),
    "socket": ("sockets", "not a file; it holds no bytes"),
    "device": ("devices", "not a file; it may never end"),
    "empty folder": ("empty folders", "stores keep objects, not folders"),
}
# Most names of each kind in a note.
_NAMED = 3


class LeftOut:
    """Collects entries that a listing (`nbdata.transfer.sources.find`) leaves out; keeps those that the options select.

    Parameters
    ----------
    operation : Selecting
        Its filters and its file list apply here too.
    within : callable, optional
        Returns whether a path is selected at all.

    Attributes
    ----------
    unreadable : list of (str, NbdataError)
        Files and folders with unknown contents: failures.
    """

    def __init__(self, operation: Selecting, within: Callable[[str], bool] | None = None) -> None:
        self._filter = Filters(operation)
        names = operation.files_from
        self._listed = None if names is None else sorted(read_paths(names))
        self._within = within
        self._found: dict[str, list[str]] = {}
        self._names = set[str]()
        self.unreadable: list[tuple[str, NbdataError]] = []

    def __call__(self, path: str, kind: str, error: NbdataError | None) -> None:
        """Keep the entry, if it is selected."""
        if not path:  # the source itself
            if error is not None:
                raise error
            return
        if (self._within is not None and not self._within(path)) or not self._meant(path, kind):
            return
        if error is not None:
            self.unreadable.append((path, error))
            self._names.add(path)
        else:
            self._found.setdefault(kind, []).append(path)
            if kind != "empty folder":
                self._names.add(path)

    def _meant(self, path: str, kind: str) -> bool:
        if self._listed is not None and not any(
            name == path or name.startswith(path + "/") for name in self._listed
        ):
            return False
        return (kind in MAY_HOLD and self._filter.may_hold(path)) or self._filter.passes(path)

    def rows(self) -> Iterator[Row]:
        """Yield one row per entry; empty folders have none."""
        for kind, paths in self._found.items():
            if kind != "empty folder":
                for path in paths:
                    yield Row(path, "left out", 0, {"reason": f"a {kind}: {_WHY[kind][1]}"})
        for path, error in self.unreadable:
            yield Row(path, "unreadable", 0, {"reason": str(error)})

    def notes(self, *, folders: bool = True) -> list[str]:
        """Return one sentence per kind, with the first names; of empty folders only if `folders`."""
        notes = []
        for kind, paths in sorted(self._found.items()):
            if kind == "empty folder" and not folders:
                continue
            many, why = _WHY[kind]
            more = f" and {len(paths) - _NAMED:,} more" if len(paths) > _NAMED else ""
            named = ", ".join(sorted(paths)[:_NAMED])
            notes.append(
                f"left out: {len(paths):,} {kind if len(paths) == 1 else many} ({why}): {named}{more}"
            )
        return notes

    def covers(self, path: str) -> bool:
        """True if the store's object at this path may be a left-out entry, or lie below one."""
        ends = [at for at, char in enumerate(path) if char == "/"]
        return any(path[:at] in self._names for at in [*ends, len(path)])
