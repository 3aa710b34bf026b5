"""The verb copy: copies objects from a store to a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from nbdata.errors import BadOption
from nbdata.operation import function_of
from nbdata.option import argument, option
from nbdata.paths import is_url
from nbdata.verbs.options import Dealing, Fetching, Mirroring, check_part_size

__all__ = ["Copy", "copy"]


@dataclass(frozen=True)
class Copy(Fetching, Dealing, Mirroring):
    """Copy uses no disk space. Within one S3 server and with one identity, the server copies the objects
    itself. Otherwise the bytes stream through the memory of the agent, which hashes them and
    compares the digest with the checksums of both stores.

    Copy skips objects that TARGET has already and that are unchanged. Between S3 stores it keeps the
    content type and the user metadata. Run the same command again to resume after an interruption.
    """

    verb: ClassVar[str] = "copy"
    summary: ClassVar[str] = "Copy objects from one store to another, or within a store."
    examples: ClassVar[tuple[str, ...]] = (
        "copy s3://bucket/data/ s3://other/data/",
        "copy s3://bucket/data/ s3://mirror/data/ --target-option endpoint_url=https://s3.example.com",
        "copy s3://bucket/data/ obs://bucket/data/ --include '*.mp4' --dry-run",
    )

    source: str = argument(
        "URL of an object or a folder; may contain globs and brace ranges.", metavar="SOURCE"
    )
    target: str = argument("URL of an object or a folder.", metavar="TARGET")
    target_options: dict[str, Any] | None = option(
        None,
        "A storage option for TARGET alone; TARGET then ignores --option. Repeatable.",
        kind="pairs",
        binding=True,
        identity=False,
    )
    verify: str = option(
        "auto",
        "auto: compare with the checksums of both stores; none: do not compare; md5: compare, and fail without an MD5.",
        choices=("auto", "none", "md5"),
    )
    part_size: int | None = option(
        None,
        "Size of each part of a multipart upload (default: as in SOURCE, else it depends on the size of the object).",
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
