"""The verb md5check: compares files with their expected checksums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nbdata.algorithms import ALGORITHMS
from nbdata.errors import BadOption
from nbdata.operation import function_of
from nbdata.option import argument, option
from nbdata.paths import glob_base, has_glob, is_inside, is_url
from nbdata.verbs.options import Dealing, Fetching, Selecting, Storing, refuse_pairs

__all__ = ["Md5check", "md5check"]


@dataclass(frozen=True)
class Md5check(Selecting, Fetching, Dealing, Storing):
    """The check hashes each file and compares the digest with the expected one. The expected digest comes
    from a sidecar (``NAME.md5``), from a manifest (``MD5SUMS`` …) or from the store itself. A remote
    PATH is streamed and uses no disk space.

    The report puts each file into exactly one class:

    - ok: the digest is the expected one.
    - mismatch: the digest differs.
    - missing: a digest is known, but the file does not exist.
    - conflict: checksum files have different digests for the file.
    - extra: a manifest lists other files of the folder, but not this one.
    - unverifiable: no usable digest is known for the file.

    The check succeeds if at least one file is verified, and every file with an expected digest is
    present and right. It fails if a file is a mismatch, a conflict, is missing or cannot be read, if
    a line of a checksum file cannot be read or used (unreadable), or if no file can be verified. Extra
    and unverifiable files are counted and named, but are no failure, as with md5sum --check.

    Lists are read as md5sum, BSD, OpenSSL, rhash, SFV and hashdeep write them, as Get-FileHash (as a
    table, list or CSV) and certutil do on Windows, as tables with a column for the path, and as the
    JSON that Zenodo, Figshare and Dataverse give for a record; each also compressed by gzip. Names
    from another machine count, too: with backslashes, or absolute ones, of which the longest tail
    counts that only one file has; the report says which. A digest without a name is for the only file
    that it fits, such as f1.md5 for f1.bin.

    --write makes files that md5sum, sha256sum and so on can check. A manifest works with
    ``md5sum --check MD5SUMS`` in PATH, a sidecar with the same command in its own folder. Existing
    digests are compared first. If one differs from its file, it stays as it is and the job fails,
    unless you give --overwrite always.
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

    source: str = argument("File or folder to check, local or remote; may contain globs.", metavar="PATH")
    against: str | None = option(
        None,
        "Where the expected digests are: a folder of sidecars or manifests, one such file, or the same data in a "
        "store, whose ETags and stored checksums are then used (default: beside the files).",
        kind="place",
        metavar="WHERE",
    )
    algorithm: str = option(
        "auto",
        "Digest to compare or to write. auto: the strongest one that is known for a file; with --write the one that "
        "the name of the manifest says, else md5.",
        choices=("auto", *ALGORITHMS),
    )
    write: bool | str = option(
        False,
        "Write the digests of the files instead of checking them. Without a value: one manifest in PATH, called "
        "MD5SUMS, SHA256SUMS … (for a single file: NAME.md5). NAME: a manifest of that name, such as checksums.txt. "
        "sidecars: a file NAME.md5 beside each file. An existing manifest is extended.",
        kind="optional",
        metavar="NAME|sidecars",
    )
    overwrite: str = option(
        "never",
        "With --write, what to do if an existing digest differs from its file. never: keep the digest and fail; "
        "always: replace it, and also drop the lines of files that no longer exist.",
        choices=("never", "always"),
    )
    repair: str | None = option(
        None,
        "Pull wrong and missing files again from SOURCE, the folder or object that corresponds to PATH. A file is "
        "replaced only by one with the expected digest, and is then checked again. If no checksum file lists any of "
        "the files, the expected digests come from SOURCE. With -n the files are read, and the list of files to pull "
        "is shown.",
        kind="place",
        metavar="SOURCE",
    )

    def check(self) -> None:
        super().check()
        refuse_pairs(self, "write", ("against", "repair"))
        refuse_pairs(self, "cluster", ("write", "repair"))
        if isinstance(self.write, str) and "/" in self.write:
            raise BadOption(
                f"--write: {self.write!r} is a path, not a name",
                remedy="Name the manifest alone, such as MD5SUMS: it lies in PATH, and its paths are relative to PATH",
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
