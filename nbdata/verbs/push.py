"""The verb push: copies files from the local disk to a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nbdata.errors import BadOption
from nbdata.operation import function_of
from nbdata.option import argument, option
from nbdata.paths import is_url
from nbdata.verbs.options import Dealing, Mirroring, check_part_size, refuse_pairs

__all__ = ["Push", "push"]


@dataclass(frozen=True)
class Push(Dealing, Mirroring):
    """Push skips files that the store has already and that are unchanged. It compares each upload with
    the checksum in the store's response, and sends the file again if they differ. Run the same
    command again to resume after an interruption.

    The contents of a source folder go into TARGET. A single file goes into TARGET if that ends in a
    slash or is a folder on a disk; else it becomes the object TARGET, also if there are objects below
    TARGET.
    """

    verb: ClassVar[str] = "push"
    summary: ClassVar[str] = "Copy files from the local disk to a store."
    examples: ClassVar[tuple[str, ...]] = (
        "push results s3://bucket/results/",
        "push results s3://bucket/results/ --exclude '*.tmp' --delete-source",
    )

    source: str = argument("Local file or folder; may contain globs and brace ranges.", metavar="SOURCE")
    target: str = argument("URL of an object or a folder.", metavar="TARGET")
    verify: str = option(
        "auto",
        "auto: compare each upload with the checksum in the store's response; none: do not compare; md5: compare, and "
        "fail if the store reports no MD5.",
        choices=("auto", "none", "md5"),
    )
    encode_names: bool = option(
        False, "Restore the original keys of files that pull --encode-names renamed.", kind="flag"
    )
    part_size: int | None = option(
        None,
        "Size of each part of a multipart upload (default: depends on the size of the file).",
        kind="size",
        metavar="SIZE",
    )
    delete_source: bool = option(
        False,
        "Delete each local file after its upload is verified, or after it is found equal to the object in TARGET.",
        kind="flag",
    )

    def check(self) -> None:
        super().check()
        if is_url(self.source):
            raise BadOption(
                f"push: the source {self.source} is a URL",
                expected="a local path",
                remedy=f"Use {'copy from store to store' if is_url(self.target) else 'pull to fetch it'}",
            )
        check_part_size(self.part_size)
        refuse_pairs(self, "delete_source", ("delete", "cluster"))
        if self.delete_source and self.verify == "none":
            raise BadOption("--delete-source needs verified uploads", remedy="Leave out --verify none")

    def local_target(self) -> str | None:
        return None if is_url(self.target) else self.target


push = function_of(Push)
