"""The index of loose objects that is kept beside them, for who has none."""

from __future__ import annotations

import os

from nbdata.errors import NotFound
from nbdata.formats.sample_index import SampleIndex
from nbdata.reading.loose import INDEX_NAME, index_name, known_index
from nbdata.redaction import redacted
from nbdata.transfer.sources import folder_part
from nbdata.verbs.pull import Pull
from nbdata.verbs.push import Push
from nbdata.verbs.samples import SampleSource

__all__ = ["fetch", "save"]


def _beside(operation: SampleSource) -> str:
    """Where the index of such a selection is kept beside the data."""
    return f"{folder_part(operation.place).rstrip('/')}/{INDEX_NAME}.{index_name(operation, '')[:16]}.idx"


def save(operation: SampleSource, index: SampleIndex) -> str:
    """Put an index beside the data; its URL."""
    url = _beside(operation)
    Push(source=index.path, target=url, storage_options=operation.storage_options, fs=operation.fs).run(
        quiet=True
    )
    return redacted(url)


def fetch(operation: SampleSource, path: str) -> SampleIndex | None:
    """The index that somebody has put beside the data, fetched to `path`; None if there is none."""
    url = _beside(operation)
    try:
        Pull(source=url, target=path, storage_options=operation.storage_options, fs=operation.fs).run(
            quiet=True
        )
    except NotFound:
        return None
    found = known_index(path)
    if found is None or found.leads_out():
        os.unlink(path)
        return None
    return found
