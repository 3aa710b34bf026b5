"""The verb cache_stream: train from a store through a bounded folder on the disk."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from nbdata.errors import BadOption
from nbdata.operation import function_of, slots
from nbdata.option import argument, option
from nbdata.paths import is_url
from nbdata.verbs.options import Selecting, Storing, Verifying

if TYPE_CHECKING:
    from nbdata.protocols import Job

__all__ = ["CacheStream", "cache_stream"]


@dataclass(frozen=True)
class CacheStream(Verifying, Selecting, Storing):
    """Gives an iterable of items that unpack as ``path, size`` and have ``.key`` and ``.epoch``. While your code uses
    one item, the next ones are fetched; an item is deleted when the next is asked for, so read what you need of it
    before. All that is on the disk never exceeds --max-size. A break, an error or the end of the process deletes all.

    An item is a folder directly below SOURCE with all that is in it; a file; a shard: a file called .tar, .tar.gz,
    .tar.zst and so on, as a whole; or a sample: the files of one folder that share the name up to its first dot
    (``0001.jpg`` and ``0001.json``), whose path is the one without the extensions. ``.files`` lists the files of any
    item. Shards that braces name must all be there.
    """

    verb: ClassVar[str] = "cache_stream"
    stopped: ClassVar[str] = "Run it again to start over"
    less: ClassVar[str] = "--max-size"
    summary: ClassVar[str] = "Stream items of a store through a bounded folder on the disk."
    examples: ClassVar[tuple[str, ...]] = (
        "cache_stream s3://bucket/video --max-size 1g",
        "cache_stream s3://bucket/images --by sample --max-size 2GB --shuffle --epochs 3 --keep lru",
        "cache_stream 's3://bucket/train-{000000..000099}.tar' --by shard --max-size 4GB --shuffle",
        "cache_stream s3://bucket/images --by file --include '*.jpg' --dry-run",
    )
    bound: ClassVar[bool] = True

    source: str = argument("URL or path of a folder; globs and brace ranges work.", metavar="SOURCE")
    cache_dir: str = option(
        ".",
        "Folder on the disk to use; what is made there lies in its .nbdata and is gone at the end.",
        kind="path",
        metavar="DIR",
    )
    max_size: int | None = option(
        None,
        "Most that may be on the disk at any moment, reserved before anything is fetched. Default: half of what is "
        "free there.",
        kind="size",
        metavar="SIZE",
    )
    by: str = option("folder", "What an item is.", choices=("folder", "file", "sample", "shard"))
    seed: int = option(0, "Seed of --shuffle and --sample.", kind="count", metavar="N")
    shuffle: bool = option(False, "A new random order in each epoch, drawn from --seed.", kind="flag")
    epochs: int = option(1, "How often each item is handed out.", kind="count", metavar="N")
    first_epoch: int = option(
        0,
        "Number of the first epoch, which decides its order: to continue a training.",
        kind="count",
        metavar="N",
    )
    keep: str = option(
        "none",
        "none: delete each item after use; lru: what fits stays for the next epoch, first of all what is needed "
        "soonest.",
        choices=("none", "lru"),
    )
    part: str | None = option(
        None,
        "Only every N-th item of each epoch's order, beginning with the I-th (from 0): for worker or rank I of N.",
        metavar="I/N",
    )
    on_error: str = option(
        "raise",
        "raise, stop: an error reaches the loop at its next item; report: leave out the items that cannot be had, "
        "and name them at the end.",
        choices=("raise", "stop", "report"),
        identity=False,
    )

    def check(self) -> None:
        super().check()
        if is_url(self.cache_dir):
            raise BadOption(f"cache_stream: --cache-dir {self.cache_dir} is a URL", expected="a local folder")
        if self.epochs < 1:
            raise BadOption("--epochs: 0 hands out nothing", expected="1 or more")
        if self.max_size is not None and self.max_size < 1:
            raise BadOption("--max-size: 0 leaves no room for anything", expected="the size of a few items")
        self.share()

    def share(self) -> tuple[int, int]:
        """``--part`` as numbers: (0, 1) for all."""
        if self.part is None:
            return 0, 1
        found = re.fullmatch(r"(\d+)/(\d+)", self.part)
        if found is None or not int(found[1]) < int(found[2]):
            raise BadOption(
                f"--part: {self.part!r} is no part", expected="I/N with I from 0 to N-1, such as 0/4"
            )
        return int(found[1]), int(found[2])

    def identity(self) -> str:
        """Never the same: a stream belongs to one loop, and nobody attaches to it."""
        return secrets.token_hex(16)

    def local_target(self) -> str | None:
        return os.path.join(self.cache_dir, "")

    def locked_target(self) -> str | None:
        return None  # its folder has a name of its own: others may work beside it

    def start(self) -> Job:
        raise BadOption(
            "cache_stream has no background form",
            remedy="Items are fetched ahead in the background anyway: loop over what it returns",
        )

    def run(self, *, quiet: bool = False) -> Any:
        """Begin to fetch; returns the iterable, or raises what makes it impossible (NotFound, a limit too small)."""
        return slots.stream(self, quiet)


cache_stream = function_of(CacheStream)
