"""Digests of parts that are hashed in parallel equal the digests in order, whatever the order of arrival."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbdata.errors import SourceChanged
from nbdata.integrity.etags import MultipartDigest
from nbdata.integrity.part_digests import PartDigests


def in_order(data: bytes, part_size: int, algorithm: str = "md5") -> str:
    digest = MultipartDigest(part_size, algorithm)
    digest.update(data)
    return digest.hexdigest()


@settings(max_examples=150, deadline=None)
@given(
    data=st.binary(max_size=300),
    part_size=st.integers(1, 90),
    pieces=st.lists(st.tuples(st.integers(0, 300), st.integers(1, 120)), max_size=12),
    algorithm=st.sampled_from(["md5", "sha256", "crc32c"]),
)
def test_pieces_in_any_order_twice_or_not_at_all_give_the_same(
    data: bytes,
    part_size: int,
    pieces: list[tuple[int, int]],
    algorithm: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.getbasetemp() / "pieces"
    path.write_bytes(data)
    digests = PartDigests(len(data), part_size, algorithm)
    for start, size in pieces:
        digests.offer(min(start, len(data)), memoryview(data)[start : start + size])
    with path.open("rb") as file:
        digests.catch_up(file.fileno())
    assert digests.hexdigest() == in_order(data, part_size, algorithm)


def test_what_was_offered_in_the_order_of_each_part_is_not_read_again(tmp_path: Path) -> None:
    data, part = os.urandom(1_000_000), 150_000
    digests = PartDigests(len(data), part)

    def receive(first: int) -> None:
        for at in range(first, min(first + 2 * part, len(data)), 7_000):
            end = min(at + 7_000, first + 2 * part, len(data))
            assert digests.offer(at, memoryview(data)[at:end])

    threads = [threading.Thread(target=receive, args=(n * 2 * part,)) for n in reversed(range(4))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (tmp_path / "empty").write_bytes(b"")
    with (tmp_path / "empty").open("rb") as file:
        digests.catch_up(file.fileno())
    assert digests.hexdigest() == in_order(data, part)


def test_a_file_that_is_too_short_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"abc")
    with (
        (tmp_path / "short").open("rb") as file,
        pytest.raises(SourceChanged, match="expected 5 bytes, got 3 bytes"),
    ):
        PartDigests(5, 2).catch_up(file.fileno())
