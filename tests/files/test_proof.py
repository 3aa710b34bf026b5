"""What is given out of a file is compared with its checksum, in whatever order and to whomever it is given."""

from __future__ import annotations

import os
import random

import pytest

from nbdata.errors import ChecksumMismatch
from nbdata.files.connections import Place
from nbdata.files.opening import filesystem
from nbdata.files.proof import Early, Proof
from tests.files.test_reading import Put

DATA = os.urandom(1_000_003)
STEP = 10_000
STARTS = range(0, len(DATA), STEP)


@pytest.fixture
def place(put: Put) -> Place:
    url = put({"file": DATA}) + "file"
    return filesystem(url).place(url)


def proof_of(place: Place, early: Early | None = None) -> Proof:
    return Proof(place, place.store.head(place.key), "auto", early)


def part(start: int) -> memoryview:
    return memoryview(DATA)[start : start + STEP]


def test_bytes_in_any_order_are_compared_as_they_were_given(place: Place) -> None:
    early = Early(len(DATA))
    proof = proof_of(place, early)
    order = list(STARTS)
    random.Random(1).shuffle(order)
    for start in order:
        assert proof.proven is None
        proof.given(start, memoryview(bytearray(part(start))))
    assert proof.proven is True
    assert early.take(len(DATA)), "nothing is held any more"


def test_one_wrong_byte_that_was_given_early_is_an_error_for_everybody(place: Place) -> None:
    proof = proof_of(place, Early())
    wrong = bytearray(part(STEP))
    wrong[17] ^= 1
    proof.given(STEP, memoryview(wrong))
    proof.given(STEP, part(STEP))  # as another reader gets it; the first one has got the wrong ones
    for start in STARTS[:-1]:
        proof.given(start, part(start))
    for start in (STARTS[-1], 0, 0):
        with pytest.raises(ChecksumMismatch):
            proof.given(start, part(start))


def test_what_is_held_is_bounded_and_given_back(place: Place) -> None:
    early = Early(2 * STEP)
    proof, other = proof_of(place, early), proof_of(place, early)
    for start in (2 * STEP, 3 * STEP):
        proof.given(start, part(start))
        proof.given(start, part(start)[:-1])  # part of what is held
    assert proof.followed
    other.given(2 * STEP, part(2 * STEP))
    assert not other.followed, "there is no room for it"
    proof.close()
    assert early.take(2 * STEP)


def test_a_proof_that_holds_nothing_follows_reads_in_order_only(place: Place) -> None:
    proof = proof_of(place)
    proof.given(STEP, part(STEP))
    assert not proof.followed
    for start in STARTS:
        proof.given(start, part(start))
    assert proof.proven is True


def test_what_is_given_out_again_is_noted(place: Place) -> None:
    proof = proof_of(place, Early())
    for start in (2 * STEP, 0, STEP):
        proof.given(start, part(start))
    assert not proof.repeated
    proof.given(0, part(0)[:10])
    assert proof.repeated
