"""What fills a folder of the disk: bytes by folder, and what nbdata knows of the files.

Memory holds the open folders with the names of the folders in each, the indexes around the current folder (see
`KnownFiles`), and the inodes of files with several names, up to `_MOST_LINKED`. Rows are spooled to the disk.
"""

from __future__ import annotations

import heapq
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field

from nbdata.cache.folder import LOCK
from nbdata.cache.kept_names import is_any_cache
from nbdata.disk import disk_error, is_unfinished
from nbdata.engine.job.run import Run
from nbdata.engine.planning.known_files import KnownFiles
from nbdata.paths import has_glob, is_own_name, is_url
from nbdata.redaction import printable
from nbdata.report import Report, Row
from nbdata.sizes import counted, format_size
from nbdata.space.limits import mount_points
from nbdata.verbs.listing import FILLS, Du

__all__ = ["fills", "local_folder"]

# Number of table rows in the report itself, besides the total.
_SHOWN = 50
# Most files with several names that are remembered, at about 150 bytes each; further ones count once per name.
_MOST_LINKED = 1_000_000
# How many folders of a kind a note names.
_NAMED = 3
# Entries between two looks whether the job is to end.
_LOOK = 256


def local_folder(run: Run, place: str) -> str | None:
    """Return the path without links of a folder of the disk; None for any other place."""
    if is_url(place) or has_glob(place) or run.bindings.get("fs") is not None or not os.path.isdir(place):
        return None
    return os.path.realpath(place)


@dataclass
class _Sums:
    """What was counted below a folder. `objects` and `size` leave out nbdata's own files, as everywhere."""

    objects: int = 0
    size: int = 0
    disk: int = 0
    fills: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FILLS, 0))

    def add(self, other: _Sums) -> None:
        self.objects += other.objects
        self.size += other.size
        self.disk += other.disk
        for name, value in other.fills.items():
            self.fills[name] += value

    def row(self, path: str, kind: str = "folder") -> Row:
        return Row(path, kind, self.size, {"objects": self.objects, "disk": self.disk, **self.fills})


@dataclass
class _Named:
    """Folders that are left out: their number, and the first names."""

    count: int = 0
    names: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        self.count += 1
        if len(self.names) < _NAMED:
            self.names.append(name)

    def __str__(self) -> str:
        names = [*self.names, "…"] if self.count > len(self.names) else self.names
        return f"{counted(self.count, 'folders')}: {', '.join(names)}"


@dataclass
class _Open:
    """A folder that is being looked through.

    `own` is what all files in it are, if it is one of nbdata's own folders or lies in one.
    """

    path: str
    told: str
    own: str
    folders: Iterator[tuple[str, os.stat_result]]
    sums: _Sums


