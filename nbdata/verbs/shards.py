"""The verb shards: lists, verifies and indexes tar shards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nbdata.errors import BadOption
from nbdata.operation import function_of
from nbdata.option import argument, suggest
from nbdata.verbs.options import Connecting, Dealing, Decompressing, Fetching, Leading, Storing, Verifying
from nbdata.verbs.samples import SampleSource

__all__ = ["Shards", "shards"]

_ACTIONS = ("ls", "verify", "index")


@dataclass(frozen=True)
class Shards(Verifying, Decompressing, Leading, Fetching, Dealing, Storing):
    """Each shard is read once from its beginning to its end, and its data is not kept. The report has a
    row for each shard: its samples, its bytes, and the members that belong to no sample. It also has
    the fields of all samples, with their counts and sizes.

    - ls: only this report.
    - verify: also compares each shard with its checksum in the store. If SOURCE is a JSON index, it
      compares the size, MD5 or ETag in the index too. It continues after a damaged shard.
    - index: also stores an index in nbdata's state folder, so ``nbdata.samples(SOURCE)`` has samples by
      number at once.
    """

    verb: ClassVar[str] = "shards"
    summary: ClassVar[str] = "Count the samples in tar shards, find damaged shards, or index them."
    examples: ClassVar[tuple[str, ...]] = (
        "shards ls 's3://bucket/train-{000000..000099}.tar'",
        "shards verify 's3://bucket/train-*.tar'",
        "shards index s3://bucket/train.json",
    )
    stopped: ClassVar[str] = "Run it again to start over"

    action: str = argument(
        "Action. ls: count the samples; verify: also compare shards with their checksums; index: also store an index.",
        kind="text",
        metavar="ls|verify|index",
    )
    source: str | tuple[str, ...] = argument(
        "URL or path of tar shards, or of their JSON index; may contain globs and brace ranges. Several are "
        "read in this order.",
        kind="places",
        metavar="SOURCE",
    )

    def check(self) -> None:
        super().check()
        if self.action not in _ACTIONS:
            raise BadOption(
                f"shards: there is no {self.action!r}",
                remedy=f"{suggest(self.action, list(_ACTIONS))}. Write it before SOURCE",
            )

    def samples(self) -> SampleSource:
        """Return the shards as a source of samples."""
        options = self.options_in(Verifying, Decompressing, Leading, Fetching, Connecting)
        if self.action == "ls":
            options["verify"] = "none"
        return SampleSource(source=self.source, **options)

    def places(self) -> tuple[str, str]:
        return self.source if isinstance(self.source, str) else self.source[0], ""


shards = function_of(Shards)
