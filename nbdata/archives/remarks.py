"""What a reader of archives left out or put right, for the report to say."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Remarks"]

_NAMED = 3


@dataclass
class Remarks:
    """What was odd about an archive, and is no error.

    Attributes
    ----------
    stripped : list of str
        Files and links that `strip_components` left nothing of: the first names, and one more if there are more.
    nameless : int
        Files and links whose name is empty or means the target itself, such as ``.``.
    absolute : int
        Members whose name, or hard link whose target, began with ``/``, which was taken off.
    unknown : set of str
        Kinds of members that the standard does not know; they are taken for files.
    lone_blocks : int
        Zero blocks amid the archive, which were passed over.
    trailing : int
        Bytes behind the end of the compressed data.
    """

    stripped: list[str] = field(default_factory=list)
    nameless: int = 0
    absolute: int = 0
    unknown: set[str] = field(default_factory=set)
    lone_blocks: int = 0
    trailing: int = 0

    def note_stripped(self, name: str) -> None:
        """Remember a name, of the first ones."""
        if len(self.stripped) <= _NAMED:
            self.stripped.append(name)

    def notes(self) -> list[str]:
        """All of it as sentences."""
        found = []
        if self.stripped:
            shown = ", ".join(self.stripped[:_NAMED]) + (" …" if len(self.stripped) > _NAMED else "")
            found.append(f"files with no more components than were stripped are left out: {shown}")
        if self.nameless:
            found.append(
                f"members that have no name for a file ('', '.' or './'): {self.nameless:,}, left out"
            )
        if self.absolute:
            found.append(
                f"members with an absolute name: {self.absolute:,}; the leading / was taken off, "
                "so they lie below the target"
            )
        if self.unknown:
            kinds = ", ".join(repr(kind) for kind in sorted(self.unknown))
            found.append(f"members of a kind that the standard does not know ({kinds}) were taken for files")
        if self.lone_blocks:
            found.append(f"zero blocks amid the archive: {self.lone_blocks:,}, passed over")
        if self.trailing:
            found.append(
                f"behind the end of the compressed data lie {self.trailing:,} bytes that are none; left out"
            )
        return found
