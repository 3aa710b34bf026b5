"""The verb untar_volumes: unpack an archive that lies in one or many volumes, as one stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from nbdata.errors import BadOption
from nbdata.operation import function_of
from nbdata.option import argument, option
from nbdata.paths import is_url
from nbdata.verbs.options import Writing, refuse_pairs

__all__ = ["UntarVolumes", "untar_volumes"]


@dataclass(frozen=True)
class UntarVolumes(Writing):
    """The volumes are joined while they are read: there is never a merged file. Members are written
    below TARGET only, under the rules of Python's ``data`` filter (PEP 706).

    A line that was interrupted goes on behind what it had unpacked; what is compressed in one piece (as gzip
    does) is read again from its start, and files that are there are compared as they stream past.

    With ``--skip-written`` an archive goes through a disk that is too small for it, in rounds: unpack until the disk
    is full, move the files away (``push --delete-source``), run the same line again.
    """

    verb: ClassVar[str] = "untar_volumes"
    less: ClassVar[str] = "--members"
    summary: ClassVar[str] = "Unpack a tar archive that lies in one or many volumes."
    examples: ClassVar[tuple[str, ...]] = (
        "untar_volumes volumes/site-00 data",
        "untar_volumes s3://bucket/compressed/ data --members '**/*.json'",
        "untar_volumes volumes data --ignore-space --skip-written",
        "untar_volumes volumes --list",
    )

    source: Any = argument(
        "First volume, a folder or a glob, or in Python a list of volumes in order.",
        kind="places",
        metavar="SOURCE",
    )
    target: str | None = argument(
        "Folder to unpack into; not needed with --list.", default=None, metavar="TARGET"
    )
    members: tuple[str, ...] = option((), "Only members that match GLOB.", kind="texts", metavar="GLOB")
    strip_components: int = option(
        0, "Leave out the first N components of each name.", kind="count", metavar="N"
    )
    overwrite: str = option(
        "changed",
        "changed: skip members that are there as this archive wrote them; always; never.",
        choices=("changed", "always", "never"),
    )
    delete_volumes: bool = option(
        False,
        "Delete each volume when everything in it is unpacked and nothing needs it to go on from; the plan says when. "
        "What is compressed in one piece, as gzip does, frees them only at the end.",
        kind="flag",
    )
    list: bool = option(False, "List the members, write nothing.", kind="flag")
    format: str = option(
        "auto", "Compression of the archive.", choices=("auto", "tar", "gz", "bz2", "xz", "zst")
    )
    max_expansion: int | None = option(
        None,
        "Refuse to write more than SIZE in all (None: what the disk limit allows).",
        kind="size",
        metavar="SIZE",
    )

    def check(self) -> None:
        super().check()
        refuse_pairs(self, "list", ("delete_volumes",))
        refuse_pairs(self, "members", ("delete_volumes",))
        if self.target is None and not self.list:
            raise BadOption(
                "untar_volumes: no TARGET", remedy="Name the folder to unpack into, or use --list"
            )
        if self.target is not None and is_url(self.target):
            raise BadOption(
                f"untar_volumes: the target {self.target} is a URL",
                expected="a local folder",
                remedy="Unpack to a folder, then push it",
            )

    def places(self) -> tuple[str, str]:
        first = self.source if isinstance(self.source, str) else f"{self.source[0]} … {self.source[-1]}"
        return first, self.target or ""

    def local_target(self) -> str | None:
        return None if self.list else self.target


untar_volumes = function_of(UntarVolumes)
