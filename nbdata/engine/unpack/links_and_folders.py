"""Symbolic links and folders of an archive that is unpacked into a store, which has neither."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any, NamedTuple

from nbdata.archives.member import Member
from nbdata.engine.unpack.written import Written, own_data, own_record

__all__ = ["AT_THE_END", "Folders", "SymbolicLink", "SymbolicLinks", "left_out"]

#: Added to the offset of a link in the record of its copy: copies are made behind all members, and no checkpoint counts
#: them.
AT_THE_END = 1 << 62

# Symbolic links that may lead to each other.
_HOPS = 40
# Names in a note.
_NAMED = 3


class SymbolicLink(NamedTuple):
    """A symbolic link of the archive.

    Attributes
    ----------
    name : str
        Its path.
    offset : int
        Of its member in the archive.
    fingerprint : str
        Of the volumes that were read when it came.
    linkname : str
        Where it leads, relative to its folder.
    leads_to : str or None
        The path that it leads to, over other links; None if they lead in a circle.
    """

    name: str
    offset: int
    fingerprint: str
    linkname: str
    leads_to: str | None


class SymbolicLinks:
    """Remembers links in the index: where they lead may come later in the archive, and in another run."""

    def __init__(self, written: Written) -> None:
        self._written = written
        self._prefix = f"{written.own('links')}/"

    def remember(self, member: Member, fingerprint: str) -> None:
        """Note a link."""
        told = [member.linkname, member.offset, fingerprint]
        self._written.index.put({self._prefix + member.name: own_record(told)})

    def forget(self, name: str) -> None:
        """Another member takes the place of what may be a link."""
        if self._written.index.get(self._prefix + name) is not None:
            self._written.index.put({self._prefix + name: None})

    def all(self) -> Iterator[SymbolicLink]:
        """Those that are remembered, in the archive's order; all are in memory meanwhile."""
        links: dict[str, tuple[str, int, str]] = {}
        for path, record in self._written.index.records():
            if path.startswith(self._prefix):
                told: Any = own_data(record)
                if told[2] in self._written.fingerprints:
                    links[path.removeprefix(self._prefix)] = tuple(told)
        for name, (linkname, offset, fingerprint) in sorted(links.items(), key=lambda link: link[1][1]):
            yield SymbolicLink(name, offset, fingerprint, linkname, _leads_to(name, links))


def _leads_to(name: str, links: dict[str, tuple[str, int, str]]) -> str | None:
    for _ in range(_HOPS):
        name = posixpath.normpath(posixpath.join(posixpath.dirname(name), links[name][0]))
        if name not in links:
            return name
    return None


class Folders:
    """The folders of an archive, and which of them are empty; in memory are all of their names."""

    def __init__(self) -> None:
        self._filled: dict[str, bool] = {}

    def saw(self, member: Member) -> None:
        """A member came."""
        self._filled[posixpath.dirname(member.name)] = True
        if member.kind == "folder":
            self._filled.setdefault(member.name, False)

    @property
    def empty(self) -> list[str]:
        """Those that nothing was put into."""
        return [name for name, filled in self._filled.items() if not filled]


def left_out(one: str, many: str, names: list[str], *, where: str = "stores") -> list[str]:
    """A note about what was left out; none if that is nothing."""
    if not names:
        return []
    shown = ", ".join(names[:_NAMED]) + (" …" if len(names) > _NAMED else "")
    said = f"1 {one} was" if len(names) == 1 else f"{len(names):,} {many} were"
    return [f"{said} left out, since {where} have none: {shown}"]
