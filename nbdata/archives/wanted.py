"""Selects the wanted members: globs on their names in the archive.

A pattern is matched against the member's name as ``tar --list`` shows it, without a leading ``./`` and before any
components are stripped. It matches the whole name (``**/*.jpg`` finds a name in any folder), and a pattern that matches
a folder takes everything below it; see `nbdata.globs`. Matching is case-sensitive.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from nbdata.errors import BadOption, NotFound
from nbdata.globs import glob_regex

__all__ = ["WantedMembers"]


class WantedMembers:
    """Selects members by patterns, or all members if there are none, except those that other patterns exclude.

    `unmatched` lists the patterns without a match so far, if reading does not start at the archive's beginning.
    """

    def __init__(
        self,
        patterns: Sequence[str] = (),
        *,
        exclude: Sequence[str] = (),
        unmatched: Sequence[str] | None = None,
    ) -> None:
        if isinstance(patterns, str):
            raise BadOption(f"members: {patterns!r} is one text", remedy="Give a list of patterns")
        self._patterns = {pattern: _compile(pattern) for pattern in patterns}
        self._excluded = [_compile(pattern) for pattern in exclude]
        self._unmatched = set(self._patterns) if unmatched is None else set(unmatched)

    @property
    def chooses(self) -> bool:
        """True if there are patterns; without patterns every member is taken."""
        return bool(self._patterns or self._excluded)

    def takes(self, name: str) -> bool:
        """True if a name, with components joined by ``/``, is wanted; records which patterns matched."""
        taken = True
        if self._patterns:
            matching = [pattern for pattern, regex in self._patterns.items() if regex.fullmatch(name)]
            self._unmatched.difference_update(matching)
            taken = bool(matching)
        return taken and not any(regex.fullmatch(name) for regex in self._excluded)

    @property
    def unmatched(self) -> list[str]:
        """The patterns that have matched nothing so far."""
        return sorted(self._unmatched)

    def check_all_matched(self) -> None:
        """Raise NotFound if a pattern matched nothing: this is usually a typing error."""
        if self._unmatched:
            missing = [pattern for pattern in self._patterns if pattern in self._unmatched]
            raise NotFound(
                f"no member matches {', '.join(missing)}",
                remedy="Names are matched as the archive lists them; **/NAME finds one in any folder",
                details={"patterns": missing},
            )


def _compile(pattern: str) -> re.Pattern[str]:
    text = "/".join(part for part in pattern.split("/") if part not in ("", "."))
    if not text:
        raise BadOption(f"members: {pattern!r} names nothing", remedy="Write a glob such as train/**")
    return glob_regex(text)
