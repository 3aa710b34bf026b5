"""Remember the symbolic links and folders of an archive that is unpacked into a store; a store has neither."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any, NamedTuple

from nbdata.archives.member import Member
from nbdata.engine.unpack.written import Written, own_data, own_record

__all__ = ["AT_THE_END", "Folders", "SymbolicLink", "SymbolicLinks", "left_out"]

#: Added to the offset of a link in the record of its copy: copies are made after all members, so no checkpoint counts
#: them.
AT_THE_END = 1 << 62

# The longest chain of symbolic links that is followed.
_HOPS = 40
# Number of names in a note.
_NAMED = 3


class SymbolicLink(NamedTuple):
    """A symbolic link of the archive.

    Attributes
    ----------
    name : str
        Path of the link.
    offset : int
        Offset of its member in the archive.
    fingerprint : str
        Fingerprint of the volumes that were read up to the link.
    linkname : str
        The target, relative to the link's folder.
    leads_to : str or None
        The path that it leads to when all links are followed; None if they form a loop.
    """

    name: str
    offset: int
    fingerprint: str
    linkname: str
    leads_to: str | None


class SymbolicLinks:
    """Remembers links in the index: their targets may come later in the archive, even in another run."""

    def __init__(self, written: Written) -> None:
        self._written = written
        self._prefix = f"{written.own('links')}/"

    def remember(self, member: Member, fingerprint: str) -> None:
        """Record a link."""
        data = [member.linkname, member.offset, fingerprint]
        self._written.index.put({self._prefix + member.name: own_record(data)})

    def forget(self, name: str) -> None:
        """Remove the record of a link, if there is one: another member takes its place."""
        if self._written.index.get(self._prefix + name) is not None:
            self._written.index.put({self._prefix + name: None})

    def all(self) -> Iterator[SymbolicLink]:
        """The remembered links, in the archive's order; all of them are in memory meanwhile."""
        links: dict[str, tuple[str, int, str]] = {}
        for path, record in self._written.index.records():
            if path.startswith(self._prefix):
                data: Any = own_data(record)
                if data[2] in self._written.fingerprints:
                    links[path.removeprefix(self._prefix)] = tuple(data)
        for name, (linkname, offset, fingerprint) in sorted(links.items(), key=lambda link: link[1][1]):
            yield SymbolicLink(name, offset, fingerprint, linkname, _leads_to(name, links))


def _leads_to(name: str, links: dict[str, tuple[str, int, str]]) -> str | None:
    for _ in range(_HOPS):
        name = posixpath.normpath(posixpath.join(posixpath.dirname(name), links[name][0]))
        if name not in links:
            return name
    return None


class Folders:
    """The folders of an archive, and which of them are empty; all names are in memory."""

    def __init__(self) -> None:
        self._filled: dict[str, bool] = {}

    def saw(self, member: Member) -> None:
        """Note a member."""
        self._filled[posixpath.dirname(member.name)] = True
        if member.kind == "folder":
            self._filled.setdefault(member.name, False)

    @property
    def empty(self) -> list[str]:
        """The folders without any content."""
        return [name for name, filled in self._filled.items() if not filled]


def left_out(one: str, many: str, names: list[str], *, where: str = "stores") -> list[str]:
    """A list with one note about what was left out; empty if nothing was."""
    if not names:
        return []
    shown = ", ".join(names[:_NAMED]) + (" …" if len(names) > _NAMED else "")
    count = f"1 {one} was" if len(names) == 1 else f"{len(names):,} {many} were"
    return [f"{count} left out, since {where} have none: {shown}"]
