"""Makes the samples of FFRecord files: by number, or by name for packed folders."""

from __future__ import annotations

from nbdata.client.opened import Opened
from nbdata.client.reading.records.opened import Headers, headers_of, listed
from nbdata.client.reading.records.packed import PackedSamples
from nbdata.client.reading.records.samples import RecordSamples
from nbdata.client.reading.samples import Samples
from nbdata.errors import BadOption
from nbdata.reading.records.files import names_wanted
from nbdata.reading.records.local import LocalRecords
from nbdata.reading.records.packed import index_of_packed
from nbdata.reading.source_file import SourceFile
from nbdata.stores.base import Store
from nbdata.verbs.samples import SampleSource

__all__ = ["record_samples"]


def record_samples(operation: SampleSource) -> Samples:
    """Make the samples of FFRecord files.

    Raises
    ------
    BadOption
        If the selection uses names, and the files are not packed folders and so have none.
    """
    files = listed(operation)
    headers = headers_of(operation, files)
    if (packed := _packed(operation, files, headers)) is not None:
        return packed
    if operation.filtered or callable(operation.by):
        raise names_wanted()
    return RecordSamples(operation, files, headers)


def _packed(
    operation: SampleSource, files: list[SourceFile], headers: LocalRecords | Headers
) -> Samples | None:
    opened = Opened(operation)
    stores: dict[str, Store] = {}

    def store_of(file: SourceFile) -> Store:
        if file.place not in stores:
            stores[file.place] = opened.open(file.place).store
        return stores[file.place]

    try:
        index = index_of_packed(opened.control, operation, files, headers.heads, store_of, opened.context)
    finally:
        opened.control.stop()
    if index is None:
        return None
    if operation.deserialize is not None:
        raise BadOption(
            "deserialize is for samples without names: this is a packed folder",
            path=files[0].url,
            remedy="Give the loader a transform",
        )
    return PackedSamples(operation, files, headers, index)
