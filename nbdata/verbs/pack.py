"""The verb pack: packs samples into tar shards, FFRecord files or single files, and files into an archive."""

from __future__ import annotations

import dataclasses
import posixpath
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from nbdata.errors import BadOption
from nbdata.moments import seconds_of
from nbdata.operation import function_of, slots
from nbdata.option import argument, option, options_of
from nbdata.paths import is_url
from nbdata.protocols import Job
from nbdata.report import Plan
from nbdata.verbs.archive_names import ARCHIVES, ArchiveNames, format_of, refuse_unwritten
from nbdata.verbs.changing import Changing
from nbdata.verbs.choosing import Choosing, SlicingShards
from nbdata.verbs.options import (
    Connecting,
    Dealing,
    Fetching,
    Filtering,
    HoldingSamples,
    Leading,
    Storing,
    Verifying,
    check_part_size,
    refuse_pairs,
)
from nbdata.verbs.samples import SampleSource
from nbdata.verbs.shard_names import DEFAULT_SIZE, ENDS, ShardNames, check_shard_size

__all__ = ["LEAST_VOLUME", "STDIN", "STDOUT", "Pack", "pack"]

#: Standard input and output as places.
STDIN, STDOUT = "/dev/stdin", "/dev/stdout"
#: Minimum bytes of a volume of an archive.
LEAST_VOLUME = 128 << 10
# How to make a single shard, and what is not meant.
_SINGLE = " --shard-count 1 for one shard, --format tar for an archive"
# Options for samples in shards or FFRecord files only, for one of these only, and for archives only.
_OF_FILES = ("shard_size", "shard_samples", "shard_count", "shuffle", "seed")
_OF_SAMPLES = (*options_of(Choosing), *options_of(SlicingShards), "files_from", "by", "part_size")
_OF_SHARDS, _OF_RECORDS = (*options_of(Changing), "max_window", "max_sample"), ("no_names",)
_OF_ARCHIVES = ("volume_size", "md5", "mtime")
# Options that need a source that can be read twice, and a target that can be written twice.
_OF_STORED_SOURCES = ("files_from", "shard_slice", "shuffle", "sort", "shard_count", "trust_index")
_OF_STORED_TARGETS = ("shard_size", "shard_samples", "shard_count", "overwrite", "part_size")
# The options that each kind of target does not have; the last entry is for archives.
_FOREIGN = {
    "shards": (*_OF_ARCHIVES, *_OF_RECORDS),
    "ffrecord": (*_OF_ARCHIVES, *_OF_SHARDS),
    "files": (*_OF_ARCHIVES, *_OF_SHARDS, *_OF_RECORDS, *_OF_FILES, "sort"),
    "archive": (*_OF_FILES, *_OF_SAMPLES, *_OF_SHARDS, *_OF_RECORDS),
}


