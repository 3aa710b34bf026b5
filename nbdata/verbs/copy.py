"""The verb copy: from a store to a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from nbdata.errors import BadOption
from nbdata.operation import function_of
from nbdata.option import argument, option
from nbdata.paths import is_url
from nbdata.verbs.options import Mirroring, check_part_size

__all__ = ["Copy", "copy"]


@dataclass(frozen=True)
class Copy(Mirroring):
    """Nothing touches the disk. Within one S3 server and identity the store copies by itself; else the bytes
    stream through the memory of the agent, are hashed on the way, and compared with what both stores
    vouch for. Content type and user metadata are kept between S3 stores. What the target already has
    unchanged is not copied again.
    """

    verb: ClassVar[str] = "copy"
    summary: ClassVar[str] = "Copy objects from a store to a store."
    examples: ClassVar[tuple[str, ...]] = (
        "copy s3://bucket/data/ s3://other/data/",
        "copy s3://bucket/data/ s3://mirror/data/ --target-option endpoint_url=https://s3.example.com",
        "copy s3://bucket/data/ obs://bucket/data/ --include '*.mp4' --dry-run",
    )

    source: str = argument("URL of an object or folder; globs and brace ranges work.", metavar="SOURCE")
    target: str = argument("URL of an object or folder.", metavar="TARGET")
    target_options: dict[str, Any] | None = option(
        None,
        "A storage option for TARGET alone, which then takes none of --option; may be given again.",
        kind="pairs",
        binding=True,
        identity=False,
    )
    verify: str = option(
        "auto",
        "auto: against the checksums that both stores vouch for; none; or insist on md5.",
        choices=("auto", "none", "md5"),
    )
    part_size: int | None = option(
        None,
        "Size of the parts of a multipart upload (None: the source's, or from the object's size).",
        kind="size",
        metavar="SIZE",
    )

    def check(self) -> None:
        super().check()
        for name, place, remedy in (
            ("source", self.source, "Use push to copy from the local disk"),
            ("target", self.target, "Use pull to copy to the local disk"),
        ):
            if not is_url(place):
                raise BadOption(f"copy: the {name} {place} is a local path", expected="a URL", remedy=remedy)
        check_part_size(self.part_size)


copy = function_of(Copy)
