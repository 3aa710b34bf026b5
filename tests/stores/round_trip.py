"""Pushes a folder to a store, pulls it back, and checks both."""

from __future__ import annotations

import os
from pathlib import Path

import nbdata
from nbdata.report import Report


def there_and_back(tree: Path, there: str, back: Path) -> tuple[Report, Report]:
    """Push the files of the fixture `tree` and a large one, and pull them; do both twice.

    The second run transfers nothing.

    Return the Reports of the first push and the first pull.
    """
    with open(tree / "big", "wb") as file:
        file.write(os.urandom(1 << 20) * 34)
    pushed = nbdata.push(tree, there, quiet=True)
    assert pushed.counts == {"sent": 6}
    assert nbdata.push(tree, there, quiet=True).counts == {"unchanged": 6}
    pulled = nbdata.pull(there, back, quiet=True)
    assert pulled.counts == {"fetched": 6}
    assert files(back) == files(tree)
    assert nbdata.pull(there, back, quiet=True).counts == {"unchanged": 6}
    return pushed, pulled


def files(folder: Path) -> dict[str, bytes]:
    """Read all files of a folder, by relative path."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
