"""Collects what a reader of archives left out or corrected, for the report."""

from __future__ import annotations

from dataclasses import dataclass, field

from nbdata.archives.safety import components, shortened
from nbdata.errors import UnsafeMember

__all__ = ["PADDING", "Remarks"]

#: Zeros after the end of an archive that are not worth a remark. tar pads to a record, which is 10,240 bytes unless
#: ``tar --blocking-factor`` says otherwise. Old tapes used records of up to this size.
PADDING = 64 << 10

_NAMED = 3


@dataclass
class Remarks:
    """Oddities of an archive that are not errors.

    Attributes
    ----------
    left_out : list of str
        Files and links that were not written, because `strip_components` left nothing of their names, or because their
        names are empty or mean the target itself, such as ``.``. Holds the first ones, and one more if there are more.
    absolute : int
        Members whose name, or whose hard link's target, began with ``/``; the slash was removed.
    unsafe : list of str
        Why members of a listing would be refused when they are unpacked: the first ones.
    unsafe_count : int
        The number of such members.
    unknown : set of str
        Member types that the standard does not define; they are treated as files.
    lone_blocks : int
        Zero blocks within the archive, which were skipped.
    trailing : int
        Bytes after the end of the compressed data, or of a zip archive.
    unread : int
        Bytes within a zip archive that belong to no member, nor to the archive itself.
    in_succession : int
        Zip archives that follow one another.
    repeated : int
        Names in more than one of them.
    joined : bool
        Whether a zip archive was split into volumes that somebody has joined into one file.
    zeros : int
        Zero bytes after the end of the archive.
    only_zeros : bool
        Whether at least one volume contains only zeros, where data may have been.
    guessed : str
        The encoding that was guessed for the names in a zip archive that does not say it; empty if none was.
    guesses, not_utf8 : int
        How many names were decoded so, and how many by a Unix program are not UTF-8 and were left as they are.
    """

    left_out: list[str] = field(default_factory=list)
    absolute: int = 0
    unsafe: list[str] = field(default_factory=list)
    unsafe_count: int = 0
    unknown: set[str] = field(default_factory=set)
    lone_blocks: int = 0
    trailing: int = 0
    unread: int = 0
    in_succession: int = 1
    repeated: int = 0
    joined: bool = False
    zeros: int = 0
    only_zeros: bool = False
    guessed: str = ""
    guesses: int = 0
    not_utf8: int = 0

    def leave_out(self, name: str) -> None:
        """Record a name, if it is one of the first."""
        if len(self.left_out) <= _NAMED:
            self.left_out.append(name)

    def refuse(self, error: UnsafeMember) -> None:
        """Record why a member that is only listed would be refused, if it is one of the first."""
        self.unsafe_count += 1
        if len(self.unsafe) < _NAMED:
            self.unsafe.append(error.message)

    @property
    def complete(self) -> bool:
        """True if everything in the archive was handed over."""
        return not (self.left_out or self.trailing or self.unread or self.repeated or self.only_zeros)

    def notes(self) -> list[str]:
        """Return all remarks as sentences."""
        found = []
        nameless = [name for name in self.left_out if not components(name)]
        if stripped := [shortened(name) for name in self.left_out if components(name)]:
            shown = ", ".join(stripped[:_NAMED]) + (" …" if len(self.left_out) > _NAMED else "")
            found.append(f"files with no more components than were stripped are left out: {shown}")
        if nameless:
            found.append(f"members that have no name for a file ({nameless[0]!r}) are left out")
        if self.absolute:
            found.append(
                f"members with an absolute name: {self.absolute:,}; the leading / was taken off, "
                "so they lie below the target"
            )
        if self.guessed:
            found.append(
                f"names that do not say their encoding: {self.guesses:,}, read as {self.guessed}, which is a guess; "
                "--names-encoding NAME decides"
            )
        if self.not_utf8:
            found.append(
                f"names that are not UTF-8: {self.not_utf8:,}, left as they are; --names-encoding NAME decodes them"
            )
        if self.unsafe:
            found.append(
                f"members that are refused when they are unpacked: {self.unsafe_count:,}; {'; '.join(self.unsafe)}"
                + (" …" if self.unsafe_count > len(self.unsafe) else "")
            )
        if self.unknown:
            kinds = ", ".join(repr(kind) for kind in sorted(self.unknown))
            found.append(f"members of a kind that the standard does not know ({kinds}) were taken for files")
        if self.lone_blocks:
            found.append(f"zero blocks amid the archive: {self.lone_blocks:,}, passed over")
        if self.trailing:
            found.append(
                f"behind the end of the archive lie {self.trailing:,} bytes that are no part of it; left out"
            )
        if self.unread:
            found.append(
                f"{self.unread:,} bytes of the zip archive belong to none of its members, and are not unpacked; if "
                "members are missing, 7-Zip or `zip -FF` may find those that its directory does not list"
            )
        if self.in_succession > 1:
            found.append(
                f"{self.in_succession:,} zip archives follow one another; the members of all are taken"
            )
        if self.joined:
            found.append(
                "the volumes of a split zip archive were joined into one file: each was found by its members"
            )
        if self.zeros > PADDING:
            volumes = ", which fill whole volumes" if self.only_zeros else ""
            found.append(
                f"behind the end of the archive lie {self.zeros:,} bytes of zeros{volumes}; if a transfer failed and "
                "left them, members are missing: compare the digests"
            )
        return found
