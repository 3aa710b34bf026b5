"""The verb untar_volumes: unpacks archives that lie in one or many volumes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from nbdata.errors import BadOption
from nbdata.operation import function_of
from nbdata.option import argument, option
from nbdata.paths import is_url
from nbdata.verbs.archive_names import NUMBER
from nbdata.verbs.options import Dealing, Decompressing, Fetching, Writing, check_part_size, refuse_pairs
from nbdata.verbs.shard_names import DEFAULT_SIZE, ShardNames, check_shard_size

__all__ = ["UntarVolumes", "untar_volumes"]


@dataclass(frozen=True)
class UntarVolumes(Decompressing, Fetching, Dealing, Writing):
    """The volumes are read as one stream, so no merged file is ever written. Members are written only
    below TARGET, under the rules of Python's ``data`` filter (PEP 706). Of a zip archive, ``--list``
    and ``--members`` fetch only the directory and the bytes that they need.

    Each volume is compared with its checksum in the store and, if there is one, with a checksum file
    such as ``VOLUME.md5`` or ``MD5SUMS``, while it is read. Files from a volume that turns out to be
    wrong stay until the command is run again, which writes them anew. Zip archives have a checksum
    for each member, which is compared instead.

    Several archives: if a folder or a glob holds several, each is unpacked into its own folder below
    TARGET, named after the archive without its suffix. ``--set`` selects some of them. A single
    archive is unpacked into TARGET itself.

    TARGET in a store: each file becomes an object, whose checksum is compared with the store's
    response. From a store to a store no disk space is used. Stores have no links, so a link becomes
    an object with the content of its file. Links that lead to no file, and empty folders, are left
    out and named.

    TARGET such as ``train-%06d.tar``: members go straight into tar shards, as `pack` makes them.
    Neighbouring files with the same name up to the first dot form a sample, as in WebDataset. Links,
    files without an extension and empty folders cannot be in a sample; they are left out and named.
    The order of the archive stays. The number of shards is known only at the end, when an index of
    them is written beside them.

    After an interruption, run the same command again to resume behind the unpacked members. An
    archive that is compressed as one piece, as with gzip, is read again from its start; the existing
    files are compared with it as it streams.

    Small disk: with ``--skip-written`` an archive can be larger than the disk. Unpack until the disk
    is full, move the files away (``push --delete-source``), and run the command again.
    """

    verb: ClassVar[str] = "untar_volumes"
    less: ClassVar[str] = "--members"
    summary: ClassVar[str] = (
        "Unpack tar or zip archives that lie in one or many volumes, without merging the volumes."
    )
    examples: ClassVar[tuple[str, ...]] = (
        "untar_volumes volumes/site-00 data",
        "untar_volumes s3://bucket/compressed/ data --members '**/*.json'",
        "untar_volumes s3://bucket/compressed/ s3://bucket/video/",
        "untar_volumes s3://bucket/compressed/ s3://bucket/video/ --against s3://bucket/md5/",
        "untar_volumes s3://bucket/compressed/ s3://bucket/shards/train-%06d.tar",
        "untar_volumes s3://bucket/compressed/ data --set train",
        "untar_volumes volumes data --ignore-space --skip-written",
        "untar_volumes s3://bucket/big.zip data --members 'train/**'",
        "untar_volumes volumes --list",
    )

    source: Any = argument(
        "The first volume, a folder or a glob; or a file that lists the volumes in order: a checksum file or NAME.lst. "
        "In Python also a list of volumes.",
        kind="places",
        metavar="SOURCE",
    )
    target: str | None = argument(
        "Folder or URL to unpack into; or a name of tar shards, with %06d or {000000..000099} for their number. Not "
        "needed with --list.",
        default=None,
        metavar="TARGET",
    )
    target_options: dict[str, Any] | None = option(
        None,
        "A storage option for TARGET alone, if it is in a store; TARGET then ignores --option. Repeatable.",
        kind="pairs",
        binding=True,
        identity=False,
    )
    set: tuple[str, ...] = option(
        (),
        "If SOURCE holds several archives, unpack the one called NAME (with or without its suffix). Repeatable.",
        kind="texts",
        metavar="NAME",
    )
    members: tuple[str, ...] = option(
        (),
        "Unpack only members whose whole path matches GLOB: '*.json' only those outside of folders, '**/*.json' those "
        "in any folder. Repeatable.",
        kind="texts",
        metavar="GLOB",
    )
    exclude: tuple[str, ...] = option(
        (),
        "Leave out members whose path matches GLOB, also if --members matches them. Repeatable.",
        kind="texts",
        metavar="GLOB",
    )
    strip_components: int = option(
        0, "Remove the first N components from the path of each member.", kind="count", metavar="N"
    )
    overwrite: str = option(
        "changed",
        "What to do with existing files. changed: keep those that this archive wrote and that are unchanged, replace "
        "the others; always: replace all; never: keep all.",
        choices=("changed", "always", "never"),
    )
    verify: str = option(
        "auto",
        "auto: compare each volume, while it is read, with the checksum that the store has of it and with its digest "
        "in a checksum file (see --against); none: do not compare.",
        choices=("auto", "none"),
        identity=False,
    )
    against: str | None = option(
        None,
        "Where the checksum files of the volumes are: a folder of them (VOLUME.md5, MD5SUMS …), or one such file "
        "(default: beside the volumes).",
        kind="place",
        metavar="WHERE",
        identity=False,
    )
    delete_volumes: bool = option(
        False,
        "Delete each volume once all of it is unpacked and it is not needed to resume; the plan says when. If the "
        "archive is compressed as one piece, as with gzip, the volumes are deleted only at the end.",
        kind="flag",
    )
    list: bool = option(
        False,
        "List the members and write nothing. With --json the field members has all of them.",
        kind="flag",
    )
    format: str = option(
        "auto",
        "Format: zip, or tar with this compression. auto: from the content of the archive.",
        choices=("auto", "tar", "gz", "bz2", "xz", "zst", "lz4", "zip"),
    )
    names_encoding: str | None = option(
        None,
        "Encoding of the names in a zip archive that are not marked as UTF-8, such as cp932 (Japan), gbk, big5, cp949 "
        "(Korea) or cp866: that of the computer that made it (default: guessed from the names, and said).",
        kind="text",
        metavar="NAME",
    )
    max_expansion: int | None = option(
        None,
        "Refuse to write more than SIZE in total (default: what the limit of the disk allows; none for a store).",
        kind="size",
        metavar="SIZE",
    )

    part_size: int | None = option(
        None,
        "If TARGET is in a store: size of each part of a multipart upload (default: 8 MiB). Parts take up to 64 MiB "
        "of memory in total, and for files above 640 GB up to 512 MiB.",
        kind="size",
        metavar="SIZE",
        identity=False,
    )

    shard_size: int | None = option(
        None,
        "If TARGET names shards: maximum size of a shard (default: 256 MiB). A single sample that is larger makes a "
        "larger shard.",
        kind="size",
        metavar="SIZE",
    )

    def check(self) -> None:
        super().check()
        self._check_shards()
        refuse_pairs(self, "list", ("delete_volumes",))
        refuse_pairs(self, "members", ("delete_volumes",))
        refuse_pairs(self, "exclude", ("delete_volumes",))
        refuse_pairs(self, "list", ("against",))
        refuse_pairs(self, "cluster", ("list", "delete_volumes"))
        if self.against is not None and self.verify == "none":
            raise BadOption(
                "--against makes no sense with --verify none, which compares nothing",
                remedy="Leave one of them out",
            )
        if self.set and not isinstance(self.source, str):
            raise BadOption(
                "--set is for a SOURCE that may hold several archives",
                expected="a folder or a glob",
                remedy="Leave it out",
            )
        if self.target is None and not self.list:
            raise BadOption(
                "untar_volumes: no TARGET", remedy="Name the folder to unpack into, or use --list"
            )
        check_part_size(self.part_size)
        if self.names_encoding is not None:
            try:
                b"a".decode(self.names_encoding, "replace")
            except LookupError:
                raise BadOption(
                    f"--names-encoding: {self.names_encoding!r} is no encoding that Python knows",
                    expected="a name such as cp932, gbk, big5, cp949, cp866 or utf-8",
                ) from None
        if self.skip_written and self.target is not None and is_url(self.target):
            raise BadOption(
                "--skip-written is for a TARGET on the disk, from which files are moved away",
                remedy="Leave it out",
            )

    def _check_shards(self) -> None:
        """Refuse options that make no sense with shards, or without them."""
        names = self.shards
        if names is None:
            if self.shard_size is not None:
                raise BadOption(
                    "--shard-size is for a TARGET that is shards",
                    expected="a name such as train-%06d.tar",
                    remedy="Leave it out, or name the shards",
                )
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
        """The names of the target's shards; None if the target is something else."""
        if self.target is None or self.list or NUMBER.search(self.target.rpartition("/")[2]) is None:
            return None
        return ShardNames.of(self.target)

    @property
    def most_bytes(self) -> int:
        """Maximum bytes of a shard."""
        return self.shard_size or DEFAULT_SIZE

    def all_sources(self) -> str:
        """Return SOURCE (also a list) and the values of ``--set`` as one text."""
        parts = [self.source] if isinstance(self.source, str) else [*self.source]
        return "\0".join([*parts, *(f"set={name}" for name in sorted(self.set))])

    def places(self) -> tuple[str, str]:
        first = self.source if isinstance(self.source, str) else f"{self.source[0]} … {self.source[-1]}"
        return first, self.target or ""

    @property
    def with_less(self) -> str:
        more = "" if self.skip_written else ", or name a URL as TARGET, which needs no disk"
        return super().with_less + more

    def local_target(self) -> str | None:
        if self.list or (self.target is not None and is_url(self.target)):
            return None
        return self.target if self.shards is None else self.shards.folder


untar_volumes = function_of(UntarVolumes)
