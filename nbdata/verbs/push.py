"""The verb push: from the local disk to a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nbdata.errors import BadOption
from nbdata.operation import function_of
from nbdata.option import argument, option
from nbdata.paths import is_url
from nbdata.verbs.options import Mirroring, check_part_size, refuse_pairs

__all__ = ["Push", "push"]


@dataclass(frozen=True)
class Push(Mirroring):
    """Every upload is checked against what the store says it got. Files that the store already has
    unchanged are not sent again.
    """

    verb: ClassVar[str] = "push"
    summary: ClassVar[str] = "Copy files from the local disk to a store."
    examples: ClassVar[tuple[str, ...]] = (
        "push results s3://bucket/results/",
        "push results s3://bucket/results/ --exclude '*.tmp' --delete-source",
    )

    source: str = argument("Local file or folder; globs and brace ranges work.", metavar="SOURCE")
    target: str = argument("URL of an object or folder.", metavar="TARGET")
    verify: str = option(
        "auto",
        "auto: against the checksum that the store answers; none; or insist on md5.",
        choices=("auto", "none", "md5"),
    )
    encode_names: bool = option(
        False, "Files that pull --encode-names gave other names get their keys again.", kind="flag"
    )
    part_size: int | None = option(
        None,
        "Size of the parts of a multipart upload (None: from the file's size).",
        kind="size",
        metavar="SIZE",
    )
    delete_source: bool = option(
        False,
        "Delete each file after its verified upload, or once it is compared with what the target has already.",
        kind="flag",
    )

    def check(self) -> None:
        super().check()
        if is_url(self.source):
            raise BadOption(
                f"push: the source {self.source} is a URL",
                expected="a local path",
                remedy="Use pull to fetch it first",
            )
        check_part_size(self.part_size)
        refuse_pairs(self, "delete_source", ("delete",))
        if self.delete_source and self.verify == "none":
            raise BadOption("--delete-source needs verified uploads", remedy="Leave out --verify none")

    def local_target(self) -> str | None:
        return None if is_url(self.target) else self.target


push = function_of(Push)
