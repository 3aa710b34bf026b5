"""The verb md5check: are the bytes the promised ones?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nbdata.errors import BadOption
from nbdata.operation import function_of
from nbdata.option import argument, option
from nbdata.paths import glob_base, has_glob, is_inside, is_url
from nbdata.verbs.options import Selecting, Storing, refuse_pairs

__all__ = ["Md5check", "md5check"]


@dataclass(frozen=True)
class Md5check(Selecting, Storing):
    """Compares each file with the digest that a sidecar (``NAME.md5``), a manifest (``MD5SUMS`` …) or
    the store itself vouches for. Each file is ok, mismatch, missing, extra or unverifiable; these are
    never mixed up. A remote PATH is streamed and needs no disk.

    It succeeds if at least one file was verified and all that anybody vouches for are there and right. It fails
    if one is a mismatch or missing, could not be read, or if nothing at all could be verified. Files that are only
    extra or unverifiable are counted and named, and are no failure, as with md5sum --check.

    --write gives what md5sum and its sisters check: a manifest that ``md5sum --check MD5SUMS`` takes in PATH, or
    sidecars that it takes each in its own folder. What is there already is compared first: where it disagrees
    it is left as it is, and the job fails, unless --overwrite always is said.
    """

    verb: ClassVar[str] = "md5check"
    stopped: ClassVar[str] = "Run it again to start over"
    summary: ClassVar[str] = "Check files against their checksums."
    examples: ClassVar[tuple[str, ...]] = (
        "md5check data",
        "md5check volumes --against md5",
        "md5check data --against s3://bucket/data/",
        "md5check data --repair s3://bucket/data/ -n",
        "md5check data --write",
        "md5check data --write sidecars --algorithm sha256",
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
        "Digest to compare or write (auto: the strongest that is known of a file; with --write what the manifest's "
        "name says, else md5).",
        choices=("auto", "md5", "sha1", "sha256", "sha512", "crc32", "crc32c", "crc64nvme"),
    )
    write: bool | str = option(
        False,
        "Instead of checking, write down the digests of the files as they are. Without a value into one manifest "
        "in PATH, MD5SUMS, SHA256SUMS … (of a single file into NAME.md5); a NAME such as checksums.txt is that "
        "of the manifest; 'sidecars' makes NAME.md5 beside each file. A manifest that is there is extended.",
        kind="optional",
        metavar="NAME|sidecars",
    )
    overwrite: str = option(
        "never",
        "With --write: whether digests that are there already give way to those of the files where they differ; "
        "never: that is a failure; always: also lines of files that are gone are dropped.",
        choices=("never", "always"),
    )
    repair: str | None = option(
        None,
        "Pull what is wrong or missing again from SOURCE, the folder (or object) that belongs to PATH: a file is "
        "replaced only by one with the expected digest, and is then checked once more. Where no checksum file names "
        "any of the files, SOURCE says what is right. With -n the files are read, and those that would be pulled are "
        "shown.",
        kind="place",
        metavar="SOURCE",
    )

    def check(self) -> None:
        super().check()
        refuse_pairs(self, "write", ("against", "repair"))
        if isinstance(self.write, str) and "/" in self.write:
            raise BadOption(
                f"--write: {self.write!r} is a path, not a name",
                remedy="Name the manifest alone, such as MD5SUMS: it stands in PATH, which its names are relative to",
            )
        if self.overwrite != "never" and not self.write:
            raise BadOption(
                "--overwrite goes with --write", remedy="Leave it out; --repair replaces what is wrong"
            )
        if self.repair is not None:
            self._check_repair(self.repair)

    def _check_repair(self, repair: str) -> None:
        if is_url(self.source):
            raise BadOption(
                f"--repair: PATH {self.source} is a URL",
                expected="a local path",
                remedy="Use copy --overwrite always to replace objects of a store",
            )
        if has_glob(repair):
            raise BadOption(
                "--repair takes no globs", remedy="Name the folder that belongs to PATH; filters choose"
            )
        if not is_url(repair) and (is_inside(repair, self.source) or is_inside(self.source, repair)):
            raise BadOption(
                "--repair: SOURCE and PATH lie in each other",
                got=repair,
                remedy="Name the folder of another copy",
            )

    def local_target(self) -> str | None:
        return self._written() if self.repair is not None else None

    def locked_target(self) -> str | None:
        return self._written() if self.repair is not None or self.write else None

    def _written(self) -> str | None:
        return None if is_url(self.source) else glob_base(self.source)


md5check = function_of(Md5check)
