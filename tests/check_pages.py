"""Checks the length of README and the links in README and docs/: ``make check-pages``.

README has at most 130 lines of at most 160 characters. A link to a file must lead to an existing file of the checkout,
and a link with ``#name`` to a heading of that page. Links to the web are not followed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

LINES, WIDTH = 130, 160
_LINK = re.compile(r"\]\(([^()\s]+(?:\([^()\s]*\))?)(?:\s+\"[^\"]*\")?\)|^\[[^\]]+\]:\s+(\S+)", re.MULTILINE)
_CODE = re.compile(r"^(```|~~~).*?^\1\s*$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)


def anchor(heading: str) -> str:
    """Return GitHub's anchor for a heading."""
    text = re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def too_long(readme: Path) -> Iterator[str]:
    """Yield README's lines that are too long, and a message if it has too many lines."""
    lines = readme.read_text(encoding="utf-8").splitlines()
    if len(lines) > LINES:
        yield f"{readme.name}: {len(lines)} lines; at most {LINES}: what is for later belongs into docs/"
    for number, line in enumerate(lines, 1):
        if len(line) > WIDTH:
            yield f"{readme.name}:{number}: {len(line)} characters; at most {WIDTH}"


def dead_links(page: Path, root: Path) -> Iterator[str]:
    """Yield links of a page to missing files or headings."""
    text = page.read_text(encoding="utf-8")
    # Code is blanked rather than removed, so that line numbers stay the same.
    text = _CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)
    for found in _LINK.finditer(text):
        link = found[1] or found[2]
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            continue
        path, _, name = link.partition("#")
        where = f"{page.relative_to(root)}:{text.count(chr(10), 0, found.start()) + 1}"
        target = (page.parent / unquote(path)).resolve() if path else page
        if not target.exists():
            yield f"{where}: {link} leads to no file"
        elif not target.is_relative_to(root):
            yield f"{where}: {link} leads out of the checkout"
        elif name and target.suffix == ".md":
            headings = map(anchor, _HEADING.findall(target.read_text(encoding="utf-8")))
            if unquote(name) not in set(headings):
                yield f"{where}: {link}: the page has no such heading"


def problems(root: Path) -> list[str]:
    """Return all problems of the pages below a folder."""
    readme = root / "README.md"
    pages = [readme, *sorted((root / "docs").glob("*.md"))]
    return [*too_long(readme), *(told for page in pages for told in dead_links(page, root))]


if __name__ == "__main__":
    found = problems(Path(__file__).resolve().parents[1])
    print("\n".join(found) or "README and the links of the pages are in order")
    sys.exit(bool(found))
