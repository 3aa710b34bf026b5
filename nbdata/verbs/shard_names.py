"""The names of numbered shards and FFRecord files, from the pattern in a target."""

from __future__ import annotations

from typing import NamedTuple

from nbdata.errors import BadOption
from nbdata.paths import has_glob
from nbdata.verbs.archive_names import NUMBER

__all__ = ["DEFAULT_SIZE", "ENDS", "ShardNames", "check_shard_size"]

# By kind of target: the name of a file if TARGET is a folder.
_DEFAULT_NAMES = {"shards": "shard-%06d.tar", "ffrecord": "PART_%05d.ffr"}
#: By kind of target: the end of names.
ENDS = {"shards": ".tar", "ffrecord": ".ffr"}
#: Maximum bytes of a shard.
DEFAULT_SIZE = 256 << 20
_MANIFEST = "index.json"


def check_shard_size(size: int | None) -> None:
    """Raise BadOption if the maximum size of a shard is too small."""
    if size is not None and size < 1 << 10:
        raise BadOption(f"--shard-size: {size} bytes is too little", expected="at least 1 KiB")


class ShardNames(NamedTuple):
    """The names of shards or FFRecord files.

    Attributes
    ----------
    folder : str
        URL or path of their folder; ends in a slash.
    before, after : str
        The text before and after the number.
    width : int
        Minimum digits of the number.
    first : int
        The first number.
    most : int or None
        The number of numbers; None for no limit.
    numbered : bool
        False for a single file, which has no number.
    """

    folder: str
    before: str
    after: str
    width: int
    first: int = 0
    most: int | None = None
    numbered: bool = True

    @classmethod
    def of(cls, target: str, made: str = "shards", *, single: str = "") -> ShardNames:
        """Return the names that a target means, by kind: ``shards`` or ``ffrecord``.

        `single` says how to make a single file, for the remedy.

        Raises
        ------
        BadOption
            If the target has no place for a number, or does not end in ``.tar``; a ``.ffr`` may be a single file.
        """
        folder, _, name = target.rpartition("/")
        name = name or _DEFAULT_NAMES[made]
        match = NUMBER.search(name)
        end = ENDS[made]
        if made == "ffrecord" and not name.endswith(end):
            raise BadOption(
                f"{name}: FFRecord files end in {end}",
                expected="a folder, which ends in a slash, or a name such as train-%05d.ffr or train.ffr",
            )
        if made == "ffrecord" and match is None and not has_glob(name):
            return cls(folder + "/", name.removesuffix(end), end, 0, most=1, numbered=False)
        if match is None or has_glob(name[: match.start()] + name[match.end() :]):
            raise BadOption(
                f"{name} has no place for the number of a shard",
                expected=f"a folder, which ends in a slash, or a name such as train-%06d{end} or "
                f"train-{{000000..000099}}{end}",
                remedy=f"Use {name.removesuffix('.tar')}-%06d.tar{single}"
                if name.endswith(".tar") and not has_glob(name)
                else "One archive is called .tar.gz, .tar.zst or .zip",
            )
        before, after = name[: match.start()], name[match.end() :]
        if not after.endswith(end):
            raise BadOption(
                f"{name}: shards end in .tar",
                remedy="Do not compress it: samples are mostly compressed already",
            )
        width, first, last = match.groups()
        if first is None:
            return cls(folder + "/", before, after, int(width or 0))
        if int(last) < int(first):
            raise BadOption(f"{name} counts down", expected="the smaller number first")
        return cls(folder + "/", before, after, len(first), int(first), int(last) - int(first) + 1)

    def name(self, number: int) -> str:
        """Return the name of a shard, by its number from 0."""
        if not self.numbered:
            return self.before + self.after
        return f"{self.before}{self.first + number:0{self.width}d}{self.after}"

    def is_one(self, name: str) -> bool:
        """True if a name in the folder is the name of a shard."""
        if not self.numbered:
            return name == self.before + self.after
        number = name[len(self.before) : len(name) - len(self.after)]
        return (
            name == f"{self.before}{number}{self.after}" and number.isdecimal() and len(number) >= self.width
        )

    @property
    def manifest(self) -> str:
        """The name of the JSON index beside the shards."""
        stem = (self.before.rstrip("-_.") + self.after.removesuffix(".tar")).rstrip("-_.")
        return f"{stem}.json" if stem else _MANIFEST

    @property
    def globs(self) -> tuple[str, str]:
        """Globs for the shards and their index in the folder."""
        if not self.numbered:
            return self.before + self.after, self.manifest
        return f"{self.before}{'[0-9]' * max(1, self.width)}*{self.after}", self.manifest
