"""The verb cache_stream: streams items of a store through a folder of limited size on the disk."""

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
from nbdata.verbs.options import Fetching, Selecting, Storing, Verifying

if TYPE_CHECKING:
    from nbdata.protocols import Job

__all__ = ["CacheStream", "cache_stream"]


@dataclass(frozen=True)
class CacheStream(Verifying, Selecting, Fetching, Storing):
    """The result is an iterable. Each item unpacks as ``path, size`` and has ``.key`` and ``.epoch``;
    ``.files`` lists its files. While your code uses one item, the next ones are fetched. An item is
    deleted when you ask for the next one, so read it before. The files on the disk never exceed
    --max-size. All of them are deleted after the last item, on a break, on an error, and when the
    process ends.

    An item is one of these, as --by says:

    - folder: a folder directly below SOURCE, with everything in it.
    - file: a single file.
    - sample: the files of one folder that have the same name up to the first dot, such as
      ``0001.jpg`` and ``0001.json``. Its path is the one without the extensions.
    - shard: a whole file called .tar, .tar.gz, .tar.zst and so on. Every shard that a brace range
      names must exist.
    """

    verb: ClassVar[str] = "cache_stream"
    stopped: ClassVar[str] = "Run it again to start over"
    less: ClassVar[str] = "--max-size"
    summary: ClassVar[str] = (
        "Loop over more data than the disk holds: fetch items ahead, and delete them after use."
    )
    examples: ClassVar[tuple[str, ...]] = (
        "cache_stream s3://bucket/video --max-size 1g",
        "cache_stream s3://bucket/images --by sample --max-size 2GB --shuffle --epochs 3 --keep lru",
        "cache_stream 's3://bucket/train-{000000..000099}.tar' --by shard --max-size 4GB --shuffle",
        "cache_stream s3://bucket/images --by file --include '*.jpg' --dry-run",
    )
    bound: ClassVar[bool] = True

    source: str = argument("URL or path of a folder; may contain globs and brace ranges.", metavar="SOURCE")
    cache_dir: str = option(
        ".",
        "Local folder for the items. They lie in its subfolder .nbdata and are deleted at the end.",
        kind="path",
        metavar="DIR",
    )
    max_size: int | None = option(
        None,
        "Maximum size of all items on the disk at any time. It is reserved before the first fetch. Default: half of "
        "the free space there.",
        kind="size",
        metavar="SIZE",
    )
    by: str = option(
        "auto",
        "Unit of the stream, as explained above. auto: folder, or file if SOURCE has no folders.",
        choices=("auto", "folder", "file", "sample", "shard"),
    )
    seed: int = option(
        0,
        "Seed of the random order (--shuffle) and of the random part (--sample).",
        kind="count",
        metavar="N",
    )
    shuffle: bool = option(False, "Use a new random order in each epoch, derived from --seed.", kind="flag")
    epochs: int = option(
        1, "Number of epochs: how often the stream returns each item.", kind="count", metavar="N"
    )
    first_epoch: int = option(
        0,
        "Number of the first epoch, which determines its random order. Use it to continue a training.",
        kind="count",
        metavar="N",
    )
    keep: str = option(
        "none",
        "none: delete each item after use; lru: keep as many items as fit for the next epoch, those needed soonest "
        "first.",
        choices=("none", "lru"),
    )
    part: str | None = option(
        None,
        "Take only every N-th item of each epoch, starting at item I (from 0): for worker or rank I of N.",
        metavar="I/N",
    )
    on_error: str = option(
        "raise",
        "raise, stop: the loop raises the error at its next item; report: leave out items that cannot be fetched, "
        "and name them at the end.",
        choices=("raise", "stop", "report"),
        identity=False,
    )

    def check(self) -> None:
        super().check()
        if is_url(self.cache_dir):
            raise BadOption(f"cache_stream: --cache-dir {self.cache_dir} is a URL", expected="a local folder")
        if self.epochs < 1:
            raise BadOption("--epochs: 0 returns no items", expected="1 or more")
        if self.max_size is not None and self.max_size < 1:
            raise BadOption("--max-size: 0 leaves no room for anything", expected="the size of a few items")
        self.share()

    def share(self) -> tuple[int, int]:
        """Return ``--part`` as two numbers; (0, 1) for all items."""
        if self.part is None:
            return 0, 1
        match = re.fullmatch(r"(\d+)/(\d+)", self.part)
        if match is None or not int(match[1]) < int(match[2]):
            raise BadOption(
                f"--part: {self.part!r} is not a part", expected="I/N with I from 0 to N-1, such as 0/4"
            )
        return int(match[1]), int(match[2])

    def identity(self) -> str:
        """Return a new value each time: a stream belongs to one loop, so no other process attaches to it."""
        return secrets.token_hex(16)

    def local_target(self) -> str | None:
        return os.path.join(self.cache_dir, "")

    def locked_target(self) -> str | None:
        return None  # its folder has a name of its own: others may work beside it

    def start(self) -> Job:
        raise BadOption(
            "cache_stream cannot run in the background",
            remedy="Items are fetched ahead in the background anyway: loop over what it returns",
        )

    def run(self, *, quiet: bool = False) -> Any:
        """Start to fetch and return the iterable; raise if that is impossible (NotFound, a limit that is too small)."""
        return slots.stream(self, quiet)


cache_stream = function_of(CacheStream)