class _Walk:
    """One walk through a folder."""

    def __init__(self, run: Run, root: str, depth: int) -> None:
        self._run, self._root, self._depth = run, root, depth
        self._device = os.stat(root).st_dev
        self._mounts = mount_points() - {root}
        self._known = KnownFiles(run.context.state_dir, root)
        self._linked = set[int]()
        self._seen = 0
        self.unreadable, self.elsewhere = _Named(), _Named()
        self.links = self.again = 0
        self.uncounted = False

    def rows(self) -> Iterator[Row]:
        """Yield the row of each folder after those of the folders in it, and the total last."""
        around = [self._opened(self._root, "", "", os.stat(self._root))]
        while around:
            at = around[-1]
            if (inner := next(at.folders, None)) is not None:
                name, found = inner
                path = os.path.join(at.path, name)
                if found.st_dev != self._device or path in self._mounts:
                    self.elsewhere.add(f"{at.told}{name}/")
                    continue
                own = at.own or ("partial" if is_own_name(name) else "")
                if is_own_name(os.path.basename(at.path)) and is_any_cache(name):
                    own = "caches"
                around.append(self._opened(path, f"{at.told}{name}/", own, found))
                continue
            around.pop()
            self._known.leave(at.path)
            if around:
                around[-1].sums.add(at.sums)
                in_own = is_own_name(os.path.basename(at.path)) or not at.own
                if len(around) <= self._depth and in_own:
                    yield at.sums.row(at.told)
            else:
                yield at.sums.row("", "total")

    def _opened(self, path: str, told: str, own: str, found: os.stat_result) -> _Open:
        """Count the files in a folder, and return it with the folders in it."""
        sums, folders = _Sums(disk=found.st_blocks * 512), list[tuple[str, os.stat_result]]()
        self._known.enter(path)
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    self._seen += 1
                    if self._seen % _LOOK == 0:
                        self._run.control.advance(files=_LOOK)
                        self._run.control.checkpoint()
                    try:
                        inner = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:  # deleted meanwhile
                        continue
                    if stat.S_ISDIR(inner.st_mode):
                        folders.append((entry.name, inner))
                    else:
                        self._count(path, entry.name, own, inner, sums)
        except OSError as error:
            if path == self._root:
                raise disk_error(error, path) from error
            if not isinstance(error, FileNotFoundError):
                self.unreadable.add(f"{told} ({os.strerror(error.errno or 0)})")
        folders.sort(key=lambda inner: inner[0])
        return _Open(path, told, own, iter(folders), sums)

    def _count(self, folder: str, name: str, own: str, found: os.stat_result, sums: _Sums) -> None:
        is_file = stat.S_ISREG(found.st_mode)
        self.links += stat.S_ISLNK(found.st_mode)
        own = own or ("partial" if is_unfinished(name) else "")
        if own == "partial" and is_any_cache(name.removesuffix(LOCK)):
            own = "caches"
        sums.objects += is_file and not own
        if found.st_nlink > 1:
            if found.st_ino in self._linked:
                self.again += 1
                return
            if len(self._linked) < _MOST_LINKED:
                self._linked.add(found.st_ino)
            else:
                self.uncounted = True
        disk = found.st_blocks * 512
        sums.disk += disk
        if not own:
            sums.size += found.st_size if is_file else 0
        if is_file:
            known = not own and self._known.has(os.path.join(folder, name), found)
            sums.fills[own or ("known" if known else "only_here")] += disk


def fills(run: Run, op: Du, folder: str) -> Report:
    """Look through a folder, and sum it up."""
    walk = _Walk(run, folder, op.depth)
    rows = run.row_file("report")
    largest: list[tuple[int, int, Row]] = []
    for row in walk.rows():
        rows.add(row)
        if row.action == "total":
            break
        heapq.heappush(largest, (row.detail["disk"], -rows.count, row))
        if len(largest) > _SHOWN:
            heapq.heappop(largest)
    rows.close()
    total = row.detail
    report = Report(
        "du",
        op.place,
        headline=f"{format_size(total['disk'])} on disk; "
        f"{format_size(row.size)} in {counted(total['objects'], 'objects')}",
        details={"base": folder.rstrip("/") + "/", "bytes": row.size, **total},
    )
    shown = [each for _, _, each in sorted(largest, reverse=True)]
    told = f"the largest {len(shown)} of {rows.count - 1:,}; report.rows has all"
    parts = [fill for fill in FILLS if total[fill]]
    report.tables = [
        {
            "caption": told if rows.count - 1 > len(shown) else "",
            "head": ["disk", *(fill.replace("_", " ") for fill in parts), "size", "objects", "folder"],
            "rows": [_cells(each, printable(each.path), parts) for each in shown],
            "foot": [_cells(row, "total", parts)],
        }
    ]
    report.notes += _notes(walk)
    report.rows = rows.rows()
    return report


def _cells(row: Row, name: str, parts: list[str]) -> list[str]:
    detail = row.detail
    sizes = [format_size(detail[part]) if detail[part] else "–" for part in parts]
    # The name comes last: a long one must not push the numbers out of sight.
    return [format_size(detail["disk"]), *sizes, format_size(row.size), f"{detail['objects']:,}", name]


def _notes(walk: _Walk) -> list[str]:
    """Say what was left out."""
    notes = []
    if walk.unreadable.count:
        notes.append(f"not counted, because the disk refuses to read it: {walk.unreadable}")
    if walk.elsewhere.count:
        notes.append(f"not counted, because another file system is mounted there: {walk.elsewhere}")
    if walk.again:
        notes.append(f"{counted(walk.again, 'further names')} of files that have several: counted once")
    if walk.uncounted:
        notes.append(f"after {_MOST_LINKED:,} files with several names, others were counted once per name")
    if walk.links:
        notes.append(f"{counted(walk.links, 'links')} not followed")
    return notes
