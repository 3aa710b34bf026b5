"""The verb shards: what is in tar shards, and whether it is whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nbdata.errors import BadOption
from nbdata.operation import function_of
from nbdata.option import argument, suggest
from nbdata.verbs.options import Storing, Verifying
from nbdata.verbs.samples import SampleSource

__all__ = ["Shards", "shards"]

_ACTIONS = ("ls", "verify", "index")


@dataclass(frozen=True)
class Shards(Verifying, Storing):
    """All shards are read from their beginning to their end, and nothing is kept. The report has a row for each: its
    samples, its bytes, and the members that are in no sample; and for all of them the fields with their counts and
    sizes. ``verify`` also compares each shard with the checksum that its store vouches for, and with the size, MD5 or
    ETag that the JSON index says by which it was named; it goes on behind a damaged one. ``index`` keeps what it finds
    in the state folder, so that ``nbdata.samples(SOURCE)`` has samples by number at once.
    """

    verb: ClassVar[str] = "shards"
    summary: ClassVar[str] = "Look at tar shards: count their samples, find damage, or index them."
    examples: ClassVar[tuple[str, ...]] = (
        "shards ls 's3://bucket/train-{000000..000099}.tar'",
        "shards verify 's3://bucket/train-*.tar'",
        "shards index s3://bucket/train.json",
    )
    stopped: ClassVar[str] = "Run it again to start over"

    action: str = argument(
        "What to do. ls: count samples; verify: compare shards with their checksums, too; index: keep what is found.",
        kind="text",
        metavar="ls|verify|index",
    )
    source: str | tuple[str, ...] = argument(
        "URL or path of tar shards, or of their JSON index; globs and brace ranges work. In Python also a list.",
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
        """Whose shards these are."""
        verify = "none" if self.action == "ls" else self.verify
        return SampleSource(source=self.source, verify=verify)

    def places(self) -> tuple[str, str]:
        return self.source if isinstance(self.source, str) else self.source[0], ""


shards = function_of(Shards)
