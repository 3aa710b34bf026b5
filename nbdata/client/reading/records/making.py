"""Makes the samples of FFRecord files."""

from __future__ import annotations

from nbdata.client.reading.records.opened import headers_of, listed
from nbdata.client.reading.records.samples import RecordSamples
from nbdata.client.reading.samples import Samples
from nbdata.errors import BadOption
from nbdata.verbs.samples import SampleSource

__all__ = ["record_samples"]


def record_samples(operation: SampleSource) -> Samples:
    """The samples of FFRecord files.

    Raises
    ------
    BadOption
        If names are to be chosen by, which these files do not have.
    """
    if operation.include or operation.exclude or callable(operation.by):
        raise BadOption(
            "samples in FFRecord files have no names that include, exclude or by could choose",
            remedy="Choose by number: samples[10:20], or samples.select(…)",
        )
    files = listed(operation)
    return RecordSamples(operation, files, headers_of(operation, files))
