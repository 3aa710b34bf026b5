"""Select objects from a listing by globs, file lists, samples and limits; streamed, in key order."""

from __future__ import annotations

import hashlib
import heapq
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from nbdata.errors import BadOption, NotFound
from nbdata.paths import PIPED_LISTS, glob_base
from nbdata.stores.base import ObjectInfo
from nbdata.verbs.options import Filtering, Selecting

__all__ = [
    "Entry",
    "Looked",
    "PathFilter",
    "Selection",
    "glob_filter",
    "glob_regex",
    "may_match_below",
    "read_paths",
]

# How many names of unselected objects an error shows.
_NAMED = 3
# Braces and commas in brackets stand for themselves.
_PLAIN = re.compile(r"\[[!^]?[{},]+\]")


class Entry(NamedTuple):
    """One object of the source: its path relative to the source, and its metadata from the store."""

    path: str
    info: ObjectInfo


def glob_regex(pattern: str) -> re.Pattern[str]:
    """Convert a glob to a regular expression for the whole relative path.

    ``*`` and ``?`` stay within a folder, ``**`` crosses folders. ``[…]``, ``{a,b}`` and ``{00..19}`` work as in a
    shell; ``[{]``, ``[}]``, ``[,]`` and ``[[]`` are those characters themselves. A pattern that matches a folder
    selects everything below it.

    Raises
    ------
    BadOption
        If the pattern has an unfinished bracket or brace.
    """
    import braceexpand

    plain = _PLAIN.sub(lambda match: re.sub("[{},]", r"\\\g<0>", match[0]), pattern)
    if not re.search(r"(?<!\\)\{", plain):
        plain = re.sub(r"(?<!\\)\}", r"\}", plain)  # it closes nothing
    typed = pattern.removeprefix("**/")
    try:
        alternatives = list(braceexpand.braceexpand(plain))
    except ValueError:
        raise BadOption(
            f"glob {typed!r} has an unfinished brace", remedy="Close it, or write [{] for a brace itself"
        ) from None
    return re.compile("|".join(f"(?:{_translate(a, typed)})" for a in alternatives) + r"", re.DOTALL)


def _translate(pattern: str, typed: str) -> str:
    """Convert one alternative of the glob that the user typed."""
    out, at = "", 0
    while at < len(pattern):
        char = pattern[at]
        if pattern.startswith("**/", at):
            out, at = out + r"(?:.*/)?", at + 3
        elif pattern.startswith("**", at):
            out, at = out + r".*", at + 2
        elif char == "*":
            out, at = out + r"[^/]*", at + 1
        elif char == "?":
            out, at = out + r"[^/]", at + 1
        elif char == "[":
            end = pattern.find("]", at + 2)
            if end < 0:
                raise BadOption(
                    f"glob {typed!r} has an unfinished bracket", remedy="Write [[] for a bracket itself"
                )
            body = pattern[at + 1 : end].replace("\\", r"\\").replace("[", r"\[")
            body = "^" + body[1:] if body[0] in "!^" else body
            out, at = out + f"(?!/)[{body}]", end + 1
        else:
            out, at = out + re.escape(char), at + 1
    return out + r"(?:/.*)?"


def _relative(pattern: str) -> str:
    """Remove what only says where a pattern starts (``/x`` or ``./x``), or that it is a folder (``x/``)."""
    return pattern.removeprefix("./").strip("/")


def may_match_below(pattern: str, folder: str) -> bool:
    """Whether a glob may match something below an unread folder. Only a False answer is certain."""
    pattern = _relative(pattern)
    below, base = folder + "/", glob_base(pattern)
    deep = "**" in pattern or pattern.count("/") > folder.count("/")
    return deep and (base.startswith(below) or below.startswith(base))


def glob_filter(include: Iterable[str], exclude: Iterable[str]) -> Callable[[str], bool]:
    """Return a test for relative paths: one must match an `include` (if there are any) and no `exclude`.

    A pattern without a slash matches at any depth, as in rclone and gitignore.
    """

    def compiled(patterns: Iterable[str]) -> list[re.Pattern[str]]:
        return [glob_regex(_relative(p) if "/" in p.rstrip("/") else f"**/{_relative(p)}") for p in patterns]

    wanted, unwanted = compiled(include), compiled(exclude)

    def passes(path: str) -> bool:
        if wanted and not any(p.fullmatch(path) for p in wanted):
            return False
        return not any(p.fullmatch(path) for p in unwanted)

    return passes


class PathFilter:
    """The filters of an operation: a test for paths relative to its source.

    This is the one place that applies the options of the group `Filtering`, for every verb.

    Parameters
    ----------
    operation : Filtering
    """

    def __init__(self, operation: Filtering) -> None:
        self.passes = glob_filter(operation.include, operation.exclude)
        self._allowed = glob_filter((), operation.exclude)
        # A pattern without a slash matches at any depth.
        self._include = [p.lstrip("/") if "/" in p.rstrip("/") else "**" for p in operation.include]

    def may_hold(self, folder: str) -> bool:
        """Whether something below an unread folder may pass, by a filter that names only what lies below it."""
        return any(may_match_below(pattern, folder) for pattern in self._include) and self._allowed(folder)


def read_paths(file: str) -> set[str]:
    """Read relative paths from a file, one per line. NotFound if unreadable, BadOption if not a regular file."""

    def opened(path: str, flags: int) -> int:
        return os.open(path, flags | os.O_NONBLOCK)  # otherwise, opening a pipe without a writer blocks

    try:
        with open(file, encoding="utf-8", errors="surrogateescape", opener=opened) as lines:
            if not stat.S_ISREG(os.fstat(lines.fileno()).st_mode):
                raise BadOption(
                    "--files-from is no file", path=file,
                    remedy="Write the list into a file; only the command line takes it from a pipe",
                )  # fmt: skip
            return {line.rstrip("\r\n").removeprefix("./") for line in lines} - {""}
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

    There are two steps: `named` looks at the paths alone, `limited` draws and counts.

    A sample is drawn by a hash of seed and path. So it does not depend on the order of the listing, and hardly changes
    when objects are added. Limits count selected objects whether they are already fetched or not, so running the same
    command again resumes the same selection.

    Parameters
    ----------
    operation : Selecting
    """

    def __init__(self, operation: Selecting) -> None:
        self._op = operation
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
        among = (
            "the first " * (self._op.max_bytes is not None)
            + f"{looked.count:,} object{'s' * (looked.count != 1)}"
            + (f": {what}" if what else "")
        )
        text = f"nothing was selected by {', '.join(given)} of {among}"
        if self._op.max_bytes is not None:
            text += "; --max-bytes ends before the first object that would exceed it, in key order"
        return text

    def apply(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yield the selected entries, in the order of the listing."""
        return self.limited(self.named(entries))

    def named(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yield the entries that the filters and the file list select; these look at the path alone."""
        chosen = iter(entries)
        if self._op.filtered:
            passes = PathFilter(self._op).passes
            chosen = (e for e in entries if passes(e.path))
        return chosen if self._op.files_from is None else self._listed(chosen, self._op.files_from)

    def limited(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yield the entries that the sample and the limits select."""
        chosen = iter(entries)
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
