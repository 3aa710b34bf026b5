"""The verb untar_volumes: unpack an archive that lies in one or many volumes, as one stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from nbdata.errors import BadOption
from nbdata.operation import function_of
from nbdata.option import argument, option
from nbdata.paths import is_url
from nbdata.verbs.archive_names import NUMBER
from nbdata.verbs.options import Writing, check_part_size, refuse_pairs
from nbdata.verbs.shard_names import DEFAULT_SIZE, ShardNames, check_shard_size

__all__ = ["UntarVolumes", "untar_volumes"]


@dataclass(frozen=True)
class UntarVolumes(Writing):
    """The volumes are joined while they are read: there is never a merged file. Members are written
    below TARGET only, under the rules of Python's ``data`` filter (PEP 706). From a store to a store nothing touches
    the disk: each file becomes an object, compared with what the store answers. Links become objects with the content
    of the file that they lead to, as stores know none; links to no file, and empty folders, are left out and named.

    Where a folder or a glob holds several archives, each is unpacked into a folder of its own below TARGET, which is
    called as the archive is, without its suffix; ``--set`` picks some, and the only one goes into TARGET itself.

    Where TARGET is a name such as ``train-%06d.tar``, members go straight into tar shards, as `pack` makes them:
    neighbouring files with one name up to its first dot are a sample, as WebDataset has it. What can be in no sample
    (links, files without an extension, empty folders) is left out and named. At the end an index of the shards is
    written beside them. The archive's own order stays; how many shards it makes shows only at its end.

    A zip archive is read by its directory: ``--list`` and ``--members`` fetch no more than they need.

    A line that was interrupted goes on behind what it had unpacked; what is compressed in one piece (as gzip
    does) is read again from its start, and files that are there are compared as they stream past.

    With ``--skip-written`` an archive goes through a disk that is too small for it, in rounds: unpack until the disk
    is full, move the files away (``push --delete-source``), run the command again.
    """

    verb: ClassVar[str] = "untar_volumes"
    less: ClassVar[str] = "--members"
    summary: ClassVar[str] = "Unpack a tar or zip archive that lies in one or many volumes."
    examples: ClassVar[tuple[str, ...]] = (
        "untar_volumes volumes/site-00 data",
        "untar_volumes s3://bucket/compressed/ data --members '**/*.json'",
        "untar_volumes s3://bucket/compressed/ s3://bucket/video/",
        "untar_volumes s3://bucket/compressed/ s3://bucket/shards/train-%06d.tar",
        "untar_volumes s3://bucket/compressed/ data --set train",
        "untar_volumes volumes data --ignore-space --skip-written",
        "untar_volumes s3://bucket/big.zip data --members 'train/**'",
        "untar_volumes volumes --list",
    )

    source: Any = argument(
        "First volume, a folder or a glob; a file that lists the volumes in order, of checksums or NAME.lst; or in "
        "Python a list of volumes.",
        kind="places",
        metavar="SOURCE",
    )
    target: str | None = argument(
        "Folder or URL to unpack into; or tar shards, with %06d or {000000..000099} where their number stands. Not "
        "needed with --list.",
        default=None,
        metavar="TARGET",
    )
    target_options: dict[str, Any] | None = option(
        None,
        "A storage option for a TARGET in a store alone, which then takes none of --option; may be given again.",
        kind="pairs",
        binding=True,
        identity=False,
    )
    set: tuple[str, ...] = option(
        (), "Of several archives in a folder, the one called NAME, with or without its suffix; may be given again.",
        kind="texts", metavar="NAME",
    )  # fmt: skip
    members: tuple[str, ...] = option((), "Only members that match GLOB.", kind="texts", metavar="GLOB")
    exclude: tuple[str, ...] = option(
        (), "Leave out members that match GLOB; wins over --members.", kind="texts", metavar="GLOB"
    )
    strip_components: int = option(
        0, "Leave out the first N components of each name.", kind="count", metavar="N"
    )
    overwrite: str = option(
        "changed",
        "changed: skip members that are there as this archive wrote them, and replace what else has their names; "
        "always; never.",
        choices=("changed", "always", "never"),
    )
    delete_volumes: bool = option(
        False,
        "Delete each volume when everything in it is unpacked and nothing needs it to go on from; the plan says when. "
        "What is compressed in one piece, as gzip does, frees them only at the end.",
        kind="flag",
    )
    list: bool = option(
        False,
        "List the members, write nothing. With --json they are under members, all of them.",
        kind="flag",
    )
    format: str = option(
        "auto",
        "Compression of the archive, or zip.",
        choices=("auto", "tar", "gz", "bz2", "xz", "zst", "lz4", "zip"),
    )
    max_expansion: int | None = option(
        None,
        "Refuse to write more than SIZE of an archive in all (None: what the disk limit allows).",
        kind="size",
        metavar="SIZE",
    )

    part_size: int | None = option(
        None,
        "Of a TARGET in a store: size of the parts of a multipart upload (default: 8 MiB), of which 64 MiB are in "
        "memory.",
        kind="size",
        metavar="SIZE",
        identity=False,
    )

    shard_size: int | None = option(
        None,
        "Of a TARGET that is shards: bytes of a shard at most (default: 256 MiB); one that holds a single larger "
        "sample has more.",
        kind="size",
        metavar="SIZE",
    )

    def check(self) -> None:
        super().check()
        self._check_shards()
        refuse_pairs(self, "list", ("delete_volumes",))
        refuse_pairs(self, "members", ("delete_volumes",))
        refuse_pairs(self, "exclude", ("delete_volumes",))
        if self.set and not isinstance(self.source, str):
            raise BadOption(
                "--set is for a SOURCE that may hold several archives", expected="a folder or a glob",
                remedy="Leave it out",
            )  # fmt: skip
        if self.target is None and not self.list:
            raise BadOption(
                "untar_volumes: no TARGET", remedy="Name the folder to unpack into, or use --list"
            )
        check_part_size(self.part_size)
        if self.skip_written and self.target is not None and is_url(self.target):
            raise BadOption(
                "--skip-written is for a TARGET on the disk, from which files are moved away",
                remedy="Leave it out",
            )

    def _check_shards(self) -> None:
        """Refuse what makes no sense with shards, or without them."""
        names = self.shards
        if names is None:
            if self.shard_size is not None:
                raise BadOption(
                    "--shard-size is for a TARGET that is shards", expected="a name such as train-%06d.tar",
                    remedy="Leave it out, or name the shards",
                )  # fmt: skip
            return
        check_shard_size(self.shard_size)
        if isinstance(self.source, str) and self.source.rstrip("/") == names.folder.rstrip("/"):
            raise BadOption(
                "the shards would lie among the volumes that they are made of",
                remedy=f"Give them a folder of their own, such as {names.folder}shards/",
            )
        if self.part_size is not None:
            raise BadOption(
                "--part-size makes no sense with shards, which are sent in parts of 8 MiB",
                remedy="Leave it out",
            )
        if self.skip_written:
            raise BadOption("--skip-written makes no sense with shards", remedy="Leave it out")

    @property
    def shards(self) -> ShardNames | None:
        """How the shards are called that the target is; None if it is something else."""
        if self.target is None or self.list or NUMBER.search(self.target.rpartition("/")[2]) is None:
            return None
        return ShardNames.of(self.target)

    @property
    def most_bytes(self) -> int:
        """Bytes of a shard at most."""
        return self.shard_size or DEFAULT_SIZE

    def all_sources(self) -> str:
        """SOURCE as one text, also of a list, and with what ``--set`` picks of it."""
        parts = [self.source] if isinstance(self.source, str) else [*self.source]
        return "\0".join([*parts, *(f"set={name}" for name in sorted(self.set))])

    def places(self) -> tuple[str, str]:
        first = self.source if isinstance(self.source, str) else f"{self.source[0]} … {self.source[-1]}"
        return first, self.target or ""

    def local_target(self) -> str | None:
        if self.list or (self.target is not None and is_url(self.target)):
            return None
        return self.target if self.shards is None else self.shards.folder


untar_volumes = function_of(UntarVolumes)