@dataclass(frozen=True)
class Pack(
    Changing,
    Choosing,
    SlicingShards,
    Verifying,
    Filtering,
    HoldingSamples,
    Leading,
    Fetching,
    Dealing,
    Storing,
):
    """Pack turns the files in SOURCE into tar shards, FFRecord files, single files or one archive. The end
    of TARGET selects which, or --format. From a store to a store it uses no disk space. The same files
    in the same order make the same bytes.

    Tar shards (default): neighbouring members form a sample, as in WebDataset: ``n01/12.jpg`` and
    ``n01/12.cls``. A shard gets its name only when it is whole. Run the same command again to write
    the missing shards, and to repack those whose samples changed. At the end an index of the shards
    is written beside them, in the JSON format of the wids library: names, sizes, numbers of samples,
    and checksums. If SOURCE is shards, each is read twice: once to list its samples, and once by
    ranges, and --sort FIELD reads that field once more before. Compressed shards need --map. A damaged
    shard ends the run before anything is written; with --on-error report the rest goes on, and each
    sample that is left out is a failure. A tar can also come from standard input, and go to standard
    output (-): this process then does the work, as with --map, and cannot resume.

    FFRecord files, for random batches (--format ffrecord, or TARGET ends in .ffr or .ffr/): each field
    becomes a record. The fields of a sample follow each other, and the last record of a file holds
    the names. So each file is a packed folder, as pack_folder of the ffrecord library makes it, and
    nbdata.samples reads the same samples from it as from SOURCE. With --no-names a sample is one
    record without a name, found by its number.

    Single files (--format files): each field of a sample becomes an object or file. SOURCE can be
    shards or FFRecord files, so this is the way back. FFRecord files can also be packed into shards.

    An archive (another --format, or TARGET ends in .tar.gz, .tar.zst or .zip): all files of SOURCE go
    into one archive, which untar_volumes and other programs can read. Paths in it are relative to
    SOURCE, as with ``tar -C SOURCE``. --volume-size cuts it into volumes TARGET.000, TARGET.001 and so
    on, which `cat` joins. Files keep their time and their executable bit, but not their owner. From a
    disk, symbolic links and empty folders are kept. Run the same command again to resume after the
    volumes that are there and still right; a zip starts over.
    """

    verb: ClassVar[str] = "pack"
    less: ClassVar[str] = "--include"
    summary: ClassVar[str] = "Pack samples into tar shards or FFRecord files, or files into an archive."
    examples: ClassVar[tuple[str, ...]] = (
        "pack s3://bucket/images/ s3://bucket/shards/train-%06d.tar",
        "pack s3://bucket/images/ /data/shards/ --shard-size 64MB --shuffle",
        "pack 's3://bucket/train-{000000..000099}.tar' s3://bucket/small/train-%06d.tar --shard-count 1000",
        "pack 's3://bucket/train-*.tar' s3://bucket/sorted/train-%06d.tar --fields jpg,cls --sort cls",
        "pack s3://bucket/images/ s3://bucket/small/train-%06d.tar --map 'mogrify -resize 256x256 {}/sample.jpg'",
        "pack s3://bucket/images/ s3://bucket/train.ffr/ --format ffrecord",
        "pack s3://bucket/train.ffr/ s3://bucket/images/ --format files",
        "pack s3://bucket/images/ s3://bucket/archive/images.tar.zst --volume-size 1GB --md5",
    )

    source: str | tuple[str, ...] = argument(
        "URL or path of a folder, of tar shards, or of FFRecord files (a folder of them ends in .ffr or .ffr/); may "
        "contain globs and brace ranges. Several SOURCEs are shards or FFRecord files, packed in this order. In a "
        "terminal - means a tar from standard input.",
        kind="places",
        metavar="SOURCE",
        stream=STDIN,
    )
    target: str = argument(
        "URL or path of the shards, with %06d or {000000..000099} for their number; or a folder, for "
        "shard-000000.tar and so on (with --format ffrecord PART_00000.ffr); or a single file, such as the archive "
        "x.tar.gz, or x.ffr. In a terminal - means standard output.",
        metavar="TARGET",
        stream=STDOUT,
    )
    format: str | None = option(
        None,
        "shards: samples in tar shards; ffrecord: samples in FFRecord files; files: each field of a sample as an "
        "object or file; tar, tar.gz, tar.zst, zip: one archive. Default: from the end of TARGET; .tar means shards.",
        choices=("shards", "ffrecord", "files", *ARCHIVES),
    )
    files_from: str | None = option(
        None,
        "Pack only the shards or FFRecord files listed in FILE, in its order: paths relative to SOURCE, a folder, one "
        "per line. In a terminal - means standard input.",
        kind="path",
        metavar="FILE",
    )
    volume_size: int | None = option(
        None,
        "Cut an archive into volumes of at most SIZE, which is 128 KiB or more (default: one file).",
        kind="size",
        metavar="SIZE",
    )
    md5: bool = option(
        False, "Write the MD5 of each volume of an archive beside it, as VOLUME.md5.", kind="flag"
    )
    mtime: str | None = option(
        None,
        "Modification time of all members of an archive, such as 2024-01-31, 2024-01-31T12:00Z or seconds since 1970; "
        "UTC if it has no zone (default: the time of each file).",
        metavar="TIME",
    )
    target_options: dict[str, Any] | None = option(
        None,
        "A storage option for TARGET alone; TARGET then ignores --option. Repeatable.",
        kind="pairs",
        binding=True,
        identity=False,
    )
    by: str = option(
        "sample",
        "What forms a sample. sample: the files of one folder with the same name up to the first dot; file: each file.",
        choices=("sample", "file"),
    )
    no_names: bool = option(
        False,
        "Only for FFRecord files: store no names. Each sample must have one field, and is found by its number.",
        kind="flag",
    )
    shard_size: int | None = option(
        None,
        "Maximum size of a shard or FFRecord file; a single sample that is larger makes a larger one. Default: 256 "
        "MiB, where an FFRecord file ends once it has 256 MiB, or a 200th of all bytes if that is more.",
        kind="size",
        metavar="SIZE",
    )
    shard_samples: int | None = option(
        None,
        "Maximum samples of a shard or FFRecord file; --shard-size limits it too.",
        kind="count",
        metavar="N",
        expected="at least 1",
    )
    shard_count: int | None = option(
        None,
        "Make N shards, whose numbers of samples differ by at most one (default: as many as --shard-size needs).",
        kind="count",
        metavar="N",
    )
    shuffle: bool = option(
        False,
        "Pack the samples in a random order over all samples; see --seed. Refused with --by file if files share a "
        "key, because these belong to one sample.",
        kind="flag",
    )
    seed: int = option(0, "Seed of --shuffle.", kind="count", metavar="N")
    sort: bool | str = option(
        False,
        "Pack the samples in key order, or in the order of FIELD: by its numbers if all samples have one there, else "
        "by its text (default: in the order of SOURCE). FIELD is a name after --rename, with at most 4 KiB.",
        kind="optional",
        metavar="FIELD",
    )
    overwrite: str = option(
        "changed",
        "What to do with existing files. changed: replace what this command made and what now has other content; "
        "always: replace all, also files of other programs; never: keep all.",
        choices=("changed", "always", "never"),
    )
    part_size: int | None = option(
        None,
        "Only for shards: size of each part of a multipart upload (default: 8 MiB). Each worker holds one part in "
        "memory if the shard has objects over 1 MiB.",
        kind="size",
        metavar="SIZE",
        identity=False,
    )

    def check(self) -> None:
        super().check()
        self.refuse_durations()
        if self.format in (None, *ARCHIVES):
            refuse_unwritten(self.target)
        self._refuse_foreign()
        self._check_streams()
        self._check_cluster()
        if self.archive is not None:
            self._check_archive(self.archive)
            return
        if self.made == "files":
            self._check_files()
        if self.target == STDOUT:
            self._check_map()
            return
        names = self.names
        if isinstance(self.source, str) and self.source.rstrip("/") == self.target.rstrip("/"):
            raise BadOption(
                "the shards would lie among the files that they are made of",
                remedy=f"Give them a folder of their own, such as {names.folder}shards/",
            )
        check_part_size(self.part_size)
        refuse_pairs(self, "shuffle", ("sort",))
        if isinstance(self.sort, str) and "/" in self.sort:
            raise BadOption(
                f"--sort: {self.sort!r} is no field", remedy="To sort by key, write --sort after the places"
            )
        for name in ("shard_size", "shard_samples"):
            refuse_pairs(self, name, ("shard_count",))
        check_shard_size(self.shard_size)
        limits = {"--shard-count": self.shard_count, "--shard-samples": self.shard_samples}
        for flag, limit in limits.items():
            if limit is not None and limit < 1:
                raise BadOption(f"{flag}: {limit}", expected="at least 1")
        if not names.numbered and (self.shard_size is not None or any(limits.values())):
            raise BadOption(
                f"{self.target} is one file, which --shard-size, --shard-samples and --shard-count would divide",
                remedy="Give it a place for a number, as train-%05d.ffr, or leave them out",
            )
        self._check_map()

    def _refuse_foreign(self) -> None:
        """Raise BadOption for an option that this kind of target does not have."""
        foreign = _FOREIGN.get(self.made, _FOREIGN["archive"])
        for one in dataclasses.fields(self):
            if one.name in foreign and getattr(self, one.name) != one.default:
                what = f"--format {self.made}" if self.format else f"{self.made}, which {self.target} means"
                one_archive = self.format is None and one.name in _OF_ARCHIVES
                raise BadOption(
                    f"--{one.name.replace('_', '-')} makes no sense with {what}",
                    remedy="Use --format tar for one archive"
                    if one_archive
                    else "Leave it out, or use another --format",
                )

    def _check_cluster(self) -> None:
        if self.cluster is None:
            return
        if self.in_process:
            raise BadOption(
                f"{self._because} and --cluster exclude each other: this process does the work",
                remedy="Leave one of them out",
            )
        if self.made not in ("shards", "ffrecord"):
            raise BadOption(
                f"--cluster is for tar shards and FFRecord files: one process packs {self.made}",
                remedy="Leave it out",
            )

    def _check_files(self) -> None:
        if not self.target.endswith("/"):
            raise BadOption(
                f"--format files: {self.target} is not a folder",
                remedy=f"End it with a slash: {self.target}/",
            )
        base = self.places()[0].rstrip("/") + "/"
        if self.target.startswith(base) and self.target != base:
            raise BadOption(
                "the files would lie among those that they are made of", path=self.target,
                remedy="Write to another folder",
            )  # fmt: skip

    def _check_archive(self, form: str) -> None:
        if isinstance(self.sort, str):
            raise BadOption(f"--sort {self.sort}: an archive has files, and no fields", remedy="Write --sort")
        if not isinstance(self.source, str):
            raise BadOption("several sources can only be shards", remedy="Pack each folder by itself")
        ArchiveNames.of(self.target, form, numbered=self.volume_size is not None)
        if self.volume_size is not None and self.volume_size < LEAST_VOLUME:
            raise BadOption(
                f"--volume-size: {self.volume_size} bytes is too little", expected="at least 128 KiB"
            )
        _ = self.fixed_time

    def _check_map(self) -> None:
        """Refuse options that make no sense in this process, or without it."""
        self.check_maps()
        if not self.in_process:
            for name in options_of(HoldingSamples):
                if getattr(self, name) is not None:
                    raise BadOption(f"--{name.replace('_', '-')} is for --map", remedy="Leave it out")
            return
        what = self._because
        if self.shard_count is not None:
            raise BadOption(
                f"{what} and --shard-count exclude each other: the number of samples is not known before",
                remedy="Use --shard-size or --shard-samples",
            )
        for name, value in {
            "max-rate": self.max_rate,
            "part-size": self.part_size,
            "ignore-space": self.ignore_space,
            "on-error report": self.on_error == "report",
            "sort FIELD": isinstance(self.sort, str),
        }.items():
            if value:
                raise BadOption(f"{what} and --{name} exclude each other", remedy="Leave one of them out")

    def _check_streams(self) -> None:
        """Refuse what standard input or output cannot do."""
        refused: dict[str, tuple[str, ...]] = {}
        if self.source == STDIN:
            refused["standard input is read once, from its beginning"] = _OF_STORED_SOURCES
            self.refuse_filters("for files", "Choose samples with --select")
        if self.target == STDOUT:
            refused["standard output is one stream of a tar"] = _OF_STORED_TARGETS
        for why, names in refused.items():
            if self.made != "shards":
                raise BadOption(f"--format {self.made}: {why}", expected="tar shards")
            for name in names:
                if getattr(self, name) != options_of(Pack)[name][0].default:
                    raise BadOption(f"--{name.replace('_', '-')}: {why}", remedy="Leave it out")

    @property
    def in_process(self) -> bool:
        """True if the process that asks does the work, with what only it has: functions, commands, standard input."""
        return bool(self._because)

    @property
    def _because(self) -> str:
        given = {
            "--map": self.map is not None,
            "--map-many": self.map_many is not None,
            "standard input": self.source == STDIN,
            "standard output": self.target == STDOUT,
        }
        return next((name for name, is_given in given.items() if is_given), "")

    @property
    def made(self) -> str:
        """The kind of target: shards, ffrecord, files, or the format of an archive."""
        if self.format is not None:
            return self.format
        records = self.target.rstrip("/").endswith(ENDS["ffrecord"])
        return "ffrecord" if records else format_of(self.target) or "shards"

    @property
    def archive(self) -> str | None:
        """The format of the target archive; None if the target is no archive."""
        return self.made if self.made in ARCHIVES else None

    @property
    def archive_names(self) -> ArchiveNames:
        """The names of the archive and its volumes."""
        assert self.archive is not None
        return ArchiveNames.of(self.target, self.archive, numbered=self.volume_size is not None)

    @property
    def fixed_time(self) -> int | None:
        """The time for all members in seconds since the epoch; without a zone it is UTC."""
        if self.mtime is None:
            return None
        text = self.mtime.strip().removeprefix("@")
        if re.fullmatch(r"-?\d{1,11}", text):
            return int(text)
        try:
            return int(seconds_of(text))
        except ValueError:
            raise BadOption(
                f"--mtime: {self.mtime!r} is not a time",
                expected="a time such as 2024-01-31 or 2024-01-31T12:00Z, or seconds since 1970",
            ) from None

    @property
    def names(self) -> ShardNames:
        """The names of the shards or FFRecord files; for single files only the folder is used."""
        made = "shards" if self.made == "files" else self.made
        return ShardNames.of(self.target, made, single=_SINGLE)

    @property
    def most_bytes(self) -> int:
        """Maximum bytes of a shard."""
        return self.shard_size or DEFAULT_SIZE

    def end_of_shard(self, number: int, position: int, total: int) -> int:
        """Return the position behind the last sample that a shard may have, by its number and first position."""
        if self.shard_count is not None:
            return (number + 1) * total // self.shard_count
        return min(total, position + (self.shard_samples or total))

    def samples(self) -> SampleSource:
        """Return the samples to pack, without shards that an earlier run wrote into the source."""
        filters = self.options_in(Filtering)
        source = self.source if isinstance(self.source, str) else self.source[0]
        folder = "" if self.target == STDOUT else self.names.folder
        base = source if source.endswith("/") else source + "/"
        if folder.startswith(base):
            own = (posixpath.join("/" + folder[len(base) :], name) for name in self.names.globs)
            filters["exclude"] += tuple(own)
        # If only the names matter, files that belong to no sample are included.
        by = "file" if self.made == "files" and not self.takes_samples else self.by
        return SampleSource(
            source=self.source,
            by=by,
            **self.options_in(SlicingShards, Verifying, HoldingSamples, Leading, Fetching, Connecting),
            **filters,
        )

    def places(self) -> tuple[str, str]:
        return self.source if isinstance(self.source, str) else self.source[0], self.target

    def local_target(self) -> str | None:
        if is_url(self.target) or self.target == STDOUT:
            return None
        return self.names.folder if self.archive is None else self.archive_names.folder

    def plan(self) -> Plan:
        return slots.mapped_pack(self).plan() if self.in_process else super().plan()

    def start(self) -> Job:
        if self.in_process:
            raise BadOption(
                f"{self._because} cannot run in the background, because this process runs it",
                remedy="Leave --background out",
            )
        return super().start()

    def run(self, *, quiet: bool = False) -> Any:
        """Run as in `Operation`; `in_process` says who does the work."""
        return slots.mapped_pack(self).run(quiet=quiet) if self.in_process else super().run(quiet=quiet)


pack = function_of(Pack)
