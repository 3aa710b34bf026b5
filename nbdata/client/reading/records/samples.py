"""The samples in FFRecord files without names; `nbdata.samples` makes them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from nbdata.client.reading.records.of_records import OfRecords
from nbdata.client.reading.records.opened import Headers
from nbdata.errors import BadOption
from nbdata.reading.pieces import Content
from nbdata.reading.records.files import key_of_record, stem_of
from nbdata.reading.records.local import LocalRecords
from nbdata.redaction import printable, redacted
from nbdata.sizes import counted, format_size

__all__ = ["RecordSamples"]

# The only field of a sample.
_FIELD = "bin"


class RecordSamples(OfRecords):
    """The samples of some FFRecord files: a record each.

    The key is the file's name and the sample's number in it, as ``PART_00003/00000017``; the only field is ``bin``.
    """

    def __len__(self) -> int:
        return self._heads.count

    @property
    def fingerprint(self) -> str:
        return self._headers_fingerprint

    def key(self, number: int) -> str:
        file, own = self._heads.find(self._checked(number))
        return key_of_record(stem_of(self._files[file]), own)

    def _use(self, headers: LocalRecords | Headers) -> None:
        super()._use(headers)
        self._names = [(stem_of(file), file.url) for file in self._files]

    def _records(self, ranges: Iterable[tuple[int, int]]) -> list[int]:
        return list(itertools.chain.from_iterable(itertools.starmap(range, ranges)))

    def _made_of(
        self, ranges: Iterable[tuple[int, int]], contents: Sequence[Content]
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        find, names = self._heads.find, self._names
        for first, end in ranges:
            file, own = find(first)
            if end - first == 1:
                stem, url = names[file]
                found.append(
                    {"__key__": key_of_record(stem, own), "__url__": url, _FIELD: contents[len(found)]}
                )
                continue
            at = first
            while at < end:
                file, own = find(at)
                stem, url = names[file]
                count = min(end - at, self._heads[file].count - own)
                here = contents[len(found) : len(found) + count] if count < len(contents) else contents
                found += [
                    {"__key__": key_of_record(stem, number), "__url__": url, _FIELD: data}
                    for number, data in enumerate(here, own)
                ]
                at += count
        return found

    def _deserialize(self, samples: list[dict[str, Any]]) -> None:
        deserialize = self.operation.deserialize
        for sample in samples if deserialize is not None else ():
            made = deserialize(sample[_FIELD])
            if isinstance(made, dict):
                del sample[_FIELD]
                sample.update(made)
            else:
                sample[_FIELD] = made

    def _bytes(self, first: int, end: int) -> int:
        return self._heads.bytes_of(first, end)

    @property
    def left_out(self) -> tuple[int, list[str]]:
        """Empty: all samples belong to the files."""
        return 0, []

    @property
    def fields(self) -> dict[str, tuple[int, int]]:
        """Per field, the number of samples that have it, and its bytes."""
        return {_FIELD: (len(self), self._heads.bytes)}

    def save_index(self) -> str:
        """Raise BadOption: FFRecord files are their own index."""
        raise BadOption("FFRecord files need no index: their headers say where each sample lies")

    def __repr__(self) -> str:
        places = self.operation.sources
        told = printable(redacted(places[0])) + (f" and {len(places) - 1:,} more" if len(places) > 1 else "")
        files = counted(len(self._files), "FFRecord files")
        return f"<{counted(len(self), 'samples')} in {files} of {told}: {format_size(self._heads.bytes)}>"
