"""The house stays one that a newcomer can walk: few entries a room, and no file that is too long to read."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "nbdata"


@pytest.mark.parametrize(("room", "most"), [("engine", 18), ("stores", 16)])
def test_a_room_shows_few_entries(room: str, most: int) -> None:
    entries = [path.name for path in (ROOT / room).iterdir() if path.name != "__pycache__"]
    assert len(entries) <= most, sorted(entries)


def test_no_file_is_longer_than_500_lines() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in ROOT.rglob("*.py")}
    assert {name: lines for name, lines in lengths.items() if lines > 500} == {}


def test_every_file_named_in_the_ways_through_the_code_is_there() -> None:
    text = (ROOT.parent / "CONTRIBUTING.md").read_text()
    ways = text[text.index("### Three ways") : text.index("Rules that tests hold")]
    named = {word.strip("().,;") for word in ways.replace("`", " ").split()}
    assert [word for word in sorted(named) if word.endswith(".py") and not (ROOT / word).is_file()] == []
