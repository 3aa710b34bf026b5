"""Select objects from a listing by globs, file lists, samples and limits; streamed, in key order."""

from __future__ import annotations

import hashlib
import heapq
import os
import stat
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from nbdata.errors import BadOption, NotFound
from nbdata.globs import glob_filter, may_match_below
from nbdata.moments import moment_of
from nbdata.paths import PIPED_LISTS
from nbdata.sizes import counted
from nbdata.stores.base import ObjectInfo
from nbdata.verbs.options import Filtering, Selecting

__all__ = [
    "Entry",
    "Filters",
    "Looked",
    "Selection",
    "read_lines",
    "read_paths",
]

# How many names of unselected objects an error shows.
_NAMED = 3


class Entry(NamedTuple):
    """One object of the source: its path relative to the source, and its metadata from the store."""

    path: str
    info: ObjectInfo


class Filters:
    """The filters of an operation: tests for an object's path relative to the source, and for its time.

    This is the one place that applies the options of the group `Filtering`, for every verb.

    Parameters
    ----------
    operation : Filtering

    Attributes
    ----------
    passes : callable
        Returns whether a path passes.
    by_time : list of str
        The flags of the filters that look at the time.
    """

    def __init__(self, operation: Filtering) -> None:
        self.passes = glob_filter(operation.include, operation.exclude)
        now, times = time.time(), {"--newer-than": operation.newer_than, "--older-than": operation.older_than}
        self._since, self._before = (
            None if text is None else moment_of(text, now) for text in times.values()
        )
        self.by_time = [flag for flag, text in times.items() if text is not None]
        self._allowed = glob_filter((), operation.exclude)
        # A pattern without a slash matches at any depth.
        self._include = [p.lstrip("/") if "/" in p.rstrip("/") else "**" for p in operation.include]

    def in_time(self, path: str, modified: float | None) -> bool:
        """Whether an object passes that was changed then, in seconds since 1970.

        Raises
        ------
        BadOption
            If the time of the object is not known, but decides.
        """
        if not self.by_time:
            return True
        if modified is None:
            raise BadOption(
                f"{self.by_time[0]}: the source does not say when this was changed", path=path,
                remedy="Select with --include or --files-from",
            )  # fmt: skip
        return (self._since is None or modified >= self._since) and (
            self._before is None or modified < self._before
        )

    def entries_in_time(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yield the objects whose times pass."""
        return (
            (e for e in entries if self.in_time(e.path, e.info.modified)) if self.by_time else iter(entries)
        )

    def may_hold(self, folder: str) -> bool:
        """Whether something below an unread folder may pass, by a filter that names only what lies below it."""
        return any(may_match_below(pattern, folder) for pattern in self._include) and self._allowed(folder)


def read_paths(file: str) -> set[str]:
    """Return the relative paths in a file; see `read_lines`."""
    return {path.removeprefix("./") for path in read_lines(file)} - {""}


def read_lines(file: str) -> list[str]:
    """Read a list from a file, one per line. NotFound if unreadable, BadOption if not a regular file."""

    def opened(path: str, flags: int) -> int:
        return os.open(path, flags | os.O_NONBLOCK)  # otherwise, opening a pipe without a writer blocks

    try:
        with open(file, encoding="utf-8", errors="surrogateescape", opener=opened) as lines:
            if not stat.S_ISREG(os.fstat(lines.fileno()).st_mode):
                raise BadOption(
                    "--files-from is no file", path=file,
                    remedy="Write the list into a file; only the command line takes it from a pipe",
                )  # fmt: skip
            return [line.rstrip("\r\n") for line in lines]
    except OSError as error:
        raise NotFound(
            f"--files-from cannot be read ({os.strerror(error.errno or 0)})", path=file,
            remedy="Name a file with relative paths, one a line",
        ) from error  # fmt: skip


def _draw(seed: int, path: str) -> int:
    digest = hashlib.blake2b(f"{seed}\0".encode() + os.fsencode(path), digest_size=8).digest()
    return int.from_bytes(digest, "big")


class Looked:
    """Counts the objects that a selection chooses from, and keeps the first names.

    Attributes
    ----------
    count : int
    names : list of str
    """

    def __init__(self) -> None:
        self.count, self.names = 0, list[str]()

    def at(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yield the entries and count them."""
        for entry in entries:
            self.count += 1
            if len(self.names) < _NAMED:
                self.names.append(entry.path)
            yield entry


class Selection:
    """The filters, sample and limits of one operation. `apply` streams the selected entries.

    There are two steps: `named` looks at the paths alone; `limited` looks at the times, draws and counts.

    A sample is drawn by a hash of seed and path. So it does not depend on the order of the listing, and hardly changes
    when objects are added. Limits count selected objects whether they are already fetched or not, so running the same
    command again resumes the same selection.

    Parameters
    ----------
    operation : Selecting
    """

    def __init__(self, operation: Selecting) -> None:
        self._op = operation
        self._filters = Filters(operation)
        self._options: dict[str, Any] = operation.options_in(Selecting)

    @property
    def given(self) -> list[str]:
        """The selection options that the user gave. Without any, everything is selected."""
        return [
            f"--{name.replace('_', '-')}"
            for name, value in self._options.items()
            if name != "seed" and value not in (None, ())
        ]

    def none_left(self, looked: Looked) -> str:
        """Explain why nothing was selected; '' if the user gave no selection options."""
        if not (given := self.given):
            return ""
        if self._op.max_files == 0:
            return "nothing was selected: --max-files is 0"
        what = ", ".join([*looked.names, "…"] if looked.count > len(looked.names) else looked.names)
        # With a limit, the rest was not even looked at.
        among = counted(looked.count, "objects") + (f": {what}" if what else "")
        options = ", ".join(given)
        if self._op.max_bytes is None:
            return f"nothing was selected by {options} of {among}"
        return (
            f"nothing was selected by {options} of the first {among}; --max-bytes ends before the first object that "
            "would exceed it, in key order"
        )

    def apply(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yield the selected entries, in the order of the listing."""
        return self.limited(self.named(entries))

    def named(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yield the entries that the filters and the file list select; these look at the path alone."""
        chosen = iter(entries)
        if self._op.filtered:
            passes = self._filters.passes
            chosen = (e for e in entries if passes(e.path))
        return chosen if self._op.files_from is None else self._listed(chosen, self._op.files_from)

    def limited(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yield the entries that the filters of time, the sample and the limits select."""
        chosen = self._filters.entries_in_time(entries)
        if self._op.sample is not None:
            chosen = self._sampled(chosen, self._op.sample)
        bounded = self._op.max_files is not None or self._op.max_bytes is not None
        return self._bounded(chosen) if bounded else chosen

    def _listed(self, entries: Iterable[Entry], file: str) -> Iterator[Entry]:
        wanted = read_paths(file)
        for entry in entries:
            if entry.path in wanted:
                wanted.discard(entry.path)
                yield entry
        if wanted:
            others = f" and {len(wanted) - 1:,} more" if len(wanted) > 1 else ""
            raise NotFound(
                f"--files-from names what the source does not have: {min(wanted)!r}{others}",
                path=PIPED_LISTS.get(os.path.splitext(file)[1], file),
                remedy="Paths are relative to SOURCE, one a line",
            )

    def _sampled(self, entries: Iterable[Entry], wanted: str) -> Iterator[Entry]:
        seed = self._op.seed
        if wanted.endswith("%"):
            bound = int(float(wanted[:-1]) / 100 * 2**64)
            yield from (e for e in entries if _draw(seed, e.path) < bound)
            return
        drawn = ((_draw(seed, e.path), number, e) for number, e in enumerate(entries))
        smallest = heapq.nsmallest(int(wanted), drawn, key=lambda d: d[:2])
        yield from (e for _, _, e in sorted(smallest, key=lambda d: d[1]))

    def _bounded(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        size = 0
        for files, entry in enumerate(entries, 1):
            size += max(entry.info.size, 0)
            if self._op.max_files is not None and files > self._op.max_files:
                return
            if self._op.max_bytes is not None and size > self._op.max_bytes:
                return
            yield entry
