"""What `nbdata.samples` is told: where the samples are, and what one is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from nbdata.errors import BadOption
from nbdata.operation import function_of, slots
from nbdata.option import argument, option
from nbdata.paths import canonical, is_url
from nbdata.protocols import Job
from nbdata.report import Plan
from nbdata.verbs.options import Connecting, Verifying

__all__ = ["SampleSource", "samples"]


@dataclass(frozen=True)
class SampleSource(Verifying, Connecting):
    """A sample is what shares a folder and a name up to its first dot (12.jpg and 12.cls): in Python a dict of
    extension to bytes, with ``__key__`` and ``__url__``. What this returns is a sequence of them: ``samples[12]``,
    ``samples.fetch([3, 14])``, ``samples.stream(shuffle=True)``, ``samples.windows(8)``, ``samples.select(…)``. Shown,
    it says what there is. The source is listed, and an index of it is kept; nothing else is written. Names that end in
    .tar, .tar.gz, .tar.zst and so on are tar shards as WebDataset has them: samples of neighbouring members, streamed
    without an index. Names that end in .ffr are FFRecord files, or folders of them: samples by number with one field,
    bin; those of a packed folder are its files.
    """

    verb: ClassVar[str] = "samples"
    summary: ClassVar[str] = "Read samples of a store straight into memory, in any order."
    examples: ClassVar[tuple[str, ...]] = (
        "samples s3://bucket/images/",
        "samples s3://bucket/images/ --by file --include '*.jpg'",
        "samples 's3://bucket/train-{000000..000099}.tar'",
        "samples s3://bucket/train.ffr/",
    )
    query: ClassVar[bool] = True

    source: str | tuple[str, ...] = argument(
        "URL or path of a folder, of tar shards or FFRecord files; globs and brace ranges work. In Python also a list "
        "of them.",
        kind="places",
        metavar="SOURCE",
    )
    by: Any = option(
        "sample",
        "What a sample is. sample: the files of one folder that share the name up to its first dot; file: each file; "
        "in Python also a function that is given a path, relative to SOURCE, and returns (key, field), or None to "
        "leave it out.",
        kind="function",
        choices=("sample", "file"),
        binding=True,
        metavar="sample|file",
    )
    include: tuple[str, ...] = option(
        (), "Take only what matches GLOB; may be given again.", kind="texts", metavar="GLOB"
    )
    exclude: tuple[str, ...] = option(
        (),
        "Leave out what matches GLOB; wins over --include; may be given again.",
        kind="texts",
        metavar="GLOB",
    )
    refresh: str = option(
        "auto",
        "When the index is built anew. auto: when the listing, read once more, has other keys or ETags; never: what is "
        "there is used, else what is kept beside the data; always.",
        choices=("auto", "never", "always"),
        identity=False,
    )
    window: int = option(
        1000,
        "Of shards and FFRecord files: how many samples a stream shuffles together, in each process.",
        kind="count",
        metavar="N",
    )
    ahead_bytes: int | None = option(
        None,
        "Bytes of samples that each process may fetch ahead and keep until they are asked for. Default: 256 MiB, "
        "divided among the workers of a loader.",
        kind="size",
        metavar="SIZE",
        identity=False,
    )

    cache: int | None = option(
        None,
        "Keep objects on the disk, SIZE at most, for the next epoch and for all processes that read the same samples. "
        "Default: read straight to memory.",
        kind="size",
        metavar="SIZE",
        identity=False,
    )
    cache_dir: str | None = option(
        None,
        "Folder for --cache (default: the current one); what is kept lies in its .nbdata, and is found again until "
        "cleanup --all removes it.",
        kind="path",
        metavar="DIR",
        identity=False,
    )
    deserialize: Any = option(
        None,
        "Of FFRecord files: a function that is given the bytes of a sample and returns a dict of its fields, or the "
        "value of the field bin.",
        kind="object",
        metavar="FUNCTION",
        binding=True,
        identity=False,
    )

    def check(self) -> None:
        super().check()
        if self.cache is None and self.cache_dir is not None:
            raise BadOption(
                "--cache-dir is for --cache, and nothing is kept without it",
                remedy="Add --cache SIZE, such as 10GB",
            )
        if self.cache is not None and not all(map(is_url, self.sources)):
            raise BadOption(
                "--cache is for what lies in a store", remedy="Leave it out: this lies on a disk already"
            )
        if self.cache is not None and self.cache < 1:
            raise BadOption("--cache: 0 bytes hold nothing", expected='a size, such as "10GB"')
        if self.cache is not None and self.cache_dir is None:
            object.__setattr__(self, "cache_dir", canonical("."))
        if self.cache_dir is not None and is_url(self.cache_dir):
            raise BadOption(f"--cache-dir {self.cache_dir} is a URL", expected="a local folder")

    @property
    def sources(self) -> tuple[str, ...]:
        """All of SOURCE."""
        return (self.source,) if isinstance(self.source, str) else self.source

    @property
    def place(self) -> str:
        """The first of them; of loose objects each has an operation of its own."""
        return self.sources[0]

    def places(self) -> tuple[str, str]:
        return self.place, ""

    def plan(self) -> Plan:
        raise BadOption("samples has no plan: it lists its source, and keeps an index of it")

    def start(self) -> Job:
        raise BadOption("samples has no background form: it lists its source, and keeps an index of it")

    def run(self, *, quiet: bool = False) -> Any:
        """List the source, or find its index; returns the samples."""
        return slots.samples(self, quiet)


samples = function_of(SampleSource)
