"""Pages of docs/ that tests generate: the committed page must equal the generated one.

``NBDATA_PAGES=write make test TESTS=…`` rewrites them.
"""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs"


def same_page(name: str, text: str) -> None:
    """Fail unless ``docs/NAME`` holds exactly this text; or write it, if that is requested."""
    page = FOLDER / name
    if os.environ.get("NBDATA_PAGES") == "write":
        page.write_text(text, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == text, (
        f"docs/{name} is not what this test gives; NBDATA_PAGES=write writes it anew"
    )
