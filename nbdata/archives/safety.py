"""Decides where members may be written: checks their names before anything is written.

The rules are those of Python's ``data`` filter (PEP 706), with three differences:

* They look at names only, never at a disk, because the target may be a store. Links are known from the archive
  itself. A member whose path leads *through* an earlier symbolic link is refused, wherever the link points. A folder
  in place of a link and a link in place of a folder are refused too. Link targets are passed on in normalised form,
  with ``..`` only at the front. Such a link stays inside the target whatever is extracted later (the escapes of
  CVE-2025-4330 and its siblings mix ``..`` with other links).
* Any ``..`` in a name is refused. A slash at the start of a name is removed, as by the ``data`` filter. A symbolic
  link whose target starts with a slash is refused.
* ``.nbdata``, in any case and at any depth, is refused: it holds our own records.

The writer must not follow a symbolic link that was in the target before. It must *replace* an older entry of the same
name (``os.replace``) and not write into it.
"""

from __future__ import annotations

import posixpath
import unicodedata
from collections.abc import Iterable

from nbdata.archives.member_budget import MemberBudget, bytes_of
from nbdata.errors import BadArchive, UnsafeMember
from nbdata.paths import is_own_name

__all__ = ["PATH_MAX", "PathGuard", "components", "shortened"]

#: Bytes in a path that a system call takes; also limits the work for each member.
PATH_MAX = 4096
_NAME_MAX = 255  # bytes in one component, on every file system that matters
_SHOWN = 200  # characters of a name in a message
_REMEDY = "Do not trust this archive. --list shows its names; --members or --exclude selects members with safe names"


def components(name: str) -> list[str]:
    """Split a member's name into its parts, without ``.`` and empty ones."""
    return [part for part in name.split("/") if part not in ("", ".")]


def shortened(name: str) -> str:
    """Shorten a name for messages; archives may contain names of several megabytes."""
    return name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"


# Folders and links are remembered under their paths here, and once more by those who write them.
_TWICE = 2
# Folders whose final paths are kept at hand, with names up to this length; others are found again each time.
_RESOLVED, _RESOLVED_NAME = 10_000, 512


