"""How an archive that `pack` makes is called, and its volumes."""

from __future__ import annotations

import re
from typing import NamedTuple

from nbdata.errors import BadOption
from nbdata.paths import has_glob

__all__ = ["ARCHIVES", "NUMBER", "SIDECAR", "ArchiveNames", "format_of", "refuse_unwritten"]

#: Where the number of a shard stands: %06d, or {000000..000099}.
NUMBER = re.compile(r"%0?(\d*)d|\{(\d+)\.\.(\d+)\}")

#: Formats of archives, each with the ends that names of its archives may have.
ARCHIVES = {
    "tar": (".tar",),
    "tar.gz": (".tar.gz", ".tgz"),
    "tar.zst": (".tar.zst", ".tzst"),
    "zip": (".zip",),
}
# Ends of archives that cannot be written; the last can be unpacked neither.
_NOT_READ = (".7z", ".rar", ".tar.lz")
_UNWRITTEN = (".tar.xz", ".txz", ".tar.bz2", ".tbz2", ".tbz", ".tar.lz4", *_NOT_READ)
#: What stands behind the name of a volume in that of its checksum.
SIDECAR = ".md5"
# Digits of the number of a volume, at least.
_DIGITS = 3


def format_of(target: str) -> str | None:
    """The format of the one archive that a target without further word means; None if it means shards.

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
            f"{end} archives are read, not written" if end not in _NOT_READ else f"{end} archives are not written",
            path=target, expected="tar, tar.gz, tar.zst or zip", remedy=f"Call it {stem}.tar.zst, for example",
        )  # fmt: skip


class ArchiveNames(NamedTuple):
    """The names of one archive and its volumes.

    Attributes
    ----------
    folder : str
        URL or path that they lie in; ends in a slash.
    name : str
        Of the archive.
    numbered : bool
        Whether it is cut into volumes.
    first : int
        The number of the first one.
    """

    folder: str
    name: str
    numbered: bool
    first: int = 0

    @classmethod
    def of(cls, target: str, form: str, *, numbered: bool) -> ArchiveNames:
        """The names that a target means.

        Raises
        ------
        BadOption
            If it is a folder or a pattern, or called like something else than such an archive.
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
                f"--format {form}: {name} does not end as the name of such an archive",
                expected=f"a name that ends in {' or '.join(ARCHIVES[form])}",
            )
        return cls(folder + "/", name, numbered, int(form == "zip"))

    @property
    def other_form(self) -> ArchiveNames:
        """The names of the same archive in volumes if these are of one file, and the other way round."""
        return self._replace(numbered=not self.numbered)

    def volume(self, number: int, most: int) -> str:
        """The name of a volume, by its number from 0; `most` is how many there can be."""
        if not self.numbered:
            return self.name
        return f"{self.name}.{number + self.first:0{max(_DIGITS, len(str(most - 1 + self.first)))}d}"

    def number(self, name: str) -> int | None:
        """The number from 0 of what is called like a volume, whatever its width; None for another name."""
        if not self.numbered:
            return 0 if name == self.name else None
        found = re.fullmatch(re.escape(self.name) + r"\.(\d{3,9})", name)
        return int(found[1]) - self.first if found else None

    def is_one(self, name: str) -> bool:
        """Whether a name in the folder is that of a volume, or of its checksum."""
        return self.number(name.removesuffix(SIDECAR)) is not None
