"""List the files to check, and the checksum files among them, once, and spool the listing.

Memory holds only the names, since every checksum file may refer to any of them.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import stat
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from nbdata.algorithms import ALGORITHMS
from nbdata.disk import disk_error
from nbdata.engine.job.run import Run
from nbdata.engine.job.spool import RowFile
from nbdata.engine.planning.left_out import LeftOut
from nbdata.engine.planning.rows import detail_of, info_of
from nbdata.errors import AccessDenied, NotFound
from nbdata.globs import glob_regex
from nbdata.integrity.checksum_names import SIDECAR_SUFFIXES, is_checksum_file, owner_of
from nbdata.paths import glob_base, glob_pattern, has_glob, is_ours
from nbdata.report import Row
from nbdata.stores.base import Location, ObjectInfo
from nbdata.stores.local import LocalStore
from nbdata.transfer.control import Control
from nbdata.transfer.retry import retrying
from nbdata.transfer.selection import Entry, Selection
from nbdata.transfer.sources import find
from nbdata.transfer.worker_pool import run_units
from nbdata.verbs.options import Selecting

__all__ = ["DataSet", "beside", "list_data", "parent"]

# Names of manifests to look for beside a single remote object, as its folder may be too large to list.
_MANIFESTS = (
    *(f"{name.upper()}SUMS" for name in ALGORITHMS),  # as --write calls them
    *(f"{name}SUMS.txt" for name in ("MD5", "SHA256", "SHA1", "SHA512")),
    *(f"{name}sum{s}.txt" for name in ("md5", "sha256") for s in ("", "s")),
    "CHECKSUM",
    "CHECKSUMS",
    "checksums.txt",
)


@dataclass
class DataSet:
    """All files of a PATH.

    Attributes
    ----------
    folder : Location
        The folder that paths are relative to.
    single : str
        The name of the file if PATH is a file, else empty.
    names : set of str
        The data files below `folder`, including those that a glob in PATH does not match.
    sources : dict of str to ObjectInfo
        The checksum files.
    listing : RowFile
        Data and checksum files, with the store's description of each.
    in_scope : callable
        Returns True if PATH includes a path.
    left_out : list of str
        Notes about entries of the disk that are not files: one per kind.
    """

    folder: Location
    single: str
    listing: RowFile
    in_scope: Callable[[str], bool]
    names: set[str] = field(default_factory=set)
    sources: dict[str, ObjectInfo] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def add(self, entry: Entry, *, data: bool) -> None:
        """Add one file."""
        if data:
            self.names.add(entry.path)
        else:
            self.sources[entry.path] = entry.info
        self.listing.add(Row(entry.path, "", entry.info.size, detail_of(entry.info)))

    def others(self) -> set[str] | None:
        """Return the files beside a single one that are no checksum files; None in a store, which is not listed."""
        if not self.single:
            return set()
        if not isinstance(self.folder.store, LocalStore):
            return None
        with contextlib.suppress(OSError), os.scandir("/" + self.folder.key) as entries:
            return {one.name for one in entries if not is_checksum_file(one.name) and one.is_file()} - {
                self.single
            }
        return None

    def selected(
        self, operation: Selecting, missing: Iterable[str], gone: list[str], checked: Container[str] = ()
    ) -> Iterator[Entry]:
        """Yield the files that the operation's options select; append selected names of `missing` to `gone`.

        Filters and file lists apply to missing files too. Samples and limits apply to existing files only.
        Checksum files are left out, except those in `checked`.
        """
        selection = Selection(operation)
        absent = ObjectInfo("", 0)

        def everything() -> Iterator[Entry]:
            yield from (Entry(row.path, info_of(row)) for row in self.listing)
            yield from (Entry(name, absent) for name in missing)

        def present() -> Iterator[Entry]:
            for entry in selection.named(e for e in everything() if self.in_scope(e.path)):
                if entry.info is absent:
                    gone.append(entry.path)
                elif entry.path in self.names or entry.path in checked:
                    yield entry

        rest = present()
        yield from selection.limited(rest)
        for _ in rest:  # a limit stops before the missing ones are reached
            pass


def list_data(run: Run, place: str) -> DataSet:
    """List a PATH. For a glob, list everything below its fixed part, as checksum files may not match it.

    Raises
    ------
    NotFound
        If there is no such file or folder.
    AccessDenied
        If a folder below it cannot be read: its content would not be checked.
    """
    base = glob_base(place)
    in_scope: Callable[[str], bool] = _anything
    if has_glob(place):
        pattern = glob_regex(glob_pattern(place).rstrip("/"))
        in_scope = lambda path: pattern.fullmatch(path) is not None  # noqa: E731
    assert isinstance(run.operation, Selecting)
    left_out = LeftOut(run.operation, in_scope)
    source = find(run, base, left_out)
    listing = run.row_file("listing")
    if source.single is not None:
        name = posixpath.basename(source.single.key)
        data = DataSet(parent(source.location), name, listing, lambda path: path == name)
        data.add(Entry(name, source.single), data=True)
        for entry in beside(run.control, data.folder, name):
            data.add(entry, data=False)
    else:
        data = DataSet(source.location, "", listing, in_scope)
        for entry in source.entries:
            if not is_ours(entry.path):
                data.add(entry, data=not is_checksum_file(entry.path))
    listing.close()
    if left_out.unreadable:
        raise left_out.unreadable[0][1]
    data.left_out = left_out.notes(folders=False)
    return data


def _anything(_path: str) -> bool:
    return True


def parent(location: Location) -> Location:
    """The folder of an object."""
    folder = location.key.rpartition("/")[0]
    place = location.place.rpartition("/")[0] + "/"
    return Location(location.store, folder + "/" if folder else "", place)


def beside(control: Control, folder: Location, name: str) -> list[Entry]:
    """The checksum files beside a single file that may refer to it.

    On a disk, these are all in the folder except the sidecars of other files. In a store, where a folder may be too
    large to list, sidecars and the usual manifests are requested by name.
    """
    if isinstance(folder.store, LocalStore):
        return list(_beside_on_disk("/" + folder.key, name))
    names = [name + suffix for suffix in SIDECAR_SUFFIXES]
    names += _MANIFESTS
    found: dict[str, Entry] = {}

    def ask(asked: str) -> None:
        # Without permission to list, a missing object gives "access denied".
        with contextlib.suppress(NotFound, AccessDenied):
            info = retrying(control, lambda: folder.store.head(folder.key + asked))
            found[asked] = Entry(asked, info)

    run_units(control, (partial(ask, asked) for asked in names if asked != name))
    return [found[asked] for asked in sorted(found)]


def _beside_on_disk(folder: str, single: str) -> Iterator[Entry]:
    try:
        with os.scandir(folder) as entries:
            there = {entry.name for entry in entries}
        others = there - {single}
        for name in sorted(filter(is_checksum_file, there)):
            if owner_of(name) in others:
                continue
            path = os.path.join(folder, name)
            with contextlib.suppress(FileNotFoundError):  # a dangling link
                status = os.stat(path)
                if stat.S_ISREG(status.st_mode):
                    yield Entry(name, ObjectInfo(path.lstrip("/"), status.st_size))
    except OSError as error:
        raise disk_error(error, folder) from error
