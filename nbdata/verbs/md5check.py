"""The verb md5check: are the bytes the promised ones?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nbdata.operation import argument, function_of, option
from nbdata.verbs.options import Selecting, Storing, refuse_pairs

__all__ = ["Md5check", "md5check"]


@dataclass(frozen=True)
class Md5check(Selecting, Storing):
    """Compares each file with the digest that a sidecar (``NAME.md5``), a manifest (``MD5SUMS`` …) or
    the store itself vouches for. Each file is ok, mismatch, missing, extra or unverifiable; these are
    never mixed up. A remote PATH is streamed and needs no disk.
    """

    verb: ClassVar[str] = "md5check"
    summary: ClassVar[str] = "Check files against their checksums."
    examples: ClassVar[tuple[str, ...]] = (
        "md5check data",
        "md5check volumes --against md5",
        "md5check data --against s3://bucket/data/",
        "md5check data --write",
    )

    source: str = argument("File or folder to check, local or remote; globs work.", metavar="PATH")
    against: str | None = option(
        None,
        "Where the expected digests are: a folder of sidecars or manifests, one such file, or a store's "
        "folder of the data, whose ETags and stored checksums then count (None: beside the files).",
        kind="place",
        metavar="WHERE",
    )
    algorithm: str = option(
        "auto",
        "Digest to compare or write (auto: the strongest that is known of a file; md5 with --write).",
        choices=("auto", "md5", "sha1", "sha256", "crc32c"),
    )
    write: bool = option(
        False,
        "Instead of checking, write a manifest of the files as they are into PATH: MD5SUMS, SHA256SUMS … or "
        "NAME.md5 for a single file. One that is there is extended; if a file is missing or differs from "
        "what it says, it is left as it is and that is reported: remove it to begin anew.",
        kind="flag",
    )

    def check(self) -> None:
        super().check()
        refuse_pairs(self, "write", ("against",))


md5check = function_of(Md5check)
