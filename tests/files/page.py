"""The Python of ``docs/files-and-paths.md``, for tests that run it over a real bucket."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/files-and-paths.md"


def blocks(heading: str, bucket: str) -> list[str]:
    """Return the blocks of Python below a heading of the page, with the name of a real bucket."""
    section = re.split(rf"^## {heading}$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1]
    section = re.split(r"^## ", section, flags=re.MULTILINE)[0]
    found = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return [re.sub(r"\bbucket\b", bucket, block) for block in found]
