"""Options that several verbs share, declared once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from nbdata.errors import BadOption
from nbdata.operation import Operation
from nbdata.option import Option, option
from nbdata.paths import is_url

__all__ = [
    "FACE_OPTIONS",
    "Connecting",
    "Mirroring",
    "Selecting",
    "Storing",
    "Verifying",
    "Writing",
    "check_part_size",
    "refuse_pairs",
]

# Bytes a second below which a server would give up on us.
_SLOWEST = 10_000

# What a face does with an operation; no part of the operation itself.
FACE_OPTIONS: dict[str, Option] = {
    "dry_run": Option(
        "Show the plan (objects, bytes, space, deletions) and move nothing. Space is counted in blocks, mostly of 4 "
        "KiB, so small files need more of it than they have bytes.",
        kind="flag",
        short="n",
    ),
    "background": Option("Return the Job at once and go on in the background.", kind="flag", short="b"),
    "quiet": Option("Show no progress and no result.", kind="flag", short="q"),
}


@dataclass(frozen=True)
class Connecting(Operation):
    """What talks to a store: who it is, and with how many requests at a time."""

    storage_options: dict[str, Any] | None = option(
        None,
        "Storage options by their fsspec names (key, secret, endpoint_url, anon, profile …); may be given again.",
        kind="pairs",
        binding=True,
        identity=False,
    )
    fs: Any = option(
        None,
        "An fsspec file system object to use instead of one made from the URL.",
        kind="object",
        binding=True,
        identity=False,
    )
    concurrency: int | None = option(
        None,
        "Requests at a time (default: adapts itself, up to 64).",
        kind="count",
        identity=False,
        metavar="N",
    )

    def check(self) -> None:
        super().check()
        if self.concurrency is not None and not 1 <= self.concurrency <= 256:
            raise BadOption(f"--concurrency: {self.concurrency} is out of range", expected="1 to 256")


@dataclass(frozen=True)
class Storing(Connecting):
    """Verbs that move bytes between a store and somewhere else."""

    max_rate: int | None = option(
        None, "Move at most SIZE bytes a second.", kind="size", identity=False, metavar="SIZE"
    )
    on_error: str = option(
        "raise",
        "raise: do the rest, then raise TransferFailed with the Report; stop: end at the first failure; "
        "report: return the Report.",
        choices=("raise", "stop", "report"),
        identity=False,
    )
    ignore_space: bool = option(
        False, "Start although it does not fit by the numbers.", kind="flag", identity=False
    )

    def check(self) -> None:
        super().check()
        if self.max_rate is not None and self.max_rate < _SLOWEST:
            raise BadOption(
                f"--max-rate: {self.max_rate} bytes a second is too little",
                expected=f"at least {_SLOWEST} bytes a second",
                remedy="Write it as 5MB or 500k",
            )


@dataclass(frozen=True)
class Writing(Storing):
    """Verbs that write into a local folder, and remember what they wrote there."""

    skip_written: bool = option(
        False,
        "Count as done what an earlier run of this line wrote and what is gone from TARGET since, as by push "
        "--delete-source. TARGET itself must stay.",
        kind="flag",
        identity=False,
    )

    def check(self) -> None:
        super().check()
        if self.skip_written and getattr(self, "overwrite", "") == "always":
            raise BadOption(
                "--skip-written and --overwrite always exclude each other", remedy="Leave one of them out"
            )

    @property
    def room_elsewhere(self) -> str:
        return "" if self.skip_written else ", but writes again what is moved away from its target"

    def with_room(self, line: str) -> str:
        target = self.places()[1]
        if self.skip_written:
            return f"Make room, also by moving files away from {target}, and run the command again to resume"
        said = f"`{line} --skip-written`" if line else "the same command with --skip-written"
        return (
            "Make room elsewhere and run the command again to resume. If you move files away from "
            f"{target} to make room, as push --delete-source does, run {said}: else it writes them again"
        )


@dataclass(frozen=True)
class Selecting(Operation):
    """Verbs that take a part of what is in their source.

    Filters are globs on the path relative to the source; ``*`` stays in a folder, ``**`` crosses
    folders, and a pattern without a slash looks at the last component only.
    """

    include: tuple[str, ...] = option(
        (), "Take only what matches GLOB; may be given again.", kind="texts", metavar="GLOB"
    )
    exclude: tuple[str, ...] = option(
        (),
        "Leave out what matches GLOB; wins over --include; may be given again.",
        kind="texts",
        metavar="GLOB",
    )
    max_files: int | None = option(None, "Only the first N objects in key order.", kind="count", metavar="N")
    max_bytes: int | None = option(
        None,
        "As many objects in key order as fit in SIZE; stops before the first that would exceed it.",
        kind="size",
        metavar="SIZE",
    )
    sample: str | None = option(
        None,
        "A reproducible random part: a number of objects or a share such as 5%.",
        kind="sample",
        metavar="N|P%",
    )
    seed: int = option(0, "Seed of the sample.", kind="count", metavar="N")
    files_from: str | None = option(
        None,
        "Take the relative paths that FILE lists, one a line; in a terminal - is standard input.",
        kind="path",
        metavar="FILE",
    )

    @property
    def partial(self) -> bool:
        """Whether a sample, a limit or a list takes only a part of what the filters let through."""
        return any(v is not None for v in (self.max_files, self.max_bytes, self.sample, self.files_from))


@dataclass(frozen=True)
class Mirroring(Selecting, Storing):
    """Verbs that bring what is in one place to another, and leave alone what is there already and unchanged."""

    overwrite: str = option(
        "changed",
        "changed: replace what differs, but leave what was changed on both sides; always; never.",
        choices=("changed", "always", "never"),
    )
    size_only: bool = option(False, "What has the same size counts as unchanged.", kind="flag")
    delete: bool = option(False, "Mirror: delete what TARGET has and SOURCE has not.", kind="flag")
    force: bool = option(
        False,
        "With --delete: also where TARGET holds what this line never wrote.",
        kind="flag",
        identity=False,
    )

    def check(self) -> None:
        super().check()
        if not self.delete:
            return
        if self.partial:
            raise BadOption(
                "--delete with a sample, a limit or a file list would delete what was merely not selected",
                remedy="Leave out --delete, or the limit",
            )
        target = self.places()[1].rstrip("/")
        if target in ("", os.path.expanduser("~")) or (
            target.partition("://")[2].strip("/") == "" and is_url(target)
        ):
            raise BadOption(f"--delete refuses {target or '/'}", remedy="Mirror into a folder of its own")


@dataclass(frozen=True)
class Verifying(Operation):
    """Verbs that compare what they fetch with what its store vouches for."""

    verify: str = option(
        "auto",
        "auto: against whatever checksum the store vouches for, hashed while the bytes arrive; none; "
        "or insist on md5, sha256 or crc32c.",
        choices=("auto", "none", "md5", "sha256", "crc32c"),
    )


def refuse_pairs(operation: Operation, first: str, others: tuple[str, ...]) -> None:
    """BadOption if `first` is set together with one of `others`."""
    if getattr(operation, first):
        for other in others:
            if getattr(operation, other):
                raise BadOption(
                    f"--{first.replace('_', '-')} and --{other.replace('_', '-')} exclude each other",
                    remedy="Leave one of them out",
                )


def check_part_size(size: int | None) -> None:
    """BadOption if S3 allows no such part."""
    if size is not None and not 5 << 20 <= size <= 5 << 30:
        raise BadOption(f"--part-size: {size} bytes is out of range", expected="5 MiB to 5 GiB, as S3 has it")
