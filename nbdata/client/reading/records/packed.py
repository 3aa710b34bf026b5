"""The samples in packed folders; `nbdata.samples` makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nbdata.client.reading.passing import Pass
from nbdata.client.reading.samples import Samples
from nbdata.client.reading.shards.samples import ShardSamples
from nbdata.errors import BadOption, NbdataError
from nbdata.formats.sample_index import SampleIndex
from nbdata.reading.records.files import RecordFile
from nbdata.reading.shards.listing import Shard
from nbdata.redaction import redacted
from nbdata.sizes import counted, format_size
from nbdata.verbs.samples import SampleSource

__all__ = ["PackedSamples"]


class PackedSamples(ShardSamples):
    """The files of packed folders as samples; each is read as a shard whose index gives the place of each file.

    Parameters
    ----------
    operation : SampleSource
    files : sequence of RecordFile
    index : SampleIndex
    """

    def __init__(self, operation: SampleSource, files: Sequence[RecordFile], index: SampleIndex) -> None:
        super().__init__(operation, [Shard(*file) for file in files])
        self._index = index

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        # In another process the index alone defines the samples.
        return {**state, "operation": replace(self.operation, by="sample")}

    def stream(self, **options: Any) -> Pass:
        """Yield all samples one after the other, fetched ahead; see `Samples.stream`."""
        return Samples.stream(self, **options)

    def _built(self) -> SampleIndex:
        raise NbdataError(
            "the index of these samples is gone",
            path=self._shards[0].url,
            remedy="Make them anew with nbdata.samples",
        )

    def save_index(self) -> str:
        """Raise BadOption: a packed folder is its own index."""
        raise BadOption("a packed folder needs no index: it has the names of its files")

    def __repr__(self) -> str:
        size = format_size(self.index.bytes)
        return (
            f"<{counted(len(self), 'samples')} in the packed folder {redacted(self.operation.place)}: {size}>"
        )
