"""Makes the samples of FFRecord files, by number or, of a packed folder, by name."""

from __future__ import annotations

import os

from nbdata.client.opened import Opened
from nbdata.client.reading.records.opened import headers_of, listed
from nbdata.client.reading.records.packed import PackedSamples
from nbdata.client.reading.records.samples import RecordSamples
from nbdata.client.reading.samples import Samples
from nbdata.errors import BadOption
from nbdata.formats.ffrecord import Head
from nbdata.reading.loose import index_name
from nbdata.reading.records.files import RecordFile
from nbdata.reading.records.packed import index_of_names, names_in
from nbdata.verbs.samples import SampleSource

__all__ = ["record_samples"]


def record_samples(operation: SampleSource) -> Samples:
    """The samples of FFRecord files.

    Raises
    ------
    BadOption
        If names are to be chosen by, which files have that are no packed folder.
    """
    files = listed(operation)
    headers = headers_of(operation, files)
    if len(files) == 1 and (found := _packed(operation, files[0], headers.heads[0])) is not None:
        return found
    if operation.include or operation.exclude or callable(operation.by):
        raise BadOption(
            "samples in FFRecord files have no names that include, exclude or by could choose",
            remedy="Choose by number: samples[10:20], or samples.select(…)",
        )
    return RecordSamples(operation, files, headers)


def _packed(operation: SampleSource, file: RecordFile, head: Head) -> Samples | None:
    opened = Opened(operation)
    try:
        store = opened.open(file.place).store
        names = names_in(opened.control, store, file, head, compare=operation.verify != "none")
    finally:
        opened.control.stop()
    if names is None:
        return None
    if operation.deserialize is not None:
        raise BadOption(
            "deserialize is for samples without names: this is a packed folder", path=file.url,
            remedy="Give the loader a transform",
        )  # fmt: skip
    path = os.path.join(opened.context.state_dir, "samples", index_name(operation) + ".packed.idx")
    return PackedSamples(operation, file, index_of_names(path, operation, file, head, names))
