"""The verb pack: samples into tar shards, FFRecord files or files of their own, or files into one archive."""

from __future__ import annotations

import posixpath
import re
import shlex
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from typing import Any, ClassVar

from nbdata.errors import BadOption
from nbdata.operation import function_of, slots
from nbdata.option import argument, option
from nbdata.paths import is_url
from nbdata.protocols import Job
from nbdata.report import Plan
from nbdata.verbs.archive_names import ARCHIVES, ArchiveNames, format_of, refuse_unwritten
from nbdata.verbs.options import Storing, Verifying, check_part_size, refuse_pairs
from nbdata.verbs.samples import SampleSource
from nbdata.verbs.shard_names import DEFAULT_SIZE, ENDS, ShardNames, check_shard_size

__all__ = ["LEAST_VOLUME", "Pack", "pack"]

# Processes of --map.
_MOST_WORKERS = 256
#: Bytes of a volume of an archive at least.
LEAST_VOLUME = 128 << 10
# Options that make sense for samples in shards or FFRecord files only, for one of these only, and for archives only.
_OF_FILES = ("shard_size", "shard_count", "shuffle", "seed")
_OF_SAMPLES = ("by", "select", "rename", "part_size")
_OF_SHARDS, _OF_RECORDS = ("map", "map_workers"), ("no_names",)
_OF_ARCHIVES = ("volume_size", "md5", "mtime")
# By what is made, the options that it does not have; archives have the last entry.
_FOREIGN = {
    "shards": (*_OF_ARCHIVES, *_OF_RECORDS),
    "ffrecord": (*_OF_ARCHIVES, *_OF_SHARDS),
    "files": (*_OF_ARCHIVES, *_OF_SHARDS, *_OF_RECORDS, *_OF_FILES, "sort"),
    "archive": (*_OF_FILES, *_OF_SAMPLES, *_OF_SHARDS, *_OF_RECORDS),
}


