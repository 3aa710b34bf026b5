"""The verb samples: reads samples of a store into memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from nbdata.errors import BadOption
from nbdata.operation import function_of, slots
from nbdata.option import argument, option
from nbdata.paths import canonical, is_url
from nbdata.protocols import Job
from nbdata.report import Plan
from nbdata.verbs.choosing import SlicingShards
from nbdata.verbs.options import Connecting, Fetching, Filtering, HoldingSamples, Leading, Verifying

__all__ = ["SampleSource", "samples"]


@dataclass(frozen=True)
class SampleSource(SlicingShards, Verifying, Filtering, HoldingSamples, Leading, Fetching, Connecting):
    """The result is a sequence: ``samples[12]``, ``samples.fetch([3, 14])``,
    ``samples.stream(shuffle=True)``, ``samples.windows(8)``, ``samples.select(…)``. In a notebook or a
    terminal it displays the number of samples, their sizes and fields. SOURCE is listed, and an index
    of it is stored on the disk; nothing else is written.

    Loose objects: the objects of one folder with the same name up to the first dot form a sample, such
    as 12.jpg and 12.cls. In Python, a sample is a dict of extension to bytes, with ``__key__`` and
    ``__url__``.

    Tar shards: names that end in .tar, .tar.gz, .tar.zst and so on. Neighbouring members form a
    sample, as in WebDataset. Shards can be streamed without an index.

    FFRecord files: names that end in .ffr, or folders of such files. Samples are found by number and
    have one field, bin. In a packed folder, the samples are the packed files.
    """

    verb: ClassVar[str] = "samples"
    summary: ClassVar[str] = "Read training samples from a store straight into memory, in any order."
    examples: ClassVar[tuple[str, ...]] = (
        "samples s3://bucket/images/",
        "samples s3://bucket/images/ --by file --include '*.jpg'",
        "samples 's3://bucket/train-{000000..000099}.tar'",
        "samples s3://bucket/train.ffr/",
    )
    query: ClassVar[bool] = True

    source: str | tuple[str, ...] = argument(
        "URL or path of a folder, of tar shards or of FFRecord files; may contain globs and brace ranges. Several "
        "are read in this order.",
        kind="places",
        metavar="SOURCE",
    )
    by: Any = option(
        "sample",
        "What forms a sample. sample: the files of one folder with the same name up to the first dot; file: each "
        "file. In Python also a function that gets a path relative to SOURCE, and returns (key, field), or None to "
        "leave the file out.",
        kind="function",
        choices=("sample", "file"),
        binding=True,
        metavar="sample|file",
    )
    refresh: str = option(
        "auto",
        "When to rebuild the index. auto: list SOURCE, and rebuild if keys or ETags changed; never: use the existing "
        "index, else the one beside the data; always: rebuild.",
        choices=("auto", "never", "always"),
        identity=False,
    )
    window: int = option(
        1000,
        "Only for shards and FFRecord files: number of samples that a stream shuffles together, in each process.",
        kind="count",
        metavar="N",
    )
    ahead_bytes: int | None = option(
        None,
        "Maximum bytes of samples that each process fetches ahead and holds in memory. Default: 256 MiB, divided among "
        "the workers of a loader.",
        kind="size",
        metavar="SIZE",
        identity=False,
    )

    cache: int | None = option(
        None,
        "Cache objects on the disk, at most SIZE, for the next epoch and for all processes that read the same samples. "
        "Default: no cache; read straight into memory.",
        kind="size",
        metavar="SIZE",
        identity=False,
    )
    cache_dir: str | None = option(
        None,
        "Local folder for --cache (default: the current one). The cache lies in its subfolder .nbdata and stays until "
        "cleanup --all removes it.",
        kind="path",
        metavar="DIR",
        identity=False,
    )
    deserialize: Any = option(
        None,
        "Only for FFRecord files: a function that gets the bytes of a sample and returns a dict of its fields, or the "
        "value of the field bin.",
        kind="object",
        metavar="FUNCTION",
        binding=True,
        identity=False,
    )

    def check(self) -> None:
        super().check()
        self.refuse_durations()
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
        """All sources."""
        return (self.source,) if isinstance(self.source, str) else self.source

    @property
    def place(self) -> str:
        """The first one; several sources of loose objects have an operation each."""
        return self.sources[0]

    def places(self) -> tuple[str, str]:
        return self.place, ""

    def plan(self) -> Plan:
        raise BadOption("samples has no plan: it lists its source, and keeps an index of it")

    def start(self) -> Job:
        raise BadOption("samples cannot run in the background: it lists its source, and keeps an index of it")

    def run(self, *, quiet: bool = False) -> Any:
        """List the source, or find its index; return the samples."""
        return slots.samples(self, quiet)


samples = function_of(SampleSource)
