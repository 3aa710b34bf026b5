"""Counts as people read them."""

from __future__ import annotations

import pytest

from nbdata.sizes import counted


@pytest.mark.parametrize(
    ("said", "of"),
    [
        ("1 sample", (1, "samples")),
        ("0 samples", (0, "samples")),
        ("2,000 files are", (2000, "files", "are")),
        ("1 file is", (1, "files", "are")),
        ("1 sample has", (1, "samples", "have")),
        ("1 field comes", (1, "fields", "come")),
        ("2 fields come", (2, "fields", "come")),
        ("1 process", (1, "processes")),
        ("1 fetched", (1, "fetched")),
    ],
)
def test_a_count_has_its_noun_and_its_verb_in_its_number(said: str, of: tuple[int, str]) -> None:
    assert counted(*of) == said
