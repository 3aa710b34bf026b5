"""The members that were found in a mounted archive, in little memory: an archive may have millions."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from nbdata.archives.member_budget import MemberBudget, bytes_of
from nbdata.archives.safety import shortened
from nbdata.transfer.bad_entries import why_unusable

__all__ = ["Member", "Members"]

# The most members that are left out and told by name.
_TOLD = 20
# How a member is remembered; this directory is none.
_FORM = struct.Struct("<QQdIHI?Q")
_NONE = 0xFFFF


class Member(NamedTuple):
    """Where a member is.

    Attributes
    ----------
    start : int
        Where its bytes begin in the archive; in a zip, where its header begins.
    size : int
    modified : float
    crc : int
    entry : tuple of int, int or None
        In a zip: the number of the directory, and of the member in it.
    packed : bool
        Whether it is compressed.
    begins : int
        In a zip: where its bytes begin, once its header was read; 0 before.
    """

    start: int
    size: int
    modified: float
    crc: int
    entry: tuple[int, int] | None = None
    packed: bool = False
    begins: int = 0


class Members:
    """The members by name; the last one of a name counts.

    Attributes
    ----------
    left_out : int
        How many do not show.
    some : list of str
        The first of them, with the reasons.
    """

    def __init__(self) -> None:
        self._known = dict[str, bytes]()
        self.left_out, self.some = 0, list[str]()
        self._folders = set[str]()
        self._budget = MemberBudget()

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __getitem__(self, name: str) -> Member:
        start, size, modified, crc, directory, number, packed, begins = _FORM.unpack(self._known[name])
        entry = None if directory == _NONE else (directory, number)
        return Member(start, size, modified, crc, entry, packed, begins)

    def __setitem__(self, name: str, member: Member) -> None:
        start, size, modified, crc, entry, packed, begins = member
        self._known[name] = _FORM.pack(start, size, modified, crc, *(entry or (_NONE, 0)), packed, begins)

    def add(self, name: str, member: Member) -> None:
        """Add a member if its name can be that of a file.

        Raises
        ------
        BadArchive
            If the names take too much memory.
        """
        if why := why_unusable(name, "", text_only=False):
            self.leave_out(name, f"does not show: {why}")
            return
        if any(part in ("", ".", "..") for part in name.split("/")):
            self.leave_out(name, "is no name of a file")
            return
        if name not in self._known:
            self._budget.spend(bytes_of(name), name)
            above = name
            while "/" in above:
                above = above.rpartition("/")[0]
                if above in self._folders:
                    break
                self._folders.add(above)
                self._budget.spend(2 * bytes_of(above), name)
        self[name] = member

    def end(self) -> None:
        """Let go of what only adding needs."""
        self._folders.clear()

    def leave_out(self, name: str, why: str) -> None:
        """Count a member that does not show."""
        self._known.pop(name, None)
        self.left_out += 1
        if len(self.some) < _TOLD:
            self.some.append(f"{shortened(name)!r} {why}")
