"""Globs as regular expressions: of the paths in a place, and of the names in an archive."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator

from nbdata.errors import BadOption
from nbdata.paths import glob_base

__all__ = ["glob_filter", "glob_regex", "may_match_below"]

# Braces and commas in brackets stand for themselves.
_PLAIN = re.compile(r"\[[!^]?[{},]+\]")


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
    numbers = itertools.count()
    try:
        return re.compile("|".join(f"(?:{_translate(a, typed, numbers)})" for a in alternatives), re.DOTALL)
    except re.error:
        raise BadOption(
            f"glob {typed!r} has a bracket with a range that runs backwards", remedy="Write [a-z], not [z-a]"
        ) from None


def _translate(pattern: str, typed: str, numbers: Iterator[int]) -> str:
    """Convert one alternative of the glob that the user typed; `numbers` name its groups.

    Others choose the paths. If each place for a wildcard was tried with each place for the next ones, some paths would
    take the n-th power of their length, with n wildcards. But of the places for text between two wildcards, only the
    first one matters: the second wildcard takes what lies between that and a later one. So no other place is tried.
    """
    first, *others = stretches = _stretches(pattern, typed)
    out = _within(first, others, numbers)
    for number, stretch in enumerate(others, 2):
        following = stretches[number:]
        within = _within(stretch, following, numbers)
        if following and (stretch == [""] or _is_taken_on(stretch, following)):
            out += _once(f"(?:.*?/)??{within}", numbers)
        else:
            out += f"(?:.*/)?{within}"
    return out + r"(?:/.*)?"


def _within(stretch: list[str], following: list[list[str]], numbers: Iterator[int]) -> str:
    """Convert what lies between two ``**/``."""
    out, last = stretch[0], len(stretch) - 1
    for number, text in enumerate(stretch[1:], 1):
        once = number < last or _is_taken_on(stretch, following)
        out += _once(f"[^/]*?{text}", numbers) if once else f"[^/]*{text}"
    return out


def _is_taken_on(stretch: list[str], following: list[list[str]]) -> bool:
    """Whether the ``**/`` behind a stretch takes all that lies between two places for its end."""
    if not following:
        return False
    return stretch[-1].endswith("/") or (len(following[0]) > 1 and not following[0][0])


def _once(pattern: str, numbers: Iterator[int]) -> str:
    """Have a regular expression match at the first place that it finds, or not at all; ``(?>…)`` since Python 3.11."""
    name = f"g{next(numbers)}"
    return f"(?=(?P<{name}>{pattern}))(?P={name})"


def _stretches(pattern: str, typed: str) -> list[list[str]]:
    """Split a glob at each ``**/``, and these stretches at each ``*``; return regular expressions of the texts.

    Another ``**`` stands for ``**/*``.
    """
    found, at = [[""]], 0
    while at < len(pattern):
        char = pattern[at]
        if pattern.startswith("**/", at):
            found, at = [*found, [""]], at + 3
        elif pattern.startswith("**", at):
            found, at = [*found, ["", ""]], at + 2
        elif char == "*":
            found[-1].append("")
            at += 1
        elif char == "?":
            found[-1][-1] += r"[^/]"
            at += 1
        elif char == "[":
            negated = pattern[at + 1 : at + 2] in ("!", "^")
            end = pattern.find("]", at + 2 + negated)  # directly behind "[" or "[!" it stands for itself
            if end < 0:
                raise BadOption(
                    f"glob {typed!r} has an unfinished bracket", remedy="Write [[] for a bracket itself"
                )
            body = pattern[at + 1 : end].replace("\\", r"\\").replace("[", r"\[")
            body = "^" + body[1:] if negated else body
            found[-1][-1] += f"(?!/)[{body}]"
            at = end + 1
        else:
            found[-1][-1] += re.escape(char)
            at += 1
    return found


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
