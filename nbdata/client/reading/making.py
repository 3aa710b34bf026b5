"""Makes the samples of a source: loose objects, shards, or FFRecord files."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from nbdata.archives.volumes import guess_format, set_titles
from nbdata.client.opened import Opened
from nbdata.client.reading.cached import refuse_too_little
from nbdata.client.reading.records.making import record_samples
from nbdata.client.reading.samples import Concatenated, Samples
from nbdata.client.reading.saved_index import fetch
from nbdata.client.reading.shards.samples import ShardSamples
from nbdata.client.reading.stored import StoredSamples
from nbdata.errors import BadOption
from nbdata.operation import Operation, slots
from nbdata.reading.loose import index_of
from nbdata.reading.records.files import are_records
from nbdata.reading.shards.listing import are_shards, shards_of
from nbdata.redaction import redacted
from nbdata.sizes import counted
from nbdata.verbs.samples import SampleSource

__all__ = ["make_samples"]


def make_samples(operation: Operation, quiet: bool) -> Samples:
    """Make the samples, and show the progress of the listing; the factory in `slots.samples`."""
    assert isinstance(operation, SampleSource)
    refuse_too_little(operation)
    if are_records(operation.sources):
        return record_samples(operation)
    if operation.deserialize is not None:
        raise BadOption("deserialize is for FFRecord files", remedy="Give the loader a transform")
    if are_shards(operation.sources):
        operation.refuse_filters("for files", "Name the shards that are meant")
        return ShardSamples(operation, shards_of(Opened(operation)), quiet=quiet)
    if operation.shard_slice is not None:
        raise BadOption("shard_slice is for shards, and this is a folder of files", remedy="Leave it out")
    members = [_loose(replace(operation, source=place), quiet) for place in operation.sources]
    return members[0] if len(members) == 1 else Concatenated(members)


def _loose(operation: SampleSource, quiet: bool) -> Samples:
    display = slots.display()

    def told(samples: int, objects: int) -> None:
        if not quiet:
            display.tell(
                f"{operation.verb}: {counted(samples, 'samples')} of {counted(objects, 'files')} so far"
            )

    try:
        found = index_of(Opened(operation), told, partial(fetch, operation))
    finally:
        display.tell("")
    counts = {name: count for name, (count, _) in found.index.counts.items()}
    volumes = _volumes(counts)
    if operation.by == "sample" and volumes and volumes * 2 >= sum(counts.values()):
        raise BadOption(
            f"{volumes:,} of {counted(sum(counts.values()), 'files')} here are volumes of archives, not samples",
            path=redacted(operation.place),
            remedy="Unpack them with untar_volumes, into files or straight into shards, as in "
            "`untar_volumes SOURCE s3://bucket/train-%06d.tar`; by='file' takes each as it is",
        )
    shards = counts.get("tar", 0)
    if operation.by == "sample" and shards and shards * 2 >= len(found.index):
        raise BadOption(
            f"{shards:,} of {counted(len(found.index), 'samples')} here are tar files",
            path=redacted(operation.place),
            remedy="If they are shards, name them, as in s3://bucket/train-*.tar, or their JSON index; "
            "by='file' takes each as it is",
        )
    records = counts.get("ffr", 0)
    if operation.by == "sample" and records and records * 2 >= len(found.index):
        raise BadOption(
            f"FFRecord files make up {records:,} of {counted(len(found.index), 'samples')} here",
            path=redacted(operation.place),
            remedy="For the samples in them name the files, as in s3://bucket/train/*.ffr; "
            "by='file' takes each as it is",
        )
    return StoredSamples(operation, found)


def _volumes(counts: dict[str, int]) -> int:
    """Count the files whose extensions are those of volumes of an archive, such as ``tar.gz.aa`` or ``part01.tar``."""
    names = {f"x.{field}": count for field, count in counts.items()}
    titles = [title for title in set_titles(names) if title not in names and guess_format(title)]
    starts = (*titles, "x.part") if titles else ()
    return sum(count for name, count in names.items() if name.startswith(starts))
