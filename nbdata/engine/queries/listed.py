"""Stream the objects and folders of a place, for ls and du.

Unlike `transfer.sources`, which finds transferable objects, this yields every key that a store lists. That includes
markers of folders (``a/``), and an object and a folder of the same name side by side.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from nbdata.engine.job.run import Run
from nbdata.errors import NbdataError
from nbdata.globs import glob_regex
from nbdata.paths import glob_base, glob_pattern, has_glob
from nbdata.report import Report
from nbdata.stores.base import Location, ObjectInfo
from nbdata.stores.local import LocalStore
from nbdata.stores.resolve import children, is_account
from nbdata.transfer.retry import listing, listing_of_folder
from nbdata.transfer.selection import Entry
from nbdata.transfer.sources import head_of, no_match, require_folder

__all__ = ["Listed", "listed"]

# Most buckets listed.
_BUCKETS = 10_000
# Number of disk entries, neither files nor folders, that a note names.
_NAMED = 3
# Number of rows between two checks whether the job is to end.
_LOOK = 256


@dataclass
class Listed:
    """The content of a place.

    Attributes
    ----------
    base : str
        The place that paths are relative to, in a form that users may see.
    entries : iterator of Entry
        Folders have paths that end in a slash, and no size.
    others : int
        Number so far of disk entries that are neither files nor folders; `names` has the first ones.
    """

    base: str
    entries: Iterator[Entry] = field(default_factory=lambda: iter(()))
    others: int = 0
    names: list[str] = field(default_factory=list)

    def notice(self, path: str, kind: str, error: NbdataError | None) -> None:
        """Count an entry that a listing of the disk cannot yield; raise an error of the requested folder itself."""
        if error is not None and not path:
            raise error  # the requested folder itself
        if kind == "empty folder":
            return
        self.others += 1
        if len(self.names) < _NAMED:
            self.names.append(f"{path} ({kind})")

    def fail(self, run: Run, report: Report) -> None:
        """Make a report that of a failure if entries of the listing could not be used; it names each of them."""
        bad = run.control.bad_entries.take()
        if bad:
            report.state = "FAILED"
            report.failures = [[row.path, row.detail["reason"]] for row in bad]
            report.counts = {"objects": report.details["objects"], "unreadable": len(bad)}

    @property
    def note(self) -> str:
        """A note about what was left out; empty if nothing was."""
        if not self.others:
            return ""
        names = ", ".join([*self.names, "…"] if self.others > len(self.names) else self.names)
        what = "entry is" if self.others == 1 else "entries are"
        return f"{self.others:,} {what} neither file nor folder, or cannot be read: {names}"


def listed(run: Run, place: str, *, recursive: bool) -> Listed:
    """List a place.

    Parameters
    ----------
    recursive : bool
        Whether to yield all objects at any depth, instead of objects and folders of one level.

    Raises
    ------
    NotFound
        If there is neither an object nor a folder, or a glob matches nothing.
    """
    if is_account(place) and run.bindings.get("fs") is None and not recursive:
        base = place if place.endswith("/") else f"{place}/"
        buckets = children(base, run.context, _BUCKETS, stop=run.control)
        return Listed(base, iter([Entry(url[len(base) :], ObjectInfo(url, -1)) for url in buckets]))
    found = _glob(run, place, recursive=recursive) if has_glob(place) else _plain(run, place, recursive)
    found.entries = _counted(run, found.entries)
    return found


def _plain(run: Run, place: str, recursive: bool) -> Listed:
    location = run.open(place)
    if location.is_folder:
        found = Listed(location.place)
        entries = _below(run, location, "", found, recursive)
        first = next(entries, None)
        if first is None:
            require_folder(run, location)
        else:
            found.entries = _chained(first, entries)
        return found
    # Paths are relative to the parent, so an object and a folder of the same name can appear side by side.
    name = location.key.rpartition("/")[2]
    single = head_of(run, location)
    if single is not None:
        found = Listed(location.place.removesuffix(name) if name else location.place)
        if not found.base.endswith("/"):  # http URLs have escapes
            found.base = location.place.rpartition("/")[0] + "/"
        found.entries = _with_folder(run, location, single, found, recursive)
        return found
    return _plain(run, f"{place}/", recursive)


def _with_folder(
    run: Run, location: Location, single: ObjectInfo, found: Listed, recursive: bool
) -> Iterator[Entry]:
    """Yield an object, and everything below a folder of its name."""
    name = location.key.rpartition("/")[2]
    yield Entry(name, single)
    if not location.store.below_objects or isinstance(location.store, LocalStore):
        return
    folder = Location(location.store, location.key + "/", location.place + "/")
    for path, info in _below(run, folder, "", found, recursive=True):
        if not recursive:
            yield Entry(f"{name}/", ObjectInfo(f"{location.key}/", -1))
            return
        yield Entry(f"{name}/{path}", info)


def _glob(run: Run, place: str, *, recursive: bool) -> Listed:
    location = run.open(glob_base(place))
    pattern = glob_pattern(place)
    wanted = pattern.rstrip("/")
    matches = glob_regex(wanted).fullmatch
    start = re.split(r"[*?\[{]", wanted)[0]
    found = Listed(location.place)
    one_level = not recursive and "/" not in wanted and "**" not in wanted
    below = _below(run, location, start, found, not one_level)
    if recursive or "**" in wanted:
        entries: Iterator[Entry] = (entry for entry in below if matches(entry.path))
    else:
        entries = _of_one_depth(below, matches)
    if pattern.endswith("/"):
        entries = (entry for entry in entries if "/" in entry.path)
    first = next(entries, None)
    if first is None:
        raise no_match(run, place)
    found.entries = _chained(first, entries)
    return found


def _of_one_depth(entries: Iterator[Entry], matches: Callable[[str], object]) -> Iterator[Entry]:
    """Yield the matches of a glob; for everything below a matching folder, only the folder."""
    last = ""
    for entry in entries:
        end = entry.path.find("/")
        while end >= 0 and not matches(entry.path[:end]):
            end = entry.path.find("/", end + 1)
        if end < 0:
            if matches(entry.path):
                yield entry
        elif (folder := entry.path[: end + 1]) != last:
            last = folder
            is_it = folder == entry.path
            yield entry if is_it else Entry(folder, ObjectInfo(folder, -1))


def _below(run: Run, folder: Location, start: str, found: Listed, recursive: bool) -> Iterator[Entry]:
    """Yield the entries of a folder whose names begin with `start`."""
    store = folder.store
    if isinstance(store, LocalStore):
        store = LocalStore(lambda key, kind, error: found.notice(key[len(folder.key) :], kind, error))
    look = listing if recursive else listing_of_folder
    for info in look(run.control, store, folder.key + start):
        yield Entry(info.key[len(folder.key) :], info)


def _chained(first: Entry, rest: Iterator[Entry]) -> Iterator[Entry]:
    yield first
    yield from rest


def _counted(run: Run, entries: Iterator[Entry]) -> Iterator[Entry]:
    """Yield the entries; count them for the job, and let it be stopped."""
    count = 0
    for entry in entries:
        count += 1
        if count == _LOOK:
            run.control.checkpoint()
            run.control.advance(files=count)
            count = 0
        yield entry
    run.control.advance(files=count)
