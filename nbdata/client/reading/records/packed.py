"""The samples in packed folders; `nbdata.samples` makes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from nbdata.client.reading.records.of_records import Chunk, OfRecords
from nbdata.client.reading.records.opened import Headers
from nbdata.errors import BadOption, ChecksumMismatch, NbdataError
from nbdata.formats.sample_index import SampleIndex
from nbdata.reading.pieces import Content
from nbdata.reading.records.local import LocalRecords
from nbdata.reading.source_file import SourceFile
from nbdata.redaction import printable, redacted
from nbdata.sizes import counted, format_size
from nbdata.verbs.samples import SampleSource

__all__ = ["PackedSamples"]


class PackedSamples(OfRecords):
    """The files of packed folders as samples: an index has the records and the names of each.

    Parameters
    ----------
    operation : SampleSource
    files : list of SourceFile
    headers : LocalRecords or Headers
    index : SampleIndex
        The index of these headers.
    """

    def __init__(
        self,
        operation: SampleSource,
        files: list[SourceFile],
        headers: LocalRecords | Headers,
        index: SampleIndex,
    ) -> None:
        super().__init__(operation, files, headers)
        self._index = index

    def __getstate__(self) -> dict[str, Any]:
        # In another process the index alone defines the samples.
        state = super().__getstate__()
        operation = replace(self.operation, by="sample")
        return {**state, "operation": operation, "index": self._index.path, "digest": self._index.digest}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        try:
            self._index = SampleIndex(state["index"])
        except FileNotFoundError:
            self._index = None  # type: ignore[assignment]
        if self._index is None or self._index.digest != state["digest"]:
            raise NbdataError(
                "the index of these samples is gone, or is of others by now",
                path=state["index"],
                remedy="Make them anew with nbdata.samples",
            )

    @property
    def index(self) -> SampleIndex:
        """The index of the samples."""
        return self._index

    def __len__(self) -> int:
        return len(self._index)

    @property
    def fingerprint(self) -> str:
        return self._index.digest

    def key(self, number: int) -> str:
        return self._index.key(self._checked(number))

    def _records(self, ranges: Iterable[tuple[int, int]]) -> list[int]:
        begins, places = self._heads.begins, self._index.places
        return [begins[file] + record for first, end in ranges for file, record, _ in places(first, end)]

    def _made_of(
        self, ranges: Iterable[tuple[int, int]], contents: Sequence[Content]
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        at = 0
        for first, end in ranges:
            behind = at + self._index.count(first, end)
            found += self._stretch(
                first, end, contents if behind - at == len(contents) else contents[at:behind]
            )
            at = behind
        return found

    def _stretch(self, first: int, end: int, contents: Sequence[Content]) -> list[dict[str, Any]]:
        """Make consecutive samples of their records."""
        keys, urls, (begins, names) = (
            self._index.keys(first, end),
            self._urls(first, end),
            self._index.names(first, end),
        )
        if len(names) == len(keys):
            return [
                {"__key__": key, "__url__": url, name: data}
                for key, url, name, data in zip(keys, urls, names, contents, strict=False)
            ]
        found: list[dict[str, Any]] = []
        for key, url, at, behind in zip(keys, urls, begins, begins[1:], strict=False):
            sample: dict[str, Any] = {"__key__": key, "__url__": url}
            sample.update(zip(names[at:behind], contents[at:behind], strict=True))
            found.append(sample)
        return found

    def _urls(self, first: int, end: int) -> Iterable[str]:
        """Return the URLs of consecutive samples, which are ordered by file."""
        one = self._index.places(first, first + 1)[0][0]
        if end - first == 1 or one == self._index.places(end - 1, end)[0][0]:
            return [self._files[one].url] * (end - first)
        begins, _ = self._index.names(first, end)
        places = self._index.places(first, end)
        return [self._files[places[at][0]].url for at in begins[:-1]]

    def _bytes(self, first: int, end: int) -> int:
        return self._index.size_of(first, end)

    def _told(self, error: ChecksumMismatch, chunk: Chunk) -> ChecksumMismatch:
        """Return the error of a record with the names of its field and sample."""
        for first, end in chunk.ranges:
            for number in range(first, end):
                records = self._records([(number, number + 1)])
                if (record := error.details.get("record")) in records:
                    name = self._index.names(number, number + 1)[1][records.index(record)]
                    return ChecksumMismatch(
                        f"the field {name!r} of the sample {self.key(number)!r} has another CRC-32 than the FFRecord "
                        "file says",
                        path=error.path,
                        expected=error.expected,
                        got=error.got,
                        remedy=error.remedy,
                        details=error.details,
                    )
        return error

    @property
    def left_out(self) -> tuple[int, list[str]]:
        """The number of files that belong to no sample, and the first of them."""
        return self._index.about["left_out"], self._index.about["left_out_names"]

    @property
    def fields(self) -> dict[str, tuple[int, int]]:
        """Per field, the number of samples that have it, and its bytes."""
        return {name: (count, size) for name, (count, size) in self._index.counts.items()}

    def save_index(self) -> str:
        """Raise BadOption: a packed folder is its own index."""
        raise BadOption("a packed folder needs no index: it has the names of its files")

    def __repr__(self) -> str:
        size = format_size(self._index.bytes)
        place = printable(redacted(self.operation.place))
        return f"<{counted(len(self), 'samples')} in the packed folder {place}: {size}>"