@dataclass(frozen=True)
class Pack(Verifying, Storing):
    """Neighbouring members of a shard make a sample, as WebDataset has it: ``n01/12.jpg`` and ``n01/12.cls``. The same
    samples in the same order make the same bytes. From store to store nothing touches the disk. A shard has its name
    only when it is whole; the same command goes on with those that are missing, and packs anew what has changed. At the
    end an index of the shards is written beside them (JSON, as the wids library has it): their names, sizes, numbers
    of samples, and checksums. Shards that are the source are read once to find what is in them, and once more by
    ranges; compressed ones can be packed with --map only.

    With --format ffrecord, or if TARGET ends in .ffr or .ffr/, the samples are packed into FFRecord files, for random
    batches. Each field becomes a record, the fields of a sample one behind the other, and the last record of a file has
    their names: each file is a packed folder, as pack_folder of the ffrecord library makes it, and nbdata.samples gives
    the same samples as of SOURCE. With --no-names a sample is one record, found by its number. Back again: FFRecord
    files are a SOURCE for shards, and with --format files for objects or files of their own, as are shards.

    With another --format, or if TARGET ends in .tar.gz, .tar.zst or .zip, all files of SOURCE become one archive
    instead, which untar_volumes and the usual programs read. Names in it begin below SOURCE, as with ``tar -C SOURCE``.
    With --volume-size it is cut into volumes TARGET.000, TARGET.001 and so on, which `cat` joins. Files keep their time
    and whether they may be run; symbolic links and empty folders of the disk are kept; owners are not. The same
    command resumes behind the volumes that are there and still right; a zip begins anew.
    """

    verb: ClassVar[str] = "pack"
    less: ClassVar[str] = "--include"
    summary: ClassVar[str] = "Pack samples into tar shards or FFRecord files, or files into an archive."
    examples: ClassVar[tuple[str, ...]] = (
        "pack s3://bucket/images/ s3://bucket/shards/train-%06d.tar",
        "pack s3://bucket/images/ /data/shards/ --shard-size 64MB --shuffle",
        "pack 's3://bucket/train-{000000..000099}.tar' s3://bucket/small/train-%06d.tar --shard-count 1000",
        "pack s3://bucket/images/ s3://bucket/small/train-%06d.tar --map 'mogrify -resize 256x256 {}/sample.jpg'",
        "pack s3://bucket/images/ s3://bucket/train.ffr/ --format ffrecord",
        "pack s3://bucket/train.ffr/ s3://bucket/images/ --format files",
        "pack s3://bucket/images/ s3://bucket/archive/images.tar.zst --volume-size 1GB --md5",
    )

    source: str | tuple[str, ...] = argument(
        "URL or path of a folder, of tar shards, or of FFRecord files (a folder of them ends in .ffr or .ffr/); globs "
        "and brace ranges work. In Python also a list of shards.",
        kind="places",
        metavar="SOURCE",
    )
    target: str = argument(
        "URL or path of the shards, with %06d or {000000..000099} where their number stands; or a folder, for "
        "shard-000000.tar and so on (PART_00000.ffr with --format ffrecord); or one file: the archive, such as "
        "x.tar.gz, or x.ffr.",
        metavar="TARGET",
    )
    format: str | None = option(
        None,
        "shards: samples in tar shards; ffrecord: samples in FFRecord files; files: each field of a sample as an "
        "object or file; tar, tar.gz, tar.zst, zip: one archive. Default: by the end of TARGET, where .tar means "
        "shards.",
        choices=("shards", "ffrecord", "files", *ARCHIVES),
    )
    volume_size: int | None = option(
        None,
        "Cut an archive into volumes of SIZE bytes at most (128 KiB or more).",
        kind="size",
        metavar="SIZE",
    )
    md5: bool = option(
        False, "Write the MD5 of each volume of an archive beside it, as VOLUME.md5.", kind="flag"
    )
    mtime: str | None = option(
        None,
        "The time of all members of an archive, such as 2024-01-31, 2024-01-31T12:00Z or seconds since 1970 "
        "(default: that of each file).",
        metavar="TIME",
    )
    target_options: dict[str, Any] | None = option(
        None,
        "A storage option for TARGET alone, which then takes none of --option; may be given again.",
        kind="pairs",
        binding=True,
        identity=False,
    )
    by: str = option(
        "sample",
        "What a sample is. sample: the files of one folder that share the name up to its first dot; file: each file.",
        choices=("sample", "file"),
    )
    include: tuple[str, ...] = option(
        (), "Of files: take only what matches GLOB; may be given again.", kind="texts", metavar="GLOB"
    )
    exclude: tuple[str, ...] = option(
        (),
        "Of files: leave out what matches GLOB; wins over --include; may be given again.",
        kind="texts",
        metavar="GLOB",
    )
    select: str | None = option(
        None,
        "Pack only samples of which EXPR is true, such as \"jpg and size(jpg) < 1MB and not key = 'test/*'\": a field "
        "that there is, size or size(FIELD) compared with SIZE, key compared with GLOB; and, or, not, brackets.",
        metavar="EXPR",
    )
    rename: tuple[str, ...] = option(
        (),
        "Call a field otherwise, as jpeg=jpg; may be given again. --select takes the names of SOURCE.",
        kind="texts",
        metavar="OLD=NEW",
    )
    map: Any = option(
        None,
        "Change each sample on its way, in processes of this machine side by side. COMMAND runs without a shell, once "
        "for each sample; {} stands for a temporary folder with its fields as files sample.EXT, and else comes last. "
        "The files sample.EXT that are there when it ends are the new sample; if there are none, it is left out. In "
        "Python also a function that is given a sample, a dict, and returns a dict, several, or None to leave it out. "
        "It runs in this process, not in the agent, and begins anew each time: shards that are there need --overwrite "
        "always. --rename comes before it.",
        kind="function",
        binding=True,
        identity=False,
        metavar="COMMAND",
    )
    map_workers: int | None = option(
        None,
        "Processes of --map (default: one for each processor).",
        kind="count",
        identity=False,
        metavar="N",
    )
    no_names: bool = option(
        False,
        "Of FFRecord files: leave the names out. Each sample must have one field, and is a record by number.",
        kind="flag",
    )
    shard_size: int | None = option(
        None,
        "Bytes of a shard or FFRecord file at most; one that holds a single larger sample has more. Default: 256 MiB; "
        "FFRecord files end as soon as they have 256 MiB, or a 200th of all if that is more.",
        kind="size",
        metavar="SIZE",
    )
    shard_count: int | None = option(
        None,
        "Make so many shards; their numbers of samples differ by one at most.",
        kind="count",
        metavar="N",
    )
    shuffle: bool = option(
        False,
        "In a random order, that of all samples; see --seed. Not with --by file if files share a key: they belong to "
        "one sample.",
        kind="flag",
    )
    seed: int = option(0, "Of the order of --shuffle.", kind="count", metavar="N")
    sort: bool = option(False, "In the order of the keys; without, in that of the source.", kind="flag")
    overwrite: str = option(
        "changed",
        "changed: replace what this line has made and what is to hold something else now; always: also the files of "
        "others; never.",
        choices=("changed", "always", "never"),
    )
    part_size: int | None = option(
        None,
        "Of shards: size of the parts of a multipart upload (default: 8 MiB). Each worker holds one of a shard with "
        "objects over 1 MiB.",
        kind="size",
        metavar="SIZE",
        identity=False,
    )

    def check(self) -> None:
        super().check()
        if self.format in (None, *ARCHIVES):
            refuse_unwritten(self.target)
        self._refuse_foreign()
        if self.archive is not None:
            self._check_archive(self.archive)
            return
        if self.made == "files":
            self._check_files()
        names = self.names
        if isinstance(self.source, str) and self.source.rstrip("/") == self.target.rstrip("/"):
            raise BadOption(
                "the shards would lie among the files that they are made of",
                remedy=f"Give them a folder of their own, such as {names.folder}shards/",
            )
        check_part_size(self.part_size)
        refuse_pairs(self, "shuffle", ("sort",))
        if self.shard_size is not None and self.shard_count is not None:
            raise BadOption(
                "--shard-size and --shard-count exclude each other", remedy="Leave one of them out"
            )
        check_shard_size(self.shard_size)
        for pair in self.rename:
            old, _, new = pair.partition("=")
            if not old or not new or [one.partition("=")[0] for one in self.rename].count(old) > 1:
                raise BadOption(
                    f"--rename: {pair!r}", expected="OLD=NEW, such as jpeg=jpg, once for each field"
                )
        if self.shard_count is not None and self.shard_count < 1:
            raise BadOption(f"--shard-count: {self.shard_count}", expected="at least 1")
        if not names.numbered and (self.shard_size is not None or self.shard_count is not None):
            raise BadOption(
                f"{self.target} is one file, which --shard-size and --shard-count would divide",
                remedy="Give it a place for a number, as train-%05d.ffr, or leave them out",
            )
        self._check_map()

    def _refuse_foreign(self) -> None:
        """BadOption for an option that what is made does not have."""
        foreign = _FOREIGN.get(self.made, _FOREIGN["archive"])
        for one in fields(self):
            if one.name in foreign and getattr(self, one.name) != one.default:
                what = f"--format {self.made}" if self.format else f"{self.made}, which {self.target} means"
                one_archive = self.format is None and one.name in _OF_ARCHIVES
                raise BadOption(
                    f"--{one.name.replace('_', '-')} makes no sense with {what}",
                    remedy="Use --format tar for one archive"
                    if one_archive
                    else "Leave it out, or say another --format",
                )

    def _check_files(self) -> None:
        if not self.target.endswith("/"):
            raise BadOption(
                f"--format files: {self.target} is no folder", remedy=f"End it in a slash: {self.target}/"
            )
        base = self.places()[0].rstrip("/") + "/"
        if self.target.startswith(base) and self.target != base:
            raise BadOption(
                "the files would lie among those that they are made of", path=self.target,
                remedy="Write to another folder",
            )  # fmt: skip

    def _check_archive(self, form: str) -> None:
        if not isinstance(self.source, str):
            raise BadOption("several sources can only be shards", remedy="Pack each folder by itself")
        ArchiveNames.of(self.target, form, numbered=self.volume_size is not None)
        if self.volume_size is not None and self.volume_size < LEAST_VOLUME:
            raise BadOption(
                f"--volume-size: {self.volume_size} bytes is too little", expected="at least 128 KiB"
            )
        _ = self.fixed_time

    def _check_map(self) -> None:
        """Refuse what makes no sense with ``--map``, or without it."""
        if self.map is None:
            if self.map_workers is not None:
                raise BadOption("--map-workers is for --map", remedy="Leave it out")
            return
        if not callable(self.map):
            _ = self.map_words
        if self.map_workers is not None and not 1 <= self.map_workers <= _MOST_WORKERS:
            raise BadOption(
                f"--map-workers: {self.map_workers} is out of range", expected=f"1 to {_MOST_WORKERS}"
            )
        if self.shard_count is not None:
            raise BadOption(
                "--map and --shard-count exclude each other: how many samples come out of --map is not known before",
                remedy="Say --shard-size",
            )
        for name, value in {
            "max-rate": self.max_rate,
            "part-size": self.part_size,
            "ignore-space": self.ignore_space,
            "on-error report": self.on_error == "report",
        }.items():
            if value:
                raise BadOption(f"--map and --{name} exclude each other", remedy="Leave one of them out")

    @property
    def map_words(self) -> list[str]:
        """The words of the command that ``--map`` is; BadOption if it is none."""
        try:
            words = shlex.split(self.map)
        except ValueError as error:
            raise BadOption(f"--map: {str(error).lower()}", remedy="Close the quotes") from None
        if not words:
            raise BadOption("--map: this command is empty", expected="a command such as 'convert.sh {}'")
        return words

    @property
    def made(self) -> str:
        """What is made: shards, ffrecord, files, or the format of an archive."""
        if self.format is not None:
            return self.format
        records = self.target.rstrip("/").endswith(ENDS["ffrecord"])
        return "ffrecord" if records else format_of(self.target) or "shards"

    @property
    def archive(self) -> str | None:
        """The format of the archive that is made; None if none is."""
        return self.made if self.made in ARCHIVES else None

    @property
    def archive_names(self) -> ArchiveNames:
        """How the archive and its volumes are called."""
        assert self.archive is not None
        return ArchiveNames.of(self.target, self.archive, numbered=self.volume_size is not None)

    @property
    def fixed_time(self) -> int | None:
        """The time that all members get, in seconds since the epoch; without a zone it is UTC."""
        if self.mtime is None:
            return None
        text = self.mtime.strip().removeprefix("@")
        if re.fullmatch(r"-?\d{1,11}", text):
            return int(text)
        try:
            told = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
        except ValueError:
            raise BadOption(
                f"--mtime: {self.mtime!r} is no time",
                expected="a time such as 2024-01-31 or 2024-01-31T12:00Z, or seconds since 1970",
            ) from None
        return int((told if told.tzinfo else told.replace(tzinfo=timezone.utc)).timestamp())

    @property
    def names(self) -> ShardNames:
        """How the shards are called, or the FFRecord files; of single files only the folder counts."""
        return ShardNames.of(self.target, "shards" if self.made == "files" else self.made)

    @property
    def most_bytes(self) -> int:
        """Bytes of a shard at most."""
        return self.shard_size or DEFAULT_SIZE

    @property
    def names_of_fields(self) -> dict[str, str]:
        """The new name of each field that is renamed."""
        return {old: new for old, _, new in (pair.partition("=") for pair in self.rename)}

    def samples(self) -> SampleSource:
        """What is packed; shards that lie in their own source from an earlier run are not."""
        exclude = self.exclude
        source = self.source if isinstance(self.source, str) else self.source[0]
        folder = self.names.folder
        base = source if source.endswith("/") else source + "/"
        if folder.startswith(base):
            exclude += tuple(posixpath.join("/" + folder[len(base) :], name) for name in self.names.globs)
        # Where nothing but the names counts, files that belong to no sample come along.
        by = "file" if self.made == "files" and self.select is None else self.by
        return SampleSource(
            source=self.source, by=by, include=self.include, exclude=exclude, verify=self.verify
        )

    def places(self) -> tuple[str, str]:
        return self.source if isinstance(self.source, str) else self.source[0], self.target

    def local_target(self) -> str | None:
        if is_url(self.target):
            return None
        return self.names.folder if self.archive is None else self.archive_names.folder

    def plan(self) -> Plan:
        return super().plan() if self.map is None else slots.mapped_pack(self).plan()

    def start(self) -> Job:
        if self.map is not None:
            raise BadOption(
                "--map has no background: what it runs belongs to this process",
                remedy="Leave --background out",
            )
        return super().start()

    def run(self, *, quiet: bool = False) -> Any:
        """As of `Operation`; with ``map`` it is done by this process."""
        return super().run(quiet=quiet) if self.map is None else slots.mapped_pack(self).run(quiet=quiet)


pack = function_of(Pack)
