"""The window of a shuffled stream is bounded by the memory that its samples take."""

from __future__ import annotations

import random
from collections.abc import Iterator

from nbdata.client.reading.shards import stream
from nbdata.formats.shards import Sample


def test_names_and_fields_count_for_the_window() -> None:
    """Samples of empty fields with long names are given before a thousand of them are held."""
    taken = 0

    def counted() -> Iterator[Sample]:
        nonlocal taken
        for number in range(100):
            taken += 1
            yield str(number), {f"{field}" + "n" * 4000: b"" for field in range(100)}, []

    next(stream._shuffled(counted(), random.Random(1), 1000, 10_000_000))
    assert taken < 10