class PathGuard:
    """Decides final paths and records which paths the archive has used so far.

    It remembers the path of every file, folder and link, and of the folders that they lie in. Those who write members
    remember and record the same paths. So it counts here what a member takes everywhere.

    Parameters
    ----------
    strip_components : int
        Leading components to remove from every member's name.
    forgotten : bool
        Whether there may be earlier files that are not recorded; hard links may lead to them.
    budget : MemberBudget, optional
        What the members may take.
    """

    def __init__(
        self, *, strip_components: int = 0, forgotten: bool = False, budget: MemberBudget | None = None
    ) -> None:
        self._spend = (budget or MemberBudget()).spend
        self._strip, self._forgotten = strip_components, forgotten
        self._files: set[str] = set()
        self._folders: set[str] = set()  # case-folded, like the keys of _links
        self._links: dict[str, str] = {}  # folded path -> target as written
        self._link_lengths: set[int] = set()
        self._filed: set[str] = set()  # folders of files
        self._resolved: dict[str, str] = {}  # folder as named -> its final path; both with trailing slash

    def restore(self, earlier: Iterable[tuple[str, str, str]]) -> None:
        """Record (path, kind, linkname) of earlier members, which were checked when they were read."""
        for path, kind, linkname in earlier:
            if kind == "symlink":
                self.add_symlink(path, linkname)
            elif kind == "folder":
                self.add_folder(path)
            else:
                self.add_file(path)

    def path(self, name: str) -> str | None:
        """Return the final relative path of a member; None if nothing remains of its name.

        Raises
        ------
        UnsafeMember
            If the name holds ``..``, NUL, ``.nbdata`` or a component over 255 bytes, or is longer than 4,096,
            or if the path leads through a symbolic link of this archive.
        """
        folder, slash, base = name.rpartition("/")
        folder += slash  # "" and "/" differ
        if not self._links and base.isascii() and 0 < len(base) <= _NAME_MAX and base[0] != ".":
            resolved = self._resolved.get(folder)
            if resolved is not None and "\0" not in base:
                return resolved + base
        if len(name) > PATH_MAX:
            raise _unsafe(name, f"has a name of more than {PATH_MAX:,} bytes")
        parts = components(name)
        if ".." in parts:
            raise _unsafe(name, "has a name with '..'")
        if "\0" in name:
            raise _unsafe(name, "has a NUL character in its name")
        for part in parts:
            if is_own_name(part):
                raise _unsafe(name, "would land among nbdata's own records")
            if len(part.encode("utf-8", "surrogateescape")) > _NAME_MAX:
                raise _unsafe(name, f"has a component of more than {_NAME_MAX} bytes in its name")
        kept = parts[self._strip :]
        if self._links and (link := self._link_above(kept)):
            raise _unsafe(name, f"would be written through the symbolic link {link}")
        if kept and len(parts) > self._strip and parts[-1] == base and len(folder) <= _RESOLVED_NAME:
            if len(self._resolved) >= _RESOLVED:
                self._resolved.clear()
            self._resolved[folder] = "".join(f"{part}/" for part in kept[:-1])
        return "/".join(kept) or None

    def add_file(self, path: str) -> None:
        """Record that this path now holds a file."""
        self._spend(bytes_of(path), path)
        parent = path.rpartition("/")[0]
        if parent not in self._filed:
            self._add_parents(path)
            self._filed.add(parent)
        if self._links:
            self._links.pop(_fold(path), None)
        self._files.add(path)

    def add_folder(self, path: str) -> None:
        """Record a folder; refused where the path holds a symbolic link."""
        if _fold(path) in self._links:
            raise _unsafe(path, "is a folder in place of an earlier symbolic link")
        self._spend(_TWICE * bytes_of(path), path)
        self._add_parents(path)
        self._folders.add(_fold(path))

    def add_symlink(self, path: str, target: str) -> str:
        """Record a symbolic link and return its target in normalised form.

        Raises
        ------
        UnsafeMember
            If the target is empty, longer than 4,096, absolute or outside, or the link would take a folder's place.
        """
        if _fold(path) in self._folders:
            raise _unsafe(path, "is a symbolic link in place of an earlier folder")
        if not target or "\0" in target:
            raise _unsafe(path, "is a symbolic link to no valid name")
        if len(target) > PATH_MAX:
            raise _unsafe(path, f"is a symbolic link to a name of more than {PATH_MAX:,} bytes")
        if target.startswith("/"):
            raise _unsafe(path, f"is a symbolic link to an absolute path, {shortened(target)}")
        reached = components(posixpath.normpath(posixpath.join(posixpath.dirname(path), target)))
        if ".." in reached:
            raise _unsafe(path, f"is a symbolic link that leaves the target, to {shortened(target)}")
        if any(map(is_own_name, reached)):
            raise _unsafe(path, "is a symbolic link to nbdata's own records")
        self._spend(_TWICE * (bytes_of(path) + bytes_of(target)), path)
        self._add_parents(path)
        self._files.discard(path)
        folded = _fold(path)
        self._links[folded] = target
        self._link_lengths.add(len(folded))
        return posixpath.normpath(target)

    def hard_link_target(self, path: str, linkname: str) -> tuple[str, str]:
        """Return the entry for a hard link: ``("hardlink", path of a file)`` or ``("symlink", target)``.

        A hard link to a symbolic link becomes another symbolic link, so it is checked as one at its new place.

        Raises
        ------
        UnsafeMember
            If its target's name is unsafe.
        BadArchive
            If no member of that name came before it.
        """
        try:
            target = self.path(linkname)
        except UnsafeMember as error:
            raise _unsafe(path, f"is a hard link to an unsafe name, {shortened(linkname)}") from error
        if target is not None and _fold(target) in self._links:
            return "symlink", self._links[_fold(target)]
        if target is None or (target not in self._files and not self._forgotten):
            raise BadArchive(
                f"member {shortened(path)} is a hard link to {shortened(linkname)}, which did not come before it, "
                "or was left out",
                path=shortened(path),
                remedy="If --members or --strip-components left it out, take it in as well",
            )
        return "hardlink", target

    def _link_above(self, parts: list[str]) -> str:
        """Return the folder of a path that is a symbolic link; empty if none is."""
        folded = _fold("/".join(parts))
        end = folded.find("/")
        for length in range(1, len(parts)):
            # Only such prefixes are made as are as long as a link: a name may have 2,000.
            if end in self._link_lengths and folded[:end] in self._links:
                return "/".join(parts[:length])
            end = folded.find("/", end + 1)
        return ""

    def _add_parents(self, path: str) -> None:
        parent = _fold(path).rpartition("/")[0]
        while parent and parent not in self._folders:
            self._spend(_TWICE * bytes_of(parent), path)
            self._folders.add(parent)
            parent = parent.rpartition("/")[0]


def _fold(path: str) -> str:
    """Return one key for all names that a disk may treat as the same (macOS ignores case and composition)."""
    return path.lower() if path.isascii() else unicodedata.normalize("NFC", path.casefold())


def _unsafe(name: str, what: str) -> UnsafeMember:
    name = shortened(name)
    return UnsafeMember(f"member {name!r} {what}", path=name, remedy=_REMEDY)
