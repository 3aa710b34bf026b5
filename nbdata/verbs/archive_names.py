"""The names of an archive that `pack` makes, and of its volumes."""

from __future__ import annotations

import re
from typing import NamedTuple

from nbdata.errors import BadOption
from nbdata.paths import has_glob

__all__ = ["ARCHIVES", "NUMBER", "SIDECAR", "ArchiveNames", "format_of", "refuse_unwritten"]

#: The place of the number in the name of a shard: %06d, or {000000..000099}.
NUMBER = re.compile(r"%0?(\d*)d|\{(\d+)\.\.(\d+)\}")

#: Formats of archives, each with its possible file extensions.
ARCHIVES = {
    "tar": (".tar",),
    "tar.gz": (".tar.gz", ".tgz"),
    "tar.zst": (".tar.zst", ".tzst"),
    "zip": (".zip",),
}
# Suffixes of archives that cannot be written; the last ones cannot be unpacked either.
_NOT_READ = (".7z", ".rar", ".tar.lz")
_UNWRITTEN = (".tar.xz", ".txz", ".tar.bz2", ".tbz2", ".tbz", ".tar.lz4", *_NOT_READ)
#: The suffix of a volume's checksum file.
SIDECAR = ".md5"
# Minimum digits of the number of a volume.
_DIGITS = 3


def format_of(target: str) -> str | None:
    """Return the archive format that the name of a target implies; None if it implies shards.

    Examples
    --------
    >>> format_of("s3://b/x.tar.gz"), format_of("s3://b/x-%06d.tar"), format_of("/data/shards/")
    ('tar.gz', None, None)
    """
    if NUMBER.search(target.rpartition("/")[2]):
        return None
    for name, ends in ARCHIVES.items():
        if name != "tar" and target.lower().endswith(ends):
            return name
    return None


def refuse_unwritten(target: str) -> None:
    """Raise BadOption if a target is called like an archive that cannot be written."""
    name = target.rpartition("/")[2]
    if (end := next((end for end in _UNWRITTEN if name.lower().endswith(end)), "")) and name.lower() != end:
        stem = name[: -len(end)]
        raise BadOption(
            f"{end} archives are read, not written"
            if end not in _NOT_READ
            else f"{end} archives are not written",
            path=target,
            expected="tar, tar.gz, tar.zst or zip",
            remedy=f"Call it {stem}.tar.zst, for example",
        )


class ArchiveNames(NamedTuple):
    """The names of one archive and its volumes.

    Attributes
    ----------
    folder : str
        URL or path of their folder; ends in a slash.
    name : str
        Name of the archive.
    numbered : bool
        Whether it is cut into volumes.
    first : int
        The number of the first volume.
    """

    folder: str
    name: str
    numbered: bool
    first: int = 0

    @classmethod
    def of(cls, target: str, form: str, *, numbered: bool) -> ArchiveNames:
        """Return the names that a target means.

        Raises
        ------
        BadOption
            If it is a folder or a pattern, or has the extension of another format.
        """
        folder, _, name = target.rpartition("/")
        if not name:
            inside = folder.rpartition("/")[2] or "archive"
            raise BadOption(
                f"--format {form}: {target} is a folder",
                expected=f"the name of one archive, such as {target}{inside}.{form}",
            )
        if has_glob(name):
            raise BadOption(f"--format {form}: {name} is a pattern", expected="the name of one archive")
        if not name.lower().endswith(ARCHIVES[form]) or name.lower() in ARCHIVES[form]:
            raise BadOption(
                f"--format {form}: {name} has another extension",
                expected=f"a name that ends in {' or '.join(ARCHIVES[form])}",
            )
        return cls(folder + "/", name, numbered, int(form == "zip"))

    @property
    def other_form(self) -> ArchiveNames:
        """The names of the same archive in volumes if these are for a single file, and vice versa."""
        return self._replace(numbered=not self.numbered)

    def volume(self, number: int, most: int) -> str:
        """Return the name of a volume, by its number from 0; `most` is the maximum number of volumes."""
        if not self.numbered:
            return self.name
        return f"{self.name}.{number + self.first:0{max(_DIGITS, len(str(most - 1 + self.first)))}d}"

    def number(self, name: str) -> int | None:
        """Return the number from 0 of a volume's name, of any width; None for another name."""
        if not self.numbered:
            return 0 if name == self.name else None
        match = re.fullmatch(re.escape(self.name) + r"\.(\d{3,9})", name)
        return int(match[1]) - self.first if match else None

    def is_one(self, name: str) -> bool:
        """True if a name in the folder is the name of a volume or of its checksum file."""
        return self.number(name.removesuffix(SIDECAR)) is not None
