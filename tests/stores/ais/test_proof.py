"""What the parts of an upload prove, whatever order they leave in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nbdata.stores.ais.proof import PartsProof

checksums = pytest.importorskip("awscrt.checksums")

PARTS = [bytes([number]) * 1000 for number in range(1, 5)]


def pieces(data: bytes) -> Iterator[memoryview]:
    view = memoryview(data)
    for start in range(0, len(data), 300):
        yield view[start : start + 300]


def whole(*, wrong: bool = False) -> dict[str, dict[str, str]]:
    """Return the checksums of all parts together, by their kind."""
    data = b"".join(PARTS) + b"x" * wrong
    xxh64 = checksums.XXHash.new_xxhash64()
    xxh64.update(data)
    return {
        "xxh64": {"xxh64": xxh64.finalize().hex()},
        "crc32c": {"crc32c": f"{checksums.crc32c(data):08x}"},
    }


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("kind", ["xxh64", "crc32c"])
def test_parts_in_order_agree_with_either_checksum(kind: str, wrong: bool) -> None:
    proof = PartsProof()
    for number, data in enumerate(PARTS, 1):
        list(proof.watched(number, pieces(data)))
    assert proof.agrees(whole(wrong=wrong)[kind]) is not wrong


def test_parts_beside_each_other_prove_nothing_by_a_hash_that_needs_their_order() -> None:
    """Right bytes must not be called wrong: the hash saw the pieces of both in turn."""
    proof = PartsProof()
    first, second = proof.watched(1, pieces(PARTS[0])), proof.watched(2, pieces(PARTS[1]))
    next(first)
    list(second)
    list(first)
    for number in (3, 4):
        list(proof.watched(number, pieces(PARTS[number - 1])))
    assert proof.agrees(whole()["xxh64"]) is None
    assert proof.agrees(whole()["crc32c"]) is True
    assert proof.agrees(whole(wrong=True)["crc32c"]) is False


def test_a_part_that_broke_off_and_was_sent_again_counts_once() -> None:
    proof = PartsProof()
    broken = proof.watched(1, pieces(PARTS[0]))
    next(broken)
    broken.close()  # type: ignore[attr-defined]  # it is a generator
    for number, data in enumerate(PARTS, 1):
        list(proof.watched(number, pieces(data)))
    assert proof.agrees(whole()["xxh64"]) is None
    assert proof.agrees(whole()["crc32c"]) is True
